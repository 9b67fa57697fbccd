"""How it was run: sizes, settings, versions and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gapsl.run.config import Config, flat
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.naming import seeds_name, workload_name
from gapsl_reproduction.report.page.markdown import bullets, paragraphs, table
from gapsl_reproduction.store import Result

COMMIT = 10  # letters of a commit that are shown
SEEDS = {
    "headline": "recommended, SFL and frozen at alpha 0.1, on CIFAR-10",
    "core": "Table I on CIFAR-10, the ablations, and what is recommended among three devices that send noise",
    "sweep": "Tables II and III, what the goal compares trained twice as long and with 40 devices for as "
    "many rounds, PSL with calibration and without among three faulty devices, and the readings of GAPSL",
    "rest": "everything else",
}


def shown(value: Any) -> str:
    """Return a setting's value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def how_it_was_run(evidence: Evidence) -> str:
    """Return the section."""
    scale = evidence.scale
    seeds = bullets(f"{seeds_name(count)}: {SEEDS.get(name, name)}" for name, count in scale.seeds.items())
    parts = [
        f"Scale `{scale.name}`: {scale.summary}. Everything here comes from one command, which does what is "
        "not done yet and then writes this page and its figures:",
        f"    gapsl reproduce all --scale {scale.name}",
        f"Without running anything: `gapsl reproduce --report-only --scale {scale.name}`. What every run "
        f"gave is in `results/{scale.name}/runs/`, a small JSON file each. Accuracies are measured on the "
        "test set, once, at the end; choices and the curves during training use a validation split of the "
        "training data where there is one. Seeds that are planned (what is there says how many it has):",
        seeds,
    ]
    for name, workload in scale.workloads.items():
        limited = f"; at most {seeds_name(workload.most_seeds)}" if workload.most_seeds is not None else ""
        parts += [f"**{workload_name(name, scale)}**{limited}", settings_table(workload.settings)]
    return paragraphs(*parts, made_with(evidence))


def settings_table(settings: Mapping[str, Any]) -> str:
    """Return a workload's settings, with the number of devices whether it is set or not."""
    complete = {"devices": Config.model_fields["devices"].default, **flat(settings)}
    rows = [[f"`{name}`", f"`{shown(value)}`"] for name, value in complete.items()]
    return table(["setting", "value"], rows, left=2)


def made_with(evidence: Evidence) -> str:
    """Return with what the results were computed, and how long it took."""
    found: dict[str, Result] = {}
    for point in evidence.every_point():
        result = evidence.result(point)
        if result is not None:
            found[point.run.key] = result
    if not found:
        return "Nothing is stored yet."
    hours = sum(result["elapsed"] for result in found.values()) / 3600
    dates = sorted(str(result["made"]["started"])[:10] for result in found.values())
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    lines = [
        f"{len(found)} runs, searches included, begun {span}; {hours:.1f} hours of computation, one thread "
        "each",
        *(
            f"{title}: {tally(result['made'].get(name) for result in found.values())}"
            for title, name in (
                ("gapsl", "gapsl"),
                ("commit", "commit"),
                ("torch", "torch"),
                ("Python", "python"),
                ("processor", "processor"),
                ("device", "device"),
            )
        ),
    ]
    return paragraphs("**Computed with**", bullets(lines))


def tally(values: Iterable[object]) -> str:
    """Return different values, with how many runs have each where there are several."""
    counts = Counter("unknown" if value is None else short(str(value)) for value in values)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))


def short(value: str) -> str:
    """Return a commit's first letters, anything else as it is."""
    commit, plus, changes = value.partition("+")
    is_commit = len(commit) == 40 and all(letter in "0123456789abcdef" for letter in commit)
    return f"`{commit[:COMMIT]}`" + (f" with {changes}" if plus else "") if is_commit else value
