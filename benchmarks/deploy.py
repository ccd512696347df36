"""What a model in use costs: exported graphs against plain passes, and prediction from files.

Everything is a ratio of times taken in turn in one process, the least of some rounds each.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

import bne
from bne.data.decoding import in_threads
from bne.data.images import decode, resize
from bne.data.transform import EvalTransform
from bne.deploy.classifier import Classifier, set_mode
from bne.deploy.manifest import Manifest
from bne.deploy.pictures import find_pictures
from bne.deploy.predict import predict
from bne.methods import create
from bne.models import build, preprocessing

if TYPE_CHECKING:
    from collections.abc import Callable

DOMAINS = ("art", "cartoon", "photo")


def model(
    backbone: str = "resnet18", method: str = "bne", device: str = "cpu", **mode: object
) -> Classifier:
    """A network with random weights whose branches differ."""
    torch.manual_seed(0)
    made = create(method, build(backbone, 7), DOMAINS)
    with torch.no_grad():
        for name, value in made.state_dict().items():
            if name.endswith("running_mean"):
                value += 0.1 * torch.randn_like(value)
    net = made.net
    transform = EvalTransform(preprocessing(backbone), 256)
    known = Manifest(
        backbone=backbone,
        classes=tuple(map(str, range(7))),
        domains=DOMAINS,
        branches=DOMAINS,
        method=method,
        options={},
        distance="wasserstein",
        mix=net.mix,
        lean=0.0,
        transform=transform.to_dict(),
        weights=None,
        bne=bne.__version__,
    )
    known = set_mode(made, known, **mode)  # type: ignore[arg-type]
    return Classifier(made.eval(), known, device)


def least(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each call, the least of some rounds in which all are called in turn."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def graphs(images: int, rounds: int, threads: int) -> dict[str, object]:
    """The mixture of three domains against four plain passes; the centre against one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    kinds = {
        "plain": ({}, {"branch": "photo"}),
        "mixture": ({}, {}),
        "mixture, leaning": ({"lean": 0.1}, {}),
        "statistics": ({"mix": "statistics"}, {}),
        "centre": ({"mix": "centre"}, {}),
        "centre, leaning": ({"mix": "centre", "lean": 0.1}, {}),
    }
    batch = np.random.default_rng(0).normal(size=(images, 3, 224, 224)).astype(np.float32)
    calls = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (mode, how) in kinds.items():
            file = Path(folder, "model.onnx")
            model(**mode).export(file, **how)  # type: ignore[arg-type]
            session = onnxruntime.InferenceSession(file, options)
            calls[name] = lambda session=session: session.run(None, {"images": batch})
    seconds = least(calls, rounds)
    plain = seconds["plain"]
    return {
        "benchmark": "graphs",
        "images": images,
        "threads": threads,
        "seconds": seconds,
        "passes": {name: own / plain for name, own in seconds.items()},
    }


def files(count: int, rounds: int) -> dict[str, object]:
    """Prediction from JPEG files against decoding alone and the network alone, on all cores."""
    made = model()
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            coarse = draw.integers(0, 255, (40, 50, 3), np.uint8)
            Image.fromarray(coarse).resize((1000, 800)).save(Path(folder, f"{number}.jpg"))
        pictures = find_pictures([folder])
        engine = made.engine

        def decoded() -> list[np.ndarray]:
            work = lambda one: np.asarray(resize(decode(one.read(), one.name), 256))  # noqa: E731
            return list(in_threads(work, pictures))

        pixels = np.stack(decoded())

        def network() -> None:
            for start in range(0, count, engine.batch):
                engine(pixels[start : start + engine.batch])

        calls = {
            "decode": decoded,
            "network": network,
            "predict": lambda: list(predict(engine, made.info, pictures)),
        }
        seconds = least(calls, rounds)
    bound = seconds["decode"] + seconds["network"]
    share = bound / seconds["predict"]
    return {"benchmark": "files", "images": count, "seconds": seconds, "of the bound": share}


def cached(count: int, rounds: int) -> dict[str, object]:
    """Prediction from prepared images against the mixture alone on a GPU that holds its inputs."""
    made = model(device="cuda")
    engine = made.engine
    pixels = np.random.default_rng(0).integers(0, 255, (count, 256, 256, 3), np.uint8)
    images = torch.from_numpy(pixels[: engine.batch]).permute(0, 3, 1, 2)
    batch = engine.transform(images.to("cuda"))  # in the memory layout of those predicted

    @torch.inference_mode()
    def network() -> None:
        for _ in range(count // engine.batch):
            engine.method.predict(batch)
        torch.cuda.synchronize()

    network()
    seconds = least({"network": network, "predict": lambda: made.predict(pixels)}, rounds)
    share = seconds["network"] / seconds["predict"]
    about = {"images": count, "batch": engine.batch, "device": torch.cuda.get_device_name()}
    return {"benchmark": "cached", **about, "seconds": seconds, "of the network": share}


def ray_memory(count: int) -> dict[str, object]:
    """Resident memory of Ray's workers and of this process while they predict, in MiB."""
    from bne.deploy.ray import Job, predict_on_ray

    with tempfile.TemporaryDirectory() as folder:
        path, images = Path(folder, "model.bne"), Path(folder, "images")
        model("small_cnn").save(path)
        images.mkdir()
        draw = np.random.default_rng(0)
        coarse = draw.integers(0, 255, (40, 50, 3), np.uint8)
        Image.fromarray(coarse).resize((500, 400)).save(images / "00000.jpg")
        for number in range(1, count):
            os.link(images / "00000.jpg", images / f"{number:05}.jpg")
        job = Job(path, "cpu", ("class", "probability", "nearest"))
        seen = []
        for number, _ in enumerate(predict_on_ray(job, find_pictures([images])), 1):
            if number % (count // 10) == 0:
                workers = {pid: resident(pid) for pid in ray_workers()}
                seen.append({"images": number, "workers": workers, "here": resident(os.getpid())})
    return {"benchmark": "ray", "images": count, "MiB": seen}


def resident(process: int) -> float:
    """Memory of a process that is its own and in use, in MiB."""
    fields = Path(f"/proc/{process}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 2**20


def ray_workers() -> list[int]:
    """The processes of Ray that predict for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name = (folder / "cmdline").read_text()
            if name.startswith("ray::") and "MapWorker" in name and is_ours(int(folder.name)):
                found.append(int(folder.name))
    return found


def is_ours(process: int) -> bool:
    """Whether this process has started another, or one that has."""
    while process not in (0, 1, os.getpid()):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process == os.getpid()


def main() -> None:
    """Runs one of the measurements, and adds a line to a file of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("graphs", "files", "cached", "ray"))
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "graphs":
        found = graphs(given.images, given.rounds, given.threads)
    elif given.what == "files":
        found = files(given.images, given.rounds)
    elif given.what == "cached":
        found = cached(given.images, given.rounds)
    else:
        found = ray_memory(given.images)
    found |= {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        **{name: version(name) for name in ("onnxruntime",) if given.what == "graphs"},
        "load": os.getloadavg()[1],  # of the machine, in the last five minutes
    }
    print(json.dumps(found, indent=1))
    if given.record:
        with given.record.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
