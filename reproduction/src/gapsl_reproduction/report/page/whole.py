"""The page of results, put together."""

from __future__ import annotations

from gapsl_reproduction.report.claims import (
    CLAIMS,
    CONVERGED,
    FOR_ITS_BYTES,
    GOALS,
    LONGER,
    QUESTIONS,
    judge,
)
from gapsl_reproduction.report.contradictions import CONTRADICTIONS
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.figures import pictures
from gapsl_reproduction.report.page.ablations import ablations
from gapsl_reproduction.report.page.exclusion import exclusion
from gapsl_reproduction.report.page.figures import Gallery
from gapsl_reproduction.report.page.markdown import bullets, paragraphs
from gapsl_reproduction.report.page.missing import missing
from gapsl_reproduction.report.page.pairs import pairs
from gapsl_reproduction.report.page.readings import readings
from gapsl_reproduction.report.page.recommended import recommended
from gapsl_reproduction.report.page.search import search
from gapsl_reproduction.report.page.settings import how_it_was_run
from gapsl_reproduction.report.page.tables import LEGEND, headline, table1, table2, table3
from gapsl_reproduction.report.page.verdicts import in_short, one_by_one

INTRODUCTION = (
    "Whether GAPSL works, and when: the tables and figures of the paper and ours, as `gapsl reproduce` "
    "computes them. This page is written by that command from the stored results; no number on it was put "
    "in by hand."
)

ASKED = (
    "What we ask of it, judged as the paper's claims are: by the interval, not by the mean alone. Both are "
    "printed, the mean first."
)


def page(evidence: Evidence, folder: str | None) -> str:
    """Return the whole page; `folder` is where the figures are, seen from it, None if they are not drawn."""
    gallery = Gallery(pictures(evidence), folder)
    claims = [judge(claim, evidence) for claim in CLAIMS]
    goals, questions = ([judge(each, evidence) for each in asked] for asked in (GOALS, QUESTIONS))
    sections = {
        "In short": paragraphs(
            headline(evidence),
            one_by_one([judge(claim, evidence) for claim in (CONVERGED, LONGER, FOR_ITS_BYTES)]),
            in_short(claims),
        ),
        "Table I: accuracy and time": paragraphs(
            LEGEND, table1(evidence), gallery.show("curves", "converged-accuracy", "converged-time")
        ),
        "Differences, paired by seed": pairs(evidence),
        "What is recommended": paragraphs(
            recommended(evidence),
            gallery.show("ablation-recommended"),
            ASKED,
            one_by_one(goals),
            "And what we do not ask of it, for information:",
            one_by_one(questions),
        ),
        "Ablations": paragraphs(ablations(evidence), gallery.show("ablation-lgi", "ablation-gda")),
        "Who is kept, and which classes are starved": exclusion(evidence),
        "Table II: number of devices": paragraphs(table2(evidence), gallery.show("accuracy-vs-devices")),
        "Table III: label skew": paragraphs(table3(evidence), gallery.show("accuracy-vs-alpha")),
        "Why PSL fails, and what gradients tell": gallery.show(
            "psl-vs-sfl", "angle-vs-alpha", "single-device", "score-vs-accuracy", "leader-vs-single"
        ),
        "How many lead, how many are kept": gallery.show("selection-ratio", "dispersion", "threshold"),
        "Beyond the paper": paragraphs(
            gallery.show("robustness", "separation", "feature-shift", "cost", "length", "fleet", "readings"),
            readings(evidence),
        ),
        "The claims, one by one": one_by_one(claims),
        "Where the paper contradicts itself": bullets(CONTRADICTIONS),
        "How it was run": how_it_was_run(evidence),
        "Learning rates": search(evidence),
        "What is missing": missing(evidence),
    }
    scale = f"Scale `{evidence.scale.name}`: {evidence.scale.summary} ([how it was run](#how-it-was-run))."
    whole = [f"## {title}\n\n{body}" for title, body in sections.items()]
    return paragraphs("# Results", INTRODUCTION, scale, *whole) + "\n"
