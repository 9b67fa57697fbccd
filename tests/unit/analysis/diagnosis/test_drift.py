"""Drift: the devices together against the devices alone, and how far their halves have gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, evaluated, healthy, settings_of

from gapsl.analysis.diagnosis import Severity
from gapsl.analysis.diagnosis.drift import blown_up, far_from_start, halves_apart, straying_device


@pytest.mark.parametrize("better", ["ensemble", "merged"])
@pytest.mark.parametrize(("by", "severity"), [(0.1, Severity.WATCH), (0.3, Severity.TROUBLE)])
def test_devices_much_better_together_than_alone_have_drifted_apart(
    better: str, by: float, severity: Severity
) -> None:
    run = evaluated(healthy(ONE_CLASS_EACH), lambda e: {better: e.device_mean + by})
    found = halves_apart(run)
    assert found is not None
    assert found.severity == severity
    assert settings_of(found) == [
        "preset recommended", "device_optimizer.lr=0.01", "method=frozen", "method=sfl",
    ]  # fmt: skip
    assert "moved by 0.30 of their length" in found.text
    assert far_from_start(run) is None, "it would say the same again"


def test_the_growth_of_the_gap_is_told() -> None:
    run = evaluated(healthy(), lambda e: {"ensemble": e.device_mean + e.round / 100})
    found = halves_apart(run)
    assert found is not None
    assert "The gap was 10 points in round 10 and is 40 points in round 40." in found.text


def test_an_ensemble_a_few_points_ahead_or_shared_halves_are_no_drift() -> None:
    assert halves_apart(evaluated(healthy(), lambda e: {"ensemble": e.device_mean + 0.06})) is None
    assert halves_apart(evaluated(healthy(method="sfl"), lambda e: {"ensemble": 1.0})) is None


def test_old_records_without_drift_and_fleets_that_show_no_halves_are_read() -> None:
    run = evaluated(healthy(), lambda e: {"drift": None, "merged": None, "ensemble": e.device_mean + 0.2})
    found = halves_apart(run)
    assert found is not None
    assert "averaged" not in found.text
    assert "moved" not in found.text
    assert far_from_start(run) is None
    assert straying_device(run) is None
    assert blown_up(run) is None


def test_halves_of_their_own_far_from_the_start_are_to_be_watched() -> None:
    far = evaluated(healthy(), lambda e: {"drift": dict.fromkeys(range(4), 1.2)})
    found = far_from_start(far)
    assert found is not None
    assert (found.name, found.severity) == ("far-from-start", Severity.WATCH)
    nearer = evaluated(healthy(), lambda e: {"drift": dict.fromkeys(range(4), 0.8)})
    for near in (nearer, replace(far, settings=healthy(method="sfl").settings)):
        found = far_from_start(near)
        assert found is not None
        assert (found.name, found.severity) == ("drift", Severity.INFO)


def test_weights_at_many_times_their_start_have_blown_up_whoever_owns_them() -> None:
    for method in ("psl", "sfl"):
        run = evaluated(healthy(method=method), lambda e: {"drift": dict.fromkeys(range(4), 12.0)})
        found = blown_up(run)
        assert found is not None
        assert (found.severity, found.breaks) == (Severity.TROUBLE, True)
        assert settings_of(found)[0] == "server_optimizer.lr=0.01"
        assert far_from_start(run) is None
    assert blown_up(evaluated(healthy(), lambda e: {"drift": dict.fromkeys(range(4), 9.0)})) is None


def test_a_half_much_further_than_the_others_is_named() -> None:
    for drift in ({0: 0.2, 1: 0.2, 2: 0.7, 3: 0.2}, {0: 0.01, 1: 0.01, 2: 0.12, 3: 0.01}):
        found = straying_device(evaluated(healthy(), lambda e, drift=drift: {"drift": drift}))
        assert found is not None
        assert found.numbers["device"] == 2
    for drift in ({0: 0.2, 1: 0.2, 2: 0.5, 3: 0.2}, {0: 0.01, 1: 0.01, 2: 0.08, 3: 0.01}):
        assert straying_device(evaluated(healthy(), lambda e, drift=drift: {"drift": drift})) is None
