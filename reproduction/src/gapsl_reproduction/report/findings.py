"""What was found in sentences, whether models are trained enough to conclude it, and what methods cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gapsl.analysis.statistics import Values, mean
from gapsl.models import build_model
from gapsl.run.config import Config, make_config
from gapsl_reproduction.report.claims import PAPERS_LEAD
from gapsl_reproduction.report.figures import ORDER
from gapsl_reproduction.report.frame import (
    FEW_STEPS,
    FEWER_SAMPLES,
    IID,
    LONGER,
    PAPER_RATES,
    SHORTER_STEP,
    SKEWED,
    Evidence,
    line_name,
)
from gapsl_reproduction.report.numbers import listed, minus, paragraphs, signed, table, told
from gapsl_reproduction.scales import Scale

CENTRAL, EVEN, GAIN = 85.0, 80.0, 2.0  # the entry condition: at least, at least, at most


def findings(evidence: Evidence) -> list[str]:
    """Return what was found, each sentence if there are the runs for it."""
    centres = {line: mean(evidence.values(line)) for line in ORDER}
    known = sorted(((value, line) for line, value in centres.items() if value is not None), reverse=True)
    reached = ", ".join(f"{line_name(line)} {value:.1f}" for value, line in known)
    leads = {line: evidence.lead("papsl", line) for line in ("sfl", "frozen", "psl", "central")}
    even = {line: evidence.lead(line, "psl", IID) for line in ("papsl", "gapsl", "sfl", "frozen")}
    gapsl = {
        "with rates of its own": evidence.lead("gapsl", "psl"),
        "at the paper's rates": evidence.lead("gapsl", "psl", PAPER_RATES),
    }
    kept = mean(evidence.values("gapsl", SKEWED, "kept"))
    devices = make_config(evidence.scale.workloads["cifar10"].settings).devices
    equal = minus(evidence.values("papsl"), evidence.values("frozen", LONGER))
    found = {
        f"On skewed labels (alpha 0.1, {evidence.scale.model}) accuracies in % are: {reached}.": known,
        f"PAPSL, which averages nothing, minus others, in points: {each(leads)}.": any(leads.values()),
        f"GAPSL minus PSL is {_ways(gapsl)}; in the paper {signed(PAPERS_LEAD)}.": any(gapsl.values()),
        f"GAPSL keeps {kept or 0:.1f} of {devices} devices per round: it learns from "
        f"{100 * (kept or 0) / devices:.0f} % of the samples that PSL learns from in as many rounds.": kept,
        f"On IID data, methods minus PSL: {each(even)}.": any(even.values()),
        "For equal bytes (frozen trains twice as long, since nothing is sent back to it) PAPSL minus "
        f"frozen is {told(equal)}.": equal,
    }
    return [sentence for sentence, there in found.items() if there]


def exclusion(evidence: Evidence) -> list[str]:
    """Return what leaving devices out costs GAPSL, against PSL that is held to as little."""
    samples = minus(evidence.values("gapsl"), evidence.values("psl", FEWER_SAMPLES))
    step = minus(evidence.values("gapsl", PAPER_RATES), evidence.values("psl", SHORTER_STEP))
    shorter = minus(evidence.values("psl", SHORTER_STEP), evidence.values("psl", PAPER_RATES))
    places = [SKEWED, *evidence.conditions("alpha")]
    gaps = {at: evidence.lead("gapsl", "psl", at) for at in places}
    faulty = {at: evidence.lead("gapsl", "psl", at, "honest") for at in evidence.conditions("faults")}
    found = {
        f"At about equal samples used (PSL for {FEWER_SAMPLES}) GAPSL minus PSL is {told(samples)}.": samples,
        "Under `sum`, with the paper's rates, three of ten kept is a step three tenths as long: GAPSL minus "
        f"PSL with that step is {told(step)}.": step,
        f"That step alone changes PSL by {told(shorter)}.": shorter,
        f"GAPSL minus PSL by label skew: {_at(gaps)}.": sum(map(bool, gaps.values())) > 1,
        f"The same for honest devices among three faulty of ten: {_at(faulty)}.": any(faulty.values()),
    }
    return [sentence for sentence, there in found.items() if there]


def _at(differences: dict[str, Values]) -> str:
    return listed([f"{at} {told(own)}" for at, own in differences.items() if own])


def each(differences: dict[str, Values]) -> str:
    """Return the differences to lines, or of lines, that are known."""
    return listed([f"{line_name(line)} {told(own)}" for line, own in differences.items() if own])


def _ways(differences: dict[str, Values]) -> str:
    return listed([f"{told(own)} {how}" for how, own in differences.items() if own])


def entry(evidence: Evidence) -> str:
    """Return whether the entry condition is met, with the shortfall."""
    even = {line: value for line in ("psl", "sfl") if (value := mean(evidence.values(line, IID))) is not None}
    best = max(even, key=lambda line: even[line]) if even else ""
    rows = [
        _row("central", mean(evidence.values("central")), CENTRAL),
        _row(f"the better of PSL and SFL on IID data ({line_name(best)})", even.get(best), EVEN),
    ]
    for line in ("psl", "sfl", "frozen", "papsl"):
        gain = mean(minus(evidence.values(line, LONGER), evidence.values(line)))
        rows.append(_row(f"gain of {line_name(line)} from twice the length", gain, GAIN, most=True))
    known = [row for row in rows if row is not None]
    if not known:
        return ""
    short = any(row[-1] != "–" for row in known)
    met = "**not met**" if short else "met" if len(known) == len(rows) else "met as far as it was measured"
    return paragraphs(
        "## Trained enough?",
        f"The entry condition (`central` at least {CENTRAL:g} %, the better of PSL and SFL on IID data at "
        f"least {EVEN:g} %, twice the length, with a schedule of its own, gains at most {GAIN:g}) is {met}.",
        table([evidence.scale.model, "wanted", "reached", "short by"], known),
        steps(evidence),
    )


def steps(evidence: Evidence) -> str:
    """Say how many steps a model takes by the same samples: `central` one per mini-batch, others fewer."""
    config = make_config(evidence.scale.workloads["cifar10"].settings)
    if config.rounds is None:
        return ""
    few = evidence.values("central", FEW_STEPS)
    lost = told(minus(few, evidence.values("central")))
    reached = f" In as few and large steps `central` itself reaches {mean(few):.1f}: {lost}." if few else ""
    return (
        f"The same samples are not the same number of steps: `central` takes one per mini-batch "
        f"({config.rounds * config.devices:,}), methods whose devices work side by side one per round "
        f"({config.rounds:,}), with gradients of {config.devices} mini-batches in it.{reached}"
    )


def _row(name: str, value: float | None, limit: float, *, most: bool = False) -> list[str] | None:
    if value is None:
        return None
    short = round(value - limit if most else limit - value, 1)
    reached = signed(value) if most else f"{value:.1f}"
    return [
        name,
        f"at {'most' if most else 'least'} {limit:g}",
        reached,
        f"{short:.1f}" if short > 0 else "–",
    ]


SHAPES = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "digits": ((1, 8, 8), 10)}
BUILT = ("cut", "width", "norm", "dropout", "patch")
NOTE = (
    "Of a whole run at alpha 0.1, evaluation aside: bytes of all devices together, averaging included, and "
    "the time of the fastest run on one core with other computation beside it. The machines differ, by up to "
    "four times, so minutes compare only roughly. MFLOP are those of one training sample, forward and "
    "backward; what GAPSL adds on the server (a second backward pass over the kept devices) and the few rows "
    "of probes are not in them."
)


def costs(evidence: Evidence, lines: tuple[str, ...]) -> str:
    """Return the table of costs, a row a method that was run."""
    rows = []
    operations = count(evidence.scale)
    for line in lines:
        sent, received = (mean(evidence.values(line, SKEWED, name)) for name in ("sent", "received"))
        seconds = evidence.values(line, SKEWED, "seconds")
        if sent is None or received is None:
            continue
        device = operations["forward" if line == "frozen" else "device"]
        rows.append(
            [
                line_name(line),
                *(f"{megabytes / 1e3:,.2f}" if sent else "–" for megabytes in (sent, received)),
                f"{device / 1e6:,.1f}",
                f"{operations['server'] / 1e6:,.1f}",
                f"{min(seconds.values()) / 60:,.0f}",
            ]
        )
    if not rows:
        return ""
    headings = [evidence.scale.model, "GB up", "GB down", "device MFLOP", "server MFLOP", "minutes"]
    return f"## Costs\n\n{NOTE}\n\n{table(headings, rows)}"


def count(scale: Scale) -> Mapping[str, float]:
    """Return the operations of a sample: a device's forward pass, all of its work, and the server's."""
    settings = scale.workloads["cifar10"].settings
    return _count(settings["dataset"], settings["model"], *(settings.get(name) for name in BUILT))


@cache
def _count(dataset: str, model: str, *values: Any) -> Mapping[str, float]:
    shape, classes = SHAPES[dataset]
    given = {name: value for name, value in zip(BUILT, values, strict=True) if value is not None}
    config = Config(model=model, **given)
    parts = build_model(
        model, classes=classes, input_shape=shape, **{name: getattr(config, name) for name in BUILT}
    )
    forward, both, server = (FlopCounterMode(display=False) for _ in range(3))
    sample = torch.zeros(2, *shape)
    with forward, torch.no_grad():
        parts.device(sample)
    with both:
        activations = parts.device(sample)
        activations.backward(torch.ones_like(activations))
    received = activations.detach().requires_grad_()
    with server:
        parts.server(received).sum().backward()
    found = {"forward": forward, "device": both, "server": server}
    return {name: counter.get_total_flops() / len(sample) for name, counter in found.items()}
