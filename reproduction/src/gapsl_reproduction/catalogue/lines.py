"""The lines of the tables and figures: methods and variants, each the settings it lays over a workload's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gapsl.run.config import WITHOUT_PROBES, merge, preset
from gapsl_reproduction.planned import Settings


@dataclass(frozen=True)
class Line:
    """A method as it appears in tables and figures."""

    settings: Settings
    # The line whose search of the learning rates it shares, so that an ablation differs in one thing alone.
    rates_of: str = field(kw_only=True)
    halves_learn: bool = field(default=True, kw_only=True)  # False: only the server's rate is searched


# What we recommend: one place, so that every experiment follows when it changes.
RECOMMENDED: Settings = preset("recommended")


def _recommended(**changed: object) -> dict[str, object]:
    """Return the recommended settings with some of them changed."""
    return merge(RECOMMENDED, changed)


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
    # One search serves both, so that they differ in who leads alone.
    "recommended": Line(RECOMMENDED, rates_of="recommended unled"),
    "recommended unled": Line(_recommended(probe_leaders=1.0), rates_of="recommended unled"),
    # the paper's ablations
    "non-lgi": Line({"method": "gapsl/non-lgi"}, rates_of="gapsl"),
    "rand-lgi": Line({"method": "gapsl/rand-lgi"}, rates_of="gapsl"),
    "non-gda": Line({"method": "gapsl/non-gda"}, rates_of="gapsl"),
    "rand-gda": Line({"method": "gapsl/rand-gda"}, rates_of="gapsl"),
    # what we recommend with a part taken away; what changes how halves are held together has rates of its
    # own, since that is what allows halves to learn fast
    "recommended unpulled": Line(_recommended(**WITHOUT_PROBES), rates_of="recommended unpulled"),
    "recommended pulled": Line(_recommended(probe_steps=0, probe_leaders=1.0), rates_of="recommended pulled"),
    "recommended uncalibrated": Line(_recommended(calibration="none"), rates_of="recommended unled"),
    "recommended unbalanced": Line(_recommended(balance="none"), rates_of="recommended unled"),
    "recommended frozen": Line(
        {"method": "frozen", "balance": "classes"}, rates_of="recommended frozen", halves_learn=False
    ),
    # with a part more: the paper's LGI and GDA on the server's gradients, which bear smaller steps where most
    # devices are left out; its regulariser alone, as the paper has it and a hundred times as strong
    "recommended gapsl": Line(_recommended(method="gapsl"), rates_of="recommended gapsl"),
    "recommended penalty": Line(
        _recommended(method="gapsl", gapsl={"exclusion": "none"}), rates_of="recommended unled"
    ),
    "recommended strong penalty": Line(
        _recommended(method="gapsl", gapsl={"exclusion": "none", "lambda": 0.05}),
        rates_of="recommended unled",
    ),
    # averaged, with all the rest of it but the probes, which averaging makes needless
    "recommended sfl": Line(_recommended(method="sfl", **WITHOUT_PROBES), rates_of="recommended sfl"),
    # calibration alone, of both halves
    "psl prior": Line({"method": "psl", "calibration": "prior"}, rates_of="psl prior"),
    "sfl prior": Line({"method": "sfl", "calibration": "prior"}, rates_of="sfl prior"),
    # one device alone: the first, unless a sweep says which
    "single": Line({"method": "single"}, rates_of="single"),
}

METHODS_OF_PAPER = ("gapsl", "sfl", "epsl", "vanilla", "psl")
TABLE = (*METHODS_OF_PAPER, "frozen", "central", "recommended")
HEADLINE = ("recommended", "sfl", "frozen")  # what the goal is about
GOAL_PAIR = ("recommended", "psl")  # whose distance is to be the same elsewhere
ABLATION_LGI = ("gapsl", "non-lgi", "rand-lgi")
ABLATION_GDA = ("gapsl", "non-gda", "rand-gda")
PARTS = (*(line for line in LINES if line.startswith("recommended")), "psl prior", "sfl prior")
