"""The figures that motivate the method: PSL against SFL, and the angles between gradients."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import EPOCH, TEST_ACCURACY, courses, evaluated_on
from gapsl_reproduction.report.figures.sweeps import over_alpha
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import accuracy, angle, course, course_of
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.panels import Lines, Picture
from gapsl_reproduction.store import Result

PAIR = ("sfl", "psl")


def psl_vs_sfl(evidence: Evidence) -> Picture:
    """Return training loss and accuracy of PSL and SFL at alpha 0.1."""
    places = {(line_name(line), look_of(line)): Place(line) for line in PAIR}
    loss, without_loss = courses(evidence, places, training_loss)
    accuracies, without = courses(evidence, places, course)
    label = evaluated_on(evidence, list(places.values()))
    return Picture(
        [
            Lines("(a) training", EPOCH, "training loss", loss, missing=without_loss),
            Lines("(b) accuracy", EPOCH, label, accuracies, missing=without),
        ]
    )


def training_loss(result: Result) -> Sequence[tuple[float, float]]:
    """Return the loss over the epochs."""
    return course_of(result, "loss")


def angle_vs_alpha(evidence: Evidence) -> Picture:
    """Return accuracy and mean angle of PSL and SFL by label skew."""
    return Picture(
        [
            over_alpha(evidence, "(a) accuracy", TEST_ACCURACY, PAIR, accuracy),
            over_alpha(evidence, "(b) angle", "mean angle between two gradients (°)", PAIR, angle),
        ]
    )
