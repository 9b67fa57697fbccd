"""Any process of a fleet, killed with -9 at any moment and started again: the run ends as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import PARAMETERS, SERVER, Fleet
from processes import Launcher, records_of, rounds_done, weights_of

Moment = Callable[[Fleet], bool]


def said(name: str, words: str) -> Moment:
    return lambda fleet: words in fleet.processes[name].stderr


def after_round(round: int) -> Moment:
    return lambda fleet: rounds_done(fleet.run) >= round


def server_writes_checkpoint(round: int) -> Moment:
    return lambda fleet: rounds_done(fleet.run) >= round and any(fleet.run.glob("checkpoints/.draft-*"))


def device_writes_checkpoint(name: str, round: int) -> Moment:
    def moment(fleet: Fleet) -> bool:
        stored = fleet.state.glob(f"*/{name}/round-{round:06d}.safetensors")
        return rounds_done(fleet.run) >= round and (any(fleet.state.glob(f"*/{name}/.draft-*")) or any(stored))

    return moment


def halves_are_brought(round: int) -> Moment:
    """Some halves of an averaging after a round are there, but not all."""

    def moment(fleet: Fleet) -> bool:
        found = [path for path in fleet.halves.glob(f"*/*-{round}-*") if path.is_dir()]
        return any(any(path.glob("device-*")) for path in found)

    return moment


def end_with_kills(fleet: Fleet, kills: list[tuple[str, Moment]]) -> None:
    """Run a fleet to its end, with these kills in turn."""
    fleet.start()
    for number, (name, moment) in enumerate(kills, start=1):
        fleet.until(lambda moment=moment: moment(fleet), f"the moment of kill {number}")  # type: ignore[misc]
        fleet.kill_and_start(name)
    fleet.finish()
    rounds = [record["round"] for record in records_of(fleet.run)]
    assert rounds == list(range(1, fleet.words["rounds"] + 1))
    assert weights_of(fleet.run) == fleet.undisturbed()


def test_killed_at_their_worst_moments_all_end_with_the_same_weights(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl"}) as fleet:
        end_with_kills(
            fleet,
            [
                ("device-0", said("device-0", "welcome")),  # it builds its half
                (SERVER, said(SERVER, "is here")),  # it waits for the others
                (SERVER, after_round(3)),  # there is no checkpoint but the start
                ("device-1", device_writes_checkpoint("device-1", 5)),
                (SERVER, server_writes_checkpoint(10)),
                ("device-2", after_round(12)),
                (SERVER, after_round(30)),  # all rounds are done, and there is no result
            ],
        )


def test_killed_while_halves_are_averaged_the_run_ends_with_the_same_weights(
    cli: Launcher, tmp_path: Path
) -> None:
    words = {"method": "sfl", "sfl": {"interval": 3}}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        end_with_kills(
            fleet,
            [
                (PARAMETERS, halves_are_brought(3)),
                ("device-1", halves_are_brought(9)),
                (SERVER, halves_are_brought(15)),
                (PARAMETERS, after_round(20)),
            ],
        )


def test_killed_while_a_half_is_handed_over_the_run_ends_with_the_same_weights(
    cli: Launcher, tmp_path: Path
) -> None:
    words = {"method": "vanilla", "vanilla": {"turn": "batch"}, "rounds": 10}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        end_with_kills(
            fleet,
            [
                (PARAMETERS, halves_are_brought(2)),
                ("device-0", halves_are_brought(4)),
                (SERVER, halves_are_brought(7)),
            ],
        )


@pytest.mark.parametrize("closing", ["fraction:0.6", "deadline:0.3"])
def test_a_run_that_does_not_wait_is_replayed_with_who_was_missing_when(
    cli: Launcher, tmp_path: Path, closing: str
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl", "rounds": 40}, closing=closing) as fleet:
        fleet.start()
        fleet.until_round(3)
        fleet.pause("device-2")
        fleet.until_round(8)
        fleet.kill_and_start("device-0")  # it has a state of round 5
        fleet.until_round(14)
        fleet.go_on("device-2")
        fleet.kill_and_start(SERVER)
        fleet.until_round(20)
        fleet.kill("device-1")
        fleet.until_round(30)
        fleet.start("device-1")
        fleet.finish()
        absent = {device for record in records_of(fleet.run) for _, device in record.get("absent", [])}
        assert {1, 2} <= absent
        assert "the same weights, bit for bit" in fleet.replayed()
