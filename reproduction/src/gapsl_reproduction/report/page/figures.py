"""Figures on the page, with what each shows and what is missing of it."""

from __future__ import annotations

from collections.abc import Mapping

from gapsl_reproduction.catalogue import EXPERIMENTS
from gapsl_reproduction.report.page.markdown import paragraphs
from gapsl_reproduction.report.panels import Picture


class Gallery:
    """The figures by name, and the folder they are in, seen from the page; None if nothing is drawn."""

    def __init__(self, pictures: Mapping[str, Picture], folder: str | None) -> None:
        self._pictures, self._folder = pictures, folder

    def show(self, *names: str) -> str:
        """Return figures, each with its caption."""
        return paragraphs(*(self._one(name) for name in names))

    def _one(self, name: str) -> str:
        picture, experiment = self._pictures[name], EXPERIMENTS[name]
        shows = "" if experiment.shows == "ours" else f"{experiment.shows}, "
        caption = f"**{name}** ({shows}{experiment.title})"
        if picture.empty:
            return f"{caption}: not measured yet."
        missing = f" Not there yet: {'; '.join(picture.missing)}." if picture.missing else ""
        image = "" if self._folder is None else f"![{experiment.title}]({self._folder}/{name}.png)"
        said = f"{picture.says}{missing}".strip()
        return paragraphs(f"{caption}{'. ' + said if said else ''}", image)
