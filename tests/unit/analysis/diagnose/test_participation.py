"""Who takes part: shares, streaks, classes that go with devices left out, and devices that are away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from constructed import ONE_CLASS_EACH, ROUNDS, aligned, changed, healthy, settings_of

from gapsl.analysis.diagnose import Run, Severity, diagnose
from gapsl.analysis.diagnose.participation import away, excluded, kept_shares, starved_classes
from gapsl.fleets.base import FleetEvents

EVERYBODY = {0, 1, 2, 3}


def test_shares_and_streaks_count_only_rounds_a_device_was_in() -> None:
    run = aligned(lambda r: {0, 1} if r % 2 else {0, 3})
    run = changed(run, lambda r: {"losses": {d: 1.0 for d in EVERYBODY if d != 2 or r.round <= 10}})
    assert kept_shares(run) == {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.5}
    found = excluded(run)
    assert found is not None
    assert (found.numbers["never"], found.numbers["streaks"]) == ([2], {0: 0, 1: 1, 3: 1})


def test_few_devices_kept_is_told_with_a_setting_that_keeps_more() -> None:
    found = excluded(aligned(lambda r: {r % 4}))
    assert found is not None
    assert (found.severity, found.title) == (
        Severity.WATCH,
        "Most of what the devices send is thrown away",
    )
    assert "25 % of what the devices send" in found.text and "kept in 25 % to 25 %" in found.text
    assert settings_of(found) == ["gapsl.eta=0", "gapsl.exclusion=none"]


def test_hardly_anybody_kept_is_trouble() -> None:
    found = excluded(aligned(lambda r: {r % 4} if r % 2 else set()))
    assert found is not None
    assert found.severity == Severity.TROUBLE


def test_half_of_the_devices_or_all_of_them_are_enough() -> None:
    for kept in (lambda r: {r % 4, (r + 1) % 4}, lambda r: EVERYBODY):
        found = excluded(aligned(kept))
        assert found is not None
        assert (found.severity, found.advice) == (Severity.INFO, ())


def test_methods_that_leave_nobody_out_are_not_spoken_of() -> None:
    assert excluded(healthy(ONE_CLASS_EACH)) is None


@pytest.mark.parametrize(("rounds", "severity"), [({9}, Severity.TROUBLE), ({9, 18, 27}, Severity.INFO)])
def test_a_device_that_is_hardly_ever_kept_is_trouble(rounds: set[int], severity: Severity) -> None:
    found = excluded(aligned(lambda r: EVERYBODY - (set() if r in rounds else {3})))
    assert found is not None and found.severity == severity
    if severity:
        assert "Kept in hardly any round: device 3." in found.text


@pytest.mark.parametrize(("streak", "severity"), [(19, Severity.INFO), (20, Severity.WATCH)])
def test_a_long_streak_is_to_be_watched(streak: int, severity: Severity) -> None:
    found = excluded(aligned(lambda r: EVERYBODY - ({1} if r <= streak else set())))
    assert found is not None and found.severity == severity
    assert ("running or more: device 1" in found.text) == bool(severity)


def test_what_reaches_the_server_of_a_class_follows_from_labels_and_shares() -> None:
    counts = [[10, 10, 0, 0], [0, 10, 10, 0], [0, 0, 20, 0], [0, 0, 0, 0]]
    run = healthy(counts[:3])
    found = starved_classes(run, {0: 1.0, 1: 0.5, 2: 0.0})
    assert found == {2: pytest.approx(0.5 * 0.5 / 1.5)}, "of class 0 all of it, of 1 three quarters; 3: none"


def test_a_class_whose_holder_is_left_out_is_starved() -> None:
    found = excluded(aligned(lambda r: EVERYBODY - ({2} if r % 5 else set()), ONE_CLASS_EACH))
    assert found is not None
    assert found.severity == Severity.WATCH
    assert "Of some classes much less arrives than of others: cat (22 %)." in found.text
    alike = excluded(aligned(lambda r: {r % 4, (r + 1) % 4}, ONE_CLASS_EACH))
    assert alike is not None and alike.numbers["starved"] == {}, "all starve alike"


def without(
    missing: Callable[[int], set[int]], asked: Callable[[int], set[int]] = lambda r: EVERYBODY
) -> Run:
    """A run with a class a device, closed without some of those that are asked, by round."""
    return changed(
        healthy(ONE_CLASS_EACH),
        lambda r: {
            "events": FleetEvents(absent=dict.fromkeys(missing(r.round) & asked(r.round), (0,))),
            "losses": dict.fromkeys(asked(r.round) - missing(r.round), r.loss),
        },
    )


def test_nobody_is_away_where_nobody_is_or_devices_take_turns_at_being_last() -> None:
    assert away(healthy()) is None
    assert away(without(lambda r: {r % 4})) is None, "that is what a fraction means"


def test_a_device_that_is_gone_is_named_with_the_class_that_only_it_has() -> None:
    found = away(without(lambda r: {2} if r > 30 else set()))
    assert found is not None
    assert (found.name, found.severity) == ("absent-devices", Severity.TROUBLE)
    assert "Rounds were closed without device 2 (25 % of its rounds)." in found.text
    assert "Not there at the end: 2." in found.text
    assert "Most of what there is of class cat is theirs." in found.text
    assert found.numbers["gone"] == [2]


def test_a_device_that_came_back_is_not_gone() -> None:
    found = away(without(lambda r: {2} if r <= 30 else set()))
    assert found is not None and found.severity == Severity.WATCH
    assert "Not there" not in found.text and "75 %" in found.text


def test_rounds_that_a_device_was_not_drawn_for_do_not_count() -> None:
    found = away(without(lambda r: {2}, asked=lambda r: {r % 4, (r + 1) % 4}))
    assert found is not None and found.numbers["absent_shares"][2] == 1
    assert found.numbers["gone"] == [2]


def test_it_is_part_of_the_diagnosis() -> None:
    assert ROUNDS > 5
    assert "absent-devices" in {finding.name for finding in diagnose(without(lambda r: {0}))}
