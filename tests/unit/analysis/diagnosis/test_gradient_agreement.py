"""Agreement: angles between the devices' gradients, and the device that stands apart."""

from __future__ import annotations

import math

from constructed import ONE_CLASS_EACH, aligned, changed, healthy, settings_of

from gapsl.analysis.diagnosis import Evidence, Severity
from gapsl.analysis.diagnosis.agreement import disagreement, outlying_device


def opposed(degrees: float, loss: float = 1.5) -> Evidence:
    """A run with this mean angle, whose loss stays."""
    return changed(healthy(ONE_CLASS_EACH), lambda r: {"angle": math.radians(degrees), "loss": loss})


def test_gradients_beyond_a_right_angle_are_to_be_watched_while_there_is_something_to_learn() -> None:
    found = disagreement(opposed(93))
    assert found is not None
    assert (found.name, found.severity) == ("gradients-opposed", Severity.WATCH)
    assert "93° (93° at the start)" in found.text
    assert settings_of(found) == ["preset recommended", "batch_size=64"]


def test_below_a_right_angle_or_at_the_end_of_learning_they_are_told_only() -> None:
    settling, settled = (
        changed(opposed(93), lambda r, end=end: {"loss": 2.0 if r.number < 10 else end})
        for end in (0.3, 0.15)
    )
    assert disagreement(settling).severity == Severity.WATCH  # type: ignore[union-attr]
    for run in (opposed(88), opposed(60), settled):
        found = disagreement(run)
        assert found is not None
        assert (found.name, found.severity) == ("angles", Severity.INFO)
    assert "little left to learn" in disagreement(settled).text  # type: ignore[union-attr]
    assert "little in common." in disagreement(opposed(88)).text  # type: ignore[union-attr]
    assert "little in common" not in disagreement(opposed(75)).text  # type: ignore[union-attr]


def test_the_trend_of_angles_and_of_the_scores_scatter_is_told() -> None:
    run = changed(
        aligned(lambda r: {0}),
        lambda r: {"angle": math.radians(50 + r.number), "dispersion": math.radians(r.number / 4)},
    )
    found = disagreement(run)
    assert found is not None
    assert (found.numbers["start"], found.numbers["end"]) == (
        math.degrees(math.radians(54.5)),
        math.degrees(math.radians(86.5)),
    )
    assert "scatter by 9.1° (1.1°)" in found.text


def test_runs_without_angles_are_not_spoken_of() -> None:
    run = changed(healthy(), lambda r: {"angle": None, "scores": {}})
    assert disagreement(run) is None
    assert outlying_device(run) is None


def test_a_device_far_from_the_others_is_named() -> None:
    def scores(degrees: float) -> dict[str, dict[int, float]]:
        return {"scores": {d: math.radians(degrees if d == 2 else 60) for d in range(4)}}

    found = outlying_device(changed(healthy(), lambda r: scores(75)))
    assert found is not None
    assert (found.severity, found.numbers["device"]) == (Severity.WATCH, 2)
    assert outlying_device(changed(healthy(), lambda r: scores(68))) is None
    early = changed(healthy(), lambda r: scores(75 if r.number < 20 else 60))
    assert outlying_device(early) is None, "what counts is the end"
