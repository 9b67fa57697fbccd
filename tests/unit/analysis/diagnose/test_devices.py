"""The devices beside each other: drift, probes, and the worst device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import ONE_CLASS_EACH, aligned, changed, evaluated, healthy, settings_of

from gapsl.analysis.diagnose import Run, Severity
from gapsl.analysis.diagnose.devices import drift, probes, worst
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


def test_what_devices_know_of_their_own_labels_is_told() -> None:
    found = drift(evaluated(healthy(), lambda e: {"ensemble": e.device_mean + 0.2, "local": 0.99}))
    assert found is not None and "reaches" not in found.text
    found = drift(evaluated(healthy(), lambda e: {"device_mean": 0.5, "ensemble": 0.8, "local": 0.9}))
    assert found is not None and "On labels mixed like its own a device reaches 90 %." in found.text


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


def probed(apart: float, leaders: tuple[int, ...] | None = None) -> Run:
    """A run with probes, whose client-side models end this far apart."""
    run = changed(healthy(probes=2), lambda r: {"probes": ProbeRecord(apart=apart, leaders=leaders)})
    return changed(run, lambda r: {"probes": ProbeRecord(apart=0.5)} if r.round == 3 else {})


def test_models_that_do_not_agree_on_the_probes_are_to_be_watched() -> None:
    assert probes(probed(0.02)) is probes(healthy()) is None
    found = probes(probed(0.1, (0, 1)))
    assert found is not None
    assert (found.name, found.severity) == ("probes-not-aligned", Severity.WATCH)
    assert "10 % away" in found.text and "at most 50 %, in round 3" in found.text
    assert settings_of(found) == ["device_optimizer.lr=0.01"]


def test_a_device_with_a_name_is_called_by_it() -> None:
    run = replace(healthy(), names=("north", "east", "south", "west"))
    each = {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.3}
    found = worst(evaluated(run, lambda e: {"device_accuracy": each, "device_mean": 0.75}))
    assert found is not None and found.title == "West (device 3) does much worse than the rest"


def test_the_worst_device_is_named_with_its_labels_and_how_often_it_was_kept() -> None:
    run = aligned(lambda r: {0, 1, 2} if r % 10 else {3}, ONE_CLASS_EACH)
    each = {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.7}
    run = evaluated(run, lambda e: {"device_accuracy": each, "device_mean": 0.85})
    assert worst(evaluated(run, lambda e: {"device_accuracy": {**each, 3: 0.75}})) is None
    found = worst(run)
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
    found = worst(run)
    assert found is not None
    assert found.severity == Severity.TROUBLE
    assert "samples" not in found.text


def test_the_worst_device_is_named_right_where_another_is_away() -> None:
    run = evaluated(healthy(), lambda e: {"device_accuracy": {1: 0.3, 2: 0.9, 3: 0.9}, "device_mean": 0.7})
    found = worst(run)
    assert found is not None and found.numbers["device"] == 1
    assert worst(evaluated(healthy(), lambda e: {"device_accuracy": {1: 0.3}})) is None
