import pytest

from bne.benchmark.reference import AVERAGE, AVERAGE_CLASS, AVERAGE_DOMAIN, find_table
from bne.benchmark.render import result_grid, result_tables
from bne.benchmark.tables import find_records
from bne.recipes.files import load_experiment
from tests.benchmark.examples import item, record


def score(correct: int, images: int) -> dict[str, int]:
    return {"correct": correct, "images": images}


def analysis(target: dict[str, object], sources: dict[str, object]) -> dict[str, object]:
    return {"target": {"accuracy": target}, "sources": sources}


def test_closest_domain_accuracy_weighs_targets_by_images() -> None:
    name = "closest-domain-accuracy-pacs-resnet18"
    items = [item("bne-a", "photo"), item("bne-a", "sketch")]
    ranks = {
        "photo": [score(90, 100), score(80, 100), score(70, 100)],
        "sketch": [score(150, 300), score(90, 300), score(60, 300)],
    }
    found = [analysis({"by_rank": [{t: s} for s in scores]}, {}) for t, scores in ranks.items()]
    records = [
        record(one, **ranks[one.target][0], analysis=a) for one, a in zip(items, found, strict=True)
    ]
    found = find_records(items, records)
    (table,) = result_tables(load_experiment(name), found)
    assert table.columns == ("photo", "sketch", AVERAGE)
    closest, second, third = table.rows
    assert (closest.name, second.name, third.name) == ("closest", "second", "third")
    assert closest.cells["photo"].mean == pytest.approx(90)
    assert closest.cells["sketch"].mean == pytest.approx(50)
    assert closest.cells[AVERAGE].mean == pytest.approx(60)  # 240 of 400 images
    assert third.cells[AVERAGE].mean == pytest.approx(32.5)
    assert closest.paper["photo"] == 92.75
    (half,) = result_tables(load_experiment(name), [found[0], (items[1], None)])
    assert half.rows[0].cells[AVERAGE].mean is None


def test_domain_accuracy_is_the_mean_over_source_domains() -> None:
    name = "domain-accuracy-pacs-resnet18"
    items = [item("dnet", "photo", row="DNet (no-domain-xe)")]
    told = {"art_painting": score(0, 10), "cartoon": score(0, 500), "sketch": score(30, 30)}
    done = record(items[0], 800, analysis=analysis({}, {"domain_accuracy": {"train": told}}))
    (table,) = result_tables(load_experiment(name), find_records(items, [done]))
    row = next(row for row in table.rows if row.name == "DNet (no-domain-xe)")
    assert row.cells["photo"].mean == pytest.approx(100 / 3)  # one domain for all, as the paper's
    assert row.cells[AVERAGE_DOMAIN].mean == pytest.approx(100 / 3)
    assert row.cells[AVERAGE_CLASS].mean == pytest.approx(80)
    assert row.paper["photo"] == 33.3
    assert [r.name for r in table.rows] == [r.name for r in find_table(name).rows]


def test_similarities_are_shares_of_their_row() -> None:
    name = "similarity-pacs-resnet18-photo-unseen"
    items = [item("bne-a", "photo", seed) for seed in (0, 1)]
    found = [
        {"art_painting": 2.0, "cartoon": 1.0, "sketch": 1.0},
        {"art_painting": 600.0, "cartoon": 200.0, "sketch": 200.0},
    ]
    rest = {"cartoon": found[0], "sketch": found[0]}
    records = [
        record(one, 1, analysis=analysis({}, {"similarity": {"art_painting": row, **rest}}))
        for one, row in zip(items, found, strict=True)
    ]
    (table,) = result_tables(load_experiment(name), find_records(items, records))
    assert table.columns == ("art_painting", "cartoon", "sketch")
    row = table.rows[0]
    assert row.name == "art_painting"
    assert row.cells["art_painting"].values == pytest.approx({0: 50.0, 1: 60.0})
    printed = find_table(name).rows[0].cells
    assert row.paper["cartoon"] == pytest.approx(100 * printed["cartoon"] / sum(printed.values()))
    assert sum(row.paper.values()) == pytest.approx(100)
    grid = result_grid(load_experiment(name), find_records(items, records))
    assert "its scale is arbitrary" in " ".join(grid.notes)


def test_notes_name_weights_and_what_does_not_compare() -> None:
    experiment = load_experiment("distance-pacs-alexnet")
    items = [item("bne", "photo", weights="somewhere/resnet18_imagenet.safetensors")]
    notes = " ".join(result_grid(experiment, [(items[0], None)]).notes)
    assert "Initial weights: resnet18_imagenet.safetensors." in notes
    assert "The paper's figures are of alexnet, not of resnet18." in notes
    adapted = [item("bne-adapt", "photo", row="BNE (adapted)", backbone="alexnet_bn")]
    notes = " ".join(result_grid(experiment, [(adapted[0], None)]).notes)
    assert "Trained with unlabeled images of the target: BNE (adapted)." in notes
    assert "not of" not in notes
