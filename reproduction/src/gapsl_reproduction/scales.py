"""How large the experiments are: the paper's own setting, what convinces on two cores, a test of it all.

Every number that says how much is computed is in this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.run.config import merge, preset
from gapsl_reproduction.runs import Settings


class Rates(NamedTuple):
    """The learning rates of client-side and server-side model."""

    device: float
    server: float


@dataclass(frozen=True, eq=False)  # each is itself, so that what follows from it can be kept
class Workload:
    """A dataset with its model: the settings that all its runs share."""

    settings: Settings
    rates: tuple[Rates, ...] = ()  # that every line is tried with; none: as set
    lower: tuple[Rates, ...] = ()  # tried too with lines that the lowest of them suit best
    trial: Settings = field(default_factory=dict)  # what is different in those trials: their length
    fixed: Settings = field(default_factory=dict)  # what no line sets otherwise

    def __post_init__(self) -> None:
        if self.rates and not self.settings.get("validation"):
            raise ValueError("rates are chosen on a validation split; set `validation`")


@dataclass(frozen=True)
class Condition:
    """Under what a line is run: settings laid over a workload's and the line's."""

    settings: Settings = field(default_factory=dict)
    workload: str = "cifar10"
    tuned: bool = True  # False: it brings its own learning rates


Group = Mapping[str, Condition]  # by name
LARGE = "cifar10 in large steps"  # a workload


@dataclass(frozen=True)
class Scale:
    """Everything an experiment needs to know about its size."""

    name: str
    summary: str
    model: str  # what is trained, in a table's head
    workloads: Mapping[str, Workload]
    groups: Mapping[str, Group]  # of conditions; what is not affordable is missing
    seeds: Mapping[str, int]  # how many, by what they are for

    def with_seeds(self, count: int) -> Scale:
        """Return the same with so many seeds everywhere."""
        return replace(self, seeds=dict.fromkeys(self.seeds, count))

    def with_settings(self, settings: Settings) -> Scale:
        """Return the same with settings laid over every workload's."""
        workloads = {
            name: replace(workload, settings=merge(workload.settings, settings))
            for name, workload in self.workloads.items()
        }
        return replace(self, workloads=workloads)


def conditions(named: Mapping[str, Settings], **common: Any) -> Group:
    """Return conditions by name."""
    return {name: Condition(settings, **common) for name, settings in named.items()}


def alphas(*values: float, **common: Any) -> Group:
    """Return degrees of label skew."""
    return conditions(
        {f"alpha {value:g}": {"partition": f"dirichlet:{value:g}"} for value in values}, **common
    )


def on_cifar100(group: Group) -> Group:
    """Return the same conditions on the other dataset."""
    return {f"cifar100, {name}": replace(condition, workload="cifar100") for name, condition in group.items()}


def both_partitions(named: Mapping[str, Settings]) -> Mapping[str, Group]:
    """Return groups of fleet sizes, with skewed labels and with even ones."""
    even = {f"{name}, IID": merge(settings, {"partition": "iid"}) for name, settings in named.items()}
    return {"devices": conditions(named), "devices iid": conditions(even)}


def singles(devices: int) -> Group:
    """Return one condition for each device that trains alone."""
    return conditions({f"device {device}": {"single": {"device": device}} for device in range(devices)})


def ends(group: Group) -> Group:
    """Return the first and the last condition of a group."""
    names = list(group)
    return {name: group[name] for name in dict.fromkeys([names[0], names[-1]])}


def faults(kinds: Iterable[str], *counts: int) -> Group:
    """Return devices that misbehave."""
    specs = [f"{kind}:{count}" for kind in kinds for count in counts]
    return conditions({spec: {"faults": spec} for spec in specs})


