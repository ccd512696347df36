"""The command line, run as the console script runs it."""

import io
import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from bne import cli

SMALL = (
    "backbone=small_cnn weights=null resize=32 per_domain=4 validation=0.2 head.epochs=1 "
    "train.epochs=1 train.warm_up=0"
)
SETTINGS = [part for setting in SMALL.split() for part in ("--set", setting)]


class Said(NamedTuple):
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Pipe(io.TextIOWrapper):
    """A stream with bytes below, as the standard ones have, that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def getvalue(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


class Terminal(Pipe):
    """The same, on a screen."""

    def isatty(self) -> bool:
        return True


def bne(*arguments: object, code: int | str = 0, on: type[Pipe] = Pipe) -> Said:
    """What a command says that ends with an exit code."""
    said = on(), on()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bne", *map(str, arguments)])
        patch.setattr(sys, "stdout", said[0])
        patch.setattr(sys, "stderr", said[1])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert (caught.value.code or 0) == code, said[1].getvalue()
    return Said(*(text.getvalue() for text in said))


def refusal(*arguments: object) -> str:
    """The one sentence of a command that does nothing else."""
    said = bne(*arguments, code=1)
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    return said.err


@contextmanager
def full_disk() -> Iterator[None]:
    """A context in which no file can be longer than four bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
