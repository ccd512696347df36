"""`bne evaluate`: test a trained model on any domains."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bne.cli import common, screen
from bne.cli.progress import Phase, progress
from bne.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet, Way
    from bne.data.splits import Groups
    from bne.deploy.compare import Difference
    from bne.deploy.manifest import Manifest
    from bne.inspection.evaluate import Accuracies
    from bne.inspection.measures import Measures
    from bne.inspection.observe import Observed, Tell

WORSE = 4  # exit code
MEASURING = 2e-4  # guessed seconds of an image and class, for all draws
EPILOG = "Example: bne evaluate runs/pacs-sketch --data data/pacs --domains sketch"


class Tested(NamedTuple):
    """A model to test.

    Attributes:
        path: as it was named.
        id: the same for the same model.
        info: what is known of it.
        method: that predicts; an exported graph in its place.
        transform: from prepared images to what it takes.
        way: how images are prepared for it.
        device: to compute on.
    """

    path: Path
    id: str
    info: "Manifest"
    method: Any
    transform: Any
    way: "Way"
    device: Any


def evaluate(
    run: common.ModelOrGraph,
    data: common.Data,
    domains: common.Domains = None,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    layers: common.Layers = None,
    classes: Annotated[bool, typer.Option("--classes", help="Also show every class.")] = False,
    branches: Annotated[
        bool,
        typer.Option("--branches", help="Also show the nearest branch, uniform weights and each."),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Another model or .onnx, as it was saved, to compare with.",
            show_default=False,
            rich_help_panel="Another model",
            metavar="MODEL",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --against: exit with code 4 if the model may be worse by more than so many "
            "points, by the lower end of the interval.",
            show_default=False,
            rich_help_panel="Another model",
            metavar="POINTS",
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="A .csv, .jsonl or .parquet file for one row per image, with all probabilities.",
            show_default=False,
            rich_help_panel="Measures",
            metavar="FILE",
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="The class that AUROC, average precision and sensitivity are of.",
            show_default="the mean over all classes",
            rich_help_panel="Measures",
            metavar="CLASS",
        ),
    ] = None,
    specificity: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="At which sensitivity is measured.",
            rich_help_panel="Measures",
            metavar="SHARE",
        ),
    ] = 0.9,
    group: Annotated[
        str | None,
        typer.Option(
            help=r"Pattern on file names, 'patient(\d+)': intervals draw images that share it "
            "together.",
            show_default="a CSV's column group, or the run's pattern",
            rich_help_panel=common.IMAGES,
            metavar="PATTERN",
        ),
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    as_json: common.Json = False,
) -> None:
    """Test a trained model on any domains, seen or not: a row per domain, unseen ones first.

    Accuracy, balanced accuracy, macro F1, AUROC, average precision, sensitivity at a specificity
    and calibration error, with intervals. --classes and --branches show more. With --against, two
    models on the same images: what one gains over the other, and how certain it is. Where images
    have groups, of one patient for instance, intervals draw groups instead of images.
    """
    from bne.data.sources import open_images
    from bne.deploy import rows
    from bne.deploy.predict import is_graph
    from bne.inspection.evaluate import accuracies, show
    from bne.inspection.intervals import numbered
    from bne.inspection.observe import branches as weighed

    if margin is not None and against is None:
        raise SettingsError("--margin compares with another model; name it with --against.")
    alone = {"scores": scores, "branches": branches, "positive": positive}
    if against is not None and (asked := [name for name, given in alone.items() if given]):
        raise SettingsError(f"--{asked[0]} is of one model; leave --against out.")
    if scores is not None:
        rows.check_suffix(scores, "--scores")
        common.check_file(scores, "--scores", data)
    model = _open(run, device, lean=lean, mix=mix, nearest=nearest, layers=layers)
    other = _open(against, device) if against else None
    info = model.info
    if branches and not weighed(model.method):
        reason = "an exported graph tells nothing of its branches"
        if not is_graph(run):
            reason = f"{info.method} has no branches that it weighs"
        raise SettingsError(f"--branches: {reason}; leave it out.")
    if positive is not None and positive not in info.classes:
        near = did_you_mean(positive, info.classes)
        raise SettingsError(f"--positive {positive} is no class of the model; {near}.")
    images = open_images(data)
    wanted = common.parse_names(domains, images.domains) if domains else list(images.domains)
    images.indices_of(wanted)  # fails on an unknown domain before anything is decoded

    def shown(way: "Way") -> "PreparedImages":
        return common.prepare(images, data, cache, way, skip_bad=skip_bad, show=True)

    prepared = shown(model.way)
    groups = _groups(prepared.images, group, info.recipe.get("group"))
    if other is not None:
        there = prepared if other.way == model.way else shown(other.way)
        both = (model, prepared), (other, there)
        _compare(*both, wanted, groups, margin, as_json, classes)
        return
    total = len(prepared.images.indices_of(wanted))
    phases = (
        Phase("Classifying", total),
        Phase("Measuring", total, seconds=MEASURING * len(info.classes)),
    )
    with progress(*phases) as advance:
        tell = partial(advance, "Classifying")
        how = model.method, model.transform, info.classes
        seen = show(*how, prepared, wanted, model.device, tell)
        drawn = numbered([groups[n] for n in seen.numbers.tolist()]) if groups else None
        shares = accuracies(seen, drawn)
        chances = info.calibration.probabilities(seen.logits.numpy())
        place = None if positive is None else info.classes.index(positive)
        tell = partial(advance, "Measuring")
        measures = _measure(seen, chances, specificity, place, drawn, tell)
    counts = {} if drawn is None else {d: len(set(drawn[r])) for d, r in seen.rows().items()}
    if scores is not None:
        told = _rows(seen, chances, prepared)
        with rows.file_writer(scores, told[0]) as write:
            write(told)
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
        about = {"method": info.method, "lean": model.method.lean, "trained_on": list(info.domains)}
        report = {
            **about,
            "groups": counts or None,
            "domains": plain,
            "measures": {
                "leading": measures.leading,
                "unbalanced": list(measures.unbalanced),
                "worst": measures.worst,
                "specificity": specificity,
                "positive": positive,
                "domains": {
                    domain: {name: own and asdict(own) for name, own in measured.items()}
                    for domain, measured in measures.domains.items()
                },
            },
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(shares, measures, info.domains, classes=classes, branches=branches)
        seen_before = any(domain in info.domains for domain in shares)
        _notes(measures, seen_before, positive, specificity)
        _show_groups(counts)


def _open(path: Path, device: str, **mode: Any) -> Tested:
    """A model file, a run's folder or an exported graph; mode is how it answers."""
    from bne import api
    from bne.deploy.engine import GraphMethod
    from bne.deploy.onnx import OnnxEngine
    from bne.deploy.predict import is_graph, open_engine

    if is_graph(path):
        graph, info = open_engine(path, device, **mode)
        assert isinstance(graph, OnnxEngine)
        method = GraphMethod(graph)
        return Tested(path, graph.checksum[:16], info, method, _as_it_is, graph.way, "cpu")
    model = api.load(path, device, **mode)
    own = model.engine
    return Tested(path, model.id, model.info, own.method, own.transform, own.way, own.device)


