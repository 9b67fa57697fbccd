"""Common ground: whether the devices' halves make the same of the same pictures, and who leads there."""

from __future__ import annotations

import statistics

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.agreement import furthest
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.trend import ends
from gapsl.analysis.diagnosis.wording import capital, devices, percent

# Of the leader's length. Where common ground works halves end at 0.004 to 0.03 and are at 0.05 at most; with
# steps ten times too large they are at 0.08 to 0.1, and accuracy suffers; left alone they go to 0.4 and more.
APART = 0.07
# Times the others' median. In fleets whose devices are all sound it is below 1.3.
ODD = 2.0
ODD_LEAST = 3.0  # degrees: below it a half agrees, however much better others do
SELDOM = 0.05  # of its rounds: such a device follows and never leads


def end_of(run: Evidence) -> float | None:
    """Return how far apart the halves are on the probes at the end, None without probes."""
    found = [round.apart for round in run.rounds if round.apart is not None]
    return (ends(found) or (found[0], found[-1]))[1] if found else None


def agreed(run: Evidence) -> float | None:
    """Return the same where the halves agree, None where they do not or there are no probes."""
    found = end_of(run)
    return found if found is not None and found < APART else None


def on_probes(run: Evidence) -> Finding | None:
    """Say how far the halves are from what they are led to."""
    found = {round.number: round.apart for round in run.rounds if round.apart is not None}
    last = end_of(run)
    if last is None:
        return None
    peak = max(found, key=lambda number: found[number])
    whose = "their common mean" if run.rounds[-1].probe_leaders is None else "what their leaders make of them"
    text = (
        f"Given the same pictures, the halves are {percent(last)} away from {whose} on average "
        f"(at most {percent(found[peak])}, in round {peak})"
    )
    numbers = {"end": last, "max": found[peak], "round": peak}
    if last < APART:
        return Finding(
            "halves-agree",
            Severity.INFO,
            "The devices' halves agree on the probes",
            f"{text}: what one device sends means nearly the same as what another does.",
            numbers,
        )
    return Finding(
        "halves-disagree",
        Severity.WATCH,
        "The devices' halves do not agree on the probes",
        f"{text}: each learns faster than it is led back, and the server gets something else of the same "
        "picture from every device.",
        numbers,
        (*advice.slower_halves(run), *advice.recommended(run)),
    )


def odd_half(run: Evidence) -> Finding | None:
    """Look for a device whose half makes something else of the probes than everybody's."""
    found = furthest([round.probe_scores for round in run.rounds])
    if found is None or found.score < max(ODD_LEAST, ODD * found.others):
        return None
    return Finding(
        "odd-half",
        Severity.WATCH,
        f"Device {run.who(found.device)}'s half stands apart on the probes",
        f"What it makes of them is at {found.score:.1f}° to what the others make on average, theirs at "
        f"{found.others:.1f}° (median). Its data may be broken, or its sensor another one.",
        found._asdict(),
        advice.best_lead(run),
    )


def who_leads(run: Evidence) -> Finding | None:
    """Say which devices lead on the probes, where not all do."""
    led: dict[int, list[bool]] = {}
    for round in run.rounds:
        for device in round.probe_scores if round.probe_leaders is not None else ():
            led.setdefault(device, []).append(device in (round.probe_leaders or ()))
    if not led:
        return None
    shares = {device: statistics.mean(own) for device, own in sorted(led.items())}
    most, least = max(shares, key=lambda d: shares[d]), min(shares, key=lambda d: shares[d])
    text = (
        f"Those that agree most: device {run.who(most)} in {percent(shares[most])} of its rounds, "
        f"device {run.who(least)} in {percent(shares[least])}."
    )
    seldom = [device for device, share in shares.items() if share < SELDOM]
    if seldom:
        text += f" {capital(devices(seldom))} hardly ever: what is learned there alone is pulled back."
    return Finding("probe-leaders", Severity.INFO, "Who leads on the probes", text, {"led": shares})
