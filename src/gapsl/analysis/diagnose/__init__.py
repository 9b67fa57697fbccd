"""What a run's records say about how it is going, and what to try.

Each finding is a pure function of a `Run`, its limits are named constants beside it, and all advice is in
`advice.py`. Methods are known by their traits and settings alone. Nothing here trains, writes or downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gapsl.analysis.diagnose import devices, learning, participation
from gapsl.analysis.diagnose.finding import Advice, Finding, Severity
from gapsl.analysis.diagnose.run import Run, read_run
from gapsl.analysis.labels import Labels
from gapsl.run.config import flat, parse_assignment
from gapsl.run.folder import RunFolder

__all__ = ["Advice", "Finding", "Labels", "Run", "Severity", "diagnose", "read_run", "things_to_try"]

NUMBERS: tuple[Callable[[Run], Finding | None], ...] = (
    participation.impossible,
    participation.skipped,
    learning.exploding,
)
FINDERS = (
    *NUMBERS,
    learning.not_learning,
    participation.away,
    devices.drift,
    devices.probes,
    devices.worst,
    participation.excluded,
    devices.label_skew,
    learning.still_rising,
)


def diagnose(run: Run | RunFolder | str | Path) -> list[Finding]:
    """Return what there is to say about a run, or the run in a folder, the worst first.

    Where the numbers have run away, findings that ask for something else are left out: they follow from it.
    No setting is advised both ways: the worse finding decides.
    """
    if isinstance(run, str | Path):
        run = RunFolder.open(Path(run).expanduser())
    if isinstance(run, RunFolder):
        run = read_run(run)
    found = {finder: finding for finder in FINDERS if (finding := finder(run)) is not None}
    if any(finding.breaks for finding in found.values()):
        found = {f: one for f, one in found.items() if f in NUMBERS or one.breaks or not one.severity}
    return one_way(run, sorted(found.values(), key=lambda finding: -finding.severity))


def one_way(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """Drop advice that turns a learning rate the other way than a worse finding does."""
    ways: dict[str, bool] = {}
    kept = []
    for finding in findings:
        pieces = tuple(
            piece for piece in finding.advice if all(ways.get(n, w) == w for n, w in turned(run, piece))
        )
        ways |= {name: up for piece in pieces for name, up in turned(run, piece) if name not in ways}
        kept.append(replace(finding, advice=pieces))
    return kept


def turned(run: Run, piece: Advice) -> list[tuple[str, bool]]:
    """Return the learning rates that a piece of advice changes, and whether it raises them."""
    values = [item for text in piece.settings for item in flat(parse_assignment(text)).items()]
    return [(name, value > run.setting(name)) for name, value in values if name.endswith(".lr")]


def things_to_try(findings: Sequence[Finding]) -> list[Advice]:
    """Return every piece of advice once, that for most trouble first."""
    weight: dict[Advice, int] = {}
    for finding in findings:
        for advice in finding.advice:
            weight[advice] = weight.get(advice, 0) + finding.severity
    return sorted(weight, key=lambda advice: -weight[advice])