def _as_it_is(images: Any) -> Any:
    """Images of a graph, which crops and normalizes them in or before itself."""
    return images


def _groups(images: "ImageSet", pattern: str | None, of_run: str | None) -> "Groups":
    """The group of every image, if images have any: told, with them, or by the run's pattern."""
    from bne.data.splits import groups_of

    found = groups_of(images, pattern)
    if not found and of_run:
        try:
            return groups_of(images, of_run)
        except SettingsError:  # other images have other names
            return ()
    return found


def _show_groups(counts: "dict[str, int]") -> None:
    """Says what intervals draw, and where groups are few."""
    from bne.inspection.intervals import FEW
    from bne.words import listed

    if counts:
        told = listed(f"{count} of {domain}" for domain, count in counts.items())
        screen.show_text(f"Intervals draw groups: {told}.")
    if few := [domain for domain, count in counts.items() if count < FEW]:
        screen.show_text(
            f"In {listed(few)} there are fewer than {FEW} groups: intervals are too narrow."
        )


def _measure(
    seen: "Observed",
    chances: Any,
    specificity: float,
    positive: int | None,
    groups: Any,
    tell: "Tell",
) -> "Measures":
    from bne.inspection.measures import measure_domains

    places = {domain: own.numpy() for domain, own in seen.rows().items()}
    return measure_domains(
        {domain: seen.truth.numpy()[own] for domain, own in places.items()},
        {domain: chances[own] for domain, own in places.items()},
        specificity=specificity,
        positive=positive,
        groups=None if groups is None else {d: groups[own] for d, own in places.items()},
        tell=tell,
    )


def _rows(seen: "Observed", chances: Any, prepared: "PreparedImages") -> list[dict[str, Any]]:
    """One per image: what it is, and what the model says."""
    columns = [f"probability_{name}" for name in seen.classes]
    facts = zip(
        seen.numbers.tolist(),
        seen.domain.tolist(),
        seen.truth.tolist(),
        chances.argmax(1).tolist(),
        chances.tolist(),
        strict=True,
    )
    return [
        {
            "file": prepared.images.files[number].name,
            "domain": seen.domains[domain],
            "class": seen.classes[truth],
            "prediction": seen.classes[answer],
            **dict(zip(columns, own, strict=True)),
        }
        for number, domain, truth, answer, own in facts
    ]


