"""Label skew: the distances themselves, and when they are worth a word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from constructed import EVEN, ONE_CLASS_EACH, healthy

from gapsl.analysis.diagnose import Severity
from gapsl.analysis.diagnose.devices import label_skew
from gapsl.analysis.labels import chance_distance, distances, effective_classes


def test_distance_is_0_for_the_same_labels_and_1_minus_the_own_share_for_disjoint_ones() -> None:
    assert distances(np.array(EVEN)).tolist() == [0.0] * 4
    assert distances(100 * np.eye(4, dtype=int)).tolist() == pytest.approx([0.75] * 4)


def test_labels_are_worth_as_many_classes_as_are_equally_frequent() -> None:
    counts = np.array([[10, 10, 0, 0], [5, 0, 0, 0], [3, 3, 3, 3]])
    assert effective_classes(counts).tolist() == pytest.approx([2, 1, 4])


@pytest.mark.parametrize("size", [20, 200])
def test_chance_distance_is_what_random_dealing_gives(size: int) -> None:
    generator = np.random.default_rng(0)
    counts = generator.multinomial(size, [0.1] * 10, size=2000)
    assert chance_distance(counts) == pytest.approx(distances(counts).mean(), rel=0.05)


def test_strong_skew_is_told_with_what_it_does_to_client_side_models() -> None:
    found = label_skew(healthy(ONE_CLASS_EACH))
    assert found is not None
    assert (found.severity, found.title) == (Severity.INFO, "The devices see very different labels")
    assert found.numbers["mean_distance"] == pytest.approx(0.72, abs=0.01)
    assert "each client-side model learns its own label frequencies" in found.text
    for settings, there in (({"method": "sfl"}, False), ({"calibration": "prior"}, True)):
        found = label_skew(healthy(ONE_CLASS_EACH, **settings))
        assert found is not None and "each client-side model" not in found.text
        assert ("calibration takes that out of the loss" in found.text) == there


def test_even_labels_and_small_devices_with_labels_dealt_at_random_are_not_spoken_of() -> None:
    dealt = np.random.default_rng(0).multinomial(12, [0.25] * 4, size=4)
    assert distances(dealt).mean() > 0.1  # as far apart as chance makes so small devices
    assert label_skew(healthy(EVEN)) is label_skew(healthy(dealt.tolist())) is None


def test_skew_in_between_is_told_without_very() -> None:
    found = label_skew(healthy([[60, 20, 10, 10], [10, 60, 20, 10], [10, 10, 60, 20], [20, 10, 10, 60]]))
    assert found is not None
    assert (found.severity, found.title) == (Severity.INFO, "The devices see different labels")


def test_how_much_skew_is_strong() -> None:
    """Of 100 samples, 25 + 3 a of a device's own class: a distance of 3 a, of which 0.07 is chance."""
    titles = {}
    for a in (5, 9, 11, 15):
        found = label_skew(healthy((np.eye(4, dtype=int) * 4 * a + 25 - a).tolist()))
        titles[a] = found.title if found is not None else None
    assert titles == {
        5: None,
        9: "The devices see different labels",
        11: "The devices see different labels",
        15: "The devices see very different labels",
    }


def test_nothing_is_said_of_labels_that_are_not_known_or_in_one_place() -> None:
    for run in (replace(healthy(), labels=None), healthy(ONE_CLASS_EACH, method="central")):
        assert label_skew(run) is None


def test_a_class_that_one_device_holds_alone_is_named_with_its_holder() -> None:
    counts = [[50, 50, 0, 0], [0, 50, 50, 0], [0, 0, 50, 2], [0, 0, 0, 50]]
    found = label_skew(healthy(counts))
    assert found is not None
    assert "Held by one device: classes ant on device 0 and dog on device 3" in found.text
    assert found.numbers["lone_classes"] == {"ant": 0, "dog": 3}
    counts[0][3] = 10  # now a sixth of that class is elsewhere
    again = label_skew(healthy(counts))
    assert again is not None and again.numbers["lone_classes"] == {"ant": 0}
