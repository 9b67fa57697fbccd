"""A diagnosis in print: a summary line, the findings, what to try; and the same for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from gapsl.analysis.diagnose import Advice, Finding, Run, Severity, things_to_try
from gapsl.analysis.diagnose.finding import percent
from gapsl.run.config import merge, parse_assignment

WIDTH = 80  # prose is not read faster on a wider terminal
UNBREAKABLE = "\u00a0"  # so that no line begins with a % sign
INDENT = 9  # as wide as "trouble" and a gap
STYLES = {Severity.TROUBLE: "bold red", Severity.WATCH: "yellow", Severity.INFO: "dim"}


def serious(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that ask for something."""
    return [finding for finding in findings if finding.severity > Severity.INFO]


def verdict(run: Run, findings: Sequence[Finding]) -> Text:
    """Say in a few words how a run is."""
    found = serious(findings)
    if not found:
        return Text("healthy" if run.finished else "healthy so far", style="bold green")
    trouble = sum(finding.severity == Severity.TROUBLE for finding in found)
    counts = {"trouble": trouble, "to watch": len(found) - trouble}
    kinds = [f"{count} {kind}" for kind, count in counts.items() if count]
    things = f"{len(found)} thing{'' if len(found) == 1 else 's'} to look at"
    return Text(f"{things} ({', '.join(kinds)})", style="bold red" if trouble else "bold yellow")


def whole(run: Run, findings: Sequence[Finding], path: Path, width: int) -> Iterator[Text]:
    """Yield all there is to say about one run, line by line."""
    width = min(width, WIDTH)
    yield verdict(run, findings)
    yield from paragraph(f"{path}: {what(run)}", width, indent=0)
    for finding in findings:
        yield Text()
        yield from heading(finding, width)
        yield from paragraph(finding.text, width)
        if finding.advice:
            yield from paragraph("try: " + ", ".join(a.name for a in finding.advice), width, hang=5)
    broken = any(finding.breaks for finding in findings)
    consequences = ["what else there is to see, which follows from these numbers"] * broken
    for note in (*consequences, *run.unseen):
        yield Text()
        yield from paragraph(f"Not examined: {note}.", width, indent=0)
    yield from to_try(run, findings, path, width)


def heading(finding: Finding, width: int) -> Iterator[Text]:
    """Yield a finding's severity and title."""
    severity = f"{finding.severity.word:<{INDENT}}"
    style = "" if finding.severity == Severity.INFO else "bold"
    for line in textwrap.wrap(finding.title, width - INDENT):
        yield Text.assemble((severity, STYLES[finding.severity]), (line, style))
        severity = " " * INDENT


def to_try(run: Run, findings: Sequence[Finding], path: Path, width: int) -> Iterator[Text]:
    """Yield every piece of advice once with what it does, and how to follow it."""
    found = things_to_try(findings)
    if not found:
        return
    column = 2 + max(len(advice.name) for advice in found)
    yield Text()
    yield Text("What to try, one at a time", style="bold")
    for advice in found:
        effect = f"{advice.effect}: {', '.join(advice.several)}" if advice.several else advice.effect
        yield from paragraph(f"{advice.name:<{column}}{effect}", width, indent=2, hang=column)
    yield from (Text(line, style="dim") for line in example(run, found[0], path, width))


def example(run: Run, advice: Advice, path: Path, width: int) -> Iterator[str]:
    """Yield how to follow a piece of advice: a command, or a call where the run came from Python."""
    if run.setting("custom"):
        values = merge(*(parse_assignment(setting) for setting in advice.settings))
        words = ", ".join(f"{name}={value!r}" for name, value in values.items())
        yield from textwrap.wrap(f"for example: gapsl.train(..., {words})", width, subsequent_indent="  ")
    else:
        yield f"for example: gapsl train --config {path}/config.yaml \\"
        yield from continued([*(f"--set {setting}" for setting in advice.settings), "--out FOLDER"], width)


def continued(words: Sequence[str], width: int) -> Iterator[str]:
    """Yield words of a command in indented lines that a shell reads as one; none is broken."""
    glued = " ".join(word.replace(" ", UNBREAKABLE) for word in words)
    lines = textwrap.wrap(glued, width - 4, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines, 1):
        yield f"  {line.replace(UNBREAKABLE, ' ')}" + " \\" * (number < len(lines))


def short(run: Run, findings: Sequence[Finding], name: str) -> Iterator[Text]:
    """Yield a run in a line, and a line for each thing to look at."""
    yield Text.assemble((name, "bold"), ": ", verdict(run, findings))
    for finding in serious(findings):
        yield Text.assemble((f"  {finding.severity.word:<{INDENT}}", STYLES[finding.severity]), finding.title)


def what(run: Run) -> str:
    """Say what was run and how far it is."""
    settings = {**run.settings, **(run.setting("custom") or {})}
    done = run.records[-1].round
    progress = f"{done} rounds" if run.finished else f"round {done} of {run.total_rounds}, not finished"
    if run.last is not None:
        progress += f", {percent(run.last.device_mean)} right"
    return (
        f"{settings['method']}, {settings['dataset']}, {settings['model']}, {settings['devices']} devices, "
        f"{settings['partition']}, seed {settings['seed']}, {progress}"
    )


def paragraph(text: str, width: int, *, indent: int = INDENT, hang: int = 0) -> Iterator[Text]:
    """Yield a text wrapped and indented, further lines by `hang` more."""
    yield from (
        Text(line.replace(UNBREAKABLE, " "))
        for line in textwrap.wrap(
            text.replace(" %", f"{UNBREAKABLE}%"),
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def machine_readable(run: Run, findings: Sequence[Finding], path: Path) -> dict[str, Any]:
    """Return a diagnosis as JSON values."""
    return {
        "run": str(path),
        "method": run.settings["method"],
        "seed": run.setting("seed"),
        "round": run.records[-1].round,
        "rounds": run.total_rounds,
        "finished": run.finished,
        "healthy": not serious(findings),
        "findings": [
            {
                "name": finding.name,
                "severity": finding.severity.word,
                "title": finding.title,
                "text": finding.text,
                "numbers": dict(finding.numbers),
                "advice": [
                    {"name": a.name, "settings": list(a.settings), "effect": a.effect} for a in finding.advice
                ],
            }
            for finding in findings
        ],
        "unseen": list(run.unseen),
    }
