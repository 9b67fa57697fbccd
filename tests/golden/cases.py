"""The reference runs: small, and one for every method and option, so that nothing can change unseen.

Only what a run is about is written here; `record.py` spells out all the other settings and stores them in
`runs.json`, from which the tests train. So a default that changes later changes no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = dict[str, Any]

# Tenths of a second, on real digits.
PERCEPTRON: Settings = {
    "dataset": "digits", "model": "mlp", "width": 0.25, "devices": 5, "partition": "dirichlet:0.3",
    "batch_size": 8, "rounds": 6, "evaluate_every": 3, "checkpoint_every": 2, "train_samples": 240,
    "test_samples": 40, "seed": 3, "threads": 1, "server_optimizer": {"lr": 0.05},
    "device_optimizer": {"lr": 0.05},
}  # fmt: skip
# With convolutions.
IMAGES: Settings = {**PERCEPTRON, "model": "small", "devices": 4, "rounds": 4, "evaluate_every": 2}

# The preset of this name as it was when the table was made; what it becomes is another run.
RECOMMENDED: Settings = {
    "method": "psl", "reduction": "mean", "device_gradient": "own", "calibration": "prior",
    "calibration_for": "devices", "balance": "classes", "probes": 2, "probe_steps": 4, "probe_leaders": 0.5,
    "device_optimizer": {"lr": 0.003},
}  # fmt: skip

# A regulariser that matters, and nobody left out of it.
EXACT = {"lambda": 0.05, "exclusion": "none", "penalty": "exact"}
FINITE = {**EXACT, "penalty": "finite"}


def over(base: Mapping[str, Any], **changes: Any) -> Settings:
    """Return settings with some of them changed."""
    return {**base, **changes}


METHODS: dict[str, Settings] = {
    "gapsl": {},
    "psl": {},
    "papsl": {},
    "epsl": {},
    "sfl": {"sfl": {"interval": 2}},
    "sfl-v2": {"sfl": {"interval": 2}},
    "vanilla": {"vanilla": {"turn": "pass"}},
    "frozen": {},
    "central": {},
    "single": {"single": {"device": 2}},
    "gapsl/non-lgi": {},
    "gapsl/rand-lgi": {},
    "gapsl/non-gda": {},
    "gapsl/rand-gda": {},
    "gapsl/fixed-ratio": {"gapsl": {"ratio": 0.4}},
    "gapsl/fixed-threshold": {"gapsl": {"threshold": 60.0}},
}

# What belongs to one method.
OF_METHODS: dict[str, Settings] = {
    "gapsl, penalty exact": {"method": "gapsl", "gapsl": EXACT},
    "gapsl, penalty finite": {"method": "gapsl", "gapsl": FINITE},
    "gapsl, penalty none": {"method": "gapsl", "gapsl": {"penalty": "none"}},
    "gapsl, excluded plain": {"method": "gapsl", "gapsl": {"excluded": "plain"}},
    "gapsl, eta and range": {"method": "gapsl", "gapsl": {"eta": -0.3, "k_min": 0.4, "k_max": 0.6}},
    "gapsl, reduction sum": {"method": "gapsl", "reduction": "sum"},
    "gapsl, reduction samples": {"method": "gapsl", "reduction": "samples"},
    "gapsl, device_gradient own": {"method": "gapsl", "device_gradient": "own"},
    "gapsl, calibration prior": {"method": "gapsl", "calibration": "prior"},
    "gapsl, participation": {"method": "gapsl", "participation": 0.6},
    "gapsl, two devices": {"method": "gapsl", "devices": 2},
    "gapsl, robust clip": {"method": "gapsl", "robust": "clip"},
    "gapsl, robust median": {"method": "gapsl", "robust": "median", "gapsl": EXACT},
    "epsl, robust trimmed": {"method": "epsl", "robust": "trimmed"},
    "epsl, hidden per-device": {"method": "epsl", "epsl": {"hidden": "per-device"}},
    "epsl, phi 1": {"method": "epsl", "epsl": {"phi": 1.0}},
    "epsl, reduction samples": {"method": "epsl", "reduction": "samples"},
    "sfl, weights uniform": {"method": "sfl", "sfl": {"interval": 2, "weights": "uniform"}},
    "sfl, calibration prior": {"method": "sfl", "sfl": {"interval": 2}, "calibration": "prior"},
    "vanilla, turn batch": {"method": "vanilla", "vanilla": {"turn": "batch"}},
    "labels device, psl": {"method": "psl", "labels": "device"},
    "labels device, gapsl": {"method": "gapsl", "labels": "device", "gapsl": FINITE},
}

# What every method, or many of them, can be given; PSL where nothing else is said.
OPTIONS: dict[str, Settings] = {
    "reduction sum": {"reduction": "sum"},
    "reduction samples": {"reduction": "samples"},
    "device_gradient own": {"device_gradient": "own"},
    "calibration prior": {"calibration": "prior"},
    "calibration prior, tau": {"calibration": "prior", "calibration_tau": 0.5},
    "calibration prior, for devices": {"calibration": "prior", "calibration_for": "devices"},
    "calibration prior, counts seen": {"calibration": "prior", "calibration_counts": "seen"},
    "balance classes": {"balance": "classes"},
    "probes, pull": {"probes": 2, "probe_steps": 0, "probe_pull": 0.1},
    "probes, steps": {"probes": 2, "probe_steps": 3},
    "probes, leaders": {"probes": 2, "probe_steps": 3, "probe_leaders": 0.5},
    "probes, gradients": {"probes": 2, "probe_steps": 3, "probe_gradients": True},
    "probes, pull, leaders": {"probes": 2, "probe_steps": 0, "probe_pull": 0.1, "probe_leaders": 0.5},
    "recommended": RECOMMENDED,
    "recommended, gapsl": over(RECOMMENDED, method="gapsl"),
    "participation": {"participation": 0.6},
    "recommended, participation": over(RECOMMENDED, participation=0.6),
    "precision float64": {"precision": "float64"},
    "adamw, clip, cosine, warmup": {
        "device_optimizer": {
            "name": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip": 0.5, "schedule": "cosine",
        },
        "server_optimizer": {"name": "adamw", "lr": 0.01, "clip": 1.0, "schedule": "cosine", "warmup": 2},
    },
    "sgd, step, decay": {
        "device_optimizer": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.2},
        "server_optimizer": {"lr": 0.05, "schedule": "step", "step_every": 2, "step_factor": 0.5},
    },
    "faults flip": {"faults": "flip:2"},
    "faults labels": {"faults": "labels:2"},
    "faults permute": {"faults": "permute:2"},
    "faults noise": {"faults": "noise:2"},
    "faults scale": {"faults": "scale:2"},
    "robust clip": {"robust": "clip"},
    "robust median": {"robust": "median"},
    "robust trimmed": {"robust": "trimmed"},
    "partition iid": {"partition": "iid"},
    "partition dirichlet": {"partition": "dirichlet:1.0"},
    "partition shards": {"partition": "shards:2"},
    "partition unequal": {"partition": "unequal:0.5"},
    "partition with noise": {"partition": "dirichlet:0.3+noise:0.3"},
    "partition with colour": {"partition": "iid+colour:0.5"},
    "partition with rotation": {"partition": "shards:2+rotation:30"},
    "validation": {"validation": 0.2},
    "augment crop-flip": {"augment": "crop-flip"},
    "epochs": {"rounds": None, "epochs": 2},
    "cut 2": {"cut": 2},
}  # fmt: skip

# Where it matters which layers the model has.
LAYERS: dict[str, Settings] = {
    "small, psl": {"method": "psl"},
    "small, gapsl": {"method": "gapsl"},
    "small, cut by name": {"method": "psl", "cut": "stages.1.relu"},
    "small, cut_norm": {"method": "psl", "cut_norm": "sample"},
    "small, norm batch": {"method": "psl", "norm": "batch"},
    "small, norm batch, gapsl": {"method": "gapsl", "norm": "batch", "gapsl": EXACT},
    "small, norm batch, sfl": {"method": "sfl", "norm": "batch", "sfl": {"interval": 2}},
    "small, norm group": {"method": "psl", "norm": "group"},
    "small, dropout": {"method": "psl", "dropout": 0.3},
    "small, dropout, gapsl exact": {"method": "gapsl", "dropout": 0.3, "gapsl": EXACT},
    "small, dropout, gapsl finite": {"method": "gapsl", "dropout": 0.3, "gapsl": FINITE},
    "small, dropout, epsl": {"method": "epsl", "dropout": 0.3},
    "small, channels-last": {"method": "psl", "layout": "channels-last", "norm": "batch"},
    "small, channels-last, gapsl": {"method": "gapsl", "layout": "channels-last"},
    "small, labels device": {"method": "psl", "labels": "device", "norm": "batch"},
    "small, recommended": RECOMMENDED,
    "small, recommended, cut_norm, norm group": over(RECOMMENDED, cut_norm="sample", norm="group"),
    # All that has a state of its own between rounds, but for dropout.
    "small, stateful": {
        "method": "gapsl", "norm": "batch", "participation": 0.75, "calibration": "prior",
        "calibration_counts": "seen", "server_optimizer": {"name": "adamw", "schedule": "cosine"},
    },
    "vit-micro": {
        "method": "psl", "model": "vit-micro", "width": 1.0, "patch": 4, "devices": 2, "rounds": 2,
        "device_optimizer": {"name": "adamw", "lr": 0.001},
        "server_optimizer": {"name": "adamw", "lr": 0.001},
    },
}  # fmt: skip

WHOLE = {"train_samples": None, "test_samples": None}
# From Python, with objects of one's own; the name says which (see worker.py).
GIVEN: dict[str, tuple[str, Settings]] = {
    "own data, vgg16": (
        "data",
        {"method": "gapsl", "model": "vgg16", "width": 0.05, "norm": "batch", "devices": 3, "rounds": 2},
    ),
    "own model and data": ("model and data", {"method": "gapsl", "cut": 3, "width": 1.0}),
}

# Table: group -> name -> settings. A group is what one process trains.
GROUPS: dict[str, dict[str, Settings]] = {
    "methods": {
        **{name: over(PERCEPTRON, **own, method=name) for name, own in METHODS.items()},
        **{name: over(PERCEPTRON, **own) for name, own in OF_METHODS.items()},
    },
    "options": {name: over(PERCEPTRON, **{"method": "psl", **own}) for name, own in OPTIONS.items()},
    "layers": {
        **{name: over(IMAGES, **{"width": 0.25, **own}) for name, own in LAYERS.items()},
        **{name: over(IMAGES, **WHOLE, **own) for name, (_, own) in GIVEN.items()},
    },
}

# Runs that are killed in the middle, which `gapsl resume` finishes.
KILLED = ("recommended", "sfl", "small, stateful", "small, dropout, gapsl exact")
# Runs that are also trained over the network.
NETWORKED = ("gapsl", "sfl", "vanilla", "recommended")
