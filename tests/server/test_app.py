"""A model behind HTTP, in this process: its answers are the library's, and what is bad is told."""

import asyncio
import hmac
import io
import json
import math
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

import bne
from bne.deploy.bundle import write
from bne.server.app import Limits, Server
from bne.server.live import Live
from bne.server.uploads import RefusedError, Uploads
from tests.cli.command import full_disk
from tests.deploy.models import watching

Runs = dict[str, Path]


@contextmanager
def client(path: Path, key: str | None = None, mode: dict | None = None, **limits):
    """A client of a server; the server is its attribute `own`."""
    server = Server(Live(path, "cpu", 1, mode or {}), Limits(threads=1, **limits), key)
    with TestClient(server.app) as found:
        found.own = server
        yield found


@pytest.fixture(scope="module")
def served(runs: Runs):
    with client(runs["bne"]) as found:
        yield found


@pytest.fixture(scope="module")
def files(runs: Runs) -> list[Path]:
    return sorted(runs["data"].glob("*/*/*.png"))[:7]


def form(*data: bytes):
    return [("images", (f"{n}.png", one, "image/png")) for n, one in enumerate(data)]


def close(found, expected) -> None:
    """An answer says what the library says."""
    names, domains = expected.model.classes, expected.model.branches
    for number, row in enumerate(found):
        assert row["class"] == expected.classes[number]
        chances = {one["class"]: one["probability"] for one in row["top"]}
        own = dict(zip(names, expected.probabilities[number], strict=True))
        assert chances == pytest.approx(own, rel=1e-4)
        assert row["probability"] == max(chances.values())
        if not domains:
            assert not {"nearest", "weights", "distances", "unusual", "place"} & set(row)
            continue
        assert row["nearest"] == expected.nearest_domains[number]
        weights = dict(zip(domains, expected.weights[number], strict=True))
        assert row["weights"] == pytest.approx(weights, rel=1e-4)
        if expected.unusual is not None:
            assert row["unusual"] == pytest.approx(expected.unusual[number], abs=0.01)


@pytest.mark.parametrize(("method", "mode"), [("bne", {}), ("deepall", {}), ("dnet", {})])
def test_answers_are_those_of_the_library(runs: Runs, files: list[Path], method, mode) -> None:
    model = bne.load(runs[method] / "model.bne", "cpu", **mode)
    expected = model.predict(files)
    with client(runs[method], mode=mode, batch=4) as ask:
        told = ask.post("/predict?top=2", files=form(*(file.read_bytes() for file in files)))
        assert told.status_code == 200
        assert told.json()["model"] == told.headers["X-Model-Id"] == model.id
        assert [row["name"] for row in told.json()["images"]] == [f"{n}.png" for n in range(7)]
        close(told.json()["images"], expected)
        single = ask.post("/predict?top=2", content=files[0].read_bytes())
        close(single.json()["images"], model.predict(files[0]))
        known = ask.get("/domains").json()
        assert (known["classes"], known["domains"]) == ([*model.classes], [*model.domains])


def test_modes_and_the_centre(runs: Runs, files: list[Path]) -> None:
    mode = {"mix": "centre", "lean": 0.2}
    expected = bne.load(runs["bne"], "cpu", **mode)
    with client(runs["bne"], mode=mode) as ask:
        data = files[0].read_bytes()
        told = ask.post("/predict?top=2", content=data).json()
        assert told["model"] == expected.id != bne.load(runs["bne"], "cpu").id
        close(told["images"], expected.predict(files[0]))
        (plain,) = ask.post("/predict?places=false", content=data).json()["images"]
        assert "weights" not in plain
        assert plain["probability"] == pytest.approx(told["images"][0]["probability"], rel=1e-4)


