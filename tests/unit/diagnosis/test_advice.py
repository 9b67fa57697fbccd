"""Advice: every setting exists, and none is given where it is followed already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from constructed import GAPSL, ONE_CLASS_EACH, healthy

from gapsl.diagnosis import Advice, Evidence, advice
from gapsl.training.config import make_config, parse_assignment

EVERY: dict[str, Callable[[Evidence], tuple[Advice, ...]]] = {
    "calibrate": advice.calibrate,
    "slower_halves": advice.slower_halves,
    "other_methods": advice.other_methods,
    "keep_more": advice.keep_more,
    "slower": advice.slower,
    "slower_server": advice.slower_server,
    "faster": advice.faster,
    "clip": advice.clip,
    "larger_batches": advice.larger_batches,
    "longer": advice.longer,
    "evaluate_less": lambda run: advice.evaluate_less(run, 5),
    "cheaper_server": advice.cheaper_server,
}


@pytest.mark.parametrize("name", EVERY)
def test_what_is_advised_can_be_set(name: str) -> None:
    given = EVERY[name](healthy(ONE_CLASS_EACH, method="gapsl", gapsl=GAPSL))
    assert given
    for piece in given:
        make_config(parse_assignment(piece.setting))
        assert len(piece.effect) <= 52, "with the longest setting it fills a line of 80 columns"


def test_averaging_less_can_be_set() -> None:
    (piece,) = advice.average_less(healthy(method="sfl"), 5)
    make_config(parse_assignment(piece.setting))
    assert advice.average_less(healthy(), 5) == ()


def test_what_is_followed_already_is_not_advised() -> None:
    assert advice.calibrate(healthy(ONE_CLASS_EACH, calibration="prior")) == ()
    assert advice.calibrate(healthy()) == (), "labels are the same everywhere"
    assert advice.calibrate(replace(healthy(), labels=None)), "labels may differ"
    assert advice.slower_halves(healthy(method="frozen")) == ()
    assert [a.setting for a in advice.other_methods(healthy(method="sfl"))] == ["method=frozen"]
    assert [a.setting for a in advice.other_methods(healthy(method="frozen"))] == ["method=sfl"]
    assert advice.keep_more(healthy(method="gapsl", gapsl={**GAPSL, "exclusion": "none"})) == ()
    assert advice.cheaper_server(healthy(method="gapsl", gapsl={**GAPSL, "penalty": "finite"})) == ()
    assert [a.setting for a in advice.faster(healthy(method="frozen"))] == ["server_optimizer.lr=1"]


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
    assert [a.setting for a in advice.keep_more(run)] == advised


def test_a_fixed_threshold_does_not_listen_to_eta() -> None:
    run = healthy(method="gapsl/fixed-threshold", gapsl=GAPSL)
    assert [a.setting for a in advice.keep_more(run)] == ["gapsl.exclusion=none"]
