"""Who takes part: losses that cannot be, devices skipped, left out or away, and the classes they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, ROUNDS, aligned, changed, healthy, settings_of

from gapsl.analysis.diagnose import Run, Severity, diagnose
from gapsl.analysis.diagnose.participation import (
    away,
    excluded,
    impossible,
    kept_shares,
    skipped,
    starved_classes,
)
from gapsl.fleets.base import FleetEvents

EVERYBODY = {0, 1, 2, 3}


def reporting(device: int, loss: float, rounds: range) -> Run:
    """A run in which a device reports this loss in these rounds."""
    return changed(healthy(), lambda r: {"losses": {**r.losses, device: loss}} if r.round in rounds else {})


def test_a_cross_entropy_below_zero_names_who_reports_it() -> None:
    found = impossible(reporting(2, -3.5, range(11, 21)))
    assert found is not None
    assert (found.name, found.severity) == ("impossible-loss", Severity.TROUBLE)
    assert found.title == "The loss of device 2 cannot be"
    assert "in 10 of 40 rounds" in found.text and "the lowest is -3.5, of device 2 in round 11" in found.text
    assert found.numbers["devices"] == [2]


def test_a_loss_of_nearly_zero_or_of_ones_own_may_be_below() -> None:
    assert impossible(healthy()) is impossible(reporting(2, -1e-9, range(41))) is None
    own = reporting(2, -3.5, range(41))
    assert impossible(replace(own, settings={**own.settings, "custom": {"loss": "mine"}})) is None


def test_who_lies_is_named_even_where_the_run_learns() -> None:
    names = [finding.name for finding in diagnose(reporting(2, -3.5, range(11, 21)))]
    assert names[0] == "impossible-loss"


def skipping(*rounds: int, devices: tuple[int, ...] = (2,)) -> Run:
    """A run in which these devices are skipped in these rounds."""
    return changed(
        healthy(),
        lambda r: {
            "skipped": devices if r.round in rounds else (),
            "losses": {d: 1.0 for d in range(4) if r.round not in rounds or d not in devices},
        },
    )


def test_nobody_skipped_is_not_spoken_of() -> None:
    assert skipped(healthy()) is None


def test_one_skip_long_ago_is_to_be_watched() -> None:
    run = skipping(7)
    found = skipped(replace(run, records=(*run.records, *healthy().records * 3)))  # one of 160
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.WATCH, False)
    assert found.numbers == {"rounds": 1, "first": 7, "by_device": {2: 1}}


def test_skips_in_many_rounds_or_in_the_last_are_trouble_and_the_few_are_named() -> None:
    for run in (skipping(3, 4, 5), skipping(ROUNDS)):
        found = skipped(run)
        assert found is not None
        assert (found.severity, found.breaks) == (Severity.TROUBLE, False)
        assert "device 2" in found.text and "look at their inputs and at what they send" in found.text
        assert not any("lr=" in name for name in settings_of(found)), "the others' steps are well"


def test_skips_of_most_devices_want_smaller_steps() -> None:
    found = skipped(skipping(3, 4, 5, devices=(0, 1, 2)))
    assert found is not None
    assert settings_of(found)[:2] == ["server_optimizer.lr=0.01", "device_optimizer.lr=0.01"]
    assert "look at their inputs" not in found.text


def test_a_round_with_nobody_left_breaks_the_run() -> None:
    run = replace(skipping(ROUNDS, devices=(0, 1, 2, 3)), finished=False, total_rounds=100)
    found = skipped(run)
    assert found is not None
    assert found.breaks
    assert "In round 40 no device was left. The run ends with it, in round 40 of 100." in found.text


def test_why_a_device_was_skipped_is_told_where_it_is_recorded() -> None:
    run = skipping(3, 4, 5)
    plain = skipped(run)
    assert (
        plain is not None and "first device 2 in round 3: its loss or gradient is not finite." in plain.text
    )
    why = "its loss is 1e+30, where 2.3 is usual"
    told = skipped(changed(run, lambda r: {"reasons": {2: why} if r.skipped else {}}))
    assert told is not None and f"did not count, first device 2 in round 3: {why}." in told.text


# --- devices that a method leaves out


def test_shares_count_only_rounds_a_device_was_in() -> None:
    run = aligned(lambda r: {0, 1} if r % 2 else {0, 3})
    run = changed(run, lambda r: {"losses": {d: 1.0 for d in EVERYBODY if d != 2 or r.round <= 10}})
    assert kept_shares(run) == {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.5}
    found = excluded(run)
    assert found is not None and found.numbers["never"] == [2]


def test_hardly_anybody_kept_is_trouble_with_a_setting_that_keeps_more() -> None:
    found = excluded(aligned(lambda r: {r % 4} if r % 2 else set()))
    assert found is not None
    assert found.severity == Severity.TROUBLE
    assert settings_of(found) == ["gapsl.eta=0", "gapsl.exclusion=none"]


def test_a_quarter_of_the_devices_or_all_of_them_are_not_spoken_of() -> None:
    for kept in (lambda r: {r % 4}, lambda r: {r % 4, (r + 1) % 4}, lambda r: EVERYBODY):
        assert excluded(aligned(kept)) is None


def test_methods_that_leave_nobody_out_are_not_spoken_of() -> None:
    assert excluded(healthy(ONE_CLASS_EACH)) is None


@pytest.mark.parametrize(("rounds", "bad"), [({9}, True), ({9, 18, 27}, False)])
def test_a_device_that_is_hardly_ever_kept_is_trouble(rounds: set[int], bad: bool) -> None:
    found = excluded(aligned(lambda r: EVERYBODY - (set() if r in rounds else {3})))
    assert (found is not None) == bad
    if found is not None:
        assert found.severity == Severity.TROUBLE
        assert "Kept in hardly any round: device 3." in found.text


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
    assert alike is None, "all starve alike"


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
    assert "Not there at the end: device 2." in found.text
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
