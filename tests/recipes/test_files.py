import csv
import math
import re
from pathlib import Path

import pytest

import bne.methods
from bne.errors import BneError, SettingsError
from bne.recipes.files import dump, load, load_experiment, names, parse
from bne.recipes.schema import Optimiser, Recipe, Schedule, keys
from bne.training.files import plain

REFERENCE = Path(bne.methods.__file__).parents[1] / "benchmark" / "reference.csv"
SMALL = {"backbone": "small_cnn", "weights": None, "resize": 32, "target": ["sketch"]}

TOO_SMALL = {"size": 30, "resize": 32}


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def of_row(table: str, title: str, **overrides: object):
    experiment = load_experiment(table)
    row = next(row for row in experiment.rows if row.title == title)
    return experiment.recipe({"target": experiment.targets[0], **overrides}, row)


@pytest.mark.parametrize("name", names())
def test_every_shipped_recipe_loads_with_all_its_rows(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.title != name
    for row in experiment.rows or [None]:
        recipe = experiment.recipe({"target": ["sketch"]}, row)
        own = row.settings if row else experiment.settings
        assert recipe.method == own.get("method", "bne")
    titles = [row.title for row in experiment.rows]
    assert len(set(titles)) == len(titles)


def test_every_table_of_the_paper_has_a_recipe_with_the_rows_we_can_train() -> None:
    if not REFERENCE.is_file():
        pytest.skip("needs the paper's figures")
    with REFERENCE.open() as file:
        cells = list(csv.DictReader(file))
    ours = {"InstanceNorm", "BatchNorm", "FreezeBatchNorm"}
    known = {entry.name for entry in bne.methods.entries()}
    ours |= {cell["method"] for cell in cells if cell["method"].lower() in known}
    for table in {cell["table"] for cell in cells}:
        experiment = load_experiment(table)
        mine = [cell for cell in cells if cell["table"] == table]
        assert experiment.benchmark == mine[0]["dataset"]
        assert str(experiment.settings["backbone"]).startswith(mine[0]["backbone"])
        rows = {(row.name, row.variant) for row in experiment.rows}
        if experiment.analysis in (None, "domain-accuracy"):
            targets = {"+".join(target) for target in experiment.targets}
            assert targets <= {cell["target"] for cell in mine}
            assert {(c["method"], c["variant"]) for c in mine if c["method"] in ours} <= rows
        else:
            assert rows == {("BNE", "no-dt,no-warmup")}
            if experiment.analysis == "similarity":
                assert experiment.targets == ((table.split("-")[-2],),)


def test_the_papers_settings() -> None:
    resnet = of_row("sota-pacs-resnet18", "BNE")
    assert (resnet.per_domain, resnet.validation) == (16, "official")
    assert (resnet.head.epochs, resnet.train.epochs) == (20, 60)
    for phase in (resnet.head, resnet.train):
        assert phase.optimiser == Optimiser("adam", 1e-4, 0.0, 1e-6, head_factor=1.0, clip=None)
    alexnet = of_row("distance-pacs-alexnet", "BNE (uniform)")
    assert (alexnet.per_domain, alexnet.calibrate) == (64, True)
    assert alexnet.options == {"distance": "uniform"}
    assert alexnet.train.schedule == Schedule("exponential", decay=0.95)
    assert alexnet.train.optimiser.learning_rate == 1e-3
    assert (alexnet.train.optimiser.momentum, alexnet.train.optimiser.weight_decay) == (0.95, 5e-5)
    office = of_row("sota-office31-alexnet", "BNE")
    assert (office.train.epochs, office.train.optimiser.learning_rate) == (100, 1e-4)
    assert (office.train.optimiser.momentum, office.per_domain) == (0.95, 6)
    assert of_row("sota-officecaltech-alexnet", "BNE").train.optimiser.learning_rate == 1e-3
    assert of_row("batchsize-pacs-alexnet", "BNE (16-per-domain)").per_domain == 16


def test_our_own_recipes() -> None:
    standard = load("pacs-resnet18-standard", {"target": ["sketch"]})
    strong = load("pacs-resnet18-strong", {"target": ["sketch"]})
    assert (standard.epoch, standard.validation) == (220, "official")
    assert standard.exact_statistics is False
    assert (standard.train.epochs, standard.train.warm_up, standard.head.epochs) == (20, 6, 2)
    assert standard.train.optimiser.head_factor == 10
    differing = {k for k, v in strong.to_dict().items() if v != standard.to_dict()[k]}
    assert differing == {"augmentation", "exact_statistics"}


def test_settings_come_from_the_base_the_file_the_row_and_the_overrides(tmp_path: Path) -> None:
    write(tmp_path, "method: bne\nseed: 1\ntrain: {epochs: 9, warm_up: 2}", "first.yaml")
    rows = "rows: [{name: one, per_domain: 3, seed: 5}]"
    path = write(tmp_path, f"base: first.yaml\ntrain: {{epochs: 7}}\n{rows}")
    experiment = load_experiment(path)
    recipe = experiment.recipe({**SMALL, "train.epochs": 8}, experiment.rows[0])
    assert (recipe.train.epochs, recipe.train.warm_up) == (8, 2)
    assert (recipe.seed, recipe.per_domain) == (5, 3)
    assert recipe.head.epochs == 2  # the default
    assert experiment.recipe(SMALL).seed == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epcoh: 2", "epcoh is no setting; the nearest is 'epoch'"),
        ("epocs: 2", "epocs is no setting; the nearest is 'epochs'"),  # a short name
        ("tilte: x", "tilte is no setting; the nearest is 'title'"),
        ("train: {epcohs: 2}", "train.epcohs is no setting; the nearest is 'train.epochs'"),
        ("head: {optimiser: {learnig_rate: 1}}", "nearest is 'head.optimiser.learning_rate'"),
        ("clip: 2", "nearest is 'head.optimiser.clip' or 'train.optimiser.clip'"),
        ("train: {zzz: 2}", "train.zzz is no setting; there are train.epochs, train.warm_up,"),
        ("lr: 1\ntrain: {lr: 2}", "train.optimiser.learning_rate is there twice, once as train."),
        ("batch_size: 0", "per_domain is 0; it must be at least 1"),
        ("optimizer: adm", "train.optimiser.name is 'adm'; it must be 'adam' or 'sgd' or 'adamw'"),
        ("train: 3", "train is 3; it must be a group"),
        ("options: [1]", "options is [1]; it must be a group"),
        ("train: {epochs: -1}", "train.epochs is -1; it must be at least 0 and at most 1,000,000"),
        (f"head: {{epochs: {10**20}}}", f"head.epochs is {10**20}; it must be at least 0 and at"),
        (f"epoch: {10**20}", f"epoch is {10**20}; it must be at least 1 and at most 1,000,000"),
        ("train: {epochs: 1.5}", "train.epochs is 1.5; it must be a whole number"),
        ("per_domain: true", "per_domain is True; it must be a whole number"),
        ("flip: 1", "flip is 1; it must be true or false"),
        ("target: sketch", "target is 'sketch'; it must be a list"),
        ("target: [1]", "target is [1]; it must be a text"),
        ("validation: 1", "validation is 1; it must be at least 0 and below 1"),
        ("seed: .nan", "seed is nan; it must be a whole number"),
        ("train: {optimiser: {learning_rate: .inf}}", "learning_rate is inf; it must be a number"),
        ("train: {schedule: {name: cosin}}", "train.schedule.name is 'cosin'; it must be 'const"),
        ("rows: [{method: bne}]", "rows has {'method': 'bne'}; each row must have a name"),
        ("rows: [{name: a, sead: 1}]", ", row a: sead is no setting; the nearest is 'seed'"),
        ("rows: 3", "rows is 3; it must be a list"),
        ("analysis: similarty", "or 'similarity'"),
        ("base: mine.yaml", "base leads back to this file"),
        ("base: pacs-resnet81", "There is no recipe pacs-resnet81; the nearest is 'pacs-resnet18"),
        ("base: no.yaml", "there is no such recipe file"),
        ("benchmark: pcas", "There is no benchmark 'pcas'; the nearest is 'pacs'"),
        ("seed: 1\nseed: 2", "YAML format: the key seed is there twice"),
        ("seed: [", "YAML format: "),
        ("? [seed]\n: 1", "YAML format: a key must be a text"),
        ("", "must hold settings"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BneError, match=re.escape(expected)) as caught:
        load_experiment(write(tmp_path, text))
    if "benchmark" not in text and "There is no recipe" not in expected:
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"train.epcohs": 2}, "train.epcohs is no setting; the nearest is 'train.epochs'"),
        ({"train.epochs": 0, "train.warm_up": 0}, "train.epochs is 0; it must be at least 1"),
        ({"patience": 2, "validation": 0}, "patience needs validation, which is 0"),
        ({"train.warm_up": 30}, "train.warm_up is 30, more than train.epochs, 20; choose"),
        ({"method": "bme"}, "method: method 'bme' is unknown; the nearest is 'bne'"),
        ({"options.distnace": 1}, "options.distnace: method 'bne' has no option 'distnace'; the"),
        ({"options.mix": "logit"}, "options.mix is 'logit'; it must be 'logits' or 'probabilities"),
        ({"options.distance": "unifrom"}, "options: no distance is named 'unifrom'"),
        ({"options.distance": [1]}, "options.distance is [1]; it must be a text or a function"),
        ({"target": ["sketch", "sketch"]}, "target has sketch twice"),
        ({"sources": ["art", "photo", "art"]}, "sources has art twice"),
        ({"backbone": "timm/test_vit", "resize": 160}, "backbone timm/test_vit: VisionTransf"),
        ({"backbone": "timm/mobilenetv5_300m_enc", "resize": 768}, "mobilenetv5_300m_enc is no cl"),
        ({"options.layers": ["nope"]}, "options: no batch-norm layer is named ['nope']"),
        ({"backbone": "resnet81"}, "backbone: unknown backbone 'resnet81': the nearest is 'resnet"),
        ({"weights": "absent.pth"}, "weights: there is no file absent.pth"),
        ({"weights": "timm"}, "weights is timm, which has none for backbone small_cnn"),
        ({"resize": 31}, "resize is 31, less than the 32 pixels that backbone small_cnn takes"),
        ({"size": 40, "resize": 39}, "resize is 39, less than the 40 pixels of size"),
        ({"size": 0}, "size is 0; it must be at least 1"),
        ({**TOO_SMALL, "backbone": "alexnet_bn"}, "size is 30, which backbone alexnet_bn cannot"),
        ({"size": 1}, "size is 1, which backbone small_cnn cannot take (no batch norm sees more"),
        ({**TOO_SMALL, "backbone": "timm/inception_v3"}, "which backbone timm/inception_v3 cannot"),
        ({"balance": "class"}, "balance is 'class'; it must be 'none' or 'sampling' or 'weights'"),
        ({"fit": "crop"}, "fit is 'crop'; it must be 'squash' or 'letterbox'"),
        ({"accumulate": 3}, "per_domain is 16, which accumulate=3 does not divide"),
        ({"sources": ["sketch"]}, "sketch is in target and in sources"),
    ],
)
def test_what_is_wrong_in_a_setting_is_named(overrides: dict[str, object], expected: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(expected)) as caught:
        load("default", {**SMALL, **overrides})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", bne.methods.entries(), ids=lambda entry: entry.name)
