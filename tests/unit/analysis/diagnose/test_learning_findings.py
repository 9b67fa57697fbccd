"""Whether a run learns: gradients, loss, and accuracy over the rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, changed, healthy, settings_of, with_accuracy

from gapsl.analysis.diagnose import Run, Severity
from gapsl.analysis.diagnose.learning import (
    accuracy_fell,
    ends,
    exploding,
    guessing,
    not_learning,
    rising_loss,
    still_rising,
    stuck_loss,
)

SLOWER = ["server_optimizer.lr=0.01", "device_optimizer.lr=0.01"]
CLIP = ["server_optimizer.clip=1", "device_optimizer.clip=1"]
FLAT = [0.75] * 8
GUESSED = [0.26] * 8


def losing(loss: Callable[[int], float | None]) -> Run:
    """A run with this loss by round."""
    return changed(healthy(), lambda r: {"loss": loss(r.round)})


def test_the_ends_of_a_series_are_medians_of_a_fifth_each() -> None:
    assert ends([float(i) for i in range(20)]) == (1.5, 17.5)
    assert ends([1.0] * 9) is None


@pytest.mark.parametrize(
    ("length", "severity"),
    [(90.0, None), (120.0, Severity.WATCH), (900.0, Severity.WATCH), (1100.0, Severity.TROUBLE)],
)
def test_gradients_that_grow_many_times(length: float, severity: Severity | None) -> None:
    run = changed(healthy(), lambda r: {"norms": dict.fromkeys(range(4), 1.0 if r.round <= 20 else length)})
    assert exploding(run) is None, "90 % are right: gradients that are small at first are no mistake"
    run = with_accuracy(run, GUESSED)
    found = exploding(run)
    assert (found.severity if found else None) == severity
    if found is not None:
        assert settings_of(found) == SLOWER + CLIP
        assert found.numbers["round"] == 21
        assert found.breaks == (severity == Severity.TROUBLE)
        clipped = {"lr": 0.1, "clip": 5.0}
        again = replace(run, settings=healthy(server_optimizer=clipped, device_optimizer=clipped).settings)
        assert settings_of(exploding(again)) == SLOWER, "clipping that is there is not advised"


def test_old_records_and_methods_that_send_no_gradients_back_have_no_norms() -> None:
    for missing in (None, {}):
        run = with_accuracy(healthy(), GUESSED)
        assert exploding(changed(run, lambda r, missing=missing: {"norms": missing})) is None


def test_a_loss_that_stays_where_it_began_wants_larger_steps() -> None:
    found = stuck_loss(losing(lambda r: 2.3 - 0.001 * r))
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.TROUBLE, False)
    assert settings_of(found) == ["server_optimizer.lr=1", "device_optimizer.lr=1"]
    early = stuck_loss(changed(losing(lambda r: 2.3), lambda r: {"epoch": r.round / 100}))
    assert early is not None and early.severity == Severity.WATCH


def test_one_that_shot_up_on_the_way_wants_smaller_ones() -> None:
    assert settings_of(stuck_loss(losing(lambda r: 4.0 if r == 5 else 2.3))) == SLOWER + CLIP


def test_a_loss_that_falls_a_tenth_is_falling() -> None:
    for run in (losing(lambda r: 2.3 - 0.01 * r), healthy()):
        assert stuck_loss(run) is None
        assert rising_loss(run) is None


def test_a_loss_that_has_been_lower_is_rising() -> None:
    found = rising_loss(losing(lambda r: 2.0 - 0.08 * r if r <= 20 else 0.4 + 0.03 * (r - 20)))
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.WATCH, False)
    assert abs(found.numbers["round"] - 20) <= 3
    again = rising_loss(losing(lambda r: 2.0 + 0.5 * r))
    assert again is not None
    assert (again.severity, again.breaks) == (Severity.TROUBLE, True)


def test_a_loss_near_zero_may_double_and_batches_may_scatter() -> None:
    assert rising_loss(losing(lambda r: 0.05 if r < 30 else 0.14)) is None
    assert rising_loss(losing(lambda r: 0.05 if r < 30 else 0.17)) is not None
    assert rising_loss(losing(lambda r: 1.0 + 0.2 * (r % 2))) is None


def test_rounds_without_any_finite_loss_are_left_out() -> None:
    assert rising_loss(losing(lambda r: None)) is None
    assert stuck_loss(losing(lambda r: None)) is None


def test_the_loss_is_told_only_where_accuracy_is_not_good_or_not_known() -> None:
    stuck = losing(lambda r: 2.3)
    assert not_learning(stuck) is None, "90 % are right"
    for ill in (with_accuracy(stuck, GUESSED), changed(stuck, lambda r: {"evaluation": None})):
        found = not_learning(ill)
        assert found is not None and found.name == "loss-stuck"
    rising = with_accuracy(losing(lambda r: 2.0 + 0.5 * r), [0.8, 0.8, 0.8, 0.6, 0.6, 0.6, 0.6, 0.6])
    found = not_learning(rising)
    assert found is not None and found.name == "loss-rising", "accuracy fell with it"


def test_accuracy_at_chance_is_trouble() -> None:
    found = guessing(with_accuracy(healthy(ONE_CLASS_EACH), [0.28] * 8))
    assert found is not None
    assert (found.name, found.severity) == ("guessing", Severity.TROUBLE)
    assert "on the test set is 28 %, that of guessing 25 %" in found.text
    assert settings_of(found)[:2] == ["preset recommended", "device_optimizer.lr=0.01"]
    assert guessing(with_accuracy(healthy(), [0.3] * 8)) is None


def test_an_unfinished_run_may_still_be_guessing() -> None:
    found = guessing(replace(with_accuracy(healthy(), GUESSED), finished=False, total_rounds=500))
    assert found is not None
    assert (found.severity, found.advice) == (Severity.WATCH, ())
    assert "round 40 of 500" in found.text


def test_a_finished_run_that_was_very_short_wants_more_rounds_first() -> None:
    found = guessing(changed(with_accuracy(healthy(), GUESSED), lambda r: {"epoch": r.round / 40}))
    assert found is not None
    assert (found.severity, settings_of(found)) == (Severity.WATCH, ["rounds=80"])
    assert "only 1.0 epochs" in found.text


def test_a_collapse_says_how_good_it_was_and_when() -> None:
    run = replace(with_accuracy(healthy(), [0.5, 0.7, 0.7, 0.6, 0.3, 0.25, 0.25, 0.25]), finished=False)
    found = not_learning(run)
    assert found is not None
    assert (found.name, found.severity) == ("accuracy-fell", Severity.TROUBLE)
    assert found.title == "Accuracy has collapsed to guessing"
    assert "It was 67 % in round 20 and is 25 % now" in found.text


def test_accuracy_that_was_better_before() -> None:
    found = accuracy_fell(with_accuracy(healthy(), [0.6, 0.8, 0.8, 0.8, 0.75, 0.74, 0.74, 0.74]))
    assert found is not None
    assert (found.severity, found.numbers["round"]) == (Severity.WATCH, 20)
    assert settings_of(found) == SLOWER
    assert accuracy_fell(with_accuracy(healthy(), [0.6, 0.8, 0.8, 0.8, 0.78, 0.77, 0.77, 0.77])) is None


def test_accuracy_that_still_rises_wants_more_rounds() -> None:
    run = with_accuracy(healthy(), [0.3 + 0.02 * i for i in range(8)])
    found = still_rising(run)
    assert found is not None
    assert (found.severity, settings_of(found)) == (Severity.INFO, ["rounds=80"])
    going_on = still_rising(replace(run, finished=False))
    assert going_on is not None
    assert (going_on.severity, going_on.advice) == (Severity.INFO, ())
    assert still_rising(with_accuracy(healthy(), FLAT)) is None


def test_before_the_first_evaluation_nothing_is_said_of_accuracy() -> None:
    run = changed(healthy(), lambda r: {"evaluation": None})
    for finder in (guessing, accuracy_fell, still_rising, not_learning):
        assert finder(run) is None
