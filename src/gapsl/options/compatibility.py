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
MANY_BYTES = 2 << 30  # of a round's gradients, from which on `auto` keeps sketches


@dataclass(frozen=True)
class Circumstances:
    """What else decides whether an option can be used."""

    loss: Loss = cross_entropy
    shift: str | None = None  # the partition's spec, where it shifts devices' features
    batch_norm: bool = False  # in the client-side model
    served: bool = False  # whether devices are elsewhere; the next two are of such a run
    parameter_server: bool = False
    waits_for_all: bool = True  # a round closes when all devices have answered


@dataclass(frozen=True)
class Rule:
    """An option that some methods refuse."""

    option: str
    chosen: Callable[[OptionSettings, Circumstances], bool]
    goes_with: Callable[[Method], bool]
    sentence: str  # {method} refuses, {others} do not


RULES = (
    Rule(
        "labels=device",
        lambda settings, given: settings.labels == "device",
        lambda method: method.labels_at_device,
        "labels = device works with {others}, not with {method}; set labels = server",
    ),
    Rule(
        "calibration_for=devices",
        lambda settings, given: settings.calibration != "none" and settings.calibration_for == "devices",
        lambda method: not method.one_loss,
        "in {method} devices get the gradient of the server's own loss; set calibration_for = both, or "
        "calibration = none",
    ),
    Rule(
        "probes",
        lambda settings, given: settings.probes > 0,
        lambda method: not method.in_turn,
        "{method} has one device at a time, and nobody to agree with on probes; set probes = 0",
    ),
    Rule(
        "faults",
        lambda settings, given: settings.faults != "none",
        lambda method: not method.pooled,
        "{method} has no devices that could misbehave; leave out faults, or this method",
    ),
    Rule(
        "shift",
        lambda settings, given: given.shift is not None,
        lambda method: not method.pooled,
        "{method} has all data in one place, so no device shifts it ({shift}); leave out the +shift, or this "
        "method",
    ),
    Rule(
        "network",
        lambda settings, given: given.served,
        lambda method: not method.pooled,
        "{method} has all data in one place, so there is nothing to serve; use gapsl train",
    ),
    Rule(
        "no parameter server",
        lambda settings, given: given.served and not given.parameter_server,
        lambda method: not method.moves_client_models,
        "{method} moves client-side models, which the server must not see: start a gapsl parameter-server, "
        "and name it with --parameter-server HOST:PORT",
    ),
    Rule(
        "closing",
        lambda settings, given: not given.waits_for_all,
        lambda method: not method.in_turn,
        "{method} goes from device to device and needs each of them; set closing = all",
    ),
    Rule(
        "robust",
        lambda settings, given: settings.robust != "none",
        lambda method: method.one_step,
        "robust works with {others}, where the server takes one step on the gradients of all devices, not "
        "with {method}; set robust = none",
    ),
)


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
        if rule.chosen(settings, given) and not rule.goes_with(method):
            yield rule.sentence.format(method=name, others=enumerated(rule), shift=given.shift)
    if settings.labels == "device":
        yield from _without_labels(method, settings, parameters, given)
    if settings.balance != "none":
        yield from _balanced(settings, given.loss)
    if settings.robust != "none" and settings.devices == 1:
        yield f"robust = {settings.robust} compares devices, and there is one; set robust = none, or devices"
    if settings.robust in ("median", "trimmed") and settings.reduction == "samples":
        yield (
            f"robust = {settings.robust} counts every device alike, whatever amount of data it says it has; "
            "set reduction = mean, or robust = clip"
        )
    why = why_exact(name, settings)
    if settings.gradient_rows == "sketch" and why is not None:
        yield f"{why}; set gradient_rows = exact"
    if settings.probes and given.batch_norm:
        yield (
            "probes would be part of the devices' batch statistics; use norm = group (or none), or probes = 0"
        )


