"""What the run costs: seconds by phase, and bytes."""

from __future__ import annotations

from collections import Counter

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Finding, Severity, percent
from gapsl.analysis.diagnose.run import Run

PHASES = {
    "collect": "devices forward",
    "server": "server",
    "deliver": "devices backward",
    "move": "moving client-side models",
    "evaluate": "evaluation",
}
# From these shares of the time on, advice is worth its line.
CHEAPER = {
    "evaluate": (0.4, advice.evaluate_less),
    "server": (0.7, advice.cheaper_penalty),
    "move": (0.3, advice.average_less),
}


def cost(run: Run) -> Finding | None:
    """Say where the time goes and what is sent."""
    seconds: Counter[str] = Counter()
    for record in run.records:
        seconds.update(record.seconds)
    total = sum(seconds.values())
    if total <= 0:
        return None
    shares = {phase: spent / total for phase, spent in seconds.items()}
    order = sorted((p for p in shares if shares[p] >= 0.005), key=lambda p: -shares[p])
    parts = ", ".join(f"{PHASES.get(phase, phase)} {percent(shares[phase])}" for phase in order)
    sent, received = (
        sum(sum(getattr(record, name).values()) for record in run.records)
        for name in ("bytes_sent", "bytes_received")
    )
    text = f"{total:.3g} s for {len(run.records)} rounds: {parts}."
    if sent or received:
        text += f" {sent / 1e6:.3g} MB up and {received / 1e6:.3g} MB down, all devices together."
    costly = [find for phase, (much, find) in CHEAPER.items() if shares.get(phase, 0) >= much]
    return Finding(
        "time-and-traffic",
        Severity.INFO,
        "Where the time goes",
        text,
        {"seconds": dict(seconds), "bytes_sent": sent, "bytes_received": received},
        tuple(piece for find in costly for piece in find(run)),
    )
