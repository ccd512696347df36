"""The page of a server, in a real browser."""

import base64
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import bne
from bne.data.entries import SUFFIXES
from tests.cli.command import bne as command
from tests.report.pages import HOSTILE
from tests.server.servers import listening

Runs = dict[str, Path]
SHOWN = (".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".webp")
"""What every browser takes for an image."""
TRANSFER = """(text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "a.png", { type: "image/png" }));
  return data;
}"""


@pytest.fixture(scope="module")
def file(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a map, and names that would break an unwary page."""
    folder = tmp_path_factory.mktemp("page")
    command("bundle", runs["bne"], folder / "map.bne", "--data", runs["data"], "--map", 5,
            "--cache", folder / "cache", "--device", "cpu")  # fmt: skip
    model = bne.load(folder / "map.bne", "cpu")
    model.info = replace(model.info, classes=(HOSTILE, "dog"))
    model.save(folder / "map.bne")
    return folder / "map.bne"


class Opened:
    """A page that asks nobody but its server, and says nothing."""

    def __init__(self, browser, address: str, width: int, scheme: str = "light") -> None:
        size = {"width": width, "height": 900}
        self.page = browser.new_page(viewport=size, color_scheme=scheme)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.address = address

    def answered(self) -> str:
        self.page.wait_for_selector("#answer:not([hidden])")
        return self.page.text_content("#verdict")

    def close(self) -> None:
        assert all(url.startswith(self.address) for url in self.asked)
        assert (
            self.page.evaluate("document.documentElement.scrollWidth")
            <= (self.page.viewport_size["width"])
        )
        assert self.page.title() == "Try the model"  # which a hostile name would change
        self.page.close()


def test_an_image_is_chosen_dropped_and_pasted(browser, file: Path, runs: Runs) -> None:
    pictures = sorted(runs["data"].glob("photo/*/*.png"))
    expected = bne.load(file, "cpu").predict(pictures[0])
    with listening(file) as address:
        opened = Opened(browser, address, 1280)
        page = opened.page
        page.wait_for_selector("#hint:not([hidden])")
        offered = page.get_attribute("#file", "accept").split(",")
        unknown = {suffix for suffix in SUFFIXES if suffix not in SHOWN}
        assert unknown < set(offered)
        page.set_input_files("#file", pictures[0])
        assert opened.answered().startswith(expected.classes[0])
        weights = page.locator("#domains li").all_inner_texts()
        assert [text.split("\n")[0] for text in weights] == [*expected.model.branches]
        share = 100 * expected.weights[0, 0]
        assert f"{share:.1f} %" in weights[0]
        assert page.locator("#classes li").count() == 2
        assert f"{expected.unusual[0]:.0f} of 100" in page.text_content("#unusual") or (
            expected.unusual[0] > 99.9
        )
        points = page.locator("#map circle").count()
        assert points == len(expected.model.map["images"]) + 2 + 1
        assert page.locator("#preview").is_visible()
        assert page.evaluate("document.getElementById('preview').width") == 128
        encoded = base64.b64encode(pictures[-1].read_bytes()).decode()
        other = bne.load(file, "cpu").predict(pictures[-1])
        for event in ("drop", "paste"):
            page.evaluate("document.getElementById('verdict').textContent = ''")
            data = page.evaluate_handle(TRANSFER, encoded)
            if event == "drop":
                page.dispatch_event("#drop", "drop", {"dataTransfer": data})
            else:
                page.evaluate(
                    "(data) => document.dispatchEvent(new ClipboardEvent('paste', "
                    "{ clipboardData: data }))",
                    data,
                )
            page.wait_for_selector("#verdict:not(:empty)")
            assert opened.answered().startswith(other.classes[0])
        assert opened.said == []
        opened.close()


def test_on_a_phone_in_the_dark_by_keyboard_with_a_key(browser, file: Path, runs: Runs) -> None:
    picture = next(runs["data"].glob("photo/cat/*.png"))
    with listening(file, key="s3cret") as address:
        opened = Opened(browser, address, 360, "dark")
        page, choosers = opened.page, []
        page.on("filechooser", lambda chooser: choosers.append(chooser))
        page.wait_for_selector("#key:not([hidden])")
        page.keyboard.press("Tab")
        page.keyboard.type("s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#hint:not([hidden])")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "file"
        page.keyboard.press("Enter")
        for _ in range(50):
            page.wait_for_timeout(100)
            if choosers:
                break
        assert choosers, page.evaluate("[document.activeElement.id, document.hasFocus()]")
        choosers[0].set_files(picture)
        opened.answered()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert all("401" in text for text in opened.said)  # the first question, without the key
        opened.close()


APART = """() => {
  const boxes = (chosen) => [...document.querySelectorAll(chosen)].map((one) => one.getBBox());
  const points = boxes("#map circle");
  return boxes("#map text").every((name) => points.every((point) =>
    name.x > point.x + point.width || point.x > name.x + name.width
    || name.y + 3 > point.y + point.height || point.y > name.y + name.height - 3));
}"""


@pytest.mark.parametrize("width", [1280, 360])
def test_names_hide_no_point_and_an_old_answer_is_seen_to_be_old(
    browser, file: Path, runs: Runs, width: int
) -> None:
    pictures = sorted(runs["data"].glob("photo/*/*.png"))
    with listening(file) as address:
        opened = Opened(browser, address, width)
        page, held = opened.page, []
        known = page.request.get(f"{address}/domains").json()
        places = {"cartoon": [0, 0], "photo": [-6, 7], "art": [-5.9, 6.8]}
        known["map"] = {"kind": "images", "domains": places, "images": []}
        page.route("**/domains", lambda route: route.fulfill(json=known))
        page.route("**/predict*", lambda route: held.append(route))
        page.goto(address)
        page.wait_for_selector("#hint:not([hidden])")
        own = {"class": "dog", "probability": 0.9, "weights": dict.fromkeys(places, 1 / 3)}
        own |= {"nearest": "photo", "top": [{"class": "dog", "probability": 0.9}]}
        for number, place in enumerate(([2, -1.4], [-5, 6], [-0.3, -0.3])):
            page.set_input_files("#file", pictures[number])
            page.wait_for_selector("#wait:not(:empty)")
            assert page.get_attribute("#answer", "aria-busy") == "true"
            while len(held) <= number:
                page.wait_for_timeout(20)
            told = {"model": known["model"], "images": [{**own, "place": place}]}
            held[number].fulfill(json=told)
            page.wait_for_selector("#wait:empty", state="attached")
            assert opened.answered() == "dog, 90.0 %"
            assert page.get_attribute("#answer", "aria-busy") == "false"
            assert page.evaluate(APART)
        assert opened.said == []
        opened.close()


def test_a_bad_image_and_a_new_model(browser, runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    file = Path(shutil.copy(runs["deepall"] / "model.bne", tmp_path))
    with listening(file) as address:
        opened = Opened(browser, address, 700)
        page = opened.page
        page.wait_for_selector("#hint:not([hidden])")
        page.set_input_files("#file", tmp_path / "bad.png")
        page.wait_for_selector("#error:not([hidden])")
        assert "not a JPEG" in page.text_content("#error")
        page.set_input_files("#file", next(runs["data"].glob("photo/cat/*.png")))
        opened.answered()
        assert page.locator("#error").is_hidden()
        assert page.locator("#domains-card").is_hidden()  # of a method without branches
        assert page.locator("#map-card").is_hidden()
        opened.close()