def sketches(name: str, settings: OptionSettings, row_bytes: int) -> bool:
    """Say whether a run keeps sketches of gradients that take so many bytes in a round."""
    if settings.gradient_rows == "auto":
        return row_bytes > MANY_BYTES and why_exact(name, settings) is None
    return settings.gradient_rows == "sketch"


def why_exact(name: str, settings: OptionSettings) -> str | None:
    """Say why sketches of the devices' gradients would not do, if so."""
    if not METHODS[name].sketches:
        return f"{name} needs more of the devices' gradients than sketches tell"
    if settings.robust != "none":
        return f"robust = {settings.robust} needs the devices' gradients, which sketches stand for"
    if settings.labels == "device":
        return "with sketches gradients are computed again, and with labels = device their loss is elsewhere"
    return None


def _without_labels(
    method: Method, settings: OptionSettings, parameters: Parameters, given: Circumstances
) -> Iterator[str]:
    if given.loss is not cross_entropy:
        yield "with labels = device the loss is the devices' cross-entropy; leave out loss=..."
    if method.differentiates_twice(parameters):
        yield (
            "with labels = device the loss arrives as numbers, which cannot be differentiated twice; set "
            f"{method.section}.penalty = none, or finite, which asks every kept device once more"
        )
    if getattr(parameters, "penalty", None) == "finite" and not given.waits_for_all:
        yield (
            "the finite penalty asks kept devices once more, and so needs them to the end of the round; set "
            f"{method.section}.penalty = none, or closing = all"
        )
    for option, off in (("calibration", "none"), ("balance", "none"), ("probes", 0), ("faults", "none")):
        if getattr(settings, option) != off:
            yield f"{option} needs labels at the server; set {option} = {off}, or labels = server"


def _balanced(settings: OptionSettings, loss: Loss) -> Iterator[str]:
    if settings.calibration != "none" and settings.calibration_for == "both":
        yield (
            f"calibration = {settings.calibration} for both losses already makes all classes count alike; "
            "set balance = none, or calibration_for = devices"
        )
    if settings.reduction == "samples":
        yield (
            f"balance = {settings.balance} counts on every device counting alike; set reduction = mean, or "
            "balance = none"
        )
    if loss is not cross_entropy:
        yield "balance = classes weights the cross-entropy; with another loss, set balance = none"


TABLE = ("labels=device", "calibration", "balance", "probes", "robust", "faults", "network")
LEGEND = {
    "both": "calibration of both losses alone (`calibration_for=both`)",
    "idle": "accepted, but it changes nothing: devices do not learn",
    "ps": "over a network it needs a parameter server",
}


def goes_with(method: Method) -> dict[str, str]:
    """Return how each option of the table goes with a method: yes, no, or a word of the legend."""
    accepts = {rule.option: rule.goes_with(method) for rule in RULES}
    words = {True: "yes", False: "no"}
    both = not (accepts["calibration_for=devices"] and method.trains_devices)
    served = "yes" if accepts["no parameter server"] else "ps"
    return {
        "labels=device": words[accepts["labels=device"]],
        "calibration": "both" if both else "yes",
        "balance": "yes",
        "probes": "idle" if accepts["probes"] and not method.trains_devices else words[accepts["probes"]],
        "robust": words[accepts["robust"]],
        "faults": words[accepts["faults"]],
        "network": served if accepts["network"] else "no",
    }


def table_markdown() -> str:
    """Return the table of docs/methods.md."""
    heads = ["method", *(f"`{column}`" if "=" in column else column for column in TABLE)]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, method in METHODS.items():
        if method.__module__.startswith("gapsl."):  # not a plugin's
            lines.append(f"| `{name}` | {' | '.join(goes_with(method).values())} |")
    return "\n".join(lines)


def enumerated(rule: Rule) -> str:
    """Return the methods that an option goes with, ablations left out, as words."""
    names = [name for name in METHODS if "/" not in name and rule.goes_with(METHODS[name])]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