def test_every_method_can_be_checked_with_its_own_options(entry) -> None:
    options = {f"options.{key}": value for key, value in entry.options.items()}
    assert load("default", {**SMALL, "method": entry.name, **options}).method == entry.name


@pytest.mark.parametrize("name", ["sota-pacs-resnet81", "absent.yaml"])
def test_an_unknown_recipe_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load(name, SMALL)


def test_a_resolved_recipe_is_a_file_that_gives_it_again(tmp_path: Path) -> None:
    target = ["photo", "1e4", "12", "no", "café: a"]
    recipe = load("pacs-resnet18-strong", {"target": target, "train.optimiser.clip": 2})
    path = write(tmp_path, dump(plain(recipe.to_dict())))
    assert load(path, {}) == recipe


def test_every_setting_can_be_overridden_by_its_key() -> None:
    recipe = load("default", SMALL)
    for key, hint in keys().items():
        value: object = recipe
        for part in key.split("."):
            value = getattr(value, part)
        assert load_experiment("default").recipe({**SMALL, key: value}) == recipe, (key, hint)


def test_resize_follows_size_unless_it_is_set() -> None:
    small = {key: value for key, value in SMALL.items() if key != "resize"}
    for size, resize in {None: 256, 224: 256, 64: 73, 512: 585}.items():
        assert load("default", {**small, "size": size}).resize == resize
    assert load("default", {**small, "size": 64, "resize": 64}).resize == 64


