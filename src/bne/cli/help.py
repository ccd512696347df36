"""`--help`: common options first, the rest under headings, in the width of the terminal.

Typer's own help gives a column to types, which leaves little room for words at 80 columns, and
takes half a second to import.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

WIDEST = 100  # columns that read well
LEFT = 28  # columns that names of options take at most
KINDS = {Path: "PATH", int: "N", float: "X"}


class Command(TyperCommand):
    """A verb."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Names arguments as the help does, in errors too: Typer's {model} as MODEL."""
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), piece) for piece in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes usage, what the verb does, its options and an example."""
        formatter.write("\n".join(_text(self, ctx)))


class Group(TyperGroup):
    """Verbs together."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Shows the help if no verb is given: typer's own way prints nothing with our help."""
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes usage, options and what each verb does."""
        formatter.write("\n".join(_text(self, ctx)))


def _text(command: Any, ctx: Any) -> Iterable[str]:
    width = min(WIDEST, shutil.get_terminal_size().columns)
    yield f"Usage: {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield from textwrap.wrap(" ".join(paragraph.split()), width)
        yield ""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        argument = parameter.param_type_name == "argument"
        title = getattr(parameter, "rich_help_panel", None)
        title = title or ("Arguments" if argument else "Options")
        sections.setdefault(title, []).append(_option(parameter, ctx))
    sections = {title: rows for title, rows in sections.items() if rows}
    if len(sections.keys() - {"Arguments", "Options"}) and "Options" in sections:
        sections = {"Common options" if t == "Options" else t: own for t, own in sections.items()}
    if isinstance(command, TyperGroup):
        verbs = ((name, command.get_command(ctx, name)) for name in command.list_commands(ctx))
        sections["Commands"] = [(name, _first_sentence(verb)) for name, verb in verbs if verb]
    for title, rows in sections.items():
        yield _styled(f"{title}:", bold=True)
        left = min(LEFT, max(len(name) for name, _ in rows))
        for name, text in rows:
            yield from _row(name, text, left, width)
        yield ""
    if command.epilog:
        yield from textwrap.wrap(command.epilog, width, break_on_hyphens=False)
        yield ""


def _option(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Its names, with what they take, and its help with the default."""
    help_text = re.sub(
        r"default: \((.*?)\)(?=[];])", r"default: \1", parameter.get_help_record(ctx)[1]
    )
    if parameter.param_type_name == "argument":
        return parameter.name.upper(), help_text
    names = [*parameter.opts[:1], *parameter.secondary_opts[:1]]  # other spellings stay unnamed
    if parameter.is_flag:
        return " / ".join(names), help_text
    kind = _kind(ctx.command.callback, parameter.name)
    if issubclass(kind, Enum):
        help_text = f"{', '.join(one.value for one in kind)}. {help_text}"
    return f"{names[0]} {parameter.metavar or KINDS.get(kind, 'NAME')}", help_text


def _kind(verb: Any, name: str) -> type:
    """What a parameter takes, one of several: as the verb declares it, which no Typer changes."""
    hint = get_type_hints(verb)[name]
    while inner := [one for one in get_args(hint) if one is not NoneType]:
        hint = inner[0]
    found: type = hint
    return found


def _row(name: str, text: str, left: int, width: int) -> Iterable[str]:
    """A name on the left, its text beside it, or below if the name is long."""
    lines = textwrap.wrap(" ".join(text.split()), max(20, width - left - 4), break_on_hyphens=False)
    beside = lines.pop(0) if lines and len(name) <= left else ""
    padding = " " * max(0, left - len(name))
    yield f"  {_styled(name, fg='cyan')}{padding}  {beside}".rstrip()
    yield from (" " * (left + 4) + line for line in lines)


def _first_sentence(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _styled(text: str, **how: Any) -> str:
    plain = os.environ.get("NO_COLOR") or not sys.stdout.isatty()
    return text if plain else typer.style(text, **how)
