"""From settings to options: the losses of a run, and the strategy with its options around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapsl.device.exchange import DeviceInfo
from gapsl.device.faults import Faults
from gapsl.methods.base import Strategy
from gapsl.methods.server_model import Loss
from gapsl.options.balance import BalancedCrossEntropy
from gapsl.options.calibration import PriorCalibration, SeenLabels
from gapsl.options.losses import FlippedLoss
from gapsl.options.probes import ProbeAlignment
from gapsl.options.settings import OptionSettings


@dataclass(frozen=True)
class Losses:
    """The losses of a run."""

    server: Loss
    device: Loss | None  # of the gradients that go back; None: the server's
    calibration: PriorCalibration | None  # whichever of them is calibrated, for its counts


def make_losses(
    loss: Loss,
    settings: OptionSettings,
    devices: Mapping[int, DeviceInfo],
    faults: Faults | None,
    *,
    classes: int,
) -> Losses:
    """Return the losses that the settings ask for; devices that flip gradients flip both."""
    server = loss
    if settings.balance == "classes":
        server = BalancedCrossEntropy([info.label_counts for _, info in sorted(devices.items())])
    if faults is not None and faults.kind == "flip":
        server, loss = FlippedLoss(server, faults.devices), FlippedLoss(loss, faults.devices)
    if settings.calibration == "none":
        return Losses(server, None, None)
    declared = {device: info.label_counts for device, info in devices.items()}
    calibration = PriorCalibration(
        loss,
        classes=classes,
        tau=settings.calibration_tau,
        counts=declared if settings.calibration_counts == "declared" else None,
    )
    if settings.calibration_for == "both":
        return Losses(calibration, None, calibration)
    return Losses(server, calibration, calibration)


def with_options(method: Strategy, settings: OptionSettings, losses: Losses) -> Strategy:
    """Return a method with the options around it that the settings ask for.

    Devices that solve for the way to their leaders on the probes are sent the way itself, others a gradient
    that pulls. SGD multiplies every gradient by the learning rate, so dividing the pull by it makes a step
    towards the leader what the settings say, however fast devices learn. AdamW takes steps as long as its
    rate, and the quotient is how much of them the pull has against the loss.
    """
    strategy = method
    if losses.calibration is not None and settings.calibration_counts == "seen":
        strategy = SeenLabels(strategy, losses.calibration)
    if settings.probes:
        weight = None if settings.probe_steps else settings.probe_pull / settings.device_optimizer.lr
        strategy = ProbeAlignment(
            strategy, weight, settings.probe_leaders, gradients=settings.probe_gradients
        )
    return strategy
