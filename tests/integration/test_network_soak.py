"""Fleets under more kills, and of more devices, than `make test` has time for."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from fleet import SERVER, Fleet
from processes import Launcher, records_of, result_of, rounds_done, wait_until, weights_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Of each line below. Those that wait for all have 100 together, and end bit-identical to an undisturbed run;
# the others end as their replay does.
KILLS = {True: 25, False: 20}
NEARLY = 20  # rounds before the end, more than a run can do between a look at it and a kill
WORDS = {
    "gapsl": {"method": "gapsl"},
    "psl": {"method": "psl", "device_optimizer": {"name": "adamw"}, "participation": 0.7},
    "labels on devices": {"method": "psl", "labels": "device"},
    "sfl": {"method": "sfl", "sfl": {"interval": 3}},
    "vanilla": {"method": "vanilla", "vanilla": {"turn": "batch"}},
}


@pytest.mark.parametrize(
    ("method", "closing"),
    [
        ("gapsl", "all"),
        ("sfl", "all"),
        ("vanilla", "all"),
        ("gapsl", "fraction:0.5"),
        ("psl", "deadline:0.3"),
        ("sfl", "deadline:0.5"),
        ("labels on devices", "all"),
        ("labels on devices", "fraction:0.5"),
    ],
)
def test_kills_at_random_moments(
    cli: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, closing: str
) -> None:
    chance = random.Random(f"{method} {closing}")
    kills = runs = 0
    begun = time.monotonic()
    while kills < KILLS[closing == "all"]:
        folder = tmp_path / f"run-{runs}"
        folder.mkdir()
        parameters = method in ("sfl", "vanilla")
        # Rounds that do not wait for those who were killed are over sooner.
        rounds = 80 if closing == "all" else 300
        words = {**WORDS[method], "rounds": rounds, "evaluate_every": 40}
        with Fleet(cli, folder, words, parameters=parameters, closing=closing) as fleet:
            fleet.start()
            for _ in range(10):
                time.sleep(chance.uniform(0.1, 1.5))
                name = chance.choice([*fleet.names, SERVER])
                # Who has ended by itself cannot be killed; and who is told of the end, then killed, then
                # started again finds nobody who could tell it once more.
                if rounds_done(fleet.run) > rounds - NEARLY:
                    break
                fleet.kill(name)
                time.sleep(chance.choice([0.0, 0.0, 0.6]))
                fleet.start(name)
            fleet.finish()
            assert [r.round for r in records_of(fleet.run)] == list(range(1, rounds + 1))
            if closing == "all":
                assert weights_of(fleet.run) == fleet.undisturbed()
            else:
                print(fleet.replayed())
            kills += fleet.kills
        runs += 1
    seconds = time.monotonic() - begun
    with capsys.disabled():
        print(
            f"\n{method}, {closing}: {kills} kills in {runs} runs, {seconds:.0f} s; all ended as they should"
        )


def test_hangs_and_kills_where_a_fraction_is_enough(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl", "rounds": 60}, closing="fraction:0.6") as fleet:
        fleet.start()
        fleet.until_round(3)
        fleet.pause("device-2")  # its link is found dead at the first checkpoint
        fleet.until_round(20)
        fleet.kill_and_start("device-0")
        fleet.go_on("device-2")
        fleet.until_round(40)
        fleet.kill_and_start(SERVER)
        fleet.finish()
        assert "the same weights, bit for bit" in fleet.replayed()


def test_a_hundred_devices_for_fifty_rounds(
    cli: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = [",".join(f"device-{10 * host + one}" for one in range(10)) for host in range(10)]
    words = {
        "method": "gapsl", "devices": 100, "rounds": 50, "evaluate_every": 50, "checkpoint_every": 25,
        "partition": "iid", "batch_size": 4, "train_samples": 1200,
    }  # fmt: skip
    with Fleet(cli, tmp_path, words, joining=hosts) as fleet:
        begun = time.monotonic()
        fleet.start()
        wait_until(lambda: rounds_done(fleet.run) >= 20, "round 20", deadline=900)
        fleet.kill_and_start(hosts[3])
        wait_until(lambda: not fleet.server.running, "the end", deadline=900)
        fleet.finish()
        assert rounds_done(fleet.run) == 50
        assert len(result_of(fleet.run).final.bytes_sent) == 100
        with capsys.disabled():
            print(f"\n100 devices, 50 rounds: {time.monotonic() - begun:.0f} s")
        assert weights_of(fleet.run) == fleet.undisturbed()
