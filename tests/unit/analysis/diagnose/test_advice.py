"""Advice: every setting exists, and none is given where it is followed already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from constructed import GAPSL, ONE_CLASS_EACH, healthy

from gapsl.analysis.diagnose import Advice, Run, advice
from gapsl.run.config import make_config, merge, parse_assignment, preset

EVERY: dict[str, Callable[[Run], tuple[Advice, ...]]] = {
    "recommended": advice.recommended,
    "other_methods": advice.other_methods,
    "keep_more": advice.keep_more,
    "slower": advice.slower,
    "slower_devices": advice.slower_devices,
    "clip": advice.clip,
    "longer": advice.longer,
}


@pytest.mark.parametrize("name", EVERY)
def test_what_is_advised_can_be_set(name: str) -> None:
    given = EVERY[name](healthy(ONE_CLASS_EACH, method="gapsl", gapsl=GAPSL))
    assert given
    for piece in given:
        make_config(merge(*(parse_assignment(setting) for setting in piece.settings)))
        assert len(piece.effect) <= 52, "with the longest setting it fills a line of 80 columns"


def test_what_is_followed_already_is_not_advised() -> None:
    assert advice.slower_devices(healthy(method="frozen")) == ()
    assert [a.name for a in advice.other_methods(healthy(method="sfl"))] == ["method=frozen"]
    assert [a.name for a in advice.other_methods(healthy(method="frozen"))] == ["method=sfl"]
    assert advice.keep_more(healthy(method="gapsl", gapsl={**GAPSL, "exclusion": "none"})) == ()
    assert [a.name for a in advice.rates(healthy(method="frozen"), 10)] == ["server_optimizer.lr=1"]


def test_of_a_method_that_is_not_known_here_nothing_of_its_own_is_advised() -> None:
    assert advice.keep_more(healthy(method="mine")) == ()


def test_a_robust_step_is_advised_where_there_is_one_and_the_method_adds_devices_up() -> None:
    found = [advice.robust(healthy(method=name, robust="none")) for name in ("psl", "gapsl", "sfl")]
    assert [bool(one) for one in found] == [True, True, False]
    assert advice.robust(healthy(method="psl", robust="median")) == advice.robust(healthy()) == ()


def advised(**settings: Any) -> dict[str, Any]:
    """What of the preset a run with these settings is advised to set."""
    found = advice.recommended(healthy(ONE_CLASS_EACH, **settings))
    return merge(*(parse_assignment(setting) for piece in found for setting in piece.settings))


def test_under_label_skew_the_preset_is_advised_by_its_name_and_by_what_it_sets() -> None:
    (piece,) = advice.recommended(healthy(ONE_CLASS_EACH, method="gapsl", gapsl=GAPSL))
    assert piece.name == "preset recommended"
    everything = advised(method="gapsl", gapsl=GAPSL, reduction="sum", probe_pull=0.5)
    assert everything == preset("recommended")
    assert advice.recommended(healthy()) == (), "labels are the same everywhere"
    assert advice.recommended(replace(healthy(), labels=None)), "labels may differ"
    assert advised(custom={"loss": "own"}) == {}, "which may be no cross-entropy"
    assert advised(method="central") == {}


def test_of_the_preset_only_what_is_not_on_is_advised() -> None:
    whole = preset("recommended")
    assert advised(**whole) == {}
    assert advised(**merge(whole, {"probes": 0})) == {"probes": 2}
    assert advised(**merge(whole, {"probe_steps": 0})) == {"probe_steps": 8}, "a pull is weaker"
    assert advised(**merge(whole, {"calibration_for": "both"})) == {"calibration_for": "devices"}
    others = {
        "method": "gapsl",
        "probes": 4,
        "probe_steps": 16,
        "probe_leaders": 0.7,
        "device_optimizer": {"lr": 1e-4},
    }
    assert advised(**merge(whole, others)) == {}, "all corrections are on, the rest is a choice"


def test_nothing_of_the_preset_is_advised_that_a_run_would_refuse_or_not_use() -> None:
    for settings in ({"norm": "batch"}, {"custom": {"dataset": "tuple"}}, {"custom": {"model": "Mine"}}):
        assert advised(**settings) == {k: v for k, v in advised().items() if not k.startswith("probe")}
    assert "device_optimizer" not in advised(device_optimizer={"name": "adamw", "lr": 1e-4})
    for method in ("sfl", "vanilla", "frozen"):
        assert advised(method=method) == {}, "no device has a client-side model of its own that learns"


@pytest.mark.parametrize(
    ("eta", "advised"),
    [
        (0.5, ["gapsl.eta=0", "gapsl.exclusion=none"]),
        (-0.7, ["gapsl.eta=-1", "gapsl.exclusion=none"]),
        (-1.0, ["gapsl.exclusion=none"]),
    ],
)
def test_eta_is_lowered_until_there_is_nothing_left_to_lower(eta: float, advised: list[str]) -> None:
    run = healthy(method="gapsl", gapsl={**GAPSL, "eta": eta})
    assert [a.name for a in advice.keep_more(run)] == advised


def test_a_fixed_threshold_does_not_listen_to_eta() -> None:
    run = healthy(method="gapsl/fixed-threshold", gapsl=GAPSL)
    assert [a.name for a in advice.keep_more(run)] == ["gapsl.exclusion=none"]


def test_nothing_is_advised_that_needs_labels_which_stay_on_the_devices() -> None:
    run = healthy(ONE_CLASS_EACH, labels="device")
    assert advice.recommended(run) == ()
    assert advice.other_methods(run) == ()
