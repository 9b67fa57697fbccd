"""Writes the page and its figures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gapsl.analysis.plots import figure, save
from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl_reproduction.report.draw import draw
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.figures import pictures
from gapsl_reproduction.report.page.whole import page

FORMATS = ("png", "svg")


def write_report(evidence: Evidence, figures: Path, path: Path, warn: Callable[[str], None]) -> int:
    """Write figures and page, and return how many figures there are.

    Where nothing can be drawn the page is written without figures: the numbers took longer than a picture.
    """
    try:
        figure(1, 1)
    except InputError as error:
        warn(f"the page is written without figures: {error}")
        folder, count = None, 0
    else:
        folder = Path(os.path.relpath(figures.resolve(), path.parent.resolve())).as_posix()
        count = draw_figures(evidence, figures)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(evidence, folder))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --page") from None
    return count


def draw_figures(evidence: Evidence, folder: Path) -> int:
    """Draw every figure that has something to show, and remove those that have nothing any more."""
    count = 0
    for name, picture in pictures(evidence).items():
        paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
        if picture.empty:
            for path in paths:
                path.unlink(missing_ok=True)
            continue
        drawn = draw(picture)
        for path in paths:
            save(drawn, path)
            drawn.set_layout_engine("none")  # everything has its place now
        count += 1
    return count