def test_there_is_one_set_of_defaults() -> None:
    assert load("default", {"target": ["sketch"]}) == Recipe(target=("sketch",))


LR, ADAM = "train.optimiser.learning_rate", {"train.optimiser.name": "adam"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *[({key: 0.5}, {LR: 0.5}) for key in ("lr", "learning_rate", "train.lr")],
        ({"train.optimizer.lr": 0.5}, {LR: 0.5}),
        ({"head.lr": 0.5}, {"head.optimiser.learning_rate": 0.5}),
        ({"weight_decay": 0.1}, {"train.optimiser.weight_decay": 0.1}),
        ({"batch_size": 8}, {"per_domain": 8}),
        ({"epochs": 30}, {"train.epochs": 30}),
        *[({key: 3}, {"train.warm_up": 3}) for key in ("warmup", "warm_up", "train.warmup")],
        ({"optimizer": "adam"}, ADAM),
        ({"optimizer": {"name": "adam", "lr": 0.5}}, {**ADAM, LR: 0.5}),
        ({"optimizer": "adam", "optimizer.lr": 0.5}, {**ADAM, LR: 0.5}),
        ({"head.optimizer": "adam"}, {"head.optimiser.name": "adam"}),
        ({"train.schedule": "constant"}, {"train.schedule.name": "constant"}),
        ({"lr": 0.1, LR: 0.5}, {"lr": 0.5}),
        ({"head.warm_up": 3}, {}),
    ],
)
def test_settings_have_the_names_that_people_type(
    tmp_path: Path, given: dict[str, object], meant: dict[str, object]
) -> None:
    recipe = load("default", {**SMALL, **meant})
    assert load("default", {**SMALL, **given}) == recipe
    assert (recipe == load("default", SMALL)) == (not meant)
    if len(given) == 1:  # in a file the same
        ((key, value),) = given.items()
        for part in reversed(key.split(".")):
            value = {part: value}
        assert load(write(tmp_path, dump(value)), SMALL) == recipe


def test_numbers_are_what_people_mean() -> None:
    for text in ("1e-4", "5E3", "-2e+1", "1.5e-3"):
        assert math.isclose(parse(text), float(text))
    assert parse("[1e-4, 12, 1e4x, null]") == [1e-4, 12, "1e4x", None]


def test_nothing_is_unpickled() -> None:
    with pytest.raises(ValueError, match="could not determine a constructor"):
        parse("!!python/object/apply:os.getcwd []")
