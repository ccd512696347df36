"""`bne evaluate`: test a trained model on any domains."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bne.cli import common
from bne.errors import SettingsError

if TYPE_CHECKING:
    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.deploy.classifier import Classifier
    from bne.deploy.compare import Difference
    from bne.inspection.evaluate import Accuracies

    Shown = tuple[Path | None, Classifier, PreparedImages]

WORSE = 4  # exit code
EPILOG = "Example: bne evaluate runs/pacs-sketch --data data/pacs --domains sketch"


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="A model file, or a run's folder.", show_default=False)
    ],
    data: common.Data,
    domains: common.Domains = None,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, as it was saved, to compare with.", show_default=False),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --against: exit with code 4 if the model may be worse by more than so many "
            "points, by the lower end of the interval.",
            show_default=False,
        ),
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Test a trained model on any domains, seen or not: accuracy per domain and class.

    For models with branches also of the nearest branch, of uniform weights and of each branch. With
    --against, two models on the same images: what one gains over the other, and how certain it is.
    """
    from bne import api
    from bne.data.sources import open_images
    from bne.inspection.evaluate import evaluate_model

    if margin is not None and against is None:
        raise SettingsError("--margin compares with another model; name it with --against.")
    model = api.load(run, device, lean=lean, mix=mix, nearest=nearest)
    other = api.load(against, device) if against else None
    info, transform = model.info, model.engine.transform
    images = open_images(data)
    wanted = common.parse_names(domains, images.domains) if domains else list(images.domains)
    images.indices_of(wanted)  # fails on an unknown domain before anything is decoded

    def shown(to: "EvalTransform") -> "PreparedImages":
        way: Any = {"fit": to.fit, "skip_bad": skip_bad, "show": True}
        return common.prepare(images, data, cache, to.resize, **way)

    prepared = shown(transform)
    if other is not None:
        to = other.engine.transform
        same = (to.resize, to.fit) == (transform.resize, transform.fit)
        there = prepared if same else shown(to)
        _compare((run, model, prepared), (against, other, there), wanted, margin, as_json)
        return
    method, where = model.engine.method, model.engine.device
    shares = evaluate_model(method, transform, info.classes, prepared, wanted, where)
    if as_json:
        plain = {
            domain: {
                whose: {
                    name: {"accuracy": share.accuracy, **asdict(share)}
                    for name, share in by_class.items()
                }
                for whose, by_class in by_answer.items()
            }
            for domain, by_answer in shares.items()
        }
        about = {"method": info.method, "lean": method.lean, "trained_on": list(info.domains)}
        report = {**about, "domains": plain}
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(shares, info.domains)


def _compare(
    ours: "Shown", theirs: "Shown", domains: list[str], margin: float | None, as_json: bool
) -> None:
    from bne.deploy.compare import ALL, Candidate, compare

    one, other = (
        Candidate(model.engine.method, model.engine.transform, model.classes, prepared)
        for _, model, prepared in (ours, theirs)
    )
    found = compare(one, other, domains, ours[1].engine.device)
    if as_json:
        groups = {"domains": found.domains, "classes": found.classes}
        report = {
            "model": {"path": str(ours[0]), "id": ours[1].id},
            "against": {"path": str(theirs[0]), "id": theirs[1].id},
            "total": _plain(found.total),
            **{kind: {n: _plain(d) for n, d in own.items()} for kind, own in groups.items()},
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        parts = {ALL: found.total}
        parts |= {f"domain {name}": own for name, own in found.domains.items()}
        parts |= {f"class {name}": own for name, own in found.classes.items()}
        _show_differences(parts)
    if margin is not None and found.total.low < -margin:
        typer.echo(
            f"{ours[0]} may be worse than {theirs[0]} by {-found.total.low:.1f} points, more than "
            f"the margin of {margin:g}.",
            err=True,
        )
        raise typer.Exit(WORSE)


def _plain(own: "Difference") -> dict[str, float]:
    return {"difference": own.difference, **asdict(own)}


def _show_differences(parts: "dict[str, Difference]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", title="Accuracy in percent, and what the model gains over the other")
    for title in ("images", "model", "other", "difference", "gained", "lost", "p"):
        table.add_column(title, justify="right")
    for name, own in parts.items():
        percent = (f"{100 * right / own.images:.1f}" for right in (own.correct, own.against))
        gap = f"{own.difference:+.1f} ({own.low:+.1f} to {own.high:+.1f})"
        counts = map(str, (own.gained, own.lost))
        table.add_row(name, str(own.images), *percent, gap, *counts, f"{own.p:.2g}")
    console = Console(markup=False, highlight=False, width=10_000)  # whole, even in a pipe
    console.print(table)
    console.print(
        "Difference in points, with its 95 % bootstrap interval; gained and lost: images that only "
        "the model, or only the other, classifies correctly; p: McNemar's exact test."
    )


def _show(shares: "Accuracies", seen: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, width=10_000)  # whole, even in a pipe
    for domain, answers in shares.items():
        note = ", seen in training" if domain in seen else ""
        table = Table("class", "images", title=f"{domain}{note}")
        for whose in answers:
            table.add_column(whose, justify="right")
        for name, share in answers["prediction"].items():
            cells = [answers[whose][name] for whose in answers]
            texts = (f"{cell.accuracy:.1f} ({cell.low:.1f}–{cell.high:.1f})" for cell in cells)
            table.add_row(name, str(share.images), *texts)
        console.print(table)
    console.print("Accuracy in percent, with 95 % bootstrap intervals.")
