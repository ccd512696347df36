"""Scores kept models at every share, by the mixture and by one pass, on changed images too.

    bne benchmark --recipe beyond-pacs-resnet18 --data pacs --keep-models --out runs …
    python results/leaning.py runs --data pacs --out results/beyond/modes.jsonl

Every line of the file is one model in one mode: on the target, on held-out source images as they
are, and on these as another camera might have taken them: brighter, of less contrast, with a color
cast, blurred, noisy and compressed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from kept import runs_of
from torchvision.transforms.v2 import functional as change

from bne.core.ensemble import DomainEnsemble
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.splits import official_split
from bne.training.folder import held_out_images, read_training
from bne.training.model_folder import load_model
from bne.training.scores import SHARES, batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from bne.data.transform import EvalTransform
    from bne.methods import Method


def _noisy(images: Tensor) -> Tensor:
    generator = torch.Generator(images.device).manual_seed(0)
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return (images + 25 * noise).clamp(0, 255).to(torch.uint8)


def _cast(images: Tensor) -> Tensor:
    gains = torch.tensor([1.25, 1.0, 0.75], device=images.device).view(3, 1, 1)
    return (images * gains).clamp(0, 255).to(torch.uint8)


def _compressed(images: Tensor) -> Tensor:
    return torch.stack([change.jpeg(image, 10) for image in images.cpu()]).to(images.device)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "as they are": lambda images: images,
    "brighter by 60 %": lambda images: change.adjust_brightness(images, 1.6),
    "darker by 50 %": lambda images: change.adjust_brightness(images, 0.5),
    "half the contrast": lambda images: change.adjust_contrast(images, 0.5),
    "color cast": _cast,
    "blur of 2 pixels": lambda images: change.gaussian_blur(images, [13, 13], [2.0, 2.0]),
    "noise of 25": _noisy,
    "JPEG of quality 10": _compressed,
}


def modes(method: Method) -> Iterator[str]:
    """Sets one way to predict after another, by name; that of the method comes first."""
    net = method.net
    if not isinstance(net, DomainEnsemble) or len(net.domains) == 1:
        yield "plain"
        return
    before = net.mix
    for net.mix in dict.fromkeys((before, "logits", "statistics", "centre")):
        yield net.mix
    net.mix = "logits"
    for count in range(1, len(net.domains)):
        net.nearest = count
        yield f"nearest {count}"
    net.nearest, known = None, net.layers
    net.layers = 5
    yield "layers 5"
    net.mix, net.layers = before, known


@torch.inference_mode()
def right_answers(method: Method, transform: EvalTransform, images: Tensor, labels: Tensor) -> Any:
    """(shares, N), whether each of some prepared images, (N, 3, H, W), is classified correctly."""
    rows = []
    for method.lean in SHARES:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            rows.append(method.predict(transform(images)).argmax(1) == labels)
    method.lean = 0
    return torch.stack(rows)


def counts(right: Tensor) -> dict[str, Any]:
    """What a line tells of right answers, (shares, N): how many there are, and against share 0."""
    found = {"correct": right, "gained": right & ~right[0], "lost": right[0] & ~right}
    sums = {name: own.sum(1).tolist() for name, own in found.items()}
    return {"count": right.shape[1], "shares": SHARES, **sums}


def score(run: Path, data: Path, device: str, cache: Path | None) -> list[dict[str, Any]]:
    """All lines of one run's model."""
    training = read_training(run)
    method, transform, info = load_model(run)
    assert training is not None
    method = method.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = open_images(data)
    prepared = prepare(images, cache, transform.resize)
    held_out, problem = held_out_images(training, info.domains, images, official_split(data))
    if problem:
        raise SystemExit(f"{run}: {problem}")
    feed = Feed(prepared, torch.device(device))
    groups = {"target": images.indices_of(training.target), "held-out": sorted(held_out)}
    about = {key: training.settings[key] for key in ("method", "target", "seed")}
    lines = []
    for kind, numbers in groups.items():
        for name, changed in CHANGES.items():
            if kind == "target" and name != "as they are":
                continue
            shown = [
                (changed(pixels), labels)
                for pixels, labels in feed.gather(batches(torch.as_tensor(numbers)))
            ]
            for number, mode in enumerate(modes(method)):
                if number and name != "as they are":  # one mode tells what changes do
                    continue
                found = [right_answers(method, transform, *batch) for batch in shown]
                told = {"mode": mode, "images": kind, "change": name}
                lines.append({**about, **told, **counts(torch.cat(found, 1))})
    return lines


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder of a benchmark's kept runs")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    for run in runs_of(options.runs):
        lines = score(run, options.data, options.device, options.cache)
        with options.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        print(run.name, flush=True)


if __name__ == "__main__":
    main()
