"""The experiments by name: what each shows, and the runs it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl_reproduction.catalogue.grid import CORE, GOAL, STUDY, SWEEPS, Grid, Point, points
from gapsl_reproduction.catalogue.lines import (
    ABLATION_GDA,
    ABLATION_LGI,
    GOAL_PAIR,
    HEADLINE,
    PARTS,
    TABLE,
)
from gapsl_reproduction.catalogue.scales import Scale
from gapsl_reproduction.catalogue.tuning import Results
from gapsl_reproduction.planned import Planned, Wanted

OURS = "ours"  # not in the paper


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    name: str
    shows: str  # which of the paper's, or ours
    title: str
    grids: tuple[Grid, ...]

    def points(self, scale: Scale, results: Results) -> list[Point]:
        """Return its runs, each place once, as far as they are known with these results."""
        found: dict[tuple[object, ...], Point] = {}
        for point in (point for grid in self.grids for point in points(grid, scale, results)):
            known = found.get(point.place, point)
            found[point.place] = min(known, point, key=lambda each: each.priority)
        return list(found.values())


BOTH = ("cifar10", "cifar100")
EITHER = ("non-iid", "iid")  # what the paper is about first

TABLE_1 = (
    Grid(TABLE, workloads=BOTH, partitions=EITHER, seeds="core", priority=CORE),
    Grid(HEADLINE, seeds="headline", priority=CORE),
)
# What the goal compares comes before the rest of a table.
TABLE_2 = (
    Grid(TABLE, partitions=EITHER, sweep="devices", seeds="sweep", priority=SWEEPS),
    Grid(GOAL_PAIR, sweep="devices", seeds="sweep", priority=GOAL),
)
TABLE_3 = (
    Grid(TABLE, workloads=BOTH, sweep="alpha", seeds="sweep", priority=SWEEPS),
    Grid(GOAL_PAIR, sweep="alpha", at=("0.9",), seeds="sweep", priority=GOAL),
)
# Figures of the same runs at alpha 0.1 and over the others.
OVER_ALPHA = (Grid(("psl", "sfl")), Grid(("psl", "sfl"), sweep="alpha"))
SINGLES = Grid(("single",), sweep="single")
FACING_FAULTS = ("gapsl", "sfl", "psl", "recommended", "recommended unled")
OVER_LENGTH = ("sfl", "psl", "frozen", "recommended")
LED_OR_NOT = ("recommended", "recommended unled")
MOST_FAULTS = ("flip:3", "labels:3", "noise:3")
TOLD_APART = ("psl", "psl prior", "gapsl", "recommended")
CALIBRATED_OR_NOT = ("psl prior", "psl")

_LISTED = (
    Experiment("table1", "Table I", "accuracy and epochs to converge, five methods, IID and not", TABLE_1),
    Experiment("table2", "Table II", "accuracy by number of devices, IID and not", TABLE_2),
    Experiment("table3", "Table III", "accuracy by label skew (Dirichlet alpha)", TABLE_3),
    Experiment("curves", "Fig. 15", "accuracy over the epochs, the runs of table1", TABLE_1),
    Experiment("converged-accuracy", "Fig. 16", "accuracy at the end, the runs of table1", TABLE_1),
    Experiment("converged-time", "Fig. 17", "epochs to converge, the runs of table1", TABLE_1),
    Experiment("accuracy-vs-devices", "Fig. 18", "accuracy by number of devices, as table2", TABLE_2),
    Experiment("accuracy-vs-alpha", "Fig. 19", "accuracy by label skew, as table3", TABLE_3),
    Experiment(
        "ablation-lgi",
        "Fig. 20",
        "GAPSL with the mean of all, or of some at random, as its leader",
        (
            Grid(ABLATION_LGI, seeds="core", priority=CORE),
            Grid(ABLATION_LGI, workloads=("cifar100",)),
        ),
    ),
    Experiment(
        "ablation-gda",
        "Fig. 21",
        "GAPSL without alignment, or keeping devices at random",
        (
            Grid(ABLATION_GDA, seeds="core", priority=CORE),
            Grid(ABLATION_GDA, workloads=("cifar100",)),
        ),
    ),
    Experiment(
        "ablation-recommended",
        OURS,
        "what is recommended with a part taken away, or added",
        (Grid(PARTS, seeds="core", priority=CORE),),
    ),
    Experiment("psl-vs-sfl", "Fig. 2", "training and test of PSL and SFL", (Grid(("psl", "sfl")),)),
    Experiment("angle-vs-alpha", "Fig. 3", "accuracy and mean angle of PSL and SFL by skew", OVER_ALPHA),
    Experiment("single-device", "Fig. 5", "PSL on the gradients of one device alone, each", (SINGLES,)),
    Experiment(
        "score-vs-accuracy",
        "Fig. 7",
        "consistency scores and accuracies of the devices",
        (Grid(("psl", "gapsl")), SINGLES),
    ),
    Experiment(
        "selection-ratio",
        "Fig. 8",
        "a fixed share of devices as leaders, against the adaptive one",
        (Grid(("gapsl",)), Grid(("gapsl",), sweep="ratio")),
    ),
    Experiment(
        "dispersion",
        "Fig. 10",
        "accuracy by dispersion of the scores, and the best ratio over the epochs",
        (
            Grid(("gapsl", "psl")),
            Grid(("gapsl", "psl"), sweep="alpha"),
            Grid(("gapsl",), sweep="ratio"),
        ),
    ),
    Experiment(
        "leader-vs-single",
        "Fig. 11",
        "stepping on the leader gradient, against one device's alone",
        (Grid(("non-gda",)), SINGLES),
    ),
    Experiment(
        "threshold",
        "Fig. 13",
        "a fixed angle decides who is kept, against the adaptive one",
        (Grid(("gapsl",)), Grid(("gapsl",), sweep="threshold")),
    ),
    Experiment(
        "robustness",
        OURS,
        "one to three devices with flipped gradients, random labels or noise",
        (
            Grid(FACING_FAULTS),
            Grid(FACING_FAULTS, sweep="faults"),
            # What choosing leaders is for.
            Grid(LED_OR_NOT, sweep="faults", at=MOST_FAULTS, priority=GOAL),
            Grid(LED_OR_NOT, sweep="faults", at=("noise:3",), seeds="core", priority=GOAL),
        ),
    ),
    Experiment(
        "separation",
        OURS,
        "whether angles tell faulty devices from honest ones, before and after calibration",
        (
            Grid(TOLD_APART, sweep="faults", at=MOST_FAULTS, priority=STUDY),
            Grid(CALIBRATED_OR_NOT, sweep="faults", at=MOST_FAULTS, seeds="sweep", priority=STUDY),
        ),
    ),
    Experiment(
        "feature-shift",
        OURS,
        "devices that see the same labels through different sensors",
        # All but central: in one place there are no devices to differ.
        (Grid(tuple(line for line in TABLE if line != "central"), partitions=("iid",), sweep="shift"),),
    ),
    Experiment(
        "cost",
        OURS,
        "accuracy against bytes and against seconds, the runs of table1 on CIFAR-10",
        (Grid(TABLE, partitions=EITHER, seeds="core", priority=CORE),),
    ),
    Experiment(
        "length",
        OURS,
        "accuracy by length of training: whether what is compared has converged",
        (
            Grid(OVER_LENGTH, sweep="length", priority=STUDY),
            # Twice the length of `reduced`: does what is compared there still hold?
            Grid(HEADLINE, sweep="length", at=("800", "1600"), seeds="sweep", priority=GOAL),
        ),
    ),
    Experiment(
        "fleet",
        OURS,
        "accuracy by number of devices for as many rounds, which take as long side by side",
        (
            Grid(GOAL_PAIR, sweep="fleet", priority=GOAL),
            Grid(GOAL_PAIR, sweep="fleet", seeds="sweep", priority=SWEEPS),
        ),
    ),
    Experiment(
        "readings",
        OURS,
        "GAPSL as we read it, against other readings of what the paper leaves open",
        (Grid(("gapsl",), sweep="readings", seeds="sweep", priority=STUDY),),
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in _LISTED}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "ablations": ("ablation-lgi", "ablation-gda", "ablation-recommended"),
    "all": tuple(EXPERIMENTS),
}


def find(names: Iterable[str]) -> list[Experiment]:
    """Return the experiments with these names, groups taken apart, each once."""
    found: dict[str, Experiment] = {}
    for name in names:
        if name not in EXPERIMENTS and name not in GROUPS:
            raise InputError(f"unknown experiment {name!r}; {nearest(name, [*EXPERIMENTS, *GROUPS])}")
        for member in GROUPS.get(name, (name,)):
            found[member] = EXPERIMENTS[member]
    return list(found.values())


def wanted(experiments: Iterable[Experiment], scale: Scale, results: Results) -> Wanted:
    """Return the runs that experiments want, what matters first, the first seed of all before the second."""
    every = [point for experiment in experiments for point in experiment.points(scale, results)]
    every.sort(key=lambda point: (point.priority, point.seed))
    runs: dict[str, Planned] = {point.run.key: point.run for point in every if point.settled}
    waiting = {p.run.key: p.run for p in every if not p.settled and p.run.key not in runs}
    return Wanted(list(runs.values()), list(waiting.values()))