def test_exported_models_are_served(runs: Runs, files: list[Path], tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu")
    model.to_onnx(tmp_path / "model.onnx", preprocess=True)
    with client(tmp_path / "model.onnx") as ask:
        told = ask.post("/predict?top=2", files=form(*(file.read_bytes() for file in files)))
        close(told.json()["images"], model.predict(files))
        assert len(told.json()["model"]) == 16


def test_classes_are_left_open(served, files: list[Path]) -> None:
    data = files[0].read_bytes()
    (row,) = served.post("/predict", content=data).json()["images"]
    assert len(row["top"]) == 1
    above, below = row["probability"] + 1e-6, row["probability"] - 1e-6
    for limit, expected in ((above, None), (below, row["class"])):
        (one,) = served.post(f"/predict?abstain={limit}", content=data).json()["images"]
        assert one["class"] == expected


def test_many_at_once_get_each_their_own_answer(served, runs: Runs) -> None:
    pictures = sorted(runs["data"].glob("*/*/*.png"))
    expected = bne.load(runs["bne"], "cpu").predict(pictures)
    before = _metrics(served)["bne_batch_images_count"]
    with ThreadPoolExecutor(16) as pool:
        told = list(
            pool.map(lambda p: served.post("/predict?top=2", content=p.read_bytes()), pictures * 3)
        )
    assert {one.status_code for one in told} == {200}
    close([one.json()["images"][0] for one in told[: len(pictures)]], expected)
    assert _metrics(served)["bne_batch_images_count"] - before < len(told)  # some were together


def refusal(told, status: int) -> str:
    assert told.status_code == status
    assert told.json()["model"] == told.headers["X-Model-Id"]
    said: str = told.json()["detail"]
    assert said.endswith(".")
    assert "\n" not in said
    assert "detail" in told.json()
    return said


def test_bad_images_are_told_one_by_one(served, files: list[Path]) -> None:
    good = files[0].read_bytes()
    told = served.post("/predict", files=form(good, b"no image", good[:60]))
    assert refusal(told, 422).startswith("2 of 3 images")
    assert [(one["image"], one["name"]) for one in told.json()["images"]] == [
        (1, "1.png"),
        (2, "2.png"),
    ]
    single = served.post("/predict", content=b"no image")
    assert single.json()["detail"] == single.json()["images"][0]["reason"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"content": b""}, 422),
        ({"data": {"images": "text"}, "files": {}}, 422),
        ({"content": b"--a\r\n", "headers": {"Content-Type": "multipart/form-data"}}, 422),
        (
            {
                "content": b'--a\r\nContent-Disposition: form-data; filename="x"\r\n\r\n12',
                "headers": {"Content-Type": "multipart/form-data; boundary=a"},
            },
            422,
        ),
        ({"content": b"x", "params": {"top": 0}}, 422),
        ({"content": b"x", "params": {"abstain": "nan"}}, 422),
        ({"content": b"x", "params": {"places": "maybe"}}, 422),
    ],
)
def test_requests_that_make_no_sense(served, request_, status: int) -> None:
    refusal(served.post("/predict", **request_), status)


def test_a_parameter_that_there_is_not_is_named(served, files: list[Path]) -> None:
    told = served.post("/predict?abstian=0.9", content=files[0].read_bytes())
    assert refusal(told, 422) == "abstian: is no parameter; the nearest is 'abstain'."


def test_a_field_that_is_no_file_is_named(served, files: list[Path]) -> None:
    told = served.post("/predict", files=form(files[0].read_bytes()), data={"top": "3"})
    assert "no file" in refusal(told, 422)


def test_other_paths_and_methods(served) -> None:
    refusal(served.get("/nothing"), 404)
    for path in ("/healthz/", "/predict/"):  # sent nowhere else, least of all where `Host` says
        refusal(served.request("POST", path, follow_redirects=False), 404)
    told = served.get("/predict")
    assert refusal(told, 405) == "This address takes POST alone."
    assert told.headers["Allow"] == "POST"
    for path, status in (("/", 200), ("/healthz", 200), ("/nothing", 404), ("/predict", 405)):
        assert served.head(path).status_code == status


def test_limits(runs: Runs, files: list[Path]) -> None:
    data = files[0].read_bytes()
    limits = {"body": 10_000, "images": 2, "pixels": 32 * 32}
    with client(runs["bne"], **limits) as ask:
        assert ask.post("/predict", content=data).status_code == 200
        refusal(ask.post("/predict", content=bytes(10_001)), 413)
        refusal(ask.post("/predict", content=iter([bytes(6000)] * 2)), 413)  # of unknown length
        refusal(ask.post("/predict", files=form(data, data, data)), 413)
        large = io.BytesIO()
        Image.new("RGB", (33, 32)).save(large, "PNG")
        assert "megapixels" in refusal(ask.post("/predict", content=large.getvalue()), 422)
        assert ask.own._uploads.held == 0


def test_all_bodies_together_have_a_limit() -> None:
    uploads = Uploads(10, 15, 5)

    async def receive():
        return {"type": "http.request", "body": bytes(9), "more_body": False}

    with ThreadPoolExecutor(1) as pool, uploads.room() as one, uploads.room() as other:
        read = lambda own: pool.submit(asyncio.run, uploads.read(receive, None, own)).result()  # noqa: E731
        assert read(one) == bytes(9)
        with pytest.raises(RefusedError) as found:
            read(other)
    assert found.value.status == 503
    assert uploads.held == 0


