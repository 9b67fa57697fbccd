"""What was found in sentences, whether models are trained enough to conclude it, and what methods cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gapsl.analysis.statistics import Values, mean
from gapsl.models import build_model
from gapsl.run.config import Config, make_config, merge
from gapsl_reproduction.catalogue import ETAS, LINES
from gapsl_reproduction.report.claims import PAPERS_LEAD
from gapsl_reproduction.report.figures import ORDER
from gapsl_reproduction.report.frame import (
    EXCLUDING,
    FEW_STEPS,
    FEWER_SAMPLES,
    IID,
    LONGER,
    PAPER_RATES,
    SHORTER_STEP,
    SKEWED,
    Evidence,
    line_name,
    over_devices,
)
from gapsl_reproduction.report.numbers import listed, minus, paragraphs, signed, table, told
from gapsl_reproduction.scales import Scale

CENTRAL, EVEN, GAIN = 85.0, 80.0, 2.0  # the entry condition: at least, at least, at most


def findings(evidence: Evidence) -> list[str]:
    """Return what was found, each sentence if there are the runs for it."""
    reached = accuracies(evidence)
    leads = {line: evidence.lead("papsl", line) for line in ("sfl", "frozen", "psl", "central")}
    even = {line: evidence.lead(line, "psl", IID) for line in ("papsl", "gapsl", "sfl", "frozen")}
    gapsl = {
        "with rates of its own": evidence.lead("gapsl", "psl"),
        "at the paper's rates": evidence.lead("gapsl", "psl", PAPER_RATES),
    }
    kept = {at: mean(evidence.values("gapsl", at, "kept")) for at in (SKEWED, IID)}
    devices = make_config(evidence.scale.workloads["cifar10"].settings).devices
    equal = minus(evidence.values("papsl"), evidence.values("frozen", LONGER))
    share = 100 * (kept[SKEWED] or 0) / devices
    alike = f" On IID data, where all are alike, it keeps {kept[IID]:.1f}." if kept[IID] else ""
    found = {
        f"On skewed labels (alpha 0.1, {evidence.scale.model}) accuracies in % (seeds): {reached}.": reached,
        f"PAPSL, which averages no weights, minus others, in points, over the seeds that both have: "
        f"{each(leads)}.": any(leads.values()),
        f"GAPSL minus PSL is {_ways(gapsl)}; in the paper {signed(PAPERS_LEAD)}.": any(gapsl.values()),
        f"GAPSL keeps {kept[SKEWED] or 0:.1f} of {devices} devices per round: it learns from {share:.0f} % "
        f"of the samples that PSL learns from in as many rounds.{alike}": kept[SKEWED],
        f"On IID data, with the rates chosen at alpha 0.1, compared with PSL, in points: {each(even)}.": any(
            even.values()
        ),
        "For equal bytes (frozen trains twice as long, since nothing is sent back to it) PAPSL minus "
        f"frozen is {told(equal)}.": equal,
    }
    return [sentence for sentence, there in found.items() if there]


def accuracies(evidence: Evidence) -> str:
    """Return the lines with their accuracies at alpha 0.1, the highest first."""
    centres = {line: mean(evidence.values(line)) for line in ORDER}
    known = sorted(((value, line) for line, value in centres.items() if value is not None), reverse=True)
    told = []
    for value, line in known:
        seeds, all_seeds = len(evidence.values(line)), len(evidence.stored.get((line, SKEWED), {}))
        failed = f", {all_seeds - seeds} failed" if seeds < all_seeds else ""
        told.append(f"{line_name(line)} {value:.1f} ({seeds}{failed})")
    return ", ".join(told)


def exclusion(evidence: Evidence) -> list[str]:
    """Return what leaving devices out costs GAPSL, against PSL that is held to as little."""
    together = evidence.lead("gapsl", "psl", SKEWED, "ensemble")
    samples = minus(evidence.values(EXCLUDING), evidence.values("psl", FEWER_SAMPLES))
    step = minus(evidence.values(EXCLUDING, PAPER_RATES), evidence.values("psl", SHORTER_STEP))
    shorter = minus(evidence.values("psl", SHORTER_STEP), evidence.values("psl", PAPER_RATES))
    places = [SKEWED, *evidence.conditions("alpha")]
    gaps = {at: evidence.lead("gapsl", "psl", at) for at in places}
    faulty = {at: evidence.lead("gapsl", "psl", at, "honest") for at in evidence.conditions("faults")}
    etas, psl = (evidence.best_trials(line, by="choice") for line in ("gapsl", "psl"))
    by_eta = [f"{value:.1f} with eta {ETAS[choice]['gapsl']['eta']:g}" for choice, value in etas.items()]
    best_psl = psl.get(0, 0.0)
    halves = [kept_and_left_out(evidence, line) for line in (EXCLUDING, "psl")]
    name = line_name(EXCLUDING)
    found = {
        f"The smaller eta, the fewer devices are left out, down to those beyond 90°: the best trials of "
        f"GAPSL reach {listed(by_eta).replace('-', '−')} (%, images held out), that of PSL {best_psl:.1f}.": (
            len(etas) > 1 and psl
        ),
        f"With eta 0.5, the half of the devices that is kept most often and the other half end at "
        f"{_two(halves[0])} %; in PSL the same two halves end at {_two(halves[1])} %.": all(halves),
        f"For the ensemble of the devices, GAPSL minus PSL is {told(together)}.": together,
        f"At about equal samples used, {name} minus PSL for {FEWER_SAMPLES} is {told(samples)}.": samples,
        "Under `sum`, with the paper's rates, three of ten kept is a step three tenths as long: "
        f"{name} minus PSL with that step is {told(step)}.": step,
        f"That step alone changes PSL by {told(shorter)}.": shorter,
        f"GAPSL minus PSL by label skew: {_at(gaps)}.": sum(map(bool, gaps.values())) > 1,
        f"The same for honest devices among three faulty of ten: {_at(faulty)}.": any(faulty.values()),
    }
    return [sentence for sentence, there in found.items() if there]


def kept_and_left_out(evidence: Evidence, line: str) -> tuple[float, float] | None:
    """Return a line's accuracies of the devices that GAPSL keeps most often, and of the other half."""
    kept = {seed: over_devices(run, "kept_share") for seed, run in evidence.runs(EXCLUDING).items()}
    runs = {seed: run for seed, run in evidence.runs(line).items() if kept.get(seed)}
    ends: tuple[list[float], list[float]] = ([], [])
    for seed, run in runs.items():
        order = sorted(range(len(kept[seed])), key=lambda device: kept[seed][device] or 0.0, reverse=True)
        for place, device in enumerate(order):
            ends[place >= len(order) // 2].append(100 * (run["final"]["device_accuracy"][device] or 0.0))
    return (fmean(ends[0]), fmean(ends[1])) if runs else None


def _two(values: tuple[float, float] | None) -> str:
    return "" if values is None else f"{values[0]:.1f} and {values[1]:.1f}"


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
        f"What we asked before comparing (`central` at least {CENTRAL:g} %, the better of PSL and SFL on IID "
        f"data at least {EVEN:g} %, twice the length, with a schedule of its own, gains at most {GAIN:g}) is "
        f"{met}.",
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
    reached = (
        f" In as few and large steps `central` itself reaches {mean(few):.1f}, {lost} against small ones."
        if few
        else ""
    )
    return (
        f"The same samples, different numbers of steps: `central` and vanilla SL take one per mini-batch "
        f"({config.rounds * config.devices:,}), the others one per round ({config.rounds:,}), on "
        f"{config.devices} mini-batches.{reached}"
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
CHEAPER = ("sfl every 5 rounds",)  # what SFL costs where it averages less often
BUILT = ("cut", "width", "norm", "dropout", "patch")
NOTE = (
    "Bytes are of a whole run at alpha 0.1, of all devices together, averaging included, evaluation aside. "
    "GFLOP are of one mini-batch of one device, forward and backward, with what solving for the probes adds "
    "on the device, and GAPSL's second pass over the devices it keeps on the server."
)


def costs(evidence: Evidence) -> str:
    """Return the table of costs, a row a method that was run."""
    rows = []
    for line in (*ORDER, *CHEAPER):
        sent, received = (mean(evidence.values(line, SKEWED, name)) for name in ("sent", "received"))
        if sent is None or received is None:
            continue
        device, server = work(evidence, line)
        rows.append(
            [
                line_name(line),
                *(f"{megabytes / 1e3:,.2f}" if sent else "–" for megabytes in (sent, received)),
                f"{device / 1e9:,.2f}",
                f"{server / 1e9:,.2f}",
            ]
        )
    if not rows:
        return ""
    headings = [evidence.scale.model, "GB up", "GB down", "device GFLOP", "server GFLOP"]
    return paragraphs("## Costs", f"{NOTE} {taken(evidence)}", table(headings, rows))


def taken(evidence: Evidence) -> str:
    """Say how long runs took; machines differ too much to compare methods by it."""
    minutes = [
        seconds / 60
        for line in (*ORDER, *CHEAPER)
        for seconds in evidence.values(line, SKEWED, "seconds").values()
    ]
    return (
        f"Such a run took {min(minutes):.0f} to {max(minutes):.0f} minutes of a core, other computation "
        "beside it, on machines of several kinds: less by method than by machine. What a round of a method "
        "takes against one of PSL is measured in benchmarks/."
    )


def work(evidence: Evidence, line: str) -> tuple[float, float]:
    """Return the operations of a device and of the server for one mini-batch of one device."""
    config = make_config(merge(evidence.scale.workloads["cifar10"].settings, LINES[line].settings))
    operations = count(evidence.scale)
    forward, backward = operations["forward"], operations["device"] - operations["forward"]
    rows = config.batch_size
    device = rows * (forward if line == "frozen" else forward + backward)
    if config.probes:  # a forward, and a backward and a forward for each step of solving
        solving = (config.probe_steps + 1) * forward + config.probe_steps * backward
        # Devices that agree on gradients solve twice, and not for models that are the same; two forwards
        # tell what a gradient does.
        device += config.probes * (2 * solving + 3 * forward if config.probe_gradients else solving)
    kept = (mean(evidence.values(line, SKEWED, "kept")) or 0.0) / config.devices
    return device, (rows - config.probes) * operations["server"] * (1 + kept)


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
