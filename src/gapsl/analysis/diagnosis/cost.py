"""What the run costs: seconds by phase, and bytes."""

from __future__ import annotations

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Advice, Finding, Severity
from gapsl.analysis.diagnosis.wording import percent

PHASES = {
    "collect": "devices forward",
    "server": "server",
    "deliver": "devices backward",
    "move": "moving halves",
    "evaluate": "evaluation",
}
# From these shares on, advice is worth its line.
MUCH_EVALUATION = 0.4
MUCH_SERVER = 0.7
MUCH_MOVING = 0.3


def time_and_traffic(run: Evidence) -> Finding | None:
    """Say where the time goes and what is sent."""
    seconds: dict[str, float] = {}
    for round in run.rounds:
        for phase, spent in round.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    total = sum(seconds.values())
    if total <= 0:
        return None
    shares = {phase: spent / total for phase, spent in seconds.items()}
    order = sorted((p for p in shares if shares[p] >= 0.005), key=lambda p: -shares[p])
    parts = ", ".join(f"{PHASES.get(phase, phase)} {percent(shares[phase])}" for phase in order)
    rounds = len(run.rounds)
    sent, received = sum(r.sent for r in run.rounds), sum(r.received for r in run.rounds)
    text = f"{total:.3g} s for {rounds} rounds: {parts}."
    if sent or received:
        text += f" {sent / 1e6:.3g} MB up and {received / 1e6:.3g} MB down, all devices together."
    return Finding(
        "time-and-traffic",
        Severity.INFO,
        "Where the time goes",
        text,
        {"seconds": seconds, "bytes_sent": sent, "bytes_received": received, "rounds": rounds},
        cheaper(run, shares),
    )


def cheaper(run: Evidence, shares: dict[str, float]) -> tuple[Advice, ...]:
    """Return what would make a phase that takes most of the time cheaper."""
    found: tuple[Advice, ...] = ()
    rounds = len(run.rounds)
    if shares.get("evaluate", 0.0) >= MUCH_EVALUATION and run.evaluations:
        found += advice.evaluate_less(run, max(1, rounds // len(run.evaluations)))
    if shares.get("server", 0.0) >= MUCH_SERVER:
        found += advice.cheaper_server(run)
    averagings = sum(round.averaged for round in run.rounds)
    if shares.get("move", 0.0) >= MUCH_MOVING and averagings:
        found += advice.average_less(run, max(1, rounds // averagings))
    return found