def test_nothing_is_written_to_disk(served) -> None:
    big = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (900, 900, 3), np.uint8)).save(
        big, "BMP"
    )
    assert len(big.getvalue()) > 2_000_000
    with full_disk():
        told = served.post("/predict", files=form(big.getvalue(), big.getvalue()))
        assert told.status_code == 200
        assert served.post("/predict", content=big.getvalue()).status_code == 200


@contextmanager
def held(ask):
    """A server whose network waits until the context ends."""
    engine, gate = ask.own.live.model.engine, threading.Event()
    look = type(engine).__call__

    def slow(self, *arguments, **options):
        gate.wait(20)
        return look(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(engine), "__call__", slow)
        yield
        gate.set()


def test_a_full_queue_is_a_503_and_loses_nothing(runs: Runs, files: list[Path]) -> None:
    data = files[0].read_bytes()
    with client(runs["bne"], queue=3, batch=1) as ask, ThreadPoolExecutor(3) as pool:
        with held(ask):
            waiting = [pool.submit(ask.post, "/predict", content=data) for _ in range(3)]
            while ask.own._batcher.pending < 3:
                pass
            told = ask.post("/predict", content=data)
            refusal(told, 503)
            assert int(told.headers["Retry-After"]) >= 1
            assert _metrics(ask)["bne_queue_images"] == 3
            assert ask.get("/healthz").status_code == ask.get("/readyz").status_code == 200
        assert [one.result().status_code for one in waiting] == [200] * 3
        assert ask.post("/predict", content=data).status_code == 200


def test_an_answer_that_takes_too_long_is_a_503(runs: Runs, files: list[Path]) -> None:
    with client(runs["bne"], seconds=0.2) as ask:
        with held(ask):
            refusal(ask.post("/predict", content=files[0].read_bytes()), 503)
        assert ask.post("/predict", content=files[0].read_bytes()).status_code == 200


def test_a_body_that_does_not_come_is_a_408(runs: Runs) -> None:
    with client(runs["bne"], seconds=0.1) as ask:
        said = []

        async def send(message):
            said.append(message)

        async def receive():
            await asyncio.sleep(20)

        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b""}
        scope |= {"headers": [(b"content-length", b"9")], "http_version": "1.1", "scheme": "http"}
        with ThreadPoolExecutor(1) as pool:  # a browser's tests have a loop in this thread
            pool.submit(asyncio.run, ask.own.app(scope, receive, send)).result()
        assert said[0]["status"] == 408


def test_a_failure_of_ours_is_a_503_and_no_500(
    served, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments, **options):
        raise ZeroDivisionError

    monkeypatch.setattr("bne.server.app.images_of", broken)
    refusal(served.post("/predict", content=b"x"), 503)
    monkeypatch.undo()
    monkeypatch.setattr(type(served.own.live.model.engine), "__call__", broken)
    refusal(served.post("/predict", content=files[0].read_bytes()), 503)
    monkeypatch.undo()
    assert served.post("/predict", content=files[0].read_bytes()).status_code == 200


def test_windows_of_an_unknown_domain_alarm(runs: Runs, tmp_path: Path) -> None:
    model, draw = bne.load(runs["bne"], "cpu"), np.random.default_rng(0)
    size = model.engine.way.size

    def noise(least: int, most: int, count: int):
        return draw.integers(least, most, (count, size, size, 3), np.uint8)

    def encoded(images):
        for one in images:
            buffer = io.BytesIO()
            Image.fromarray(one).save(buffer, "PNG")
            yield buffer.getvalue()

    usual = {name: noise(0, 255, 70) for name in model.domains}
    watching(model, usual).save(tmp_path / "model.bne")
    with client(tmp_path / "model.bne") as ask:
        assert math.isnan(_metrics(ask)["bne_window_p_value"])
        for images, alarms in ((noise(0, 255, 64), 0), (noise(120, 130, 64), 1)):
            assert ask.post("/predict", files=form(*encoded(images))).status_code == 200
            found = _metrics(ask)
            assert found["bne_window_alarms_total"] == alarms
            assert (found["bne_window_p_value"] < 0.01) == bool(alarms)
        assert found["bne_windows_total"] == 2


