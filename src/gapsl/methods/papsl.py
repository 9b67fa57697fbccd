"""PAPSL: PSL whose client-side models are aligned on common probes, with losses that fit label skew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gapsl.methods.psl import Psl


class Papsl(Psl):
    """Probe-aligned PSL: GAPSL's leaders and alignment, moved to what client-side models make of probes.

    The server steps as PSL's does. The rest are options that it has switched on by default: each can be set
    otherwise. The preset `recommended` is the same run.
    """

    summary = "probe-aligned PSL: client-side models agree on common probes; fits label skew"
    labels_at_device: ClassVar[bool] = False  # calibration, balance and probes need them at the server
    defaults: ClassVar[Mapping[str, Any]] = {
        "reduction": "mean",
        "device_gradient": "own",
        "calibration": "prior",
        "calibration_for": "devices",
        "balance": "classes",
        "probes": 2,
        "probe_steps": 8,
        "device_optimizer": {"lr": 0.003},
    }
