"""Images of many requests, shown to a network that notes what it sees."""

import gc
import io
import json
import threading
import time
import weakref
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Pillow

from bne.data import images
from bne.data.images import Way
from bne.deploy.answers import Seen
from bne.server import batching
from bne.server.batching import Batcher, FullError, Image, Work
from bne.server.live import Loaded
from bne.server.told import Asked
from tests.deploy.models import manifest


def picture(value: int) -> Image:
    buffer = io.BytesIO()
    Pillow.new("RGB", (6, 4), (value, value, value)).save(buffer, "PNG")
    return Image(str(value), buffer.getvalue())


class Network:
    """Says the class whose number is the image's brightness."""

    way, batch = Way(4), 4

    def __init__(self) -> None:
        self.batches, self.gate = [], threading.Event()
        self.gate.set()

    def __call__(self, pixels, *, places=True):
        self.gate.wait(20)
        values = pixels[:, 0, 0, 0].tolist()
        self.batches.append(values)
        if 9 in values:
            raise ZeroDivisionError
        return Seen(np.eye(10, dtype=np.float32)[values])


def loaded(network: Network) -> Loaded:
    return Loaded("id", network, manifest(classes=tuple("abcdefghij")))


@pytest.fixture
def kept():
    """A queue with room for 8 images, and the works that it has finished."""
    found = SimpleNamespace(done=[], seen=[], changed=threading.Condition())

    def done(works: list[Work]) -> None:
        with found.changed:
            found.done += works
            found.changed.notify_all()

    def wait(count: int) -> None:
        with found.changed:
            assert found.changed.wait_for(lambda: len(found.done) >= count, 20)

    found.wait = wait
    options = {"batch": 4, "delay": 0.05, "capacity": 8, "pixels": 100, "threads": 2}
    found.queue = Batcher(**options, done=done, seen=found.seen.append)
    yield found
    found.queue.close()


def ask(kept, model: Loaded, *values: int) -> Work:
    work = Work(model, [picture(value) for value in values], Asked())
    kept.queue.submit(work)
    return work


def names(work: Work) -> list[str]:
    return [json.loads(row)["class"] for row in work.rows]


def test_images_of_several_requests_are_seen_together(kept) -> None:
    network = Network()
    model = loaded(network)
    network.gate.clear()
    first = ask(kept, model, 1)
    while kept.queue._decoding or kept.queue._ready:  # the network has it, and waits at the gate
        time.sleep(0.001)
    rest = [ask(kept, model, 2, 3), ask(kept, model, 4), ask(kept, model, 5, 6, 7)]
    while kept.queue._decoding:
        time.sleep(0.001)
    network.gate.set()
    kept.wait(4)
    assert [len(batch) for batch in network.batches] == [1, 4, 2]
    assert [names(work) for work in (first, *rest)] == [["b"], ["c", "d"], ["e"], ["f", "g", "h"]]
    assert kept.queue.pending == 0
    assert [len(told.rows) for told in kept.seen] == [1, 4, 2]


class Elsewhere(Loaded):
    """As one in a process of its own, which notes what it was handed."""

    def begin(self, pixels, names, asked):
        self.handed.append(len(pixels))
        return super().begin(pixels, names, asked)


def test_a_full_batch_is_handed_over_while_the_last_is_looked_at(kept) -> None:
    network = Network()
    model = Elsewhere("id", network, manifest(classes=tuple("abcdefghij")))
    model.handed = []
    network.gate.clear()
    works = [ask(kept, model, 0, 1, 2, 3), ask(kept, model, 9, 5, 6), ask(kept, model, 7)]
    end = time.monotonic() + 20
    while len(model.handed) < 2 and time.monotonic() < end:
        time.sleep(0.001)
    assert (model.handed, network.batches) == ([4, 4], [])  # nothing is answered yet
    network.gate.set()
    kept.wait(3)
    assert [work.failed for work in works] == [False, True, False]
    assert (names(works[0]), names(works[2])) == (list("abcd"), ["h"])
    assert model.handed[2:] == [1] * 4  # each again, alone, for the one that failed


def test_more_than_there_is_room_for_is_refused_and_all_else_answered(kept) -> None:
    network = Network()
    model = loaded(network)
    network.gate.clear()
    works = [ask(kept, model, 0, 1, 2, 3), ask(kept, model, 4, 5, 6, 7)]
    with pytest.raises(FullError):
        ask(kept, model, 8)
    network.gate.set()
    kept.queue.close()  # which waits for them
    assert [names(work) for work in works] == [list("abcd"), list("efgh")]
    with pytest.raises(FullError):
        ask(kept, model, 8)


