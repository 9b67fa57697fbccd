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
from gapsl_reproduction.catalogue import EXPERIMENTS
from gapsl_reproduction.report.appendix import appendix
from gapsl_reproduction.report.claims import CLAIMS, PROMISE, QUESTIONS
from gapsl_reproduction.report.figures import FIGURES, ORDER, draw_all, title
from gapsl_reproduction.report.findings import costs, entry, exclusion, findings
from gapsl_reproduction.report.frame import IID, LONGER, PAPER_RATES, SKEWED, Evidence, line_name
from gapsl_reproduction.report.numbers import bullets, listed, paragraphs, spread, table
from gapsl_reproduction.report.verdicts import State, Verdict, above_zero, judge

APART = 2.0  # points between the mean of the devices and their ensemble that are worth telling
ABOVE_GUESSING = 0.5  # points, below which a model says one class whatever it sees
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
VARIANTS = ("gapsl with eta 0.5", "papsl as found", "sfl every 5 rounds")
ABSENT = {"cifar100": "CIFAR-100", "cifar100 alpha": "CIFAR-100 by alpha", "shift": "any of it"}
PRINTED = {SKEWED: "non-iid", IID: "iid"}
LEGEND = (
    "Test accuracy in %: the mean over the devices, then mean ± standard deviation over (so many) seeds. In "
    f"brackets the ensemble of the devices where it is more than {APART:g} points away. Bold: above every "
    "other, by the rule of the verdicts where there are three seeds; `central` and variants aside."
)
NAMES = (
    "`central`: the uncut model on all data in one place, whoever had it. `frozen`: PSL whose client-side "
    "models stay as they begin.",
    "SFL averages every so many rounds as suits it best, of 1, 5 and 20; the paper's averages every epoch. "
    "GAPSL keeps a device whose angle to the leader is at most mean − eta · standard deviation of all, and "
    "at most 90°; the paper gives no eta, so GAPSL takes the best of 0.5, 0 and −1.",
    "Variants come last. `as found`: with four steps of solving, led by the half of the devices that agree "
    "most.",
    "*paper*: what the paper prints, for VGG-16 at full width. It does not say whether that is a mean over "
    "the devices' models or their ensemble.",
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
            ["## GAPSL, understood", shown["gapsl"], bullets(exclusion(evidence)), checked if tests else ""]
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
        f"{there} Every method has its learning rates from the same candidates (and from a lower pair, where "
        "the lowest suited it best), chosen on the images held out, at alpha 0.1, in "
        f"[short trials]({beside}#learning-rates); IID runs have the same. *The paper's rates* are the same "
        "for all methods.",
        f"`gapsl reproduce --report-only --scale {scale.name}` writes this page and [its appendix]({beside}) "
        "from the stored results; no number is put in by hand.",
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
    headings = [evidence.scale.model, *(name for name, _ in columns)]
    headings += [f"paper, {name}" for name, at in columns if at in PRINTED]
    return paragraphs("## Accuracy", LEGEND, table(headings, rows), bullets(NAMES))


def highest(evidence: Evidence, condition: str) -> str | None:
    """Return the line that is above every other with every seed, of enough; `central` does not compete."""
    known = [line for line in ORDER if line != "central" and evidence.values(line, condition)]
    for line in known:
        leads = [evidence.lead(line, other, condition) for other in known if other != line]
        decided = [lead for lead in leads if above_zero(lead) is State.SO]
        if decided and all(lead in decided or min(lead.values(), default=0.0) > 0 for lead in leads):
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
        told += ", guesses"
    return ", ".join([told, *bad])


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
        f"Undecided of {len(judged)} claims: {open_}; not measured: {missing}. "
        f"[One by one]({beside}#claims), with the rule.",
    )


def not_run(evidence: Evidence) -> str:
    """Return one list of what was not run."""
    missing = evidence.frame.index[evidence.frame["state"] == "missing"]
    items = []
    for experiment in EXPERIMENTS.values():
        blocks = [(block, group) for block in experiment.blocks for group in block.groups]
        absent = {group for _, group in blocks if group not in evidence.scale.groups}
        own = {
            (line, at) for block, group in blocks for at in evidence.conditions(group) for line in block.lines
        }
        cells = [cell for cell in missing if cell[:2] in own]
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
