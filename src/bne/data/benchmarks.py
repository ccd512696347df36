"""The benchmarks of the field: what each holds, which targets it tests, where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Benchmark:
    """A declaration to check a copy of the images against, and the protocol to test on it.

    Attributes:
        name: As given on the command line.
        title: As written in tables.
        domains: Folder or archive names, in alphabetical order.
        class_count: How many classes it has.
        origin: The paper, and where the images are to be had.
        terms: Under what terms, as far as the source states them.
        classes: Their names, in alphabetical order; empty where only their number is declared.
        class_counts: For each domain, images per class, in the order of `classes`; empty where not
            declared.
        counts: Images per domain, by default the sums of `class_counts`; empty where copies in use
            differ.
        targets: The groups of domains held out, one experiment each; by default each domain once.
        split_file: The official split beside the images, columns domain, file and split.
    """

    name: str
    title: str
    domains: tuple[str, ...]
    class_count: int
    origin: str
    terms: str
    classes: tuple[str, ...] = ()
    class_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[tuple[str, ...], ...] = ()
    split_file: str | None = None

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", tuple((domain,) for domain in self.domains))
        if not self.counts:
            sums = {domain: sum(by_class) for domain, by_class in self.class_counts.items()}
            object.__setattr__(self, "counts", sums)

    @property
    def provenance(self) -> str:
        """One sentence on where the images come from and under what terms."""
        return f"{self.title}: {self.origin} (terms: {self.terms})."


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


RESEARCH_ONLY = "no licence stated; research use"

PACS = Benchmark(
    name="pacs",
    title="PACS",
    domains=("art_painting", "cartoon", "photo", "sketch"),
    class_count=7,
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    class_counts={
        "art_painting": (379, 255, 285, 184, 201, 295, 449),
        "cartoon": (389, 457, 346, 135, 324, 288, 405),
        "photo": (189, 202, 182, 186, 199, 280, 432),
        "sketch": (772, 740, 753, 608, 816, 80, 160),
    },
    split_file="split.csv",
    origin="Li et al., Deeper, Broader and Artier Domain Generalization, ICCV 2017; project page",
    terms=RESEARCH_ONLY,
)

OFFICE_31 = Benchmark(
    name="office31",
    title="Office-31",
    domains=("amazon", "dslr", "webcam"),
    class_count=31,
    classes=_words(
        "back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp"
        " desktop_computer file_cabinet headphones keyboard laptop_computer letter_tray"
        " mobile_phone monitor mouse mug paper_notebook pen phone printer projector punchers"
        " ring_binder ruler scissors speaker stapler tape_dispenser trash_can"
    ),
    class_counts={
        "amazon": _numbers(
            "92 82 72 82 36 94 91 97 97 81 99 100 100 98 100 99 100 94 96 95 93 100 98 98 90 75 100"
            " 99 99 96 64"
        ),
        "dslr": _numbers(
            "12 21 24 12 16 12 13 14 15 15 13 10 24 16 31 22 12 8 10 10 13 15 23 18 10 7 18 26 21"
            " 22 15"
        ),
        "webcam": _numbers(
            "29 21 28 12 16 31 40 18 21 19 27 27 30 19 30 43 30 27 28 32 16 20 30 27 40 11 25 30 24"
            " 23 21"
        ),
    },
    origin="Saenko et al., Adapting Visual Category Models to New Domains, ECCV 2010; project page",
    terms=RESEARCH_ONLY,
)

OFFICE_CALTECH = Benchmark(
    name="office_caltech",
    title="Office-Caltech",
    domains=("amazon", "caltech", "dslr", "webcam"),
    class_count=10,
    classes=_words(
        "backpack bike calculator headphones keyboard laptop_computer monitor mouse mug projector"
    ),
    class_counts={
        "amazon": (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
        "caltech": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
        "dslr": (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
        "webcam": (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
    },
    targets=(("amazon",), ("caltech",), ("dslr", "webcam"), ("amazon", "caltech")),
    origin="Gong et al., Geodesic Flow Kernel for Unsupervised Domain Adaptation, CVPR 2012",
    terms=RESEARCH_ONLY,
)

VLCS = Benchmark(
    name="vlcs",
    title="VLCS",
    domains=("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    class_count=5,
    classes=("bird", "car", "chair", "dog", "person"),
    counts={"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
    origin="Fang et al., Unbiased Metric Learning, ICCV 2013; folders as in DomainBed",
    terms="those of the four datasets it is drawn from; research use",
)

OFFICE_HOME = Benchmark(
    name="office_home",
    title="Office-Home",
    domains=("Art", "Clipart", "Product", "Real World"),
    class_count=65,
    classes=_words(
        "Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair"
        " Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet"
        " Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade"
        " Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil"
        " Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink"
        " Sneakers Soda Speaker Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam"
    ),
    counts={"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
    origin="Venkateswara et al., Deep Hashing Network, CVPR 2017; project page",
    terms="see the project page; research use",
)

TERRA_INCOGNITA = Benchmark(
    name="terra_incognita",
    title="TerraIncognita",
    domains=("location_100", "location_38", "location_43", "location_46"),
    class_count=10,
    classes=_words("bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel"),
    # No counts: DomainBed's copies differ with the release of the annotations they were made from.
    origin="Beery et al., Recognition in Terra Incognita, ECCV 2018; images at"
    " https://lila.science/datasets/caltech-camera-traps, folders as in DomainBed",
    terms="those of Caltech Camera Traps on its page at LILA BC",
)

DOMAIN_NET = Benchmark(
    name="domain_net",
    title="DomainNet",
    domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    class_count=345,
    counts={
        "clipart": 48129,
        "infograph": 51605,
        "painting": 72266,
        "quickdraw": 172500,
        "real": 172947,
        "sketch": 69128,
    },
    origin="Peng et al., Moment Matching for Multi-Source Domain Adaptation, ICCV 2019; the cleaned"
    " version at http://ai.bu.edu/M3SDA/",
    terms="see the project page; research use",
)

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        PACS,
        OFFICE_31,
        OFFICE_CALTECH,
        VLCS,
        OFFICE_HOME,
        TERRA_INCOGNITA,
        DOMAIN_NET,
    )
}
"""All that are declared, by name."""


def find_benchmark(name: str) -> Benchmark:
    """The declaration of that name.

    Raises:
        DataError: There is none; the message lists those there are.
    """
    if name not in BENCHMARKS:
        raise DataError(f"There is no benchmark {name!r}; choose from {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]
