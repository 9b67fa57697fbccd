"""Gradients that are too long, too short, not finite, or too loud."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import ROUNDS, changed, healthy, settings_of

from gapsl.analysis.diagnosis import Evidence, Severity
from gapsl.analysis.diagnosis.gradients import exploding, loud_device, not_finite, vanishing

SLOWER = ["server_optimizer.lr=0.01", "device_optimizer.lr=0.01"]
CLIP = ["server_optimizer.clip=1", "device_optimizer.clip=1"]


def norms(run: Evidence, last: float, first: float = 1.0) -> Evidence:
    """The same run with gradients of one length in the first half and another after."""
    return changed(run, lambda r: {"norms": dict.fromkeys(range(4), first if r.number <= 20 else last)})


@pytest.mark.parametrize(
    ("length", "severity"),
    [(90.0, None), (120.0, Severity.WATCH), (900.0, Severity.WATCH), (1100.0, Severity.TROUBLE)],
)
def test_gradients_that_grow_many_times(length: float, severity: Severity | None) -> None:
    found = exploding(norms(healthy(), length))
    assert (found.severity if found else None) == severity
    if found is not None:
        assert settings_of(found) == SLOWER + CLIP
        assert found.numbers["round"] == 21
        assert found.breaks == (severity == Severity.TROUBLE)


def test_clipping_that_is_there_is_not_advised() -> None:
    optimizer = {"lr": 0.1, "clip": 5.0}
    run = healthy(server_optimizer=optimizer, device_optimizer=optimizer)
    assert settings_of(exploding(norms(run, 5000.0))) == SLOWER


@pytest.mark.parametrize("length", [0.0, 8e-4])
def test_gradients_that_vanish_before_anything_is_learned(length: float) -> None:
    found = vanishing(changed(norms(healthy(), length), lambda r: {"loss": 2.0 if r.number == 1 else 1.1}))
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.TROUBLE, True)
    assert settings_of(found) == SLOWER


def test_gradients_that_shrink_because_all_is_learned_or_not_so_much_are_fine() -> None:
    learned = changed(norms(healthy(), 1e-5), lambda r: {"loss": 2.0 if r.number == 1 else 0.9})
    assert vanishing(learned) is None
    assert vanishing(changed(norms(healthy(), 0.0015), lambda r: {"loss": 2.0})) is None


def test_old_records_and_methods_that_send_no_gradients_back_have_no_norms() -> None:
    for missing in (None, {}):
        run = changed(healthy(), lambda r, missing=missing: {"norms": missing, "loss": 2.0})
        assert exploding(run) is None
        assert vanishing(run) is None
        assert loud_device(run) is None


@pytest.mark.parametrize(("length", "told"), [(9.0, False), (12.0, True)])
def test_a_device_with_much_longer_gradients_is_named(length: float, told: bool) -> None:
    found = loud_device(changed(healthy(), lambda r: {"norms": {0: 1.0, 1: 1.0, 2: 1.0, 3: length}}))
    assert (found is not None) == told
    if found is not None:
        assert (found.severity, found.numbers["device"]) == (Severity.WATCH, 3)
        assert settings_of(found) == CLIP


def skipping(*rounds: int, devices: frozenset[int] = frozenset({2})) -> Evidence:
    """A run in which these devices are skipped in these rounds."""
    return changed(
        healthy(),
        lambda r: {
            "skipped": devices if r.number in rounds else frozenset(),
            "losses": {d: 1.0 for d in range(4) if r.number not in rounds or d not in devices},
        },
    )


def test_nobody_skipped_is_not_spoken_of() -> None:
    assert not_finite(healthy()) is None


def test_one_skip_long_ago_is_to_be_watched() -> None:
    run = skipping(7)
    found = not_finite(replace(run, rounds=(*run.rounds, *healthy().rounds * 3)))  # one of 160
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.WATCH, False)
    assert found.numbers == {"rounds": 1, "first": 7, "by_device": {2: 1}}


def test_skips_in_many_rounds_or_in_the_last_are_trouble() -> None:
    for run in (skipping(3, 4, 5), skipping(ROUNDS)):
        found = not_finite(run)
        assert found is not None
        assert (found.severity, found.breaks) == (Severity.TROUBLE, False)
        assert settings_of(found) == SLOWER + CLIP
        assert "device 2" in found.text


def test_a_round_with_nobody_left_breaks_the_run() -> None:
    run = replace(skipping(ROUNDS, devices=frozenset(range(4))), finished=False, total_rounds=100)
    found = not_finite(run)
    assert found is not None
    assert found.breaks
    assert "In round 40 no device was left. The run ends with it, in round 40 of 100." in found.text
