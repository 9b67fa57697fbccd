"""A diagnosis in print: a summary line, the findings, what to try; several runs in a sentence each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from gapsl.analysis.diagnose import Finding, Run, Severity, things_to_try
from gapsl.analysis.diagnose.finding import percent, points
from gapsl.analysis.formats import counted
from gapsl.analysis.runs import OWN_DATA
from gapsl.run.config import merge, parse_assignment

WIDTH = 80  # prose is not read faster on a wider terminal
UNBREAKABLE = "\u00a0"  # so that no line begins with a % sign
INDENT = 9  # as wide as "trouble" and a gap
STYLES = {Severity.TROUBLE: "bold red", Severity.WATCH: "yellow", Severity.INFO: "dim"}
# Runs that share these can be compared: the same samples are divided alike, and tested with.
DATA = ("dataset", "partition", "devices", "seed", "train_samples", "test_samples", "validation", "custom")


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
    settings = {**run.settings, **(run.setting("custom") or {})}
    settings["method"] = run.setting("label") or settings["method"]
    settings["devices"] = counted(settings["devices"], "device")
    about = "{method}, {dataset}, {model}, {devices}, {partition}, seed {seed}".format(**settings)
    yield verdict(run, findings)
    yield from paragraph(f"{path}: {about}, {progress(run)}", width)
    for finding in findings:
        word, *more = finding.severity.word, *textwrap.wrap(finding.title, width - INDENT)
        yield Text()
        for line in more:
            style = "" if finding.severity == Severity.INFO else "bold"
            yield Text.assemble((f"{word:<{INDENT}}", STYLES[finding.severity]), (line, style))
            word = ""
        yield from paragraph(finding.text, width, INDENT)
        if finding.advice:
            yield from paragraph("try: " + ", ".join(a.name for a in finding.advice), width, INDENT, hang=5)
    broken = any(finding.breaks for finding in findings)
    consequences = ["what else there is to see, which follows from these numbers"] * broken
    for note in (*consequences, *run.unseen):
        yield Text()
        yield from paragraph(f"Not examined: {note}.", width)
    if serious(findings):
        yield from to_try(run, findings, path, width)


def progress(run: Run) -> str:
    """Say how far a run is, and its accuracy."""
    done = run.records[-1].round
    words = counted(done, "round") if run.finished else f"round {done} of {run.total_rounds}, not finished"
    return words if run.last is None else f"{words}, accuracy {percent(run.last.device_mean)}"


def to_try(run: Run, findings: Sequence[Finding], path: Path, width: int) -> Iterator[Text]:
    """Yield every piece of advice once with what it does, and how to follow the first."""
    found = things_to_try(findings)
    if not found:
        return
    column = 2 + max(len(advice.name) for advice in found)
    yield Text()
    yield Text("What to try, one at a time", style="bold")
    for advice in found:
        effect = f"{advice.effect}: {', '.join(advice.several)}" if advice.several else advice.effect
        yield from paragraph(f"{advice.name:<{column}}{effect}", width, 2, hang=column)
    settings = found[0].settings
    if run.setting("custom"):
        values = merge(*map(parse_assignment, settings))
        words = ", ".join(f"{name}={value!r}" for name, value in values.items())
        lines = textwrap.wrap(f"for example: gapsl.train(..., {words})", width, subsequent_indent="  ")
    else:
        glued = " ".join(f"--set{UNBREAKABLE}{setting}" for setting in settings)
        wrapped = textwrap.wrap(f"{glued} --out{UNBREAKABLE}FOLDER", width - 4, break_on_hyphens=False)
        command = [
            f"for example: gapsl train --config {path}/config.yaml",
            *(f"  {line}" for line in wrapped),
        ]
        lines = [f"{line} \\" for line in command[:-1]] + command[-1:]  # which a shell reads as one
    yield from (Text(line.replace(UNBREAKABLE, " "), style="dim") for line in lines)


def compared(diagnosed: Mapping[str, tuple[Run, Sequence[Finding]]], width: int) -> Iterator[Text]:
    """Yield a sentence per run: how far it is, how it compares with the best, and what is worst about it."""
    alike: dict[tuple[str, ...], dict[str, float]] = {}
    for name, (run, _) in diagnosed.items():
        if run.last is not None:
            alike.setdefault(data_of(run), {})[name] = run.last.device_mean
    for name, (run, findings) in diagnosed.items():
        others = alike.get(data_of(run), {})
        words = [progress(run)]
        if name in others and len(others) > 1:
            best = max(others, key=lambda other: others[other])
            behind = points(others[best] - others[name])
            level = behind == points(0)
            compared_with = f"as good as {best}" if level else f"{behind} below {best}"
            words[0] += ", the best of its seed" if best == name else f", {compared_with}"
        found = serious(findings)
        if found:
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            words.append(f"{found[0].severity.word}: {found[0].title[0].lower()}{found[0].title[1:]}{more}")
        else:
            words.append(verdict(run, findings).plain)
        lines = list(paragraph(f"{name}: {'; '.join(words)}.", min(width, WIDTH), hang=2))
        lines[0].stylize("bold", 0, len(name))
        for line in lines:
            line.highlight_words(["trouble:"], "bold red")
            line.highlight_words(["watch:"], "yellow")
            yield line


def data_of(run: Run) -> tuple[str, ...]:
    """Return what runs that can be compared have in common: data, devices, seed, and the test."""
    split = "" if run.last is None else run.last.split
    own = run.names if run.setting("partition") == OWN_DATA else ()  # data that only these devices know
    return (split, *own, *(str(run.setting(setting)) for setting in DATA))


def paragraph(text: str, width: int, indent: int = 0, *, hang: int = 0) -> Iterator[Text]:
    """Yield a text wrapped and indented, further lines by `hang` more."""
    lines = textwrap.wrap(
        text.replace(" %", f"{UNBREAKABLE}%"),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (Text(line.replace(UNBREAKABLE, " ")) for line in lines)


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
        "findings": [finding.to_dict() for finding in findings],
        "unseen": list(run.unseen),
    }
