"""Any process of a fleet, killed with -9 at any moment and started again: the run ends as it would have."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import PARAMETERS, SERVER, Fleet, free_port
from processes import ENVIRONMENT, Launcher, records_of, rounds_done, wait_until, weights_of

from gapsl.common.tensors import Rounds
from gapsl.run.records import RoundRecord


def ends(fleet: Fleet, name: str, then: str = "") -> None:
    """Wait until a process was killed as arranged, and start it again, with what is to happen to it then."""
    assert fleet.processes[name].wait().code == -signal.SIGKILL, fleet.processes[name].stderr[-800:]
    fleet.kills += 1
    if then:
        fleet.arrange(name, then)
    fleet.start(name)


def ends_as_undisturbed(fleet: Fleet) -> None:
    fleet.finish()
    rounds = [record.round for record in records_of(fleet.run)]
    assert rounds == list(range(1, fleet.words["rounds"] + 1))
    assert weights_of(fleet.run) == fleet.undisturbed()


def test_killed_at_their_worst_moments_all_end_with_the_same_weights(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl"}) as fleet:
        fleet.start(SERVER, "device-0")
        fleet.until(
            lambda: "welcome" in fleet.processes["device-0"].stderr, "device-0 builds its client-side model"
        )
        fleet.kill_and_start("device-0")
        fleet.until(lambda: "connected" in fleet.server.stderr, "the server waits for the others")
        fleet.arrange(SERVER, "kill@recorded:round=3")  # there is no checkpoint but the start
        fleet.kill_and_start(SERVER)
        fleet.arrange("device-1", "kill@checkpoint:round=5")
        fleet.arrange("device-2", "kill@before-send:round=13")
        fleet.start("device-1", "device-2")
        ends(fleet, SERVER, then="kill@checkpoint:round=10")
        ends(fleet, "device-1")
        ends(fleet, SERVER)
        ends(fleet, "device-2")
        ends_as_undisturbed(fleet)


def test_a_server_that_is_killed_between_its_last_round_and_its_result_ends_with_the_same_weights(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl"}) as fleet:
        happened = fleet.arrange(SERVER, "kill@checkpoint:round=30")
        fleet.start()
        assert fleet.server.wait().code == -signal.SIGKILL and happened.exists()
        assert rounds_done(fleet.run) == 30 and not (fleet.run / "result.json").exists()
        fleet.start(SERVER)
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


def test_killed_while_parts_are_averaged_the_run_ends_with_the_same_weights(
    cli: Launcher, tmp_path: Path
) -> None:
    words = {"method": "sfl", "sfl": {"interval": 3}}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        fleet.arrange(PARAMETERS, "kill@stored:round=3")
        fleet.start()
        ends(fleet, PARAMETERS, then="stall@stored:round=9")
        fleet.processes[PARAMETERS].until_stalled()
        fleet.kill_and_start("device-1")
        fleet.go_on(PARAMETERS)
        fleet.arrange(PARAMETERS, "stall@stored:round=15")
        fleet.kill_and_start(PARAMETERS)
        fleet.processes[PARAMETERS].until_stalled()
        fleet.arrange(SERVER, "stall@recorded:round=20")
        fleet.kill_and_start(SERVER)
        fleet.go_on(PARAMETERS)
        fleet.server.until_stalled()
        fleet.kill_and_start(PARAMETERS)
        fleet.go_on(SERVER)
        ends_as_undisturbed(fleet)


@pytest.mark.slow
def test_killed_while_a_part_is_handed_over_the_run_ends_with_the_same_weights(
    cli: Launcher, tmp_path: Path
) -> None:
    words = {"method": "vanilla", "vanilla": {"turn": "batch"}, "rounds": 10}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        fleet.arrange(PARAMETERS, "kill@stored:round=2")
        fleet.arrange(SERVER, "kill@after-send:round=7")
        fleet.start()
        ends(fleet, PARAMETERS, then="stall@stored:round=4")
        fleet.processes[PARAMETERS].until_stalled()
        fleet.kill_and_start("device-0")
        fleet.go_on(PARAMETERS)
        ends(fleet, SERVER)
        ends_as_undisturbed(fleet)


@pytest.mark.slow
def test_a_deadline_does_not_wait_for_a_device_that_hangs_and_the_run_can_be_replayed(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl", "rounds": 300}, closing="deadline:0.3") as fleet:
        fleet.start()
        fleet.until_round(8)
        fleet.pause("device-2")
        fleet.until_record(missing(2), "a round without device-2")
        fleet.kill("device-0")
        fleet.until_record(missing(0), "a round without device-0")
        fleet.start("device-0")  # from its state of round 5
        fleet.until_record(lambda record: absent(record) == {2}, "a round with device-0 again")
        fleet.go_on("device-2")
        fleet.kill_and_start(SERVER)
        fleet.until_record(nobody_missing, "a round with all")
        fleet.kill("device-1")
        fleet.until_record(missing(1), "a round without device-1")
        fleet.start("device-1")
        fleet.until_record(nobody_missing, "a round with all again")
        fleet.finish()
        assert "the same weights, bit for bit" in fleet.replayed()


@pytest.mark.slow
def test_a_fraction_goes_on_without_those_who_are_away_and_the_run_can_be_replayed(
    cli: Launcher, tmp_path: Path
) -> None:
    def comes_back(name: str) -> None:
        """Start a device while only one other is there, which is too few for a round."""
        fleet.pause("device-2")
        fleet.start(name)
        fleet.until_record(missing(2), f"a round with {name} again")
        fleet.go_on("device-2")

    words = {"method": "psl", "rounds": 300, "evaluate_every": 20}
    with Fleet(cli, tmp_path, words, closing="fraction:0.6") as fleet:
        fleet.start()
        fleet.until_round(8)
        fleet.kill("device-0")
        fleet.until_record(missing(0), "a round without device-0")
        comes_back("device-0")  # from its state of round 5
        fleet.kill("device-1")
        found = fleet.until_record(
            lambda record: record.evaluation is not None and record.evaluation.away == (1,),
            "an evaluation without device-1",
        )
        comes_back("device-1")
        fleet.kill_and_start(SERVER)
        fleet.finish()
        assert "the same weights, bit for bit" in fleet.replayed()
    assert sorted(found.evaluation.device_accuracy) == sorted(found.evaluation.drift) == [0, 2]


def test_a_device_that_comes_too_late_is_told_so_and_goes_on(cli: Launcher, tmp_path: Path) -> None:
    words = {"method": "psl", "rounds": 60, "checkpoint_every": 1000, "evaluate_every": 1000}
    with Fleet(cli, tmp_path, words, closing="deadline:0.4") as fleet:
        fleet.arrange("device-1", "stall@before-send:round=4")
        fleet.start()
        fleet.processes["device-1"].until_stalled()
        fleet.until_record(missing(1), "a round without device-1")
        fleet.go_on("device-1")
        fleet.until_record(nobody_missing, "a round with it")
        fleet.finish()
        assert "has left" not in fleet.server.stderr, "its link was never cut"
        assert "the same weights, bit for bit" in fleet.replayed()


def missing(device: int) -> Callable[[RoundRecord], bool]:
    """Say whether a round was closed without a device."""
    return lambda record: device in absent(record)


def nobody_missing(record: RoundRecord) -> bool:
    """Say whether a round was closed with all."""
    return not absent(record)


def absent(record: RoundRecord) -> set[int]:
    """Return the devices that a round was closed without."""
    return set(record.events.absent)


# --- waiting, stopping, moving


@pytest.mark.slow
def test_too_few_devices_are_waited_for_by_name_and_not_for_ever(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl", "rounds": 5}, patience=8) as fleet:
        fleet.start(SERVER, "device-0", "device-2")
        ended = fleet.server.wait()
        assert ended.code == 4
        assert "waiting for device-0, device-1, device-2" in ended.stderr
        assert "nothing from device-1 for 8 s; nothing is lost: start who is away" in ended.stderr
        fleet.options["patience"] = 60
        fleet.start(SERVER, "device-1")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


def test_a_server_that_is_asked_to_stop_ends_its_round_and_the_same_command_goes_on(
    cli: Launcher, tmp_path: Path
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl"}) as fleet:
        fleet.arrange(SERVER, "stall@recorded:round=7")
        fleet.start()
        fleet.server.until_stalled()
        fleet.server.signal(signal.SIGTERM)
        fleet.go_on(SERVER)
        ended = fleet.server.wait()
        assert ended.code == 143
        assert "asked to stop: after this round" in ended.stderr
        assert "run the same command to continue" in ended.stderr
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
        fleet.arrange("device-0", "stall@before-send:round=8")  # the run waits until the other has left
        fleet.start()
        fleet.processes["device-0"].until_stalled()
        fleet.processes["device-1"].signal(signal.SIGTERM)
        ended = fleet.processes["device-1"].wait()
        assert ended.code == 143
        assert "asked to stop; started again with the same --state, it goes on" in ended.stderr
        fleet.go_on("device-0")
        fleet.start("device-1")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


@pytest.mark.slow
def test_a_process_that_is_asked_to_stop_while_it_computes_ends_as_it_should(
    cli: Launcher, tmp_path: Path
) -> None:
    """In an interpreter of its own, which is what is taken down: with threads in torch that can go wrong."""
    words = {"method": "psl", "rounds": 100_000, "evaluate_every": 100_000, "width": 4.0, "batch_size": 64}
    with Fleet(cli, tmp_path, words) as fleet:
        fleet.start(SERVER)
        command = [sys.executable, "-m", "gapsl", "join", "--server", f"localhost:{fleet.port}"]
        command += ["--devices", "3", "--state", str(fleet.state)]
        environment = {**os.environ, **ENVIRONMENT}
        for stop in (signal.SIGTERM, signal.SIGINT):
            done = rounds_done(fleet.run)
            joined = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
            wait_until(lambda done=done: rounds_done(fleet.run) >= done + 3, "three rounds")  # type: ignore[misc]
            joined.send_signal(stop)
            _, said = joined.communicate(timeout=60)
            assert joined.returncode == 128 + stop, said
            assert "asked to stop; started again with the same --state, it goes on" in said


def test_a_server_that_waits_for_devices_stops_at_once_when_asked(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}) as fleet:
        fleet.start(SERVER)
        fleet.until(lambda: "waiting for" in fleet.server.stderr, "waiting")
        fleet.server.signal(signal.SIGTERM)
        ended = fleet.server.wait()
        assert ended.code == 143, ended.stderr
        assert "error" not in ended.stderr


@pytest.mark.slow  # it waits for the server's own time limits
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


@pytest.mark.slow
def test_a_server_goes_on_from_its_folder_on_another_host(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}) as fleet:
        fleet.arrange(SERVER, "stall@recorded:round=12")
        fleet.start()
        fleet.server.until_stalled()
        fleet.kill(SERVER)
        for name in fleet.devices:
            fleet.kill(name)
        newest = max(Rounds(fleet.run / "checkpoints").found())
        shutil.copytree(fleet.run, tmp_path / "elsewhere" / "run")
        shutil.rmtree(fleet.run)
        fleet.run, fleet.port = tmp_path / "elsewhere" / "run", free_port()
        fleet.start()
        fleet.finish()
        assert newest == 10 and "round 11 of 30" in fleet.server.stderr
        assert weights_of(fleet.run) == fleet.undisturbed()
