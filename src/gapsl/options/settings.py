"""The settings of the options, which every method has; `run.config.Config` is made of them and its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gapsl.device.config import DeviceConfig
from gapsl.methods.base import Reduction
from gapsl.methods.robust import Robust


class OptionSettings(DeviceConfig):
    """How devices count, and what is done against label skew; what devices must know of it, they do."""

    reduction: Reduction = Field(
        "mean", description="how the devices' losses become the round's; samples: the mean by amount of data"
    )
    device_gradient: Literal["follow", "own"] = Field(
        "follow", description="devices get the derivative of the round's loss, or of their own"
    )
    gradient_rows: Literal["exact", "sketch", "auto"] = Field(
        "exact",
        description="what a round keeps of each device's gradient: all, a sketch of 65536 numbers for its "
        "angles, or (auto) a sketch where all would be over 2 GiB",
    )
    robust: Robust = Field(
        "none",
        description="a server step that some bad devices cannot steer: gradients shortened to the median "
        "length (clip), or their median or trimmed mean by coordinate instead of their mean",
    )
    robust_trim: float = Field(
        0.3, ge=0, lt=0.5, description="trimmed: share of the devices left out at either end"
    )
    calibration: Literal["none", "prior"] = Field(
        "none", description="prior: take each device's label frequencies out of its loss"
    )
    calibration_tau: float = Field(1.0, ge=0, description="how much of them: 0 nothing, 1 all")
    calibration_counts: Literal["declared", "seen"] = Field(
        "declared", description="frequencies as devices declare them, or counted from the labels they send"
    )
    calibration_for: Literal["both", "devices"] = Field(
        "both", description="whose gradients are calibrated: both sides', or the devices' alone"
    )
    balance: Literal["none", "classes"] = Field(
        "none", description="classes: all count alike in the server's loss, however rare"
    )
    probe_pull: float = Field(
        0.03,
        ge=0,
        description="without such steps, how strongly devices are pulled to agree, at any learning rate",
    )
    probe_leaders: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the devices that lead the others there: those that agree most; who is far off "
        "never leads",
    )
