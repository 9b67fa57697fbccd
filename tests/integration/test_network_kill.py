"""Any process of a fleet, killed with -9 at any moment and started again: the run ends as it would have."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from fleet import PARAMETERS, SERVER, Fleet, free_port
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
        return rounds_done(fleet.run) >= round and (
            any(fleet.state.glob(f"*/{name}/.draft-*")) or any(stored)
        )

    return moment


def halves_are_brought(round: int) -> Moment:
    """Some halves of an averaging after a round are there, but not all."""

    def moment(fleet: Fleet) -> bool:
        return any(fleet.halves.glob(f"device-*/*/*-{round}-*-*.safetensors"))

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


def test_a_deadline_does_not_wait_for_a_device_that_hangs_and_the_run_can_be_replayed(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl", "rounds": 40}, closing="deadline:0.3") as fleet:
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
        fleet.until_round(26)
        fleet.start("device-1")
        fleet.finish()
        missing = absences(fleet)
        assert 2 in missing[6] and 1 in missing[24]
        assert any(not missing[round] for round in range(31, 41)), "and in the end all are there"
        assert "the same weights, bit for bit" in fleet.replayed()


def test_a_fraction_goes_on_without_those_who_are_away_and_the_run_can_be_replayed(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "psl", "rounds": 60}, closing="fraction:0.6") as fleet:
        fleet.start()
        fleet.until_round(8)
        fleet.kill_and_start("device-0")
        fleet.until_round(22)
        fleet.kill("device-1")
        fleet.until_round(30)
        fleet.start("device-1")
        fleet.until_round(40)
        fleet.kill_and_start(SERVER)
        fleet.finish()
        assert 1 in absences(fleet)[28]
        assert "the same weights, bit for bit" in fleet.replayed()
        (found,) = [r["evaluation"] for r in records_of(fleet.run) if r["round"] == 30]
        assert found["away"] == [1]
        for name in ("device_accuracy", "drift"):
            assert [value is None for value in found[name]] == [False, True, False], "a number a device"


def test_a_device_that_comes_too_late_is_told_so_and_goes_on(cli: Launcher, tmp_path: Path) -> None:
    words = {"method": "psl", "rounds": 16, "checkpoint_every": 100, "evaluate_every": 100}
    with Fleet(cli, tmp_path, words, closing="deadline:0.4") as fleet:
        fleet.start()
        fleet.until_round(3)
        fleet.pause("device-1")
        fleet.until_round(7)
        fleet.go_on("device-1")
        fleet.finish()
        missing = absences(fleet)
        assert 1 in missing[6] and any(not missing[round] for round in range(10, 17))
        assert "has left" not in fleet.server.stderr.replace("it closed its stream", ""), (
            "its link was never cut"
        )
        assert "the same weights, bit for bit" in fleet.replayed()


def absences(fleet: Fleet) -> dict[int, set[int]]:
    """Return which devices each round was closed without."""
    return {r["round"]: {device for _, device in r.get("absent", [])} for r in records_of(fleet.run)}


# --- waiting, stopping, moving


def test_too_few_devices_are_waited_for_by_name_and_not_for_ever(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl", "rounds": 5}, patience=2) as fleet:
        fleet.start(SERVER, "device-0", "device-2")
        ended = fleet.server.wait()
        assert ended.code == 2
        assert "waiting for device-0, device-1, device-2" in ended.stderr
        assert "nothing from device-1 for 2 s; nothing is lost: start who is away" in ended.stderr
        fleet.options["patience"] = 60
        fleet.start(SERVER, "device-1")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


def test_a_server_that_is_asked_to_stop_ends_its_round_and_the_same_command_goes_on(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl"}) as fleet:
        fleet.start()
        fleet.until_round(7)
        fleet.server.signal(signal.SIGTERM)
        ended = fleet.server.wait()
        assert ended.code == 143
        assert "asked to stop: after this round" in ended.stderr
        assert "the same command goes on" in ended.stderr
        stopped = rounds_done(fleet.run)
        assert (fleet.run / f"checkpoints/round-{stopped:06d}").is_dir(), "nothing is lost"
        assert all(fleet.processes[name].running for name in fleet.devices), "they wait for it"
        fleet.start(SERVER)
        fleet.finish()
        assert f"round {stopped + 1} of 30" in fleet.server.stderr
        assert weights_of(fleet.run) == fleet.undisturbed()


def test_a_device_that_is_asked_to_stop_says_so_and_goes_on_when_it_is_started_again(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}) as fleet:
        fleet.start()
        fleet.until_round(7)
        fleet.processes["device-1"].signal(signal.SIGTERM)
        ended = fleet.processes["device-1"].wait()
        assert ended.code == 143
        assert "asked to stop; started again with the same --state, it goes on" in ended.stderr
        fleet.start("device-1")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


def test_a_server_that_waits_for_devices_stops_at_once_when_asked(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}) as fleet:
        fleet.start(SERVER)
        fleet.until(lambda: "waiting for" in fleet.server.stderr, "waiting")
        fleet.server.signal(signal.SIGTERM)
        ended = fleet.server.wait()
        assert ended.code == 143, ended.stderr
        assert "error" not in ended.stderr


def test_a_server_stops_when_asked_though_its_devices_wait_for_a_dead_parameter_server(
    cli: Launcher, tmp_path: Path
) -> None:
    words = {"method": "sfl", "sfl": {"interval": 3}}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        fleet.start()
        fleet.until_round(5)
        fleet.kill(PARAMETERS)
        fleet.until(
            lambda: "at the parameter server" in fleet.server.stderr, "who waits for the parameter server"
        )
        fleet.server.signal(signal.SIGTERM)
        assert fleet.server.wait().code == 128 + signal.SIGTERM
        fleet.start(PARAMETERS, SERVER)
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()
        fleet.processes[PARAMETERS].signal(signal.SIGTERM)
        assert fleet.processes[PARAMETERS].wait().code == 128 + signal.SIGTERM


def test_a_server_goes_on_from_its_folder_on_another_host(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}) as fleet:
        fleet.start()
        fleet.until_round(12)
        fleet.kill(SERVER)
        for name in fleet.devices:
            fleet.kill(name)
        shutil.copytree(fleet.run, tmp_path / "elsewhere" / "run")
        shutil.rmtree(fleet.run)
        fleet.run, fleet.port = tmp_path / "elsewhere" / "run", free_port()
        fleet.start()
        fleet.finish()
        assert "round 11 of 30" in fleet.server.stderr, "from the checkpoint of round 10"
        assert weights_of(fleet.run) == fleet.undisturbed()
