"""What serving costs: requests of many clients against the offline predictor, in one run.

The server and the clients are processes of their own on the same cores. What the clients take of
these is told: a server on a machine of its own has it for itself.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np
import torch
from PIL import Image

from bne.data.decoding import usable_cores
from bne.deploy.answers import Calibration
from bne.deploy.pictures import Picture
from bne.deploy.predict import open_engine, predict
from bne.deploy.rows import COLUMNS, rows
from bne.training.environment import keep_memory
from deploy import model

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORKS = {
    "demo": ("small_cnn", 32, (32, 32), "PNG"),
    "resnet18": ("resnet18", 256, (400, 300), "JPEG"),
}
"""Backbone, size that images are resized to, and what clients send."""


def write_model(network: str, file: Path) -> None:
    """A model with random weights: they cost what trained ones cost."""
    backbone, resize, *_ = NETWORKS[network]
    made = model(backbone)
    size = min(resize, made.info.transform["preprocessing"]["size"])
    transform = {**made.info.transform, "resize": resize}
    transform["preprocessing"] = {**transform["preprocessing"], "size": size}
    made.info = replace(
        made.info,
        transform=transform,
        calibration=Calibration(1, 1.0, 1.0, 1.0, tuple(map(float, range(101)))),
    )
    made.save(file)


def pictures(network: str) -> list[bytes]:
    """Encoded images of smooth noise."""
    _, _, shape, kind = NETWORKS[network]
    draw = np.random.default_rng(0)
    found = []
    for _ in range(64):
        buffer = io.BytesIO()
        coarse = Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8))
        coarse.resize(shape, Image.Resampling.BICUBIC).save(buffer, kind)
        found.append(buffer.getvalue())
    return found


def damaged(count: int) -> Iterator[bytes]:
    """Small images of all formats that we read, cut short, with flipped bits or spliced."""
    draw = np.random.default_rng(0)
    pixels = Image.fromarray(draw.integers(0, 255, (24, 20, 3), np.uint8))
    whole = []
    for kind, mode in (
        *(("JPEG", mode) for mode in ("RGB", "L", "CMYK")),
        *(("PNG", mode) for mode in ("RGB", "RGBA", "P", "I;16", "1")),
        *(("WEBP", mode) for mode in ("RGB", "RGBA")),
        ("BMP", "RGB"),
        *(("TIFF", mode) for mode in ("RGB", "CMYK", "L")),
    ):
        buffer = io.BytesIO()
        (pixels.convert("L") if mode == "I;16" else pixels).convert(mode).save(buffer, kind)
        whole.append(buffer.getvalue())
    for kind in ("uint8", "uint16", "float32"):
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(pixels, kind))
        whole.append(buffer.getvalue())
    for _ in range(count):
        data = bytearray(whole[draw.integers(len(whole))])
        match draw.integers(4):
            case 0:
                data = data[: draw.integers(len(data))]
            case 1:
                for place in draw.integers(len(data), size=draw.integers(1, 8)):
                    data[place] ^= 1 << int(draw.integers(8))
            case 2:  # headers are where decoders trust numbers
                place = int(draw.integers(min(64, len(data) - 4)))
                data[place : place + 4] = draw.bytes(4)
            case _:
                other = whole[draw.integers(len(whole))]
                data = data[: draw.integers(len(data))] + other[draw.integers(len(other)) :]
        yield bytes(data)


@contextmanager
def serving(file: Path, *options: str) -> Iterator[tuple[int, int]]:
    """A server of a model: its port and its process."""
    command = [sys.executable, "-m", "bne", "serve", str(file), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if found := re.search(r"answers at http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise SystemExit("The server did not start.")
            yield int(found[1]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            code = process.wait(60)
        if code or rest:
            raise SystemExit(f"The server ended with {code}: {rest}")


def family(pid: int) -> list[Path]:
    """Where the system tells of a process and of those that it has started."""
    own = Path(f"/proc/{pid}")
    started = (own / "task" / str(pid) / "children").read_text().split()
    return [own, *(Path(f"/proc/{child}") for child in started)]


def resident(pid: int) -> float:
    """MB of memory that a server and its network have now; what they share counts twice."""
    pages = sum(int((one / "statm").read_text().split()[1]) for one in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor(pid: int) -> float:
    """Seconds that a server and its network have computed."""
    fields = [(one / "stat").read_text().rpartition(")")[2].split() for one in family(pid)]
    return sum(int(own[11]) + int(own[12]) for own in fields) / os.sysconf("SC_CLK_TCK")


def requests(bodies: list[bytes], each: int) -> list[bytes]:
    """Whole HTTP requests of `each` images."""
    found = []
    for start in range(0, len(bodies), each):
        kind, body = "application/octet-stream", bodies[start]
        if each > 1:
            kind = "multipart/form-data; boundary=edge"
            head = b'--edge\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
            parts = [head + one + b"\r\n" for one in bodies[start : start + each]]
            body = b"".join(parts) + b"--edge--\r\n"
        head = f"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def _client(
    port: int,
    sent: list[bytes],
    numbers: Iterator[int],
    seconds: list[float],
    codes: dict[int, int],
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        start = time.perf_counter()
        writer.write(sent[number % len(sent)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length
        await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - start)
        code = int(head[9:12])
        codes[code] = codes.get(code, 0) + 1
    writer.close()


def ask(port: int, sent: list[bytes], count: int, clients: int) -> dict[str, Any]:
    """Sends requests, each client one after the other, and tells how it went."""
    seconds: list[float] = []
    codes: dict[int, int] = {}
    numbers = iter(range(count))

    async def all_clients() -> None:
        await asyncio.gather(
            *(_client(port, sent, numbers, seconds, codes) for _ in range(clients))
        )

    start, before = time.perf_counter(), time.process_time()
    asyncio.run(all_clients())
    wall = time.perf_counter() - start
    p50, p99 = np.percentile(seconds, (50, 99)) * 1000
    return {
        "wall": wall,
        "client": time.process_time() - before,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "longest_ms": max(seconds) * 1000,
        "codes": codes,
    }


def offline(file: Path, bodies: list[bytes], count: int) -> tuple[float, float]:
    """Images a second of `bne predict`, without writing a file, and its CPU time of an image.

    Rows have all columns, as the server's have.
    """
    keep_memory()  # as `bne` does
    engine, known = open_engine(file, "cpu")
    shown = [Picture(str(n), lambda n=n: bodies[n % len(bodies)]) for n in range(count)]
    list(predict(engine, known, shown[: 4 * engine.batch]))
    start, before = time.perf_counter(), time.process_time()
    for part in predict(engine, known, shown):
        assert part.answers
        rows(part.names, part.answers, COLUMNS)
    wall = time.perf_counter() - start
    return count / wall, (time.process_time() - before) / count


def load(network: str, count: int, clients: int, each: int, options: list[str]) -> dict[str, Any]:
    """Requests of many clients; the offline predictor runs before and after."""
    bodies = pictures(network)
    sent, cores = requests(bodies, each), usable_cores()
    spawn = get_context("spawn")
    plain = min(count * each, 4000 if network == "demo" else 400)
    with tempfile.TemporaryDirectory() as folder, spawn.Pool(1) as other:
        file = Path(folder, "model.bne")
        write_model(network, file)
        before = other.apply(offline, (file, bodies, plain))
        with serving(file, *options) as (port, pid):
            other.apply(ask, (port, sent, max(clients, count // 20), clients))
            memory, own = [resident(pid)], processor(pid)
            found = {"wall": 0.0, "client": 0.0}
            for _ in range(5):
                told = other.apply(ask, (port, sent, count // 5, clients))
                memory.append(resident(pid))
                for key, value in told.items():
                    if key in ("wall", "client"):
                        found[key] += value
                    else:
                        found.setdefault(key, []).append(value)
            own = processor(pid) - own
            with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                batches = re.search(r"bne_batch_images_sum (\S+)", (text := answer.read().decode()))
                number = re.search(r"bne_batch_images_count (\S+)", text)
        after = other.apply(offline, (file, bodies, plain))
    codes = [code for part in found["codes"] for code in part]
    failed = sum(n for part in found["codes"] for code, n in part.items() if code != 200)
    alone = (before[0] + after[0]) / 2
    images = count // 5 * 5 * each
    rate = images / found["wall"]
    taken = found["client"] / (cores * found["wall"])
    return {
        "benchmark": "serve",
        "network": network,
        "requests": count,
        "images a request": each,
        "clients": clients,
        "cores": cores,
        "torch": torch.__version__,
        "images/s": rate,
        "offline images/s": [before[0], after[0]],
        "of offline": rate / alone,
        "clients' share of the cores": taken,
        "of offline, on what clients leave": rate / alone / (1 - taken),
        "cpu_ms": {
            "server": 1000 * own / images,
            "clients": 1000 * found["client"] / images,
            "offline": 500 * (before[1] + after[1]),
        },
        "mean batch": float(batches[1]) / float(number[1]) if batches and number else None,
        "p50_ms": float(np.median(found["p50_ms"])),
        "p99_ms": max(found["p99_ms"]),
        "longest_ms": max(found["longest_ms"]),
        "failed": failed,
        "codes": sorted(set(codes)),
        "memory_mb": [round(one, 1) for one in memory],
    }


def damage(count: int, options: list[str]) -> dict[str, Any]:
    """Damaged images: each must be a 200 or a 422, and the server must live."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.bne")
        write_model("demo", file)
        with serving(file, *options) as (port, pid):
            sent = requests(list(damaged(count)), 1)
            before = resident(pid)
            told = ask(port, sent, count, 8)
            after = resident(pid)
    return {
        "benchmark": "damaged images",
        "images": count,
        "codes": told["codes"],
        "longest_ms": told["longest_ms"],
        "memory_mb": [round(before, 1), round(after, 1)],
    }


def main() -> None:
    """Runs one of the measurements, and adds a line to a file of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("load", "damage"))
    parser.add_argument("--network", choices=list(NETWORKS), default="demo")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--images", type=int, default=1, help="per request")
    parser.add_argument("--options", default="", help="of bne serve")
    parser.add_argument("--record", type=Path, help="results/serve.jsonl")
    given = parser.parse_args()
    options = given.options.split()
    if given.what == "load":
        found = load(given.network, given.requests, given.clients, given.images, options)
    else:
        found = damage(given.requests, options)
    print(json.dumps(found, indent=1))
    if given.record:
        with given.record.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
