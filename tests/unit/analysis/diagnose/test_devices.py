"""The devices beside each other: drift, probes, the worst device, and gradients that disagree."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, aligned, changed, evaluated, healthy, settings_of

from gapsl.analysis.diagnose import Run, Severity
from gapsl.analysis.diagnose.devices import disagreement, drift, probes, spread
from gapsl.device.exchange import ProbeRecord


@pytest.mark.parametrize("better", ["ensemble", "merged"])
@pytest.mark.parametrize(("by", "severity"), [(0.1, Severity.WATCH), (0.3, Severity.TROUBLE)])
def test_devices_much_better_together_than_alone_have_drifted_apart(
    better: str, by: float, severity: Severity
) -> None:
    run = evaluated(healthy(ONE_CLASS_EACH), lambda e: {better: e.device_mean + by})
    found = drift(run)
    assert found is not None
    assert found.severity == severity
    assert settings_of(found) == [
        "preset recommended", "device_optimizer.lr=0.01", "method=frozen", "method=sfl",
    ]  # fmt: skip
    assert "moved by 0.30 of their length" in found.text


def test_the_growth_of_the_gap_and_what_devices_know_of_their_own_labels_are_told() -> None:
    run = evaluated(
        healthy(), lambda e: {"ensemble": e.device_mean + e.round / 100, "local": e.device_mean + 0.2}
    )
    found = drift(run)
    assert found is not None
    assert "The gap was 10 points in round 10." in found.text
    assert "On labels mixed like its own a device is right in 110 %" in found.text


def test_an_ensemble_a_few_points_ahead_or_shared_models_are_no_drift() -> None:
    assert drift(evaluated(healthy(), lambda e: {"ensemble": e.device_mean + 0.06})) is None
    for method in ("sfl", "frozen", "central"):
        assert drift(evaluated(healthy(method=method), lambda e: {"ensemble": 1.0})) is None
    assert drift(evaluated(healthy(), lambda e: {"ensemble": None, "merged": None})) is None


def test_old_records_without_drift_and_fleets_that_show_no_models_are_read() -> None:
    run = evaluated(healthy(), lambda e: {"drift": None, "merged": None, "ensemble": e.device_mean + 0.2})
    found = drift(run)
    assert found is not None
    assert "averaged" not in found.text
    assert "moved" not in found.text


def probed(apart: float, leaders: tuple[int, ...] | None = None) -> Run:
    """A run with probes, whose client-side models end this far apart."""
    run = changed(healthy(probes=2), lambda r: {"probes": ProbeRecord(apart=apart, leaders=leaders)})
    return changed(run, lambda r: {"probes": ProbeRecord(apart=0.5)} if r.round == 3 else {})


def test_models_that_agree_on_the_probes_are_told_and_others_watched() -> None:
    good, bad = probes(probed(0.02)), probes(probed(0.1, (0, 1)))
    assert good is not None and bad is not None
    assert (good.name, good.severity, good.advice) == ("probes-aligned", Severity.INFO, ())
    assert "2.0 % away" in good.text and "at most 50 %, in round 3" in good.text
    assert (bad.name, bad.severity) == ("probes-not-aligned", Severity.WATCH)
    assert settings_of(bad) == ["device_optimizer.lr=0.01"]
    assert probes(healthy()) is None


def test_the_worst_device_is_named_with_its_labels_and_how_often_it_was_kept() -> None:
    run = aligned(lambda r: {0, 1, 2} if r % 10 else {3}, ONE_CLASS_EACH)
    each = {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.7}
    run = evaluated(run, lambda e: {"device_accuracy": each, "device_mean": 0.85})
    assert spread(evaluated(run, lambda e: {"device_accuracy": {**each, 3: 0.75}})) is None
    found = spread(run)
    assert found is not None
    assert (found.severity, found.title) == (Severity.WATCH, "Device 3 does much worse than the rest")
    assert "15 points below the mean. It has 101 samples, 97 % of them of class dog." in found.text
    assert "kept in 10 % of its rounds" in found.text
    assert settings_of(found)[:2] == ["gapsl.eta=0", "gapsl.exclusion=none"]


def test_a_device_very_far_behind_is_trouble_and_unknown_labels_are_left_out() -> None:
    run = evaluated(
        replace(healthy(), labels=None),
        lambda e: {"device_accuracy": {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.3}, "device_mean": 0.75},
    )
    found = spread(run)
    assert found is not None
    assert found.severity == Severity.TROUBLE
    assert "samples" not in found.text


def test_the_worst_device_is_named_right_where_another_is_away() -> None:
    run = evaluated(healthy(), lambda e: {"device_accuracy": {1: 0.3, 2: 0.9, 3: 0.9}, "device_mean": 0.7})
    found = spread(run)
    assert found is not None and found.numbers["device"] == 1
    assert spread(evaluated(healthy(), lambda e: {"device_accuracy": {1: 0.3}})) is None


def opposed(degrees: float, loss: float = 1.5) -> Run:
    """A run with this mean angle, whose loss stays."""
    return changed(healthy(ONE_CLASS_EACH), lambda r: {"angle_mean": math.radians(degrees), "loss": loss})


def test_gradients_beyond_a_right_angle_are_to_be_watched_while_there_is_something_to_learn() -> None:
    found = disagreement(opposed(93))
    assert found is not None
    assert (found.name, found.severity) == ("gradients-opposed", Severity.WATCH)
    assert "93° (93° at the start)" in found.text
    assert settings_of(found) == ["preset recommended", "batch_size=64"]


def test_below_a_right_angle_or_at_the_end_of_learning_they_are_told_only() -> None:
    settling, settled = (
        changed(opposed(93), lambda r, end=end: {"loss": 2.0 if r.round < 10 else end}) for end in (0.3, 0.15)
    )
    assert disagreement(settling).severity == Severity.WATCH  # type: ignore[union-attr]
    for run in (opposed(88), opposed(60), settled):
        found = disagreement(run)
        assert found is not None
        assert (found.name, found.severity) == ("angles", Severity.INFO)
    assert "little left to learn" in disagreement(settled).text  # type: ignore[union-attr]


def test_the_trend_of_angles_is_told_and_runs_without_angles_are_not_spoken_of() -> None:
    run = changed(healthy(), lambda r: {"angle_mean": math.radians(50 + r.round)})
    found = disagreement(run)
    assert found is not None
    assert (found.numbers["start"], found.numbers["end"]) == pytest.approx((54.5, 86.5))
    assert disagreement(changed(healthy(), lambda r: {"angle_mean": None})) is None
