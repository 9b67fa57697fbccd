"""The page of findings: what was compared at which scale, one table, three figures, and what follows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gapsl.analysis.formats import counted
from gapsl.analysis.plots import figure
from gapsl.analysis.statistics import mean
from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.run.config import make_config
from gapsl_reproduction import paper
from gapsl_reproduction.catalogue import AGREEING, EXPERIMENTS
from gapsl_reproduction.plan import SEED
from gapsl_reproduction.report.appendix import appendix
from gapsl_reproduction.report.claims import CLAIMS, PROMISE, QUESTIONS
from gapsl_reproduction.report.figures import FIGURES, ORDER, draw_all, title
from gapsl_reproduction.report.findings import costs, entry, exclusion, findings
from gapsl_reproduction.report.frame import IID, LONGER, PAPER_RATES, SKEWED, Evidence, line_name
from gapsl_reproduction.report.numbers import ENOUGH, bullets, listed, paragraphs, spread, table
from gapsl_reproduction.report.verdicts import State, Verdict, above_zero, judge
from gapsl_reproduction.scales import Scale

APART = 2.0  # points between the mean of the devices and their ensemble that are worth telling
ABOVE_GUESSING = 0.5  # points, below which a model says one class whatever it sees
COLLAPSED = 5.0  # points above guessing from which a model that guesses in the end had learned something
FEW = 4  # names in a list of what was not run
TESTS = (
    "alignment/test_leader.py", "alignment/test_direction.py", "alignment/test_curvature.py",
    "methods/test_regulariser.py",
)  # fmt: skip
COLUMNS = (
    (SKEWED, SKEWED),
    ("IID", IID),
    (f"{SKEWED}, {PAPER_RATES}", PAPER_RATES),
    (f"{SKEWED}, {LONGER}", LONGER),
)
VARIANTS = ("gapsl with eta 0.5", AGREEING, "papsl as found", "sfl every 5 rounds")
ABSENT = {"cifar100": "CIFAR-100", "cifar100 alpha": "CIFAR-100 by alpha", "shift": "any of it"}
PRINTED = {SKEWED: "non-iid", IID: "iid"}
LEGEND = (
    "Test accuracy in %: the mean over the devices, then mean ± standard deviation over (so many) seeds. In "
    f"brackets the ensemble of the devices where it is more than {APART:g} points away. Bold: above every "
    "other, by the rule of the verdicts where there are three seeds; `central` and variants aside."
)
NAMES = (
    "`gapsl methods` says what each method computes. `central`: the uncut model on all data in one place, "
    "whoever had it. `frozen`: PSL whose client-side models stay as they begin. PAPSL is ours; 2 samples of "
    "each of its mini-batches are probes, so that it learns from fewer than the others.",
    "*paper*: what the paper prints, for VGG-16 at full width, in mini-batches of 128, with one constant "
    "pair of rates for all. It does not say whether that is a mean over the devices' models or their "
    "ensemble.",
)
CHOSEN = (  # where trials choose
    "SFL averages every so many rounds as suits it best, of 1, 5 and 20; the paper's averages every epoch. "
    "GAPSL keeps a device whose angle to the leader is at most mean − eta · standard deviation of all, and "
    "at most 90°; the paper gives no eta, so GAPSL takes the best of 0.5, 0 and −1. PAPSL has no such choice "
    "in the trials; its steps of solving and its leaders were chosen in trials like them before.",
    "Variants come last. `PAPSL agreeing on gradients`: with `probe_gradients` and without calibration; it "
    "is to become PAPSL if it holds. `PAPSL as found`: with four steps of solving, led by the half of the "
    "devices that agree most.",
)


def write_report(evidence: Evidence, figures: Path, path: Path, warn: Callable[[str], None]) -> list[str]:
    """Write figures, page and appendix, and return the figures' names.

    Where nothing can be drawn the page is written without figures: the numbers took longer than a picture.
    """
    drawn: list[str] = []
    try:
        figure(1, 1)
    except InputError as error:
        warn(f"the page is written without figures: {error}")
    else:
        drawn = draw_all(evidence, figures)

    def seen(there: Path) -> str:
        return Path(os.path.relpath(there.resolve(), path.parent.resolve())).as_posix()

    beside = path.with_name(f"{path.stem}-appendix{path.suffix}")
    root = Path("tests") / "unit"
    tests = listed([f"[{name}]({seen(root / name)})" for name in TESTS if (root / name).is_file()])
    pictures = {name: f"{seen(figures)}/{name}.png" for name in drawn}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(evidence, pictures, beside.name, tests))
        write_text(beside, appendix(evidence, path.name))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --page") from None
    return drawn


def page(evidence: Evidence, pictures: Mapping[str, str], beside: str, tests: str = "") -> str:
    """Return the page, with the figures, its appendix and tests of GAPSL as they are seen from it."""
    shown = {name: f"![{FIGURES[name][0]}]({path})" for name, path in pictures.items()}
    checked = (
        "Is it a mistake of ours? These tests hold our leader, angles and regulariser to numbers worked out "
        f"apart from them, from the paper's equations: {tests}."
    )
    found = findings(evidence)
    parts = [
        "# Results",
        introduction(evidence, beside),
        *(["## Findings", bullets(found)] if found else []),
        shown.get("curves", ""),
        entry(evidence),
        accuracy_table(evidence),
        shown.get("methods", ""),
        *(
            ["## GAPSL, looked into", shown["gapsl"], bullets(exclusion(evidence)), checked if tests else ""]
            if "gapsl" in shown
            else []
        ),
        verdicts(evidence, beside) if evidence.count else "",
        costs(evidence),
        not_run(evidence),
    ]
    return paragraphs(*parts) + "\n"


def introduction(evidence: Evidence, beside: str) -> str:
    """Say what was compared at which scale, and how much of it is there."""
    scale = evidence.scale
    config = make_config(scale.workloads["cifar10"].settings)
    length = f"{config.rounds:,} rounds" if config.rounds else f"{config.epochs} epochs"
    samples = f"{config.train_samples:,}" if config.train_samples else "all"
    held = f", {100 * config.validation:g} % of them held out to choose by," if config.validation else ","
    there = (
        f"{evidence.count} of {evidence.total} runs are there." if evidence.count else "No run is there yet."
    )
    return paragraphs(
        f"**{title(evidence)}**: {samples} training images{held} {config.devices} devices, mini-batches of "
        f"{config.batch_size}, {length} (scale `{scale.name}`).",
        f"{there} {tuning(scale, beside)}",
        f"`gapsl reproduce --report-only --scale {scale.name}` writes this page and [its appendix]({beside}) "
        "from the stored results; no number is put in by hand.",
    )


def tuning(scale: Scale, beside: str) -> str:
    """Say where learning rates are from."""
    workload = scale.workloads["cifar10"]
    if not workload.rates:
        return "All methods have the same learning rates."
    lower = " (and from a lower pair, where the lowest suited it best)" if workload.lower else ""
    papers = " *The paper's rates* are the same for all methods." if "paper" in scale.groups else ""
    return (
        f"Every method has its learning rates from the same candidates{lower}, chosen on the images held "
        f"out, at alpha 0.1 with seed {SEED}, in [short trials]({beside}#learning-rates); IID runs have the "
        f"same.{papers}"
    )


def accuracy_table(evidence: Evidence) -> str:
    """Return the table of accuracies: methods by condition, without what is empty."""
    columns = [(name, at) for name, at in COLUMNS if any(at == own for _, own in evidence.stored)]
    best = {at: highest(evidence, at) for _, at in columns}
    printed = [paper.ACCURACY["cifar10", PRINTED[at]] for _, at in columns if at in PRINTED]
    rows = []
    for line in (*ORDER, *VARIANTS):
        cells = [accuracy(evidence, line, at, bold=best[at] == line) for _, at in columns]
        if any(cells):
            papers = [f"{row[line]:.1f}" if line in row else "" for row in printed]
            rows.append([line_name(line), *cells, *papers])
    if not rows:
        return ""
    names = NAMES + (CHOSEN if evidence.scale.workloads["cifar10"].rates else ())
    headings = [evidence.scale.model, *(name for name, _ in columns)]
    headings += [f"paper, {name}" for name, at in columns if at in PRINTED]
    return paragraphs("## Accuracy", LEGEND, table(headings, rows), bullets(names))


def highest(evidence: Evidence, condition: str) -> str | None:
    """Return the line that is above every other with every seed, of enough; `central` does not compete."""
    known = [line for line in ORDER if line != "central" and evidence.values(line, condition)]
    for line in known:
        leads = [evidence.lead(line, other, condition) for other in known if other != line]
        decided = [lead for lead in leads if above_zero(lead) is State.SO]
        few = [lead for lead in leads if 0 < len(lead) < ENOUGH and min(lead.values()) > 0]
        if decided and len(decided) + len(few) == len(leads):
            return line
    return None


def accuracy(evidence: Evidence, line: str, condition: str, *, bold: bool = False) -> str:
    """Return the accuracy of a line, with that of the ensemble behind it where the two are far apart."""
    values = evidence.values(line, condition)
    failed = sum("failed" in run for run in evidence.stored.get((line, condition), {}).values())
    bad = [f"{failed} failed"] if failed else []
    if not values:
        return "".join(bad)
    told = f"**{spread(values)}**" if bold else spread(values)
    together = mean(evidence.values(line, condition, "ensemble"))
    if together is not None and abs(together - (mean(values) or 0.0)) > APART:
        told += f" [{together:.1f}]"
    if max(values.values()) < evidence.guessing + ABOVE_GUESSING:
        told += f", guesses{collapse(evidence, line, condition)}"
    return ", ".join([told, *bad])


def collapse(evidence: Evidence, line: str, condition: str) -> str:
    """Return how far runs that guess in the end had come before."""
    entries = [entry for run in evidence.runs(line, condition).values() for entry in run["history"]]
    best = max(entries, key=lambda entry: entry["device_mean"], default=None)
    if best is None or 100 * best["device_mean"] < evidence.guessing + COLLAPSED:
        return ""
    return f" after {100 * best['device_mean']:.1f} in round {best['round']:,}"


def verdicts(evidence: Evidence, beside: str) -> str:
    """Return the verdicts that are decided, and how many are not."""
    judged = [judge(claim, evidence) for claim in (*PROMISE, *QUESTIONS, *CLAIMS)]
    rows = [
        [
            each.claim.says,
            each.claim.where or "ours",
            each.words,
            "; ".join(part.text for part in each.parts if part.state in (State.SO, State.NOT_SO)),
        ]
        for each in judged
        if each.verdict.decided
    ]
    open_ = sum(each.verdict is Verdict.UNDECIDED for each in judged)
    missing = sum(each.verdict is Verdict.MISSING for each in judged)
    return paragraphs(
        "## Verdicts",
        table(["claim", "where", evidence.scale.model, "by"], rows, left=4)
        if rows
        else "None is decided yet.",
        f"Undecided of {len(judged)} claims: {open_}; not measured: {missing}. A verdict on accuracies takes "
        f"{ENOUGH} seeds, and {several(evidence)}. [One by one]({beside}#claims), with the rule.",
    )


def several(evidence: Evidence) -> str:
    """Say under which conditions lines are planned with enough seeds for a verdict."""
    found: dict[str, list[str]] = {}
    for (line, condition), cells in evidence.frame.groupby(level=["line", "condition"], sort=False):
        if len(cells) >= ENOUGH:
            found.setdefault(condition, []).append(line_name(line))
    told = [f"{listed(lines)} ({condition})" for condition, lines in found.items()]
    return (
        f"only these are planned with so many: {', '.join(told)}" if told else "none is planned with so many"
    )


def not_run(evidence: Evidence) -> str:
    """Return one list of what was not run."""
    missing = evidence.frame.index[evidence.frame["state"] == "missing"]
    items = []
    for experiment in EXPERIMENTS.values():
        blocks = [(block, group) for block in experiment.blocks for group in block.groups]
        absent = {group for _, group in blocks if group not in evidence.scale.groups}
        own = {
            (line, at, seed)
            for block, group in blocks
            for at in evidence.conditions(group)
            for line in block.lines
            for seed in range(evidence.scale.seeds[block.seeds])
        }
        cells = [cell for cell in missing if cell in own]
        lines, conditions = some(line_name(cell[0]) for cell in cells), some(cell[1] for cell in cells)
        parts = [f"{counted(len(cells), 'run')} ({lines}. {conditions})"] if cells else []
        parts += [f"not at this scale: {ABSENT.get(group, group)}" for group in sorted(absent)]
        if parts:
            items.append(f"`{experiment.name}`, {experiment.title}: {'; '.join(parts)}")
    return paragraphs("## Not run", bullets(items)) if items else ""


def some(names: Iterable[str]) -> str:
    """Return the first of several names, each once."""
    found = list(dict.fromkeys(names))
    return "; ".join(found[:FEW]) + ("; ..." if len(found) > FEW else "")
