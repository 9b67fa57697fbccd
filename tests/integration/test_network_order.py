"""Processes of a fleet, started in any order: the same weights as in one process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from fleet import PARAMETERS, SERVER, Fleet
from processes import Launcher, result_of

from gapsl.methods.registry import METHODS

TOLD: dict[str, dict[str, Any]] = {
    "gapsl": {"method": "gapsl"},
    "sfl": {"method": "sfl", "sfl": {"interval": 2}},
    "vanilla": {"method": "vanilla", "vanilla": {"turn": "batch"}},
    "frozen": {"method": "frozen"},
    "labels on the device": {"method": "gapsl", "labels": "device", "gapsl": {"penalty": "finite"}},
    "psl": {"method": "psl", "participation": 0.7},
    "epsl": {"method": "epsl"},
    "sfl-v2": {"method": "sfl-v2", "sfl": {"interval": 2}},
}
# Every other method is a process of its own, too, in one of the orders.
REST = sorted(set(METHODS) - {words["method"] for words in TOLD.values()} - {"central"})
MOVING = ("sfl", "sfl-v2", "vanilla")  # client-side models, through a parameter server
ORDERS = ("devices first", "server last but one", "chance 1", "chance 2")
SHORT = {("gapsl", "devices first"), ("sfl", "chance 1")}
SAME = ("weights_sha256", "device_mean", "ensemble", "local", "merged", "bytes_sent", "bytes_received")


def in_order(names: list[str], order: str) -> list[str]:
    """Return processes in the order in which they are started."""
    chance = random.Random(order)
    mixed = chance.sample(names, len(names))
    others = [name for name in mixed if name != SERVER]
    if order == "devices first":
        return [*sorted(others, key=lambda name: name == PARAMETERS), SERVER]
    if order == "server last but one":
        return [*others[:-1], SERVER, others[-1]]
    return mixed


def test_orders_are_what_they_say() -> None:
    names = [SERVER, PARAMETERS, "device-0", "device-1"]
    assert in_order(names, "devices first")[2:] == [PARAMETERS, SERVER]
    assert in_order(names, "server last but one")[2] == SERVER
    assert all(sorted(in_order(names, order)) == sorted(names) for order in ORDERS)
    assert len({tuple(in_order(names, order)) for order in ORDERS}) == len(ORDERS)


@pytest.mark.parametrize(
    ("method", "order"),
    [
        pytest.param(method, order, marks=() if (method, order) in SHORT else pytest.mark.slow)
        for method in TOLD
        for order in ORDERS
    ]
    + [pytest.param(method, "chance 1", marks=pytest.mark.slow) for method in REST],
)
def test_whatever_is_started_first_the_run_is_the_same(
    cli: Launcher, tmp_path: Path, method: str, order: str
) -> None:
    told = TOLD.get(method, {"method": method, "norm": "group"})  # probes go with no BatchNorm
    words = {**told, "rounds": 8, "evaluate_every": 4}
    with Fleet(cli, tmp_path, words, parameters=method in MOVING) as fleet:
        for name in in_order(fleet.names, order):
            process = fleet.start(name)
            # The next one is started when this one has had to do without those who are not there yet.
            word = {SERVER: "waiting for", PARAMETERS: "parameter server on"}.get(name, "cannot reach")
            reached = SERVER in fleet.processes and name not in (SERVER, PARAMETERS)
            if not reached:
                assert process.until(lambda p=process, w=word: w in p.stderr, f"{name} says {word}")  # type: ignore[misc]
        fleet.finish()
        alone = fleet.undisturbed_result().final
        together = result_of(fleet.run).final
        expected = {name: getattr(alone, name) for name in SAME if name != "merged" or method in MOVING}
        assert {name: getattr(together, name) for name in expected} == expected
