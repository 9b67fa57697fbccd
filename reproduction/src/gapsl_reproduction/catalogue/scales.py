"""How large the experiments are: the paper's own setting, what two cores can finish, and a test of it all.

Every number that says how much is computed is in this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.run.config import merge, preset
from gapsl_reproduction.catalogue import sweeps
from gapsl_reproduction.catalogue.sweeps import Sweep, alphas, ends, fleets, lengths, singles
from gapsl_reproduction.planned import Settings


class Rates(NamedTuple):
    """The learning rates of the two halves."""

    device: float
    server: float


def rates(device: tuple[float, ...], server: tuple[float, ...]) -> tuple[Rates, ...]:
    """Return every pair of these."""
    return tuple(Rates(*pair) for pair in product(device, server))


@dataclass(frozen=True, eq=False)  # each is itself, so that what follows from it can be kept
class Workload:
    """A dataset with its model: the settings that all its runs share."""

    settings: Settings
    rates: tuple[Rates, ...] = ()  # learning rates that every method is tried with; none: as set
    search: Settings = field(default_factory=dict)  # what is different in those trials: their length
    fixed: Settings = field(default_factory=dict)  # what no line sets otherwise
    most_seeds: int | None = None  # at most so many, whatever an experiment asks for
    last: bool = False  # comes after everything that is not

    def __post_init__(self) -> None:
        if self.rates and not self.settings.get("validation"):
            raise ValueError("rates are chosen on a validation split; set `validation`")


@dataclass(frozen=True)
class Scale:
    """Everything an experiment needs to know about its size."""

    name: str
    summary: str
    workloads: Mapping[str, Workload]
    seeds: Mapping[str, int]  # how many, by what they are for
    sweeps: Mapping[str, Sweep]
    # Where learning rates are searched.
    searched_on: tuple[str, ...] = ("iid", "dirichlet:0.1", "dirichlet:0.9")

    def with_seeds(self, count: int) -> Scale:
        """Return the same with so many seeds everywhere."""
        workloads = {name: replace(workload, most_seeds=None) for name, workload in self.workloads.items()}
        return replace(self, seeds=dict.fromkeys(self.seeds, count), workloads=workloads)

    def with_settings(self, settings: Settings) -> Scale:
        """Return the same with settings laid over every workload's."""
        workloads = {
            name: replace(workload, settings=merge(workload.settings, settings))
            for name, workload in self.workloads.items()
        }
        return replace(self, workloads=workloads)


# Sweeps that are the same at every scale that can afford them.
COMMON: Mapping[str, Sweep] = {
    "ratio": sweeps.RATIOS,
    "threshold": sweeps.THRESHOLDS,
    "shift": sweeps.SHIFTS,
    "faults": sweeps.FAULTS,
    "readings": sweeps.READINGS,
    "single": singles(10),
}

PAPERS_VIT: Settings = preset("paper-cifar100-vit")

FULL = Scale(
    name="full",
    summary="the paper's setting to the letter; for a GPU and days",
    workloads={
        "cifar10": Workload(preset("paper-cifar10-vgg16")),
        # The rate that `recommended` sets is one for SGD: here all have the paper's, for AdamW.
        "cifar100": Workload(PAPERS_VIT, fixed={"device_optimizer": PAPERS_VIT["device_optimizer"]}),
    },
    seeds={"headline": 3, "core": 3, "sweep": 3, "rest": 3},
    sweeps={
        **COMMON,
        "devices": fleets((10, 20, 30, 40)),
        "fleet": {**fleets((10,)), **fleets((40,), epochs=320)},
        "alpha": alphas(0.9, 0.7, 0.5, 0.3),
        "length": lengths("epochs", 40, 80, 160),
    },
)

# The noise of a constant rate is several points at the end of so short a run.
COSINE: Settings = {"schedule": "cosine", "warmup": 20}

# The length of a reading's run.
READ: Settings = {"rounds": 400, "evaluate_every": 400, "test_samples": 2500}