def _compare(
    ours: "tuple[Tested, PreparedImages]",
    theirs: "tuple[Tested, PreparedImages]",
    domains: list[str],
    groups: "Groups",
    margin: float | None,
    as_json: bool,
    classes: bool,
) -> None:
    from bne.deploy.compare import ALL, Candidate, compare
    from bne.training.events import LEADS
    from bne.words import listed

    one, other = (
        Candidate(model.method, model.transform, model.info.classes, prepared, model.device)
        for model, prepared in (ours, theirs)
    )
    total = 2 * len(ours[1].images.indices_of(domains))
    with progress(Phase("Classifying", total)) as advance:
        tell = partial(advance, "Classifying")
        found = compare(one, other, domains, groups, tell)
    if as_json:
        parts = {"domains": found.domains, "classes": found.classes}
        report = {
            "model": {"path": str(ours[0].path), "id": ours[0].id},
            "against": {"path": str(theirs[0].path), "id": theirs[0].id},
            "leading": found.leading,
            "unbalanced": list(found.unbalanced),
            "groups": found.groups,
            "total": _plain(found.total),
            **{kind: {n: _plain(d) for n, d in own.items()} for kind, own in parts.items()},
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        named = {ALL: found.total}
        named |= {f"domain {name}": own for name, own in found.domains.items()}
        if classes:
            named |= {f"class {name}": own for name, own in found.classes.items()}
        _show_differences(named, found.groups)
        if found.unbalanced:
            screen.show_text(LEADS.format(listed(found.unbalanced)))
    if margin is not None and found.lowest < -margin:
        typer.echo(
            f"{ours[0].path} may be worse than {theirs[0].path} by {-found.lowest:.1f} points of "
            f"{found.leading.replace('_', ' ')}, more than the margin of {margin:g}.",
            err=True,
        )
        raise typer.Exit(WORSE)


def _plain(own: "Difference") -> dict[str, Any]:
    plain = {"difference": own.difference, **asdict(own)}
    if own.balanced:
        plain["balanced"] = {"difference": own.balanced.difference, **plain["balanced"]}
    return plain


def _show_differences(parts: "dict[str, Difference]", groups: int | None) -> None:
    head = ("", "images", "model", "other", "difference", "balanced", "gained", "lost", "p")
    rows = []
    for name, own in parts.items():
        percent = (f"{100 * right / own.images:.1f}" for right in (own.correct, own.against))
        gaps = (
            f"{one.difference:+.1f} ({one.low:+.1f} to {one.high:+.1f})" if one else "–"
            for one in (own, own.balanced)
        )
        counts = map(str, (own.gained, own.lost))
        rows.append((name, str(own.images), *percent, *gaps, *counts, f"{own.p:.2g}"))
    screen.show_table(head, rows, "Accuracy in percent, and what the model gains over the other")
    screen.show_text(
        "Difference in points, and that of balanced accuracy, with 95 % bootstrap intervals, which "
        f"draw {'images' if groups is None else f'{groups} groups'}; gained and lost: images that "
        "only the model, or only the other, classifies correctly; p: McNemar's exact test, which "
        "takes images for independent."
    )


def _show(
    shares: "Accuracies",
    measures: "Measures",
    seen: tuple[str, ...],
    *,
    classes: bool,
    branches: bool,
) -> None:
    """Prints a row per domain, unseen ones first; answers of branches and classes if wanted."""
    from bne.inspection.evaluate import ALL
    from bne.inspection.measures import NAMES

    first = measures.leading
    titles = {name: name.replace("_", " ") for name in (first, *NAMES)}
    titles |= {"macro_f1": "macro F1", "auroc": "AUROC"}
    named = {domain: f"{domain}, seen" if domain in seen else domain for domain in shares}
    order = sorted(shares, key=lambda domain: domain in seen)
    rows = [
        (
            named[domain],
            str(shares[domain]["prediction"][ALL].images),
            *(str(measures.domains[domain][name] or "–") for name in titles),
        )
        for domain in order
    ]
    if len(rows) > 1:
        rows.append(("worst domain", "", *(measures.worst.get(name, "–") for name in titles)))
    screen.show_table(("domain", "images", *titles.values()), rows, "Measures of the prediction")
    answers = list(shares[order[0]]) if branches else ["prediction"]
    if branches:
        told = [(named[one], *(str(shares[one][w][ALL]) for w in answers)) for one in order]
        screen.show_table(("domain", *answers), told, "Accuracy of branches")
    for domain in order if classes else ():
        own = shares[domain]
        told = [
            (name, str(share.images), *(str(own[whose][name]) for whose in answers))
            for name, share in own["prediction"].items()
        ]
        screen.show_table(
            ("class", "images", *answers), told, f"Accuracy by class: {named[domain]}"
        )


def _notes(measures: "Measures", seen: bool, positive: str | None, specificity: float) -> None:
    """Says what the figures are."""
    from bne.training.events import LEADS
    from bne.words import listed

    ranked = f"of the class {positive}" if positive else "means over classes, each against the rest"
    notes = [
        "In percent, with 95 % intervals; AUROC, average precision and sensitivity, at "
        f"{100 * specificity:g} % specificity, are {ranked}."
    ]
    if seen:
        notes.append("Seen: the model was trained on this domain.")
    if measures.unbalanced:
        notes.append(LEADS.format(listed(measures.unbalanced)))
    screen.show_text(" ".join(notes))