def test_one_that_the_network_fails_at_spoils_no_other(kept) -> None:
    network = Network()
    network.gate.clear()
    model = loaded(network)
    good, bad = ask(kept, model, 1, 2), ask(kept, model, 9)
    network.gate.set()
    kept.wait(2)
    assert names(good) == ["b", "c"]
    assert (good.failed, bad.failed) == (False, True)


def test_models_are_not_mixed(kept) -> None:
    old, new = Network(), Network()
    new.way = Way(8)
    old.gate.clear()
    models = loaded(old), loaded(new)
    works = [ask(kept, models[n % 2], n) for n in range(4)]
    old.gate.set()
    kept.wait(4)
    assert [names(work) for work in works] == [["a"], ["b"], ["c"], ["d"]]
    assert sorted(chain.from_iterable(old.batches)) == [0, 2]
    assert sorted(chain.from_iterable(new.batches)) == [1, 3]


def test_bad_images_are_told_and_the_others_not_looked_at(kept) -> None:
    network = Network()
    work = Work(loaded(network), [picture(1), Image("x.png", b"no image")], Asked())
    kept.queue.submit(work)
    kept.wait(1)
    ((number, reason),) = work.problems
    assert number == 1
    assert "x.png" in reason
    large = io.BytesIO()
    Pillow.new("L", (11, 10)).save(large, "PNG")
    kept.queue.submit(Work(loaded(network), [Image("large", large.getvalue())], Asked()))
    kept.wait(2)
    assert "megapixels" in kept.done[1].problems[0][1]
    assert network.batches == []
    assert kept.queue.pending == 0


def test_nothing_of_a_bad_image_stays_in_memory(kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even until the collector of cycles comes by: there may be hundreds of megabytes."""
    opened = []

    def broken(picture, name):
        opened.append(weakref.ref(picture))
        raise ValueError("damaged")

    monkeypatch.setattr(images, "of_pillow", broken)
    gc.disable()
    try:
        work = Work(loaded(Network()), [picture(1)], Asked())
        kept.queue.submit(work)
        kept.wait(1)
        assert work.problems
        until = time.monotonic() + 5
        while opened[0]() is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert opened[0]() is None
    finally:
        gc.enable()


def test_nothing_of_what_is_answered_stays_in_memory(kept) -> None:
    """Nor is a model kept, whose process would go on: threads that wait hold neither."""
    model = loaded(Network())
    works = [ask(kept, model, 1, 2, 3), ask(kept, model, 4)]
    kept.wait(2)
    rest = [weakref.ref(model), *map(weakref.ref, works)]
    del model, works
    kept.done.clear()
    until = time.monotonic() + 5
    while any(one() for one in rest) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(one() for one in rest)


def test_what_nobody_waits_for_is_left_out(kept) -> None:
    network = Network()
    network.gate.clear()
    model = loaded(network)
    ask(kept, model, 1)
    while kept.queue._decoding or kept.queue._ready:
        time.sleep(0.001)
    gone = ask(kept, model, 2, 3)
    gone.dropped = True
    last = ask(kept, model, 4)
    network.gate.set()
    kept.queue.close()
    assert names(last) == ["e"]
    assert network.batches == [[1], [4]]
    assert kept.queue.pending == 0


def test_none_waits_longer_than_the_delay_for_others(kept, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, decode = threading.Event(), batching.pixels

    def slow(data, name, *rest):
        if name == "2":
            gate.wait(20)
        return decode(data, name, *rest)

    monkeypatch.setattr(batching, "pixels", slow)
    model = loaded(Network())
    ask(kept, model, 2)
    quick = ask(kept, model, 1)
    kept.wait(1)
    assert kept.done == [quick]
    gate.set()


def test_a_single_request_waits_for_nobody() -> None:
    done = threading.Event()
    options = {"batch": 4, "delay": 60, "capacity": 8, "pixels": 100, "threads": 1}
    queue = Batcher(**options, done=lambda works: done.set(), seen=lambda *_: None)
    queue.submit(Work(loaded(Network()), [picture(1)], Asked()))
    assert done.wait(20)
    queue.close()
