"""The lines of the tables and figures: methods and variants, each the settings it lays over a workload's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gapsl.experiments.planned import Settings
from gapsl.training.config import merge


@dataclass(frozen=True)
class Line:
    """A method as it appears in tables and figures."""

    settings: Settings
    # The line whose search of the learning rates it shares, so that an ablation differs in one thing alone.
    rates_of: str = field(kw_only=True)
    halves_learn: bool = field(default=True, kw_only=True)  # False: only the server's rate is searched


# What we recommend: one place, so that every experiment follows when it changes.
RECOMMENDED: Settings = {"method": "gapsl"}


def _recommended(method: str) -> dict[str, object]:
    """Return the recommended settings with another method in GAPSL's place."""
    return merge(RECOMMENDED, {"method": method})


LINES: Mapping[str, Line] = {
    # the paper's five
    "gapsl": Line({"method": "gapsl"}, rates_of="gapsl"),
    "sfl": Line({"method": "sfl"}, rates_of="sfl"),
    "epsl": Line({"method": "epsl"}, rates_of="epsl"),
    "vanilla": Line({"method": "vanilla"}, rates_of="vanilla"),
    "psl": Line({"method": "psl"}, rates_of="psl"),
    # ours: what any cleverness must beat, what could be had without devices, and what we recommend
    "frozen": Line({"method": "frozen"}, rates_of="frozen", halves_learn=False),
    "central": Line({"method": "central"}, rates_of="central"),
    "recommended": Line(RECOMMENDED, rates_of="recommended"),
    # the paper's ablations
    "non-lgi": Line({"method": "gapsl/non-lgi"}, rates_of="gapsl"),
    "rand-lgi": Line({"method": "gapsl/rand-lgi"}, rates_of="gapsl"),
    "non-gda": Line({"method": "gapsl/non-gda"}, rates_of="gapsl"),
    "rand-gda": Line({"method": "gapsl/rand-gda"}, rates_of="gapsl"),
    # the same of what we recommend; without any alignment; and averaged, with all the rest of it
    "recommended non-lgi": Line(_recommended("gapsl/non-lgi"), rates_of="recommended"),
    "recommended rand-lgi": Line(_recommended("gapsl/rand-lgi"), rates_of="recommended"),
    "recommended non-gda": Line(_recommended("gapsl/non-gda"), rates_of="recommended"),
    "recommended rand-gda": Line(_recommended("gapsl/rand-gda"), rates_of="recommended"),
    "recommended psl": Line(_recommended("psl"), rates_of="recommended"),
    "recommended sfl": Line(_recommended("sfl"), rates_of="recommended sfl"),
    # one device alone: the first, unless a sweep says which
    "single": Line({"method": "single"}, rates_of="single"),
}

METHODS_OF_PAPER = ("gapsl", "sfl", "epsl", "vanilla", "psl")
TABLE = (*METHODS_OF_PAPER, "frozen", "central", "recommended")
HEADLINE = ("recommended", "sfl")
ABLATION_LGI = ("gapsl", "non-lgi", "rand-lgi", "recommended", "recommended non-lgi", "recommended rand-lgi")
ABLATION_GDA = ("gapsl", "non-gda", "rand-gda", "recommended", "recommended non-gda", "recommended rand-gda")
WITHOUT_ALIGNMENT = ("recommended psl", "recommended sfl")
