"""The experiments as data: lines (methods and variants), and which of them are run under what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.run.config import Config, merge, preset
from gapsl_reproduction.runs import Settings


@dataclass(frozen=True)
class Line:
    """A method as it appears in tables and figures: the settings it lays over a workload's."""

    settings: Settings
    # The line whose learning rates it shares, so that an ablation differs in one thing alone.
    tuned_as: str | None = None
    choices: tuple[Settings, ...] = field(default=({},))  # tried with each pair of rates
    clients_learn: bool = True  # False: only the server's rate is searched
    lower: bool = False  # whether the lowest rates suit it best, so that lower ones are tried too


PAPSL: Settings = preset("recommended")
WITHOUT_PROBES = {name: Config.model_fields[name].default for name in ("probes", "probe_steps")}


def _papsl(**changed: object) -> Line:
    """Return PAPSL with some of its settings changed."""
    return Line(merge(PAPSL, changed), tuned_as="papsl")


AGREEING = "papsl agreeing on gradients"

# Averaging once per epoch, as the paper has it, turns ten models into guessing here.
INTERVALS = tuple({"sfl": {"interval": rounds}} for rounds in (1, 5, 20))

# The paper keeps devices below mean − eta · deviation of the angles, and does not say how large eta is.
ETAS = tuple({"gapsl": {"eta": eta}} for eta in (0.5, 0.0, -1.0))

LINES: Mapping[str, Line] = {
    # the paper's five
    "gapsl": Line({"method": "gapsl"}, choices=ETAS, lower=True),
    "sfl": Line({"method": "sfl"}, choices=INTERVALS),
    "epsl": Line({"method": "epsl"}, lower=True),
    "vanilla": Line({"method": "vanilla"}, lower=True),
    "psl": Line({"method": "psl"}, lower=True),
    # ours: what any cleverness must beat, what could be had without devices, and what we recommend
    "frozen": Line({"method": "frozen"}, clients_learn=False),
    "central": Line({"method": "central"}, lower=True),
    "papsl": Line(PAPSL),
    # as we first read it, where it leaves out most devices
    "gapsl with eta 0.5": Line({"method": "gapsl", "gapsl": {"eta": 0.5}}, tuned_as="gapsl"),
    # for fewer bytes
    "sfl every 5 rounds": Line({"method": "sfl", "sfl": {"interval": 5}}, lower=True),
    # the paper's ablations
    "non-lgi": Line({"method": "gapsl/non-lgi"}, tuned_as="gapsl"),
    "rand-lgi": Line({"method": "gapsl/rand-lgi"}, tuned_as="gapsl"),
    "non-gda": Line({"method": "gapsl/non-gda"}, tuned_as="gapsl"),
    "rand-gda": Line({"method": "gapsl/rand-gda"}, tuned_as="gapsl"),
    # PAPSL with a part taken away
    "papsl without probes": _papsl(**WITHOUT_PROBES),
    "papsl without calibration": _papsl(calibration="none"),
    "papsl without balance": _papsl(balance="none"),
    # as it was when it was found with a toy net, with rates of its own
    "papsl as found": Line(merge(PAPSL, {"probe_steps": 4, "probe_leaders": 0.5})),
    # whose devices agree on the step they take, so that there is no drift for calibration to answer
    AGREEING: Line(merge(PAPSL, {"probe_gradients": True, "calibration": "none"})),
    # with a server step that a few bad devices cannot steer
    "papsl with clip": _papsl(robust="clip"),
    # one device alone: the first, unless a condition says which
    "single": Line({"method": "single"}, tuned_as="psl"),
}

PAPER = ("gapsl", "sfl", "epsl", "vanilla", "psl")
FIVE = ("psl", "sfl", "gapsl", "frozen", "papsl")  # what tables beyond the first compare
EVERY = (*PAPER, "frozen", "papsl")
ROBUSTLY = "papsl with clip"
PARTS = tuple(line for line in LINES if line.startswith("papsl without "))

# What comes first when time is short.
FIRST, SECOND, SEEDS, PROTOCOL, LENGTH, BOUNDS, ABLATIONS, ROBUST, TABLES, REST = range(10)


@dataclass(frozen=True)
class Block:
    """Lines under all conditions of some groups, with so many seeds."""

    lines: tuple[str, ...]
    groups: tuple[str, ...]
    seeds: str = "one"  # which of the scale's numbers of seeds
    priority: int = REST


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    name: str
    shows: str  # which of the paper's, or ours
    title: str
    blocks: tuple[Block, ...]


