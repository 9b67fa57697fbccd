"""The blocks of code in the pages, and the commands among their words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
NOT_RUN = re.compile(r"\*Not run by the tests: (.+)\.\*")  # a line of its own above the block


@dataclass(frozen=True)
class Snippet:
    """A block of code in a page; `reason` says why the tests do not run it."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Return the words of each command of a block for the shell."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the blocks of a page, indented ones without a language."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    for before, token in zip([None, None, *tokens], tokens, strict=False):
        if token.type in ("fence", "code_block") and token.map:
            said = NOT_RUN.fullmatch(before.content) if before else None
            yield Snippet(
                page, token.map[0] + 1, token.info.strip(), token.content, said[1] if said else None
            )


def inline(page: Path) -> Iterator[str]:
    """Yield what a page has in backticks within its text, on one line each."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content