def test_the_key(runs: Runs, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data = files[0].read_bytes()
    compare, compared = hmac.compare_digest, []  # in constant time, which no answer shows
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two) or compare(*two))
    with client(runs["bne"], key="s3cret") as ask:
        wrong = [{"Authorization": own} for own in ("Bearer s3cret2", "Basic s3cret")]
        for headers in ({}, {"X-API-Key": "s3cre"}, *wrong):
            for path in ("/domains", "/metrics", "/nothing"):
                told = ask.get(path, headers=headers)
                refusal(told, 401)
                assert told.headers["WWW-Authenticate"] == "Bearer"
            refusal(ask.post("/predict", content=data, headers=headers), 401)
        bearers = [{"Authorization": f"{kind} s3cret"} for kind in ("Bearer", "bearer")]
        for headers in ({"X-API-Key": "s3cret"}, *bearers):
            assert ask.post("/predict", content=data, headers=headers).status_code == 200
            assert ask.get("/metrics", headers=headers).status_code == 200
        assert len(compared) == 4 * 4 + 3 * 2
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert ask.get(path).status_code == 200
        schema = ask.get("/openapi.json").json()
        own = {kind: list(one.values()) for kind, one in schema["components"].items()}
        assert own["securitySchemes"] == [{"type": "apiKey", "in": "header", "name": "X-API-Key"}]
        locked = {
            path
            for path, own in schema["paths"].items()
            for one in own.values()
            if "security" in one
        }
        assert locked == {"/predict", "/domains", "/metrics"}


def test_a_new_model_is_taken_over(runs: Runs, files: list[Path], tmp_path: Path) -> None:
    file = Path(shutil.copy(runs["bne"] / "model.bne", tmp_path))
    data = files[0].read_bytes()
    with client(file) as ask:
        live = ask.own.live
        old, new = live.model.id, bne.load(runs["deepall"], "cpu").id
        with ThreadPoolExecutor(1) as pool:
            with held(ask):  # a request from before is answered by the model from before
                before = pool.submit(ask.post, "/predict", content=data)
                while not ask.own._batcher.pending:
                    pass
                shutil.copy(runs["deepall"] / "model.bne", tmp_path / "next")
                (tmp_path / "next").replace(file)
                thread = threading.Thread(target=live.refresh)
                thread.start()
            thread.join()
        assert before.result().json()["model"] == old
        after = ask.post("/predict", content=data)
        assert after.json()["model"] == new == ask.get("/domains").json()["model"]
        close(
            ask.post("/predict?top=2", content=data).json()["images"],
            bne.load(runs["deepall"], "cpu").predict(files[0]),
        )
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-9] + b"123456789"):
            file.write_bytes(damaged)
            live.refresh()
            assert ask.post("/predict", content=data).json()["model"] == new
        file.unlink()
        live.refresh()
        found = _metrics(ask)
        assert (found["bne_model_swaps_total"], found["bne_model_swap_failures_total"]) == (1, 3)
        file.write_bytes(whole)
        live.refresh()
        assert _metrics(ask)["bne_model_swaps_total"] == 1  # the same model is no new one


def test_a_model_that_cannot_answer_replaces_none(runs: Runs, tmp_path: Path) -> None:
    model, file = bne.load(runs["bne"], "cpu"), tmp_path / "model.bne"
    model.save(file)
    told: list[object] = []
    live = Live(file, "cpu", 1)
    live.changed = told.append
    unfit = {"branches": {"art": [0, 0]}, "images": []}  # of one of two domains
    write(file, model.engine.method, replace(model.info, map=unfit))
    live.refresh()
    assert live.model.id == model.id
    assert [type(one) for one in told] == [KeyError]


def test_what_cannot_be_served_is_one_sentence(runs: Runs, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.bne", runs["bne"] / "recipe.yaml"):
        with pytest.raises(bne.errors.DataError):
            Live(path, "cpu", 1, {})


def _metrics(ask) -> dict[str, float]:
    """Samples without labels, and the sums of those with."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(ask.get("/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_metrics_count_what_was_asked(runs: Runs, files: list[Path]) -> None:
    data = [file.read_bytes() for file in files]
    with client(runs["bne"]) as ask:
        ask.post("/predict", files=form(*data))
        ask.post("/predict", content=data[0])
        ask.post("/predict", content=b"no image")
        ask.get("/nothing/at/all")
        found = _metrics(ask)
        assert found["bne_images_total"] == found["bne_nearest_total"] == 8
        assert found["bne_batch_images_sum"] == found["bne_unusual_percent_count"] == 8
        assert found["bne_bad_images_total"] == 1
        assert found["bne_requests_total"] == 4
        assert found["process_resident_memory_bytes"] > 10**7
        assert 'path="other"' in ask.get("/metrics").text
        assert "nothing" not in ask.get("/metrics").text


def test_the_page_asks_nobody_else(served) -> None:
    told = served.get("/")
    assert told.headers["Content-Security-Policy"] == "default-src 'self' 'unsafe-inline'"
    assert "//" not in told.text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")
    assert json.loads(served.get("/openapi.json").text)["openapi"].startswith("3")
    assert served.get("/docs").status_code == 404  # FastAPI's loads scripts from elsewhere
