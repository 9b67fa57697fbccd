"""A fleet as somebody runs it: up and down, its log, a disk that is full, too few devices for a deadline."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from fleet import SERVER, WORDS, Fleet
from processes import Ended, Launcher, contents, records_of, rounds_done, strict_json, wait_until, weights_of

from gapsl.cli.fleet import up
from gapsl.cli.parameter_server import parameter_server
from gapsl.common.errors import InputError
from gapsl.network.processes import Processes, began

# --- up, status, down


class Up:
    """`gapsl fleet` in one folder; whatever happens, it is down in the end."""

    def __init__(self, cli: Launcher, folder: Path, rounds: int, devices: int = 3) -> None:
        self.cli, self.out, self.run = cli, folder / "fleet", folder / "fleet" / "run"
        self.devices, self.processes = devices, {"server", *(f"device-{i}" for i in range(devices))}
        words = {**WORDS, "rounds": rounds, "evaluate_every": rounds, "checkpoint_every": 50}
        self.settings = [f"--set={name}={value}" for name, value in words.items() if name != "devices"]

    def up(self, *more: str) -> Ended:
        command = ["fleet", "up", "--devices", str(self.devices), *self.settings, "--out", str(self.out)]
        process = self.cli.start(*command, *more)
        wait_until(lambda: not process.running, "the end of fleet up", deadline=250)
        return process.wait()

    def status(self) -> dict[str, list[str]]:
        """Return what the status says: of each process its words, and how the run stands as 'run'."""
        ended = self.cli.run("fleet", "status", "--out", self.out)
        assert ended.code == 0, ended.stderr
        left_out = (" ", "connected: ", "not connected: ")  # wrapped, or of the run
        rows = [line for line in ended.stdout.splitlines() if not line.startswith(left_out)]
        title, *lines, last = [line.split() for line in rows]
        assert title == ["process", "pid", "state", "last", "message"]
        return {**{name: words for name, *words in lines}, "run": last}

    def down(self) -> Ended:
        return self.cli.run("fleet", "down", "--out", self.out)

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def is_up(fleet: Up) -> dict[str, int]:
    """Check that all are up and train; returns their pids."""
    wait_until(lambda: rounds_done(fleet.run) >= 3, "three rounds", deadline=120)
    status = fleet.status()
    assert status.keys() == fleet.processes | {"run"}
    assert {status[name][1] for name in fleet.processes} == {"up"}
    found = re.search(r": running, round (\d+) of \d+, loss .* per round, .*left", " ".join(status["run"]))
    assert found is not None and int(found[1]) >= 3
    pids = {name: int(status[name][0]) for name in fleet.processes}
    assert all(began(pid) for pid in pids.values()), "they are there"
    return pids


def goes_down(fleet: Up, pids: dict[str, int]) -> None:
    """Check that all of them are gone after `down`."""
    ended = fleet.down()
    assert ended.code == 0 and all(name in ended.stdout for name in fleet.processes)
    assert not any(began(pid) for pid in pids.values()), "they are gone"
    status = fleet.status()
    assert {status[name][1] for name in fleet.processes} == {"ended"}


@pytest.mark.parametrize(
    ("devices", "losses"), [(1, []), pytest.param(3, ["device-1", "server"], marks=pytest.mark.slow)]
)
def test_a_fleet_is_brought_up_looked_at_mended_and_taken_down(
    cli: Launcher, tmp_path: Path, devices: int, losses: list[str]
) -> None:
    with Up(cli, tmp_path, rounds=100_000, devices=devices) as fleet:
        nothing = cli.run("fleet", "status", "--out", fleet.out)
        assert nothing.code == 2 and "start one with: gapsl fleet up" in nothing.stderr

        started = fleet.up()
        assert started.code == 0, started.stderr
        assert f"gapsl with {devices} device{'s' * (devices > 1)}, server at localhost:" in started.stdout
        assert f"stop it: gapsl fleet down --out {fleet.out}" in started.stdout
        pids = is_up(fleet)
        assert {path.stem for path in (fleet.out / "logs").iterdir()} == fleet.processes

        again = fleet.up()
        assert again.code == 0 and "are running" in again.stdout
        assert all(began(pid) for pid in pids.values()), "and those who run are left alone"

        for lost in losses:
            os.kill(pids[lost], signal.SIGKILL)
            wait_until(lambda pid=pids[lost]: not began(pid), f"{lost} is gone")
            assert fleet.status()[lost][1] == "ended"
            mended = fleet.up()
            assert mended.code == 0, mended.stderr
            assert f"started {lost}; the others were running" in mended.stdout
            before, done = pids, rounds_done(fleet.run)
            wait_until(lambda done=done: rounds_done(fleet.run) > done, "more rounds", deadline=120)
            pids = is_up(fleet)
            assert {name for name in pids if pids[name] != before[name]} == {lost}

        goes_down(fleet, pids)
        done = rounds_done(fleet.run)
        assert (fleet.run / f"checkpoints/round-{done:06d}").is_dir(), "the last round is not lost"
        assert fleet.down().stdout.strip() == "nobody was running"


def test_two_do_not_start_the_same_fleet_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Processes(tmp_path).locked(), pytest.raises(typer.Exit):
        up(devices=3, out=tmp_path)
    assert "another gapsl fleet up is starting the fleet" in capsys.readouterr().err
    assert not (tmp_path / "processes.json").exists()


def test_a_parameter_server_says_that_its_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write to .*file: .*; choose another --state"):
        parameter_server(devices=3, state=tmp_path / "file", listen="localhost:0")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fleet_that_is_brought_up_again_goes_on_to_the_same_end(cli: Launcher, tmp_path: Path) -> None:
    with Up(cli, tmp_path, rounds=400) as fleet:
        assert fleet.up().code == 0
        first = is_up(fleet)
        goes_down(fleet, first)
        done = rounds_done(fleet.run)
        assert 3 <= done < 400

        finished = fleet.up("--wait")
        assert finished.code == 0, finished.stderr
        assert f"round {done + 1} of 400" in finished.stdout
        assert ": finished, round 400 of 400, loss" in " ".join(fleet.status()["run"])
        again = fleet.up()
        assert again.code == 0 and "is finished; for another one choose another --out" in again.stdout
        alone = cli.run("train", *fleet.settings, "--devices", "3", "--out", tmp_path / "alone", "-q")
        assert alone.code == 0, alone.stderr
        assert weights_of(fleet.run) == weights_of(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_parameter_server_that_was_killed_is_started_where_it_was(cli: Launcher, tmp_path: Path) -> None:
    with Up(cli, tmp_path, rounds=100_000) as fleet:
        fleet.settings += ["--set=method=sfl", "--set=sfl.interval=2"]
        assert fleet.up().code == 0
        wait_until(lambda: rounds_done(fleet.run) >= 3, "three rounds", deadline=120)
        address = fleet.out / "parameters" / "address"
        before = address.read_text()
        pid = int(fleet.status()["parameter-server"][0])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not began(pid), "it is gone")
        mended = fleet.up()
        assert mended.code == 0, mended.stderr
        assert "started parameter-server; the others were running" in mended.stdout
        assert address.read_text() == before
        done = rounds_done(fleet.run)
        wait_until(lambda: rounds_done(fleet.run) > done + 3, "means of client-side models", deadline=120)


def test_a_start_that_failed_does_not_lose_where_a_server_was(tmp_path: Path) -> None:
    """Those who run go on calling it there."""
    processes, address = Processes(tmp_path), tmp_path / "address"
    command = ["parameter-server", "--devices", "1", "--state", str(tmp_path / "parameters")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = f"127.0.0.1:{taken.getsockname()[1]}"
        address.write_text(before)
        for _ in range(2):
            with pytest.raises(InputError, match=f"cannot listen on {before}"):
                processes.serve("parameter-server", command, address, there=True)
    assert (tmp_path / "address.before").read_text() == before


# --- its log


def lines_of(log: str) -> list[dict[str, Any]]:
    """Read a log of which each line is an object; what every line has is checked."""
    found = [strict_json(line) for line in log.splitlines()]
    for line in found:
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
        assert line["level"] in ("debug", "info", "warning", "error")
        assert line["message"] and isinstance(line["message"], str)
    return found


def test_a_log_in_json_has_one_object_a_line(cli: Launcher, tmp_path: Path) -> None:
    words = {"method": "sfl", "sfl": {"interval": 2}, "rounds": 4, "evaluate_every": 4}
    with Fleet(cli, tmp_path, words, parameters=True, log="json") as fleet:
        fleet.start()
        fleet.finish()
        logs = {name: lines_of(process.stderr) for name, process in fleet.processes.items()}
    said = {name: [line["message"] for line in log] for name, log in logs.items()}
    assert said.keys() == set(fleet.names) and all(said.values()), "everybody has said something"
    assert any(
        re.fullmatch(r"round 4/4 loss .* accuracy .* per round, 0:00:00 left\)", message)
        for message in said[SERVER]
    )
    assert said["device-0"][-1] == "device-0: the run is finished"


def test_a_log_in_json_says_in_json_why_it_ends(cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"method": "psl"}, log="json", patience=1) as fleet:
        fleet.start(SERVER)
        ended = fleet.server.wait()
    assert ended.code == 4
    last = lines_of(ended.stderr)[-1]
    assert last["level"] == "error" and "nothing is lost" in last["message"]


# --- a disk that is full


class Disk:
    """A small disk, to be filled up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._filler = folder, folder / "filler"

    def fill(self, room: int = 0) -> None:
        """Leave so many bytes free."""
        free = os.statvfs(self.folder)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - room)

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if made.returncode:
        pytest.skip(f"this user may not mount a small disk: {made.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


NO_ROOM = r"No space left on device"
WHAT_TO_DO = r"(free|make) (some )?(space|room)"


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(0, id="no room for a record", marks=pytest.mark.slow),
        pytest.param(16 << 10, id="no room for a checkpoint"),
    ],
)
def test_a_server_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(
    cli: Launcher, tmp_path: Path, disk: Disk, room: int
) -> None:
    with Fleet(cli, tmp_path, {"method": "gapsl", "rounds": 30}) as fleet:
        fleet.run = disk.folder / "run"
        fleet.arrange(SERVER, "stall@recorded:round=7")
        fleet.start()
        fleet.server.until_stalled()
        stored = sorted(fleet.run.glob("checkpoints/round-*"))
        before = {path.name: contents(path) for path in stored}
        disk.fill(room)
        fleet.go_on(SERVER)

        ended = fleet.server.wait()
        assert ended.code not in (0, 1), ended.stderr  # 1 would be a bug of ours
        assert "Traceback" not in ended.stderr
        assert re.search(NO_ROOM, ended.stderr) and re.search(WHAT_TO_DO, ended.stderr), ended.stderr
        newest = stored[-1].name
        assert contents(fleet.run / "checkpoints" / newest) == before[newest]
        assert not list(fleet.run.rglob(".draft*")), "and nothing half-written is left"
        assert all(fleet.processes[name].running for name in fleet.devices), "they wait for it"

        disk.make_room()
        fleet.start(SERVER)
        fleet.finish()
        assert [r.round for r in records_of(fleet.run)] == list(range(1, 31))
        assert weights_of(fleet.run) == fleet.undisturbed()


