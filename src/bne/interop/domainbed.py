"""Recorded runs in the files that DomainBed's own scripts read.

`python -m bne.interop.domainbed RECORDS.jsonl OUT_FOLDER` writes one folder a run, with a
`results.jsonl` of one line an epoch; docs/domainbed.md says what its fields hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bne.benchmark.records import digest, read
from bne.data.benchmarks import BENCHMARKS
from bne.errors import DataError
from bne.methods import Method, check_options, create, find
from bne.models import build
from bne.models.registry import Preprocessing
from bne.models.registry import find as find_backbone
from bne.training.loop import UNLABELLED, TrainingStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Minibatches = Sequence[tuple[Tensor, Tensor]]
    from collections.abc import Iterator, Sequence

    from bne.benchmark.records import Record


def domainbed_algorithm(
    method: str, backbone: str = "resnet18", weights: str | Path | None = None, **options: Any
) -> type[nn.Module]:
    """A class with DomainBed's contract; a subclass of its `Algorithm` where that is installed.

    Its instances are made as `(input_shape, num_classes, num_domains, hparams)`. Adam trains them
    with `hparams["lr"]` and `hparams["weight_decay"]`; the first `hparams["warm_up"]` steps, by
    default none, are the warm-up of methods that have one.

    Args:
        method: its name, see `bne.methods.entries`.
        backbone: its name, see `bne.models.list_models`.
        weights: initial weights, as `bne.models.build` takes them.
        **options: of the method.

    Raises:
        ValueError: The method, an option or the backbone is unknown, the method forms domains of
            its own, or the weights want images normalised in another way than DomainBed's.
    """
    check_options(method, options)
    kind = find(method).method
    if kind.members is not Method.members:
        raise ValueError(
            f"method {method!r} sorts all training images into domains of its own, which DomainBed "
            "does not show it: choose a method that keeps the domains"
        )
    wanted, given = find_backbone(backbone).preprocessing, Preprocessing(size=224)
    if weights is not None and (wanted.mean, wanted.std) != (given.mean, given.std):
        raise ValueError(
            f"the weights of {backbone!r} are for images normalised by mean {wanted.mean} and std "
            f"{wanted.std}, but DomainBed's are by ImageNet's: choose another backbone"
        )
    parent: Any = _parent()

    class Algorithm(parent):  # type: ignore[misc]  # known only when it runs
        """One method under DomainBed's contract."""

        steps: Tensor

        def __init__(
            self,
            input_shape: Sequence[int],
            num_classes: int,
            num_domains: int,
            hparams: Mapping[str, Any],
        ) -> None:
            super().__init__(input_shape, num_classes, num_domains, hparams)
            if input_shape[0] != 3:
                raise ValueError(
                    f"images have {input_shape[0]} channels, but {backbone!r} takes 3: choose a "
                    "dataset of RGB images"
                )
            self.warm_up = hparams.get("warm_up", 0)
            names = [f"source {number}" for number in range(num_domains)]
            self.domain_count = num_domains
            self.method = create(
                method,
                build(backbone, num_classes, weights),
                [*names, "target"] if kind.uses_target else names,
                options,
            )
            self.optimizer = torch.optim.Adam(
                [p for p in self.method.parameters() if p.requires_grad],
                lr=hparams["lr"],
                weight_decay=hparams["weight_decay"],
            )
            self.register_buffer("steps", torch.tensor(0))

        def update(
            self, minibatches: Minibatches, unlabeled: Sequence[Tensor] | None = None
        ) -> dict[str, float]:
            """Trains for one step.

            Args:
                minibatches: images, (N, 3, H, W), and labels, (N,), of each source domain.
                unlabeled: images of each test domain, (N, 3, H, W), for methods that use them.

            Returns:
                The loss.
            """
            if len(minibatches) != self.domain_count:
                raise ValueError(
                    f"there are {len(minibatches)} minibatches, but {self.domain_count} domains: "
                    "give one of each"
                )
            batches = list(minibatches)
            if kind.uses_target:
                batches.append(_target(unlabeled, method, batches[0][1]))
            images = torch.cat([x for x, _ in batches])
            labels = torch.cat([y for _, y in batches])
            sizes = torch.tensor([len(y) for _, y in batches])
            domains = torch.arange(len(batches)).repeat_interleave(sizes).to(labels.device)
            self.method.begin_epoch(int(self.steps), self.warm_up)
            self.method.train()
            loss = torch.zeros((), device=images.device)
            TrainingStep(self.method, self.optimizer, loss)(images, labels, domains)
            self.steps += 1
            return {"loss": loss.item()}

        def predict(self, x: Tensor) -> Tensor:
            """The logits of images of unknown domain, (N, classes), always in evaluation mode.

            Args:
                x: (N, 3, H, W).
            """
            training = self.training
            self.eval()
            try:
                return self.method.predict(x)
            finally:
                self.train(training)

    Algorithm.__name__ = Algorithm.__qualname__ = method
    return Algorithm


class _StandIn(nn.Module):
    """What DomainBed's `Algorithm` does when made, where DomainBed is not installed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        *_, self.hparams = arguments


def _parent() -> type[nn.Module]:
    try:
        from domainbed.algorithms import Algorithm  # type: ignore[import-not-found]
    except ImportError:
        return _StandIn
    parent: type[nn.Module] = Algorithm
    return parent


def _target(unlabeled: Sequence[Tensor] | None, method: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """All test domains' images as one domain, with labels that count for nothing."""
    if not unlabeled:
        raise ValueError(
            f"method {method!r} learns from unlabelled images of the target: run DomainBed with "
            "--task domain_adaptation and --uda_holdout_fraction"
        )
    images = torch.cat(list(unlabeled))
    return images, like.new_full((len(images),), UNLABELLED)


