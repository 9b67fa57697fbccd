"""Which option goes with which method, and with which other option: the one place that says so.

Methods declare traits (class attributes of `Strategy`); the rules here turn traits and settings into "ok" or
into a sentence that says why not and names the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gapsl.common.errors import InputError
from gapsl.methods.base import Parameters, Strategy
from gapsl.methods.registry import METHODS
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.options.settings import OptionSettings

Method = type[Strategy]


@dataclass(frozen=True)
class Rule:
    """An option that some methods refuse."""

    option: str
    chosen: Callable[[OptionSettings], bool]
    goes_with: Callable[[Method], bool]
    sentence: str  # {method} refuses, {others} do not


RULES = (
    Rule(
        "labels=device",
        lambda settings: settings.labels == "device",
        lambda method: method.labels_at_device,
        "labels = device works with {others}, not with {method}; set labels = server",
    ),
    Rule(
        "calibration_for=devices",
        lambda settings: settings.calibration != "none" and settings.calibration_for == "devices",
        lambda method: not method.one_loss,
        "in {method} devices get the gradient of the server's own loss; set calibration_for = both, or "
        "calibration = none",
    ),
    Rule(
        "probes",
        lambda settings: settings.probes > 0,
        lambda method: not method.in_turn,
        "{method} has one device at a time, and nobody to agree with on probes; set probes = 0",
    ),
    Rule(
        "faults",
        lambda settings: settings.faults != "none",
        lambda method: not method.pooled,
        "{method} has no devices that could misbehave; leave out faults, or this method",
    ),
)


@dataclass(frozen=True)
class Circumstances:
    """What else decides whether an option can be used."""

    loss: Loss = cross_entropy
    shift: str | None = None  # the partition's spec, where it shifts devices' features
    batch_norm: bool = False  # in the client-side model


def refuse_incompatible(
    name: str, settings: OptionSettings, parameters: Parameters, given: Circumstances
) -> None:
    """Raise an error that says why, and names the fix, if some of a run's options do not go together."""
    for sentence in refusals(name, settings, parameters, given):
        raise InputError(sentence)


def refusals(
    name: str, settings: OptionSettings, parameters: Parameters, given: Circumstances
) -> Iterator[str]:
    """Yield what does not go together, a sentence each."""
    method = METHODS[name]
    for rule in RULES:
        if rule.chosen(settings) and not rule.goes_with(method):
            yield rule.sentence.format(method=name, others=enumerated(rule))
    if method.pooled and given.shift is not None:
        yield (
            f"{name} has all data in one place, so no device shifts it ({given.shift}); leave out the "
            "+shift, or this method"
        )
    if settings.labels == "device":
        yield from _without_labels(method, settings, parameters, given.loss)
    if settings.balance != "none":
        yield from _balanced(settings, given.loss)
    if settings.probes and given.batch_norm:
        yield (
            "probes would be part of the devices' batch statistics; use norm = group (or none), or probes = 0"
        )


def _without_labels(
    method: Method, settings: OptionSettings, parameters: Parameters, loss: Loss
) -> Iterator[str]:
    if loss is not cross_entropy:
        yield "with labels = device the loss is the devices' cross-entropy; leave out loss=..."
    if method.differentiates_twice(parameters):
        yield (
            "with labels = device the loss arrives as numbers, which cannot be differentiated twice; set "
            f"{method.section}.penalty = none, or finite, which asks every kept device once more"
        )
    for option, off in (("calibration", "none"), ("balance", "none"), ("probes", 0), ("faults", "none")):
        if getattr(settings, option) != off:
            yield f"{option} needs labels at the server; set {option} = {off}, or labels = server"


def _balanced(settings: OptionSettings, loss: Loss) -> Iterator[str]:
    if settings.calibration != "none" and settings.calibration_for == "both":
        yield (
            f"calibration = {settings.calibration} for both halves already makes all classes count alike; "
            "set balance = none, or calibration_for = devices"
        )
    if settings.reduction == "samples":
        yield (
            f"balance = {settings.balance} counts on every device counting alike; set reduction = mean, or "
            "balance = none"
        )
    if loss is not cross_entropy:
        yield "balance = classes weights the cross-entropy; with another loss, set balance = none"


def enumerated(rule: Rule) -> str:
    """Return the methods that an option goes with, ablations left out, as words."""
    names = [name for name in METHODS if "/" not in name and rule.goes_with(METHODS[name])]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
