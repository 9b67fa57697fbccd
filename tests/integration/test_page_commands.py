"""`gapsl dashboard`, `gapsl report` and --dashboard as commands: what they say, refuse, and leave alone."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest
from long_runs import made_run
from pages import answer, ask
from processes import TINY, Launcher, contents, wait_until, weights_of

pytest.importorskip("starlette", reason="the extra dashboard is not installed")


def address_in(text: str) -> str | None:
    found = re.search(r"http://localhost:\d+/", text)
    return found[0] if found is not None else None


def test_the_page_says_where_it_is_and_ends_with_ctrl_c(cli: Launcher, tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=5, devices=2)
    page = cli.start("dashboard", run, "--port", "0")
    assert page.until(lambda: address_in(page.stdout), "the address"), page.stderr
    address = address_in(page.stdout)
    assert address is not None
    wait_until(lambda: answer(address, "api/overview")["runs"][0]["round"] == 5, "all rounds")
    page.signal(signal.SIGINT)
    ended = page.wait()
    assert (ended.code, ended.stderr) == (130, "")


def test_beyond_this_machine_it_prints_a_token(cli: Launcher, tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=5, devices=2)
    page = cli.start("dashboard", run, "--port", "0", "--host", "0.0.0.0")
    assert page.until(lambda: "token=" in page.stdout, "the address"), page.stderr
    port = re.search(r":(\d+)/\?token=\S+", page.stdout)
    assert port is not None
    assert ask(f"http://localhost:{port[1]}/", "api/overview")[0] == 401
    assert "not encrypted" in page.stderr
    page.signal(signal.SIGTERM)
    assert page.wait().code in (143, -signal.SIGTERM)


@pytest.mark.parametrize("command", ["dashboard", "report"])
def test_what_is_no_run_is_refused_with_the_fix(cli: Launcher, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").write_text("devices: 3\n")
    for name, message in (
        ("nowhere", "there is no folder"), ("empty", "has no run in it"), ("file", "is a file"),
        ("bad", "names no method"),
    ):  # fmt: skip
        ended = cli.run(
            command, tmp_path / name, *(["--port", "0"] if command == "dashboard" else []), cwd=tmp_path
        )
        assert ended.code == 2, ended
        assert message in ended.stderr
        assert "Traceback" not in ended.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_port_in_use_is_an_outage(cli: Launcher, tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=2, devices=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = cli.run("dashboard", run, "--port", str(taken.getsockname()[1]))
    assert ended.code == 4
    assert "is in use; choose another with --port" in ended.stderr


def test_a_report_is_written_whole_or_not_at_all(cli: Launcher, tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=20, devices=30)
    before = contents(run)
    ended = cli.run("report", run, "--out", tmp_path / "new" / "report.html")
    assert ended.code == 0, ended.stderr
    assert "report.html" in ended.stdout
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8").endswith("</html>\n")
    assert contents(run) == before
    for out in (tmp_path, run / "config.yaml" / "report.html"):
        ended = cli.run("report", run, "--out", out)
        assert ended.code == 2 and "Traceback" not in ended.stderr


def test_training_is_the_same_with_the_page_beside_it_and_outlives_it(
    cli: Launcher, tmp_path: Path, undisturbed: object
) -> None:
    assert callable(undisturbed)
    alone = undisturbed()
    training = cli.start("train", *TINY, "--out", tmp_path / "run", "--dashboard")
    assert training.until(lambda: address_in(training.stdout), "the address"), training.stderr
    children = training.children()
    for page in children:
        os.kill(page, signal.SIGKILL)
    ended = training.wait()
    assert ended.code == 0, ended.stderr
    assert children, "the page is a process of its own"
    assert weights_of(tmp_path / "run") == weights_of(alone)


def test_the_page_beside_training_ends_with_it_however_it_ends(cli: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "run"
    begin = ["train", *TINY, "--rounds", "1000000", "--out", str(out)]
    for command in (begin, ["resume", str(out)]):
        training = cli.start(*command, "--dashboard")
        assert training.until(lambda: address_in(training.stdout), "the address"), training.stderr  # noqa: B023
        address = address_in(training.stdout)
        assert address is not None
        (page,) = training.children()
        wait_until(lambda: answer(address, "api/overview")["runs"], "the run on its page")  # noqa: B023
        training.kill()
        wait_until(lambda: not Path(f"/proc/{page}").exists(), "the end of the page")  # noqa: B023


def test_what_cannot_go_on_has_no_page(cli: Launcher, tmp_path: Path) -> None:
    ended = cli.run("resume", tmp_path / "nowhere", "--dashboard")
    assert (ended.code, ended.stdout) == (2, "")
    assert "there is no folder" in ended.stderr


@pytest.mark.slow  # a server and devices as processes
def test_a_fleet_has_its_page_until_it_goes_down(cli: Launcher, tmp_path: Path) -> None:
    settings = ["--set", "model=mlp", "--set", "rounds=1000000", "--out", str(tmp_path / "fleet")]
    up = cli.run("fleet", "up", "--devices", "2", *settings, "--dashboard")
    try:
        assert up.code == 0, up.stderr
        address = address_in(up.stdout)
        assert address is not None

        def connected() -> bool:
            try:
                return answer(address, "api/runs/0/fleet")["connected"] == [True, True]
            except (OSError, AssertionError):  # it has not begun yet
                return False

        wait_until(connected, "both devices on the page")
    finally:
        down = cli.run("fleet", "down", "--out", tmp_path / "fleet")
    assert "dashboard" in down.stdout
    with pytest.raises(OSError, match="refused"):
        ask(address, "api/overview")