OURS = "ours"  # not in the paper

TABLE_1 = (
    Block(("central",), ("skewed",), priority=FIRST),
    Block(FIVE, ("skewed", "iid"), priority=FIRST),
    Block((AGREEING,), ("skewed", "iid"), priority=FIRST),
    Block((AGREEING,), ("skewed",), seeds="three", priority=SEEDS),
    Block(("epsl", "vanilla"), ("skewed",), priority=SECOND),
    Block(FIVE, ("skewed",), seeds="three", priority=SEEDS),
    Block(("central",), ("skewed",), seeds="three", priority=BOUNDS),
    Block(("psl", "papsl"), ("iid",), seeds="three", priority=BOUNDS),
    Block(("gapsl with eta 0.5", "papsl as found", "sfl every 5 rounds"), ("skewed", "iid"), priority=SECOND),
    Block(EVERY, ("cifar100",)),
    Block(("epsl", "vanilla"), ("iid",)),
)
PROTOCOLS = (
    Block(("psl", "sfl", "gapsl", "epsl"), ("paper",), priority=PROTOCOL),
    Block(("gapsl with eta 0.5",), ("paper",), priority=ABLATIONS),
)
TABLE_2 = (
    Block(FIVE, ("devices",), priority=TABLES),
    Block(FIVE, ("devices iid",)),
)
TABLE_3 = (Block(FIVE, ("alpha",), priority=TABLES), Block(FIVE, ("cifar100 alpha",)))
SINGLES = Block(("single",), ("single",))
SKEWED_PAIR = Block(("psl", "gapsl"), ("skewed",), priority=FIRST)

_LISTED = (
    Experiment("table1", "Table I", "accuracy of all methods, IID and not", TABLE_1),
    Experiment("table2", "Table II", "accuracy by number of devices, IID and not", TABLE_2),
    Experiment("table3", "Table III", "accuracy by label skew (Dirichlet alpha)", TABLE_3),
    Experiment("protocol", "Table I", "the paper's rates for all, constant: accuracy and epochs", PROTOCOLS),
    Experiment(
        "length",
        OURS,
        "twice the length: whether what is compared has converged",
        (Block(("psl", "sfl", "frozen", "papsl"), ("longer",), priority=LENGTH),),
    ),
    Experiment(
        "steps",
        OURS,
        "all data in one place, in as few and as large steps as the others take",
        (Block(("central",), ("steps",), priority=BOUNDS),),
    ),
    Experiment(
        "ablations",
        "Fig. 20, 21",
        "GAPSL and PAPSL, each with a part taken away",
        (
            Block(("non-lgi", "rand-lgi", "non-gda", "rand-gda"), ("skewed",), priority=ABLATIONS),
            Block(PARTS, ("skewed",), priority=ABLATIONS),
        ),
    ),
    Experiment(
        "robustness",
        OURS,
        "three of ten devices that flip gradients, lie about labels, send noise or far too much",
        (
            Block((ROBUSTLY,), ("skewed",), priority=ROBUST),
            Block((ROBUSTLY, "psl", "gapsl", "papsl"), ("faults",), priority=ROBUST),
        ),
    ),
    Experiment(
        "exclusion",
        OURS,
        "PSL with as few samples, and as short a step, as GAPSL is left with by excluding devices",
        (
            Block(("psl",), ("samples",), priority=ABLATIONS),
            Block(("psl",), ("step",), priority=ABLATIONS),
        ),
    ),
    Experiment("single-device", "Fig. 5", "PSL on the gradients of one device alone, each", (SINGLES,)),
    Experiment(
        "selection-ratio",
        "Fig. 8",
        "a fixed share of devices as leaders, against the adaptive one",
        (SKEWED_PAIR, Block(("gapsl",), ("ratio",))),
    ),
    Experiment(
        "threshold",
        "Fig. 13",
        "a fixed angle decides who is kept, against the adaptive one",
        (SKEWED_PAIR, Block(("gapsl",), ("threshold",))),
    ),
    Experiment(
        "readings",
        OURS,
        "GAPSL as we read it, against other readings of what the paper leaves open",
        (SKEWED_PAIR, Block(("gapsl",), ("readings",))),
    ),
    Experiment(
        "feature-shift",
        OURS,
        "devices that see the same labels through different sensors",
        (Block(EVERY, ("shift",)),),
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in _LISTED}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "core": ("table1", "protocol", "length", "steps"),
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
