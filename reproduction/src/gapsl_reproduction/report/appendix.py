"""The appendix: claims one by one, every cell, learning rates, settings, failed runs, commits, machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gapsl.run.config import flat
from gapsl_reproduction import paper
from gapsl_reproduction.catalogue import LINES
from gapsl_reproduction.plan import SEED, ranked, trials
from gapsl_reproduction.report.claims import CLAIMS, PROMISE, QUESTIONS
from gapsl_reproduction.report.frame import Evidence, line_name
from gapsl_reproduction.report.numbers import bullets, listed, paragraphs, signed, spread, table
from gapsl_reproduction.report.verdicts import RULE, Claim, State, Verdict, judge
from gapsl_reproduction.store import Result

COMMIT = 10  # letters of a commit that are shown
ROWS = (("gapsl", "gapsl"), ("commit", "commit"), ("torch", "torch"), ("Python", "python"),
        ("processor", "processor"), ("device", "device"))  # fmt: skip
COLUMNS = {  # by measure
    "accuracy": "devices %", "worst": "worst device %", "ensemble": "ensemble %", "local": "own labels %",
}  # fmt: skip
LOWER = "What the lowest rates suited best has tried lower ones too. "
OWN_LABELS = (
    "*Own labels*: on test images in the proportions of the device's own labels. *Paper*: what it prints, "
    "for VGG-16 at full width."
)


def appendix(evidence: Evidence, page: str) -> str:
    """Return the appendix of a page."""
    parts = [
        f"# Results: appendix\n\nOf [the results]({page}), written with them. {evidence.scale.model}, scale "
        f"`{evidence.scale.name}`: {evidence.scale.summary}.",
        claims(evidence),
        cells(evidence),
        rates(evidence),
        settings(evidence),
        failed(evidence),
        made(evidence),
    ]
    return paragraphs(*parts) + "\n"


def claims(evidence: Evidence) -> str:
    """Return every claim that something is known of, with its comparisons; the others in one list."""
    parts, unknown = [], []
    for title, group in (
        ("What we ask of PAPSL", PROMISE),
        ("What else we want to know of it", QUESTIONS),
        ("The paper's claims", CLAIMS),
    ):
        found = [judge(claim, evidence) for claim in group]
        shown = [each for each in found if each.verdict is not Verdict.MISSING]
        unknown += [each.claim for each in found if each.verdict is Verdict.MISSING]
        if shown:
            parts.append(f"### {title}")
        for each in shown:
            measured = [part for part in each.parts if part.state is not State.MISSING]
            parts.append(f"**{_says(each.claim)}**: *{each.words}*.")
            parts.append(bullets(f"{part.state.value}: {part.text}" for part in measured))
    if unknown:
        parts.append("Not measured: " + "; ".join(_says(claim) for claim in unknown) + ".")
    return paragraphs("## Claims", RULE, *parts)


def _says(claim: Claim) -> str:
    return claim.says + (f" ({claim.where})" if claim.where else "")


def cells(evidence: Evidence) -> str:
    """Return the accuracy of every line under every condition that was run."""
    done = evidence.frame[evidence.frame["state"] != "missing"]
    if done.empty:
        return ""
    rows = []
    for line, condition in dict.fromkeys((each.cell.line, each.cell.condition) for each in evidence.plan):
        values = evidence.values(line, condition)
        stored = evidence.stored.get((line, condition), {})
        if stored:
            bad = len(stored) - len(values)
            numbers = [spread(evidence.values(line, condition, measure)) for measure in COLUMNS]
            papers = paper.printed(line, condition)
            rows.append([line_name(line), condition, *numbers, papers, str(bad or "")])
    headings = [evidence.scale.model, "condition", *COLUMNS.values(), "paper %", "failed"]
    return paragraphs("## Every cell", OWN_LABELS, table(headings, rows, left=2))


def rates(evidence: Evidence) -> str:
    """Return what every trial reached, and what was chosen."""
    parts = []
    for name, workload in evidence.scale.workloads.items():
        rows = []
        for line, found in LINES.items():
            if found.tuned_as or not workload.rates:
                continue
            tried = trials(workload, line)
            if not any(evidence.results(run.key) for run in tried.values()):
                continue
            best = next(iter(ranked(tried, evidence.results) or ()), None)
            for candidate, run in tried.items():
                result = evidence.results(run.key)
                choice = ", ".join(f"`{k}={v}`" for k, v in flat(found.choices[candidate.choice]).items())
                reached = _reached(result)
                rows.append(
                    [
                        line_name(line),
                        f"{candidate.rates.device:g} / {candidate.rates.server:g}",
                        choice,
                        f"**{reached}**" if candidate == best else reached,
                    ]
                )
        if rows:
            shorter = ", ".join(f"`{k}={v}`" for k, v in flat(workload.trial).items())
            parts += [
                f"`{name}`, {evidence.scale.model}: trials with seed {SEED} and {shorter}; accuracy on the "
                f"validation split in %, the one that is chosen in bold. {LOWER if workload.lower else ''}"
                "Ablations have the rates of what they are an ablation of. `frozen` has no rate of its "
                "devices.",
                table(["line", "device / server", "choice", "validation %"], rows, left=3),
                at_equal_rates(evidence, name),
            ]
    return paragraphs("## Learning rates", *parts) if parts else ""


def at_equal_rates(evidence: Evidence, workload: str) -> str:
    """Say how far PAPSL is from SFL where both have the same rates: how much of it the rates are."""
    own, other = (evidence.best_trials(line, workload, by="rates") for line in ("papsl", "sfl"))
    told = [
        f"{signed(own[rates] - other[rates])} at {rates.device:g} / {rates.server:g}"
        for rates in own
        if rates in other
    ]
    return f"At the same rates PAPSL minus SFL at its best interval is {listed(told)}." if told else ""


def _reached(result: Result | None) -> str:
    if result is None:
        return "–"
    return "failed" if "failed" in result else f"{100 * result['final']['validation']['device_mean']:.1f}"


def settings(evidence: Evidence) -> str:
    """Return what all runs of a workload share; of one that only changes values of the first, these."""
    parts = []
    first: tuple[str, Mapping[str, object]] = ("", {})
    for name, workload in evidence.scale.workloads.items():
        own = flat(workload.settings)
        alike = own.keys() == first[1].keys()
        rows = [[f"`{k}`", f"`{v}`"] for k, v in own.items() if not alike or first[1][k] != v]
        head = f"`{name}`, otherwise as `{first[0]}`:" if alike else f"`{name}`:"
        parts += [head, table(["setting", "value"], rows, left=2)]
        first = first if first[0] else (name, own)
    for name, condition in evidence.scale.groups.get("paper", {}).items():
        rows = [[f"`{k}`", f"`{v}`"] for k, v in flat(condition.settings).items()]
        parts += [f"With {name}, laid over those:", table(["setting", "value"], rows, left=2)]
    return paragraphs("## Settings", *parts)


def failed(evidence: Evidence) -> str:
    """Return the runs that failed, and why."""
    items = [
        f"{line_name(line)}, {condition}, seed {seed}, round {result['rounds']}: {result['failed']}"
        for (line, condition), runs in evidence.stored.items()
        for seed, result in runs.items()
        if "failed" in result
    ]
    why = "They are missing in tables and figures, and count as guessing where faulty devices are compared."
    return paragraphs("## Failed runs", why, bullets(items)) if items else ""


def made(evidence: Evidence) -> str:
    """Return with what the results were computed, and how long it took."""
    cells = {run["key"]: run for runs in evidence.stored.values() for run in runs.values()}
    found = list({**cells, **evidence.trials}.values())
    if not found:
        return ""
    hours = sum(result["elapsed"] for result in found) / 3600
    dates = sorted(str(result["made"]["started"])[:10] for result in found)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    lines = [f"{len(found)} runs, trials included, begun {span}; {hours:.1f} hours of one core"]
    lines += [f"{title}: {tally(result['made'].get(name) for result in found)}" for title, name in ROWS]
    return paragraphs("## Computed with", bullets(lines))


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