DATASETS = {
    "pacs": "PACS",
    "vlcs": "VLCS",
    "office_home": "OfficeHome",
    "terra_incognita": "TerraIncognita",
    "domain_net": "DomainNet",
}
"""DomainBed's names of the benchmarks that both have."""


def export(records: Path, out: Path) -> int:
    """Writes the runs of a file of records for DomainBed; of a run recorded twice, the first.

    Args:
        records: as `bne benchmark` writes them.
        out: a new folder, for DomainBed's `collect_results` to read.

    Returns:
        The number of runs written.

    Raises:
        DataError: There are no records, one cannot be exported, or the folder is not empty; then
            nothing is written.
    """
    found = read(records)
    if not found:
        raise DataError(f"{records} has no records; name a file that `bne benchmark` has written.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is there already and not an empty folder; name a new one.")
    runs = _runs(found, out)
    for folder, lines in runs.items():
        folder.mkdir(parents=True)
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
        (folder / "results.jsonl").write_text(text, encoding="utf-8")
    return len(runs)


def _runs(records: Sequence[Record], out: Path) -> dict[Path, list[dict[str, Any]]]:
    """The lines of every run, by its folder."""
    runs: dict[Path, list[dict[str, Any]]] = {}
    kinds: dict[tuple[str, str], list[object]] = {}
    done: list[tuple[object, ...]] = []
    for number, record in enumerate(records):
        dataset, environments = _environments(record)
        # Runs of one name and other settings are another choice of hyperparameters.
        alike = kinds.setdefault((dataset, record.row), [])
        kind = _kind(record)
        if kind not in alike:
            alike.append(kind)
        run = (dataset, record.row, kind, record.settings["target"], record.settings["seed"])
        if run in done:
            continue
        done.append(run)
        folder = out / f"{number:05d}_{record.digest}"
        both = {
            "args": {
                **_args(record, dataset, environments),
                "hparams_seed": alike.index(kind),
                "output_dir": str(folder),
            },
            "hparams": _hparams(record.settings),
        }
        runs[folder] = [{**line, **both} for line in _epochs(record, environments)]
    return runs


def _environments(record: Record) -> tuple[str, list[str]]:
    """DomainBed's name of the dataset, and its domains in the order of their numbers there."""
    sources = record.settings["sources"] or [d for e in record.epochs[-1:] for d in e["validation"]]
    if not sources:
        raise DataError(
            f"The record of {record.row}, digest {record.digest}, does not tell its source "
            "domains; run it with `sources` named, or with validation images."
        )
    domains = sorted({*sources, *record.settings["target"]})
    for name, dataset in DATASETS.items():
        if list(BENCHMARKS[name].domains) == domains:
            return dataset, domains
    return "+".join(domains), domains


def _kind(record: Record) -> object:
    """What runs of one choice of hyperparameters have in common."""
    return digest({**record.settings, "target": [], "sources": [], "seed": 0}), record.materials


def _epochs(record: Record, environments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What was measured after each epoch of training, the head's apart, in DomainBed's words."""
    step = 0
    for epoch in record.epochs:
        # Exact statistics come after the last step, and are told from it by a step more.
        step += 1 if epoch["statistics"] == "exact" else epoch["steps"]
        if epoch["phase"] != "train":
            continue
        line = {
            "step": step,
            "epoch": epoch["epoch"],
            "loss": epoch["loss"],
            "step_time": epoch["seconds"] / epoch["steps"],
        }
        for number, domain in enumerate(environments):
            if domain in epoch["target"]:
                line[f"env{number}_in_acc"] = _accuracy(epoch["target"][domain])
                line[f"env{number}_out_acc"] = _accuracy(epoch["target"][domain])
            elif domain in epoch["validation"]:
                line[f"env{number}_out_acc"] = _accuracy(epoch["validation"][domain])
        yield line


def _accuracy(score: Mapping[str, int]) -> float:
    return score["correct"] / score["images"]


def _args(record: Record, dataset: str, environments: Sequence[str]) -> dict[str, Any]:
    """The arguments that DomainBed's `train` would have been started with."""
    settings = record.settings
    adapts = find(settings["method"]).method.uses_target
    shared = settings["validation"]
    return {
        "algorithm": record.row,
        "dataset": dataset,
        "test_envs": [environments.index(domain) for domain in settings["target"]],
        "seed": settings["seed"],
        "trial_seed": settings["seed"],
        "task": "domain_adaptation" if adapts else "domain_generalization",
        "holdout_fraction": None if shared == "official" else shared,
        "uda_holdout_fraction": 1.0 if adapts else 0.0,
        "steps": sum(e["steps"] for e in record.epochs if e["statistics"] != "exact"),
        "checkpoint_freq": max((epoch["steps"] for epoch in record.epochs), default=None),
        "data_dir": None,
        "hparams": None,
        "save_model_every_checkpoint": False,
        "skip_model_save": True,
    }


def _hparams(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings, and those that DomainBed has too under its names."""
    optimiser = settings["train"]["optimiser"]
    return {
        **settings,
        "lr": optimiser["learning_rate"],
        "weight_decay": optimiser["weight_decay"],
        "batch_size": settings["per_domain"],
    }


def main() -> None:
    """The command line; what the user can mend is one sentence and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m bne.interop.domainbed",
        description="Write recorded runs as files that DomainBed's collect_results reads.",
    )
    parser.add_argument("records", type=Path, help="as `bne benchmark` writes them")
    parser.add_argument("out", type=Path, help="a new folder")
    arguments = parser.parse_args()
    try:
        count = export(arguments.records, arguments.out)
    except (DataError, OSError) as error:
        sys.exit(f"Error: {error}")
    print(f"{count} runs are in {arguments.out}")


if __name__ == "__main__":
    main()
