"""Markdown as GitHub reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a table; all but the first columns are flush right."""
    marks = ["---" if i < left else "---:" for i in range(len(headings))]
    lines = [headings, marks, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {item}" for item in items)


def paragraphs(*texts: str) -> str:
    """Return texts with an empty line between, without the empty ones."""
    return "\n\n".join(text for text in texts if text)


def listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
