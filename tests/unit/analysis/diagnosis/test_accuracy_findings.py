"""Accuracy: guessing, falling, rising, devices and classes left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, aligned, changed, evaluated, healthy, settings_of, with_accuracy

from gapsl.analysis.diagnosis import Severity
from gapsl.analysis.diagnosis.accuracy import (
    fallen,
    guessing,
    own_labels_only,
    still_rising,
    unknown_classes,
    worst_device,
)

FLAT = [0.75] * 8


def test_accuracy_at_chance_is_trouble() -> None:
    found = guessing(with_accuracy(healthy(ONE_CLASS_EACH), [0.28] * 8))
    assert found is not None
    assert (found.name, found.severity) == ("guessing", Severity.TROUBLE)
    assert "28 % of the test set, guessing in 25 %" in found.text
    assert settings_of(found)[:2] == ["preset recommended", "device_optimizer.lr=0.01"]
    assert guessing(with_accuracy(healthy(), [0.3] * 8)) is None


def test_where_the_loss_does_not_fall_either_the_advice_is_about_the_loss() -> None:
    run = changed(with_accuracy(healthy(), [0.26] * 8), lambda r: {"loss": 1.4})
    assert settings_of(guessing(run)) == ["server_optimizer.lr=1", "device_optimizer.lr=1"]


def test_an_unfinished_run_may_still_be_guessing() -> None:
    run = replace(with_accuracy(healthy(), [0.26] * 8), finished=False, total_rounds=500)
    found = guessing(run)
    assert found is not None
    assert (found.severity, found.advice) == (Severity.WATCH, ())
    assert "round 40 of 500" in found.text


def test_a_finished_run_that_was_very_short_wants_more_rounds_first() -> None:
    run = changed(with_accuracy(healthy(), [0.26] * 8), lambda r: {"epoch": r.number / 40})
    found = guessing(run)
    assert found is not None
    assert (found.severity, settings_of(found)) == (Severity.WATCH, ["rounds=80"])
    assert "only 1.0 epochs" in found.text


def test_a_collapse_says_how_good_it_was_and_when() -> None:
    run = replace(with_accuracy(healthy(), [0.5, 0.7, 0.7, 0.6, 0.3, 0.25, 0.25, 0.25]), finished=False)
    found = guessing(run)
    assert found is not None
    assert (found.name, found.severity) == ("collapsed", Severity.TROUBLE)
    assert "in round 10 it was 70 %" in found.text
    assert fallen(run) is None, "one finding is enough"


def test_accuracy_that_was_better_before() -> None:
    found = fallen(with_accuracy(healthy(), [0.6, 0.8, 0.8, 0.8, 0.75, 0.74, 0.74, 0.74]))
    assert found is not None
    assert (found.severity, found.numbers["round"]) == (Severity.WATCH, 20)
    assert settings_of(found) == ["device_optimizer.lr=0.01", "server_optimizer.schedule=cosine"]
    assert fallen(with_accuracy(healthy(), [0.6, 0.8, 0.8, 0.8, 0.78, 0.77, 0.77, 0.77])) is None


def test_accuracy_that_still_rises_wants_more_rounds() -> None:
    run = with_accuracy(healthy(), [0.3 + 0.02 * i for i in range(8)])
    found = still_rising(run)
    assert found is not None
    assert (found.severity, settings_of(found)) == (Severity.WATCH, ["rounds=80"])
    going_on = still_rising(replace(run, finished=False))
    assert going_on is not None
    assert (going_on.severity, going_on.advice) == (Severity.INFO, ())
    assert still_rising(with_accuracy(healthy(), FLAT)) is None


def test_the_worst_device_is_named_with_its_labels_and_how_often_it_was_kept() -> None:
    run = aligned(lambda r: {0, 1, 2} if r % 10 else {3}, ONE_CLASS_EACH)
    run = evaluated(run, lambda e: {"device_accuracy": (0.9, 0.9, 0.9, 0.7), "device_mean": 0.85})
    assert worst_device(evaluated(run, lambda e: {"device_accuracy": (0.9, 0.9, 0.9, 0.75)})) is None
    found = worst_device(run)
    assert found is not None
    assert (found.severity, found.title) == (Severity.WATCH, "Device 3 does much worse than the rest")
    assert "15 points below the mean. It has 101 samples: 97 % class dog, 3.0 % other" in found.text
    assert "kept in 10 % of its rounds" in found.text
    assert settings_of(found)[:2] == ["gapsl.eta=0", "gapsl.exclusion=none"]


def test_a_device_very_far_behind_is_trouble_and_unknown_labels_are_left_out() -> None:
    run = replace(healthy(), labels=None)
    found = worst_device(
        evaluated(run, lambda e: {"device_accuracy": (0.9, 0.9, 0.9, 0.3), "device_mean": 0.75})
    )
    assert found is not None
    assert found.severity == Severity.TROUBLE
    assert "samples" not in found.text


def test_classes_that_are_hardly_ever_recognised_are_named() -> None:
    run = evaluated(healthy(ONE_CLASS_EACH), lambda e: {"class_accuracy": (0.9, 0.04, 0.0, None)})
    found = unknown_classes(run)
    assert found is not None
    assert (found.severity, found.title) == (
        Severity.WATCH,
        "Classes cat and bee are hardly ever recognised",
    )
    assert "Class cat is on 4 of 4 devices (25 % of all samples)" in found.text
    assert settings_of(found) == ["preset recommended", "device_optimizer.lr=0.01"]


def test_while_little_is_learned_no_class_is_singled_out() -> None:
    run = with_accuracy(healthy(), [0.35] * 8)
    assert unknown_classes(evaluated(run, lambda e: {"class_accuracy": (0.7, 0.7, 0.0, 0.0)})) is None


@pytest.mark.parametrize("accuracy", [0.06, None])
def test_a_class_that_is_recognised_now_and_then_or_not_tested_is_not_named(accuracy: float | None) -> None:
    assert (
        unknown_classes(evaluated(healthy(), lambda e: {"class_accuracy": (0.9, accuracy, 0.9, 0.9)})) is None
    )


def test_devices_that_know_only_their_own_labels() -> None:
    found = own_labels_only(
        evaluated(with_accuracy(healthy(ONE_CLASS_EACH), FLAT), lambda e: {"local": 0.99})
    )
    assert found is not None
    assert found.severity == Severity.WATCH
    assert settings_of(found) == ["preset recommended", "device_optimizer.lr=0.01"]
    for local in (0.9, None):
        assert (
            own_labels_only(evaluated(with_accuracy(healthy(), FLAT), lambda e, x=local: {"local": x}))
            is None
        )


def test_before_the_first_evaluation_nothing_is_said() -> None:
    run = changed(healthy(), lambda r: {"evaluation": None})
    for finder in (guessing, fallen, still_rising, worst_device, unknown_classes, own_labels_only):
        assert finder(run) is None
