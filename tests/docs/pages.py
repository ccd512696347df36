"""The pages that people read, and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "results/README.md", "benchmarks/README.md")
    for path in ROOT.glob(pattern)
)
LANGUAGES = {"python", "bash", "yaml", "text"}


@dataclass(frozen=True)
class Block:
    """A code block."""

    place: str  # the page and the line it begins at
    language: str  # empty if none is named
    text: str
    not_run: str | None  # why it is not run; None if it is

    @property
    def executed(self) -> bool:
        """Whether it is code, to be run or at least checked."""
        return self.language in ("python", "bash")

    @property
    def commands(self) -> list[str]:
        """Its command lines, each in one line, without those that are comments alone."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(page: str) -> list[Block]:
    """All code blocks of a page, in order; indented ones have no language."""
    tokens = MarkdownIt("commonmark").parse((ROOT / page).read_text())
    found = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type not in ("fence", "code_block"):
            continue
        comment = before.content if before is not None and before.type == "html_block" else ""
        reason = re.fullmatch(r"<!-- not run: (.+) -->\n", comment)
        place = f"{page}:{token.map[0] + 1}"
        found.append(Block(place, token.info, token.content, reason and reason[1]))
    return found