FAULTS = ("flip", "labels", "permute", "noise", "scale")
IID: Group = conditions({"iid": {"partition": "iid"}})
STEPS: Group = conditions({"in large steps": {}}, workload=LARGE)
SKEWED: Group = alphas(0.1)  # what the paper calls non-IID
RATIOS = conditions(
    {
        f"ratio {ratio:g}": {"method": "gapsl/fixed-ratio", "gapsl": {"ratio": ratio}}
        for ratio in (0.2, 0.4, 0.6, 0.8, 1.0)
    }
)
THRESHOLDS = conditions(
    {
        f"threshold {angle}": {"method": "gapsl/fixed-threshold", "gapsl": {"threshold": float(angle)}}
        for angle in (60, 70, 75, 80, 85, 90)
    }
)
SHIFTS = conditions(
    {shift: {"partition": f"iid+{shift}"} for shift in ("noise:0.3", "rotation:45", "colour:0.5")}
)
# What the paper leaves open, one thing at a time over our reading of it.
READINGS = conditions(
    {
        **{f"eta {eta:g}": {"gapsl": {"eta": eta}} for eta in (-1.0, -0.5, 0.0, 0.5, 1.0)},
        "weights by data size": {"reduction": "samples"},
        "excluded plain": {"gapsl": {"excluded": "plain"}},
        **{f"lambda {weight:g}": {"gapsl": {"lambda": weight}} for weight in (0.0, 0.05, 0.5)},
        "nobody excluded": {"gapsl": {"exclusion": "none"}},
        "nobody excluded, lambda 0.05": {"gapsl": {"exclusion": "none", "lambda": 0.05}},
        "norm batch": {"norm": "batch"},
    }
)

PAPERS_VIT: Settings = preset("paper-cifar100-vit")

FULL = Scale(
    name="full",
    summary="the paper's setting to the letter; for a GPU and days",
    model="VGG-16 and ViT-Base",
    workloads={
        "cifar10": Workload(preset("paper-cifar10-vgg16")),
        # The rate that PAPSL sets is one for SGD: here all have the paper's, for AdamW.
        "cifar100": Workload(PAPERS_VIT, fixed={"device_optimizer": PAPERS_VIT["device_optimizer"]}),
    },
    seeds={"three": 3, "one": 3},
    groups={
        "iid": IID,
        "skewed": SKEWED,
        "cifar100": on_cifar100({**IID, **SKEWED}),
        "alpha": alphas(0.9, 0.7, 0.5, 0.3),
        "cifar100 alpha": on_cifar100(alphas(0.9, 0.7, 0.5, 0.3)),
        **both_partitions({f"{size} devices": {"devices": size} for size in (20, 30, 40)}),
        "longer": conditions({"twice as long": {"epochs": 160}}),
        "ratio": RATIOS,
        "threshold": THRESHOLDS,
        "single": singles(10),
        "shift": SHIFTS,
        "faults": faults(FAULTS, 1, 2, 3),
        "readings": READINGS,
    },
)

ROUNDS = 2820  # 20 epochs: 45,000 images in mini-batches of 32 from each of 10 devices are 141 rounds
TUNED: Settings = {"schedule": "cosine", "warmup": 141, "weight_decay": 5e-4}
QUARTER: Settings = {"warmup": 35}
# The paper gives one pair of rates for all methods, and no schedule.
AS_GIVEN: Settings = {"schedule": "constant", "warmup": 0, "weight_decay": 0.0}


# The share of devices that GAPSL keeps in most rounds: what PSL is held to beside it.
KEPT = 0.3
PAPERS: Settings = {
    "reduction": "sum",
    "device_gradient": "follow",
    "device_optimizer": {**AS_GIVEN, "lr": 0.005},
    "server_optimizer": {**AS_GIVEN, "lr": 0.01},
    "sfl": {"interval": None},  # one epoch
}


