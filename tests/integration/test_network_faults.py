"""The fault matrix: what happens × when × to whom, each in a fleet of real processes that ends as without it.

What a moment is, and how the fault gets there: faults.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fleet import PARAMETERS, SERVER, Fleet
from processes import Launcher, records_of, rounds_done, wait_until, weights_of

DEVICE = "device-1"
FAULTS = ("kill", "cut", "stall")
# Of each place: its moments, and the round they are in. Checkpoints are of rounds 5 and 10;
# client-side models are averaged after rounds 3, 6, 9 and 12.
MOMENTS = {
    DEVICE: {"before-send": 7, "mid-chunk": 7, "after-send": 7, "before-apply": 7, "checkpoint": 10},
    SERVER: {"before-send": 7, "mid-chunk": 7, "after-send": 7, "before-apply": 7, "checkpoint": 10},
    PARAMETERS: {"receiving": 6, "stored": 6, "sending": 6},
}
MATRIX = [(fault, moment, place) for place, found in MOMENTS.items() for moment in found for fault in FAULTS]
# What `make test` has time for; `make soak` has all.
SHORT = {
    ("kill", "mid-chunk", DEVICE),
    ("kill", "before-apply", DEVICE),
    ("kill", "checkpoint", DEVICE),
    ("stall", "after-send", DEVICE),
    ("cut", "mid-chunk", SERVER),
    ("kill", "before-apply", SERVER),
    ("kill", "checkpoint", SERVER),
    ("kill", "stored", PARAMETERS),
}
WORDS: dict[str, Any] = {"method": "gapsl", "rounds": 12, "evaluate_every": 6, "checkpoint_every": 5}
AGREEING: dict[str, Any] = {
    **WORDS, "method": "papsl", "probe_gradients": True, "model": "small", "width": 0.25, "norm": "group",
}  # fmt: skip
AVERAGING: dict[str, Any] = {**WORDS, "method": "sfl", "sfl": {"interval": 3}}
STALL = 1.5  # seconds; shorter than it takes to find a link dead
DEAD = 25.0  # and longer
DEADLINE = 120.0  # for what takes a second on a machine with nothing else to do

Undisturbed = Callable[[Fleet], str]


@pytest.fixture(scope="module")
def undisturbed() -> Undisturbed:
    """Returns the weights of a fleet's run in one process; each configuration is trained once."""
    found: dict[str, str] = {}

    def weights(fleet: Fleet) -> str:
        key = repr(fleet.words)
        if key not in found:
            found[key] = fleet.undisturbed()
        return found[key]

    return weights


def parametrised(cases: list[Any], short: set[Any]) -> list[Any]:
    """Mark the cases that `make test` has no time for."""
    return [
        pytest.param(*case, marks=() if case in short else pytest.mark.slow, id="-".join(map(str, case)))
        for case in cases
    ]


def end_in_spite_of(fleet: Fleet, fault: str, moment: str, place: str, stall: float = STALL) -> None:
    """Run a fleet to its end; a fault happens to one process, which is started again if it is dead."""
    marker = fleet.arrange(place, f"{fault}@{moment}:round={round_of(moment, place)}")
    fleet.start()
    wait_until(
        lambda: marker.exists() or not fleet.server.running, f"{fault} {moment} of {place}", deadline=DEADLINE
    )
    struck = fleet.processes[place]
    if fault == "kill":
        assert struck.wait().code == -signal.SIGKILL, struck.stderr
        fleet.kills += 1
        fleet.start(place)
    elif fault == "stall":
        wait_until(lambda: state_of(struck.pid) == "T", f"the stall of {place}")
        done = rounds_done(fleet.run)
        time.sleep(stall)
        assert rounds_done(fleet.run) <= done + 1 or fleet.options.get("closing", "all") != "all"
        fleet.go_on(place)
    assert marker.exists(), f"it did not happen: {fleet.server.stderr}"
    fleet.finish()
    assert [record.round for record in records_of(fleet.run)] == list(range(1, fleet.words["rounds"] + 1))


def round_of(moment: str, place: str) -> int:
    return {**MOMENTS[place], "before-proposal": 7, "before-agreement": 7}[moment]