REDUCED = Scale(
    name="reduced",
    summary="real CIFAR subsets and narrower models; a day on two cores",
    workloads={
        "cifar10": Workload(
            {
                "dataset": "cifar10",
                "train_samples": 10_000,
                "validation": 0.1,
                "model": "vgg16",
                "cut": 4,
                "width": 0.125,
                "norm": "group",
                "layout": "channels-last",
                "batch_size": 16,
                # So that a rate means the same with 10 devices and with 40, in SFL and in PSL.
                "device_gradient": "own",
                "rounds": 800,
                "evaluate_every": 80,
                "device_optimizer": COSINE,
                "server_optimizer": COSINE,
                # 80 times in all, as in the paper's 80 epochs; a pass over this data is 57 rounds.
                "sfl": {"interval": 10},
                # What `exact` computes, a third faster; tests compare the two.
                "gapsl": {"penalty": "finite"},
            },
            rates=rates((0.01, 0.001, 0.0001), (0.03, 0.01, 0.003)),
            search={"rounds": 200, "evaluate_every": 200, "test_samples": 100},
        ),
        "cifar100": Workload(
            {
                "dataset": "cifar100",
                "train_samples": 20_000,
                "validation": 0.1,
                "model": "vit-micro",
                "patch": 8,
                "batch_size": 32,
                "rounds": 600,
                "evaluate_every": 100,
                "device_optimizer": {"name": "adamw", "weight_decay": 0.01},
                "server_optimizer": {"name": "adamw", "lr": 3e-4, "weight_decay": 0.01},
                "gapsl": {"lambda": 3e-5},
            },
            rates=rates((1e-3, 1e-4, 1e-5), (1e-3, 3e-4)),
            search={"rounds": 150, "test_samples": 100},
            most_seeds=1,
            last=True,
        ),
    },
    seeds={"headline": 5, "core": 3, "sweep": 3, "rest": 1},
    sweeps={
        **COMMON,
        # As many passes over the data and averagings as with 10 devices: the paper counts epochs.
        "devices": {
            **fleets((10,)),
            **fleets((40,), rounds=200, evaluate_every=20, sfl={"interval": 2}),
        },
        # As many rounds: devices work side by side, so that these take no longer with 40.
        "fleet": {**fleets((10,)), **fleets((40,), evaluate_every=400)},
        "alpha": alphas(0.9, 0.3),
        "length": lengths("rounds", 800, 1600, 3200),
        # Half as long as the rest and tested on fewer pictures: there are many, and each is compared with
        # our own reading.
        "readings": {name: {**varied, **READ} for name, varied in sweeps.READINGS.items()},
    },
)

SMOKE_SETTINGS: Settings = {
    "dataset": "digits",
    "train_samples": 300,
    "test_samples": 100,
    "validation": 0.1,
    "devices": 4,
    "batch_size": 8,
    "rounds": 6,
    "evaluate_every": 3,
    "server_optimizer": {"lr": 0.05},
}
SMOKE_RATES = rates((0.05, 0.005), (0.05,))
SMOKE = Scale(
    name="smoke",
    summary="everything once, on digits, with a few rounds: shows that it works, and nothing else",
    workloads={
        "cifar10": Workload(merge(SMOKE_SETTINGS, {"model": "small", "width": 0.5}), rates=SMOKE_RATES),
        "cifar100": Workload(merge(SMOKE_SETTINGS, {"model": "mlp"}), rates=SMOKE_RATES, last=True),
    },
    seeds={"headline": 1, "core": 1, "sweep": 1, "rest": 1},
    sweeps={
        **{name: ends(sweep) for name, sweep in COMMON.items()},
        "devices": fleets((4, 6)),
        "fleet": fleets((4, 6)),
        "alpha": alphas(0.9, 0.3),
        "length": lengths("rounds", 3, 6),
        "single": ends(singles(4)),
    },
)

SCALES = {scale.name: scale for scale in (FULL, REDUCED, SMOKE)}


def find_scale(name: str) -> Scale:
    """Return a scale by its name, or refuse with the nearest known one."""
    if name not in SCALES:
        raise InputError(f"unknown scale {name!r}; {nearest(name, SCALES)}")
    return SCALES[name]