def length(rounds: int) -> Settings:
    """Return settings of training for so many rounds."""
    return {"rounds": rounds, "evaluate_every": rounds // 10}


def in_large_steps(workload: Workload, devices: int) -> Workload:
    """Return a workload whose mini-batches are as large as those of all devices together.

    `central`, which steps on each mini-batch, then takes as many steps as others do by the same samples.
    """

    def fewer(settings: Settings, names: Iterable[str]) -> Settings:
        rounds = {name: settings[name] // devices for name in names}
        warmup = {"warmup": settings["server_optimizer"]["warmup"] // devices}
        return merge(settings, rounds, dict.fromkeys(("device_optimizer", "server_optimizer"), warmup))

    settings = fewer(workload.settings, ("rounds", "evaluate_every", "checkpoint_every"))
    settings = merge(settings, {"batch_size": devices * settings["batch_size"]})
    trial = fewer(workload.trial, ("rounds", "evaluate_every"))
    return replace(workload, settings=settings, trial=trial, lower=())  # a large batch bears more


CIFAR10 = Workload(
    {
        "dataset": "cifar10",
        "validation": 0.1,
        "model": "vgg16",
        "cut": 4,
        "width": 0.25,
        "norm": "group",
        "layout": "channels-last",
        "batch_size": 32,
        "partition": "dirichlet:0.1",
        # So that a rate means the same with 10 devices and with 40, in SFL and in PSL.
        "device_gradient": "own",
        **length(ROUNDS),
        "curve_samples": 2000,
        "checkpoint_every": 141,
        "device_optimizer": TUNED,
        "server_optimizer": TUNED,
        # What `exact` computes, a third faster; tests compare the two.
        "gapsl": {"penalty": "finite"},
    },
    rates=(Rates(0.01, 0.01), Rates(0.03, 0.03), Rates(0.003, 0.05), Rates(0.01, 0.1)),
    lower=(Rates(0.003, 0.003),),
    trial={
        **length(ROUNDS // 4),
        "evaluate_every": ROUNDS // 4,
        "test_samples": 200,
        "device_optimizer": QUARTER,
        "server_optimizer": QUARTER,
    },
)

STANDARD = Scale(
    name="standard",
    summary="all of CIFAR-10, VGG-16 at a quarter of its width, trained for 20 epochs; days on two cores",
    model="VGG-16 at 1/4 width",
    workloads={"cifar10": CIFAR10, LARGE: in_large_steps(CIFAR10, devices=10)},
    seeds={"three": 3, "one": 1},
    groups={
        "iid": IID,
        "skewed": SKEWED,
        "paper": conditions({"the paper's rates": PAPERS}, tuned=False),
        "step": conditions(
            {"three tenths of the step": merge(PAPERS, {"server_optimizer": {"lr": KEPT * 0.01}})},
            tuned=False,
        ),
        "samples": conditions({"three tenths of the rounds": length(round(KEPT * ROUNDS))}),
        "longer": conditions({"twice as long": length(2 * ROUNDS)}),
        "steps": STEPS,
        "alpha": alphas(0.9, 0.3),
        # As many passes over the data as with 10 devices: the paper counts epochs.
        **both_partitions(
            {f"{size} devices": {"devices": size, **length(ROUNDS * 10 // size)} for size in (20, 40)}
        ),
        "faults": faults(FAULTS, 3),
        "ratio": RATIOS,
        "threshold": THRESHOLDS,
        "single": singles(10),
        "readings": READINGS,
    },
)

SMOKE_SETTINGS: Settings = {
    "dataset": "digits",
    "train_samples": 300,
    "test_samples": 100,
    "validation": 0.1,
    "devices": 4,
    "batch_size": 8,
    "partition": "dirichlet:0.1",
    "rounds": 6,
    "evaluate_every": 3,
    "server_optimizer": {"lr": 0.05},
}
SMOKE_RATES = (Rates(0.05, 0.05), Rates(0.005, 0.05))
SMOKE_CIFAR10 = Workload(
    merge(SMOKE_SETTINGS, {"model": "small", "width": 0.5}), rates=SMOKE_RATES, trial={"rounds": 3}
)
SMOKE = Scale(
    name="smoke",
    summary="everything once, on digits, with a few rounds: shows that it works, and nothing else",
    model="a small net on digits",
    workloads={
        "cifar10": SMOKE_CIFAR10,
        LARGE: replace(SMOKE_CIFAR10, settings=merge(SMOKE_CIFAR10.settings, {"batch_size": 32})),
        "cifar100": Workload(merge(SMOKE_SETTINGS, {"model": "mlp"}), rates=SMOKE_RATES, trial={"rounds": 3}),
    },
    seeds={"three": 1, "one": 1},
    groups={
        **STANDARD.groups,
        "cifar100": on_cifar100({**IID, **SKEWED}),
        "cifar100 alpha": on_cifar100(alphas(0.9)),
        **both_partitions({"6 devices": {"devices": 6}}),
        "longer": conditions({"twice as long": {"rounds": 12}}),
        "single": ends(singles(4)),
        "shift": ends(SHIFTS),
        **{name: ends(STANDARD.groups[name]) for name in ("faults", "ratio", "threshold", "readings")},
    },
)

SCALES = {scale.name: scale for scale in (STANDARD, FULL, SMOKE)}


def find_scale(name: str) -> Scale:
    """Return a scale by its name, or refuse with the nearest known one."""
    if name == "reduced":
        raise InputError("the scale 'reduced' was too small to conclude anything from; use standard")
    if name not in SCALES:
        raise InputError(f"unknown scale {name!r}; {nearest(name, SCALES)}")
    return SCALES[name]