def state_of(pid: int) -> str:
    """Return what the kernel says of a process: R, S, T for stopped."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("fault", "moment", "place"), parametrised(MATRIX, SHORT))
def test_where_all_are_waited_for_a_fault_changes_nothing(
    cli: Launcher, tmp_path: Path, undisturbed: Undisturbed, fault: str, moment: str, place: str
) -> None:
    averages = place == PARAMETERS
    with Fleet(cli, tmp_path, AVERAGING if averages else WORDS, parameters=averages) as fleet:
        end_in_spite_of(fleet, fault, moment, place)
        if fault == "cut" and place != PARAMETERS:
            assert fleet.server.stderr.count(f"{DEVICE} connected") == 2, "its link was cut, and it came back"
        assert weights_of(fleet.run) == undisturbed(fleet)


@pytest.mark.slow
@pytest.mark.parametrize("place", [DEVICE, SERVER])
def test_a_stall_that_outlives_its_links_changes_nothing(
    cli: Launcher, tmp_path: Path, undisturbed: Undisturbed, place: str
) -> None:
    with Fleet(cli, tmp_path, WORDS) as fleet:
        end_in_spite_of(fleet, "stall", "mid-chunk", place, stall=DEAD)
        assert fleet.server.stderr.count(f"{DEVICE} connected") == 2, "its link was found dead"
        assert weights_of(fleet.run) == undisturbed(fleet)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "moment", "place"),
    [
        ({"method": "vanilla", "vanilla": {"turn": "batch"}}, "receiving", PARAMETERS),
        ({"method": "vanilla", "vanilla": {"turn": "batch"}}, "sending", PARAMETERS),
        ({"method": "sfl", "sfl": {"interval": 3}}, "checkpoint", SERVER),
        ({"method": "sfl", "sfl": {"interval": 3}}, "mid-chunk", DEVICE),
        ({"method": "psl", "labels": "device"}, "mid-chunk", DEVICE),
        ({"method": "psl", "labels": "device"}, "before-apply", SERVER),
        ({"method": "frozen"}, "checkpoint", DEVICE),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, Mapping) else value,
)
@pytest.mark.parametrize("fault", FAULTS)
def test_nor_does_it_with_other_methods(
    cli: Launcher,
    tmp_path: Path,
    undisturbed: Undisturbed,
    words: Mapping[str, Any],
    fault: str,
    moment: str,
    place: str,
) -> None:
    parameters = words["method"] in ("sfl", "vanilla")
    with Fleet(cli, tmp_path, {**WORDS, **words}, parameters=parameters) as fleet:
        end_in_spite_of(fleet, fault, moment, place)
        assert weights_of(fleet.run) == undisturbed(fleet)


# The two exchanges of a round in which devices agree on gradients.
BETWEEN = [
    ("kill", "before-proposal"), ("kill", "before-agreement"), ("cut", "before-proposal"),
    ("cut", "before-agreement"), ("stall", "before-proposal"), ("stall", "before-agreement"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "moment"), parametrised(BETWEEN, {("kill", "before-agreement")}))
def test_nor_does_it_between_the_exchanges_of_a_round(
    cli: Launcher, tmp_path: Path, undisturbed: Undisturbed, fault: str, moment: str
) -> None:
    with Fleet(cli, tmp_path, AGREEING) as fleet:
        end_in_spite_of(fleet, fault, moment, DEVICE)
        assert weights_of(fleet.run) == undisturbed(fleet)


# Long enough for who was killed to be back before the end.
CLOSINGS = {"fraction:0.6": 150, "deadline:0.3": 24}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "moment", "place"),
    [
        ("kill", "mid-chunk", DEVICE),
        ("kill", "after-send", DEVICE),
        ("kill", "before-apply", DEVICE),
        ("kill", "checkpoint", DEVICE),
        ("cut", "mid-chunk", DEVICE),
        ("cut", "before-apply", DEVICE),
        ("stall", "before-send", DEVICE),
        ("stall", "after-send", DEVICE),
        ("kill", "mid-chunk", SERVER),
        ("kill", "checkpoint", SERVER),
        ("cut", "before-send", SERVER),
    ],
)
@pytest.mark.parametrize("closing", CLOSINGS)
def test_where_not_all_are_waited_for_the_run_can_be_replayed(
    cli: Launcher, tmp_path: Path, closing: str, fault: str, moment: str, place: str
) -> None:
    with Fleet(cli, tmp_path, {**WORDS, "rounds": CLOSINGS[closing]}, closing=closing) as fleet:
        end_in_spite_of(fleet, fault, moment, place)
        assert "the same weights, bit for bit" in fleet.replayed()


@pytest.mark.parametrize(("fault", "moment"), parametrised(BETWEEN, {("kill", "before-proposal")}))
def test_and_it_can_be_where_that_was_between_the_exchanges_of_a_round(
    cli: Launcher, tmp_path: Path, fault: str, moment: str
) -> None:
    closing = "deadline:0.3"  # under a fraction, the device might not be in the round
    with Fleet(cli, tmp_path, {**AGREEING, "rounds": CLOSINGS[closing]}, closing=closing) as fleet:
        end_in_spite_of(fleet, fault, moment, DEVICE)
        assert "the same weights, bit for bit" in fleet.replayed()


@pytest.mark.slow
def test_a_device_that_goes_back_between_its_upload_and_the_averaging_is_averaged_as_it_then_is(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, AVERAGING, parameters=True, closing="deadline:60") as fleet:
        held = fleet.arrange("device-2", "stall@before-send:round=6")  # so that the round stays open
        fleet.start()
        fleet.until(held.exists, "the stall of device-2")
        time.sleep(5)  # in which the others' uploads have arrived, of which the server says nothing
        fleet.kill_and_start(DEVICE)
        word = f"{DEVICE} goes on from round 5 of its own"
        fleet.until(lambda: word in fleet.server.stderr, word)
        fleet.go_on("device-2")
        fleet.finish()
        (sixth,) = [record for record in records_of(fleet.run) if record.round == 6]
        assert sixth.averaged and sixth.events.restored_between == {1: 5}
        assert "the same weights, bit for bit" in fleet.replayed()
