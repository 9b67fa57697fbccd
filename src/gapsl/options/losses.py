"""What the two halves are trained on: the loss that was given, corrected as the configuration asks."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.device.exchange import DeviceInfo
from gapsl.device.faults import Faults
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.options.balance import BalancedCrossEntropy
from gapsl.options.calibration import PriorCalibration
from gapsl.run.config import Config


@dataclass(frozen=True)
class Losses:
    """The losses of a run."""

    server: Loss
    device: Loss | None  # of the gradients that go back; None: the server's
    calibration: PriorCalibration | None  # whichever of them is calibrated, for its counts


def make_losses(
    loss: Loss, config: Config, devices: Mapping[int, DeviceInfo], faults: Faults | None, *, classes: int
) -> Losses:
    """Return the losses that a configuration asks for; devices that flip gradients flip both."""
    if config.balance != "none" and config.calibration != "none" and config.calibration_for == "both":
        raise InputError(
            f"calibration = {config.calibration} for both halves already makes all classes count alike; "
            "set balance = none, or calibration_for = devices"
        )
    if config.balance != "none" and config.reduction == "samples":
        raise InputError(
            f"balance = {config.balance} counts on every device counting alike; set reduction = mean, or "
            "balance = none"
        )
    calibration = calibrated(flipped(loss, faults), config, devices, classes=classes)
    if calibration is not None and config.calibration_for == "both":
        return Losses(calibration, None, calibration)
    return Losses(flipped(balanced(loss, config, devices), faults), calibration, calibration)


def check_loss(loss: Loss) -> None:
    """Refuse a loss that cannot be called the way it will be, before anything is trained."""
    function = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        inspect.signature(function).bind("logits", "labels", "device")
    except TypeError as error:
        raise InputError(
            f"a loss is called as loss(logits, labels, device) and returns the batch's mean: {error}"
        ) from None
    except ValueError:  # a builtin that does not tell its arguments
        pass


def calibrated(
    loss: Loss, config: Config, devices: Mapping[int, DeviceInfo], *, classes: int
) -> PriorCalibration | None:
    """Return the loss without the devices' label frequencies, if the configuration asks for it."""
    if config.calibration == "none":
        return None
    declared = {device: info.label_counts for device, info in devices.items()}
    return PriorCalibration(
        loss,
        classes=classes,
        tau=config.calibration_tau,
        counts=declared if config.calibration_counts == "declared" else None,
    )


def balanced(loss: Loss, config: Config, devices: Mapping[int, DeviceInfo]) -> Loss:
    """Return the loss with all classes counting alike, if the configuration asks for it."""
    if config.balance == "none":
        return loss
    if loss is not cross_entropy:
        raise InputError("balance = classes weights the cross-entropy; with another loss, set balance = none")
    return BalancedCrossEntropy([info.label_counts for _, info in sorted(devices.items())])


def flipped(loss: Loss, faults: Faults | None) -> Loss:
    """Return the loss with its sign turned at the devices that flip gradients."""
    return FlippedLoss(loss, faults.devices) if faults is not None and faults.kind == "flip" else loss


class FlippedLoss:
    """A loss whose gradients, and nothing else, point the wrong way for some devices."""

    def __init__(self, loss: Loss, devices: Collection[int]) -> None:
        self.loss, self.devices = loss, frozenset(devices)

    def __call__(self, logits: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the loss, with its gradient or the opposite of it."""
        found = self.loss(logits, labels, device)
        return 2 * found.detach() - found if device in self.devices else found
