"""Exclusion: shares, streaks, and the classes that go with the devices left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import GAPSL, ONE_CLASS_EACH, ROUNDS, aligned, changed, healthy, settings_of

from gapsl.analysis.diagnosis import Labels, Severity
from gapsl.analysis.diagnosis.exclusion import (
    few_kept,
    kept_shares,
    left_out,
    longest_streaks,
    reach,
    starved_classes,
)

EVERYBODY = {0, 1, 2, 3}


def test_shares_and_streaks_count_only_rounds_a_device_was_in() -> None:
    run = aligned(lambda r: {0, 1} if r % 2 else {0})
    run = changed(run, lambda r: {"losses": {d: 1.0 for d in EVERYBODY if d != 2 or r.number <= 10}})
    assert kept_shares(run) == {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.0}
    assert longest_streaks(run) == {0: 0, 1: 1, 2: 10, 3: ROUNDS}


def test_few_devices_kept_is_told_with_a_setting_that_keeps_more() -> None:
    found = few_kept(aligned(lambda r: {r % 4}))
    assert found is not None
    assert (found.name, found.severity) == ("few-kept", Severity.WATCH)
    assert "1.0 of 4 devices are kept in a round on average, each in 25 % to 25 %" in found.text
    assert settings_of(found) == ["gapsl.eta=0", "gapsl.exclusion=none"]


def test_hardly_anybody_kept_is_trouble() -> None:
    found = few_kept(aligned(lambda r: {0} if r % 2 else set()))
    assert found is not None
    assert found.severity == Severity.TROUBLE


def test_half_of_the_devices_or_all_of_them_are_enough() -> None:
    for kept in ({0, 1}, EVERYBODY):
        found = few_kept(aligned(lambda r, kept=kept: kept))
        assert found is not None
        assert (found.name, found.severity, found.advice) == ("kept", Severity.INFO, ())


def test_methods_that_leave_nobody_out_are_not_spoken_of() -> None:
    assert few_kept(healthy()) is None
    assert left_out(healthy()) is None
    assert starved_classes(healthy(ONE_CLASS_EACH)) is None


@pytest.mark.parametrize(("rounds", "severity"), [({9}, Severity.TROUBLE), ({9, 18, 27}, None)], ids=str)
def test_a_device_that_is_hardly_ever_kept_is_trouble(rounds: set[int], severity: Severity | None) -> None:
    found = left_out(aligned(lambda r: EVERYBODY - (set() if r in rounds else {3})))
    assert (found.severity if found else None) == severity
    if found is not None:
        assert found.numbers["never"] == [3]
        assert settings_of(found) == ["gapsl.eta=0", "gapsl.exclusion=none"]


@pytest.mark.parametrize(("streak", "told"), [(19, False), (20, True)])
def test_a_long_streak_is_to_be_watched(streak: int, told: bool) -> None:
    found = left_out(aligned(lambda r: EVERYBODY - ({1} if r <= streak else set())))
    assert (found is not None) == told
    if found is not None:
        assert found.severity == Severity.WATCH
        assert "device 1 (20 rounds)" in found.text


def test_of_several_long_streaks_the_longest_is_named() -> None:
    found = left_out(aligned(lambda r: EVERYBODY - {d for d, streak in ((1, 20), (2, 25)) if r <= streak}))
    assert found is not None and "(device 2: 25 rounds)" in found.text


def test_what_reaches_the_server_follows_from_labels_and_shares() -> None:
    labels = healthy([[10, 10, 0, 0], [0, 10, 10, 0], [0, 0, 20, 0]]).labels
    assert isinstance(labels, Labels)
    found = reach(labels, {0: 1.0, 1: 0.5, 2: 0.0}).tolist()
    assert found[:3] == pytest.approx([1.0, 0.75, 0.5 * 0.5 / 1.5])
    assert found[3] != found[3], "nobody has that class"


def test_a_class_whose_holder_is_left_out_is_starved() -> None:
    found = starved_classes(aligned(lambda r: EVERYBODY - ({2} if r % 5 else set()), ONE_CLASS_EACH))
    assert found is not None
    assert (found.severity, found.title) == (Severity.WATCH, "Exclusion starves class cat")
    assert "of class cat only 22 % (most of it on device 2, recognised in 90 %)" in found.text
    assert found.numbers["usual"] == pytest.approx(0.8)


def test_a_class_that_hardly_ever_arrives_is_trouble_and_evenly_spread_ones_never_starve() -> None:
    found = starved_classes(aligned(lambda r: EVERYBODY - {2}, ONE_CLASS_EACH))
    assert found is not None
    assert found.severity == Severity.TROUBLE
    assert starved_classes(aligned(lambda r: EVERYBODY - {2})) is None
    assert starved_classes(aligned(lambda r: {r % 4}, ONE_CLASS_EACH)) is None, "all starve alike"
    seldom = aligned(lambda r: EVERYBODY - ({2} if r % 2 else set()), ONE_CLASS_EACH)
    assert starved_classes(seldom) is None, "more than half of what the others get"


def test_excluded_devices_that_train_anyway_are_told_so() -> None:
    run = aligned(lambda r: {0})
    run = replace(run, settings={**run.settings, "gapsl": {**GAPSL, "excluded": "plain"}})
    found = few_kept(run)
    assert found is not None
    assert "they still train their halves" in found.text
