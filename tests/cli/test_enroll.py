from pathlib import Path

import bne as library
from tests.cli.command import bne, refusal

Runs = dict[str, Path]


def test_a_domain_is_enrolled_and_forgotten(runs: Runs, here: Path) -> None:
    words = ("enroll", runs["bne"], runs["data"] / "photo", "--name", "photo", "--out", "new.bne")
    bne(*words, "--recenter")
    assert library.load("new.bne", "cpu").info.central == 3
    assert bne(*words).out.startswith("new.bne: art, sketch, photo; photo from 12 images")
    made = library.load("new.bne", "cpu").info
    assert (made.enrolled["photo"]["images"], made.central) == (12, 2)
    bne("forget", "new.bne", "photo", "--out", "old.bne")
    assert Path("old.bne").read_bytes() == (runs["bne"] / "model.bne").read_bytes()


def test_refusals_write_nothing(runs: Runs, here: Path) -> None:
    photos = runs["data"] / "photo"
    assert "has a domain of that name" in refusal(
        "enroll", runs["bne"], photos, "--name", "art", "--out", "new.bne"
    )
    assert "deepall has no branches" in refusal(
        "enroll", runs["deepall"], photos, "--name", "photo", "--out", "new.bne"
    )
    assert "no domain 'photo'" in refusal("forget", runs["bne"], "photo", "--out", "new.bne")
    assert list(here.glob("*.bne")) == []