@pytest.mark.slow
@pytest.mark.parametrize("room", [pages * 4096 for pages in (0, 2, 3, 4, 5, 6, 12)])
def test_a_server_that_has_no_room_to_begin_says_so(
    cli: Launcher, tmp_path: Path, disk: Disk, room: int
) -> None:
    words = {"method": "gapsl", "rounds": 8}
    with Fleet(cli, tmp_path, words) as fleet:
        fleet.run = disk.folder / "run"
        disk.fill(room)
        fleet.start()
        ended = fleet.server.wait()
        assert ended.code not in (0, 1), ended.stderr
        assert "Traceback" not in ended.stderr
        assert re.search(NO_ROOM, ended.stderr), ended.stderr

        disk.make_room()
        fleet.start(SERVER)
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


# --- too few for a deadline


@pytest.mark.slow
def test_a_deadline_that_too_few_can_meet_waits_for_the_others_by_name(cli: Launcher, tmp_path: Path) -> None:
    words = {"method": "psl", "rounds": 20}
    with Fleet(cli, tmp_path, words, closing="deadline:0.2", network={"least": 3}) as fleet:
        fleet.start()
        fleet.until_round(6)
        fleet.kill("device-2")
        fleet.until(lambda: "device-2 has left" in fleet.server.stderr, "the server knows")
        known = len(fleet.server.stderr)
        before = rounds_done(fleet.run)
        used = cpu_seconds(fleet.server.pid)
        wait_until(lambda: "waiting for device-2" in fleet.server.stderr[known:], "a word", deadline=30)
        assert cpu_seconds(fleet.server.pid) - used < 1.0, "it waits, and does nothing else"
        assert rounds_done(fleet.run) <= before + 1 < 20
        fleet.start("device-2")
        fleet.finish()
        assert "the same weights, bit for bit" in fleet.replayed()


def cpu_seconds(pid: int) -> float:
    """Return how long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
