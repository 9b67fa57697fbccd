"""Absence: who was away, for how long, and what went with them."""

from __future__ import annotations

from collections.abc import Callable

from constructed import ONE_CLASS_EACH, changed, evaluated, healthy

from gapsl.analysis.diagnosis import Evidence, Severity, diagnose
from gapsl.analysis.diagnosis.absence import absent_devices
from gapsl.analysis.diagnosis.accuracy import worst_device

EVERYBODY = {0, 1, 2, 3}


def without(
    missing: Callable[[int], set[int]], asked: Callable[[int], set[int]] = lambda r: EVERYBODY
) -> Evidence:
    """A run with a class a device, closed without some of those that are asked, by round."""
    return changed(
        healthy(ONE_CLASS_EACH),
        lambda r: {
            "absent": frozenset(missing(r.number) & asked(r.number)),
            "losses": dict.fromkeys(asked(r.number) - missing(r.number), r.loss),
        },
    )


def test_nobody_is_missing_where_nobody_is() -> None:
    assert absent_devices(healthy()) is None


def test_devices_that_take_turns_at_being_last_are_what_a_fraction_means() -> None:
    assert absent_devices(without(lambda r: {r % 4})) is None


def test_a_device_that_is_gone_is_named_with_the_class_that_only_it_has() -> None:
    found = absent_devices(without(lambda r: {2} if r > 30 else set()))
    assert found is not None
    assert (found.name, found.severity) == ("absent-devices", Severity.TROUBLE)
    assert "Rounds were closed without device 2 (25 % of its rounds)." in found.text
    assert "Not there at the end: 2." in found.text
    assert "Most of what there is of class cat is theirs." in found.text
    assert found.numbers["gone"] == [2]


def test_a_device_that_came_back_is_not_gone() -> None:
    found = absent_devices(without(lambda r: {2} if r <= 30 else set()))
    assert found is not None and found.severity == Severity.WATCH
    assert "Not there" not in found.text and "75 %" in found.text


def test_rounds_that_a_device_was_not_drawn_for_do_not_count() -> None:
    run = without(lambda r: {2}, asked=lambda r: {r % 4, (r + 1) % 4})
    found = absent_devices(run)
    assert found is not None and found.numbers["absent_shares"][2] == 1
    assert found.numbers["gone"] == [2]


def test_it_is_part_of_the_diagnosis() -> None:
    assert "absent-devices" in {finding.name for finding in diagnose(without(lambda r: {0}))}


def test_the_worst_device_is_named_right_where_another_is_away() -> None:
    run = evaluated(healthy(), lambda e: {"device_accuracy": (None, 0.3, 0.9, 0.9), "device_mean": 0.7})
    found = worst_device(run)
    assert found is not None and found.numbers["device"] == 1
    alone = evaluated(healthy(), lambda e: {"device_accuracy": (None, 0.3, None, None)})
    assert worst_device(alone) is None
