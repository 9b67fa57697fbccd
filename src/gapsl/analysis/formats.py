"""A table in the formats people and programs read: text of any width, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

GAP = " "
PROSE = 80  # columns of what is no table, where the width is not given
MINUS = re.compile(r"(?<![\w.:-])-(?=\d)")
LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--"} | {mark: f"\\{mark}" for mark in "&%$#_{}"}


@dataclass(frozen=True)
class Column:
    """A column of cells; key columns say what a row is."""

    heading: str
    cells: tuple[str, ...]
    key: bool = False

    @property
    def width(self) -> int:
        """The room it takes."""
        return max(map(cell_len, (self.heading, *self.cells)))

    def lines(self) -> list[str]:
        """Return heading and cells at the same width: keys to the left, numbers to the right."""
        rooms = ((text, " " * (self.width - cell_len(text))) for text in (self.heading, *self.cells))
        return [text + room if self.key else room + text for text, room in rooms]


@dataclass(frozen=True)
class Table:
    """A table, what it is about, and what its columns mean; `numbers` has its rows for programs."""

    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    numbers: tuple[Mapping[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.text(80)

    def _repr_markdown_(self) -> str:  # what a notebook shows
        return self.markdown()

    def text(self, width: int | None = None) -> str:
        """Return it for a terminal: columns that do not fit go below, with the key columns once more."""
        lines = [*wrapped(self.title, width)]
        for columns in self._blocks(width):
            rows = zip(*(column.lines() for column in columns), strict=True)
            lines += [GAP.join(row).rstrip() for row in rows]
        return "\n".join([*lines, *(line for note in self.notes for line in wrapped(note, width))])

    def _blocks(self, width: int | None) -> Iterator[list[Column]]:
        keys = [column for column in self.columns if column.key]
        others = [column for column in self.columns if not column.key]
        while others or keys:
            block = [*keys, *others[:1]]
            taken = 1
            for column in others[1:]:
                if width is not None and sum(c.width + len(GAP) for c in (*block, column)) - 1 > width:
                    break
                block.append(column)
                taken += 1
            yield block
            others = others[taken:]
            if not others:
                return

    def markdown(self) -> str:
        """Return it in Markdown."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self._rows()]
        marks = [":--" if column.key else "--:" for column in self.columns]
        body = [f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:])]
        return "\n\n".join([self.title, "\n".join(body), *self.notes])

    def latex(self) -> str:
        """Return it in LaTeX, for the package booktabs."""
        shape = "".join("l" if column.key else "r" for column in self.columns)
        head, *rows = (" & ".join(map(escaped, row)) + r" \\" for row in self._rows())
        comments = [f"% {line}" for text in (self.title, *self.notes) for line in wrapped(text, 98)]
        body = [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*comments, *body, r"\end{tabular}"])

    def csv(self) -> str:
        """Return its numbers, with all their digits, as comma-separated values."""
        file = io.StringIO()
        names = dict.fromkeys(name for row in self.numbers for name in row)
        writer = csv.DictWriter(file, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.numbers)
        return file.getvalue().rstrip("\n")

    def _rows(self) -> list[Sequence[str]]:
        cells = zip(*(column.cells for column in self.columns), strict=True)
        return [[column.heading for column in self.columns], *cells]


def escaped(text: str) -> str:
    """Return a text as LaTeX prints it; a minus is none before a number alone."""
    if text == "-":
        return "--"
    return MINUS.sub("$-$", "".join(LATEX.get(letter, letter) for letter in text))


def counted(number: int, noun: str) -> str:
    """Return how many there are of something, in words: 1 device, 2 devices."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a text in lines of at most so many columns, words unbroken."""
    return textwrap.wrap(text, width or PROSE, break_long_words=False, break_on_hyphens=False)
