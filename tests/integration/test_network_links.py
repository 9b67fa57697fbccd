"""Links that are slow, lose packets or are cut: devices in a network namespace of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import WORDS, free_port
from processes import rounds_done, wait_until, weights_of

import gapsl

pytestmark = pytest.mark.slow

HERE, THERE = "10.213.77.1", "10.213.77.2"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def link() -> Iterator[str]:
    """A cable between this machine and a namespace; gives the name of our end."""
    space, ours, theirs = f"gapsl{os.getpid()}", f"gl{os.getpid() % 10**6}", f"gr{os.getpid() % 10**6}"
    steps = [
        ("ip", "netns", "add", space),
        ("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space),
        ("ip", "addr", "add", f"{HERE}/30", "dev", ours),
        ("ip", "link", "set", ours, "up"),
        ("ip", "netns", "exec", space, "ip", "addr", "add", f"{THERE}/30", "dev", theirs),
        ("ip", "netns", "exec", space, "ip", "link", "set", theirs, "up"),
        ("ip", "netns", "exec", space, "ip", "link", "set", "lo", "up"),
    ]
    try:
        for step in steps:
            try:
                done = run(*step)
            except FileNotFoundError:
                pytest.skip("there is no ip command here; install iproute2")
            if done.returncode:
                pytest.skip(f"this machine gives no network namespaces: {done.stderr.strip()}")
        yield ours
    finally:
        run("ip", "link", "del", ours)
        run("ip", "netns", "del", space)


class Far:
    """A server here, and three devices of one process beyond the link."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.run, self.port, self.words = folder / "run", free_port(), {**WORDS, "rounds": rounds}
        (folder / "run.yaml").write_text(json.dumps(self.words), encoding="utf-8")
        self._logs = folder / "log"
        address = f"{HERE}:{self.port}"
        serve = ["serve", "--config", str(folder / "run.yaml"), "--out", str(self.run), "--listen", address]
        self.server = self._start([], [*serve, "--insecure"])
        names = [word for number in range(3) for word in ("--name", f"device-{number}")]
        join = ["join", "--server", address, "--insecure", "--state", str(folder / "state"), *names]
        self.devices = self._start(["ip", "netns", "exec", f"gapsl{os.getpid()}"], join)

    def _start(self, before: list[str], arguments: list[str]) -> subprocess.Popen[bytes]:
        with self._logs.open("ab") as log:
            command = [*before, sys.executable, "-m", "gapsl", *arguments]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def until_round(self, round: int) -> None:
        wait_until(lambda: rounds_done(self.run) >= round, f"round {round}", deadline=120)

    def finish(self) -> str:
        try:
            assert self.server.wait(180) == 0, self._logs.read_text()[-2000:]
            assert self.devices.wait(60) == 0, self._logs.read_text()[-2000:]
        finally:
            self.server.kill()
            self.devices.kill()
        return weights_of(self.run)

    def undisturbed(self) -> str:
        result = gapsl.train(**self.words)
        assert result is not None
        return str(result.final.weights_sha256)


@pytest.mark.parametrize("seconds", [3, 30])
def test_a_link_that_is_cut_for_a_while_costs_time_and_nothing_else(
    link: str, tmp_path: Path, seconds: int
) -> None:
    far = Far(tmp_path, rounds=150)
    far.until_round(20)
    run("ip", "link", "set", link, "down")
    done = rounds_done(far.run)
    time.sleep(seconds)
    assert rounds_done(far.run) <= done + 1, "nothing can have been trained without a link"
    run("ip", "link", "set", link, "up")
    run("ip", "addr", "add", f"{HERE}/30", "dev", link)  # some systems forget it with the link
    assert far.finish() == far.undisturbed()


@pytest.mark.parametrize("disturbance", ["delay 40ms 10ms", "loss 3%", "reorder 20% delay 10ms"])
def test_slow_and_lossy_links_change_nothing(link: str, tmp_path: Path, disturbance: str) -> None:
    made = run("tc", "qdisc", "add", "dev", link, "root", "netem", *disturbance.split())
    if made.returncode:
        pytest.skip(f"this kernel cannot disturb links (netem): {made.stderr.strip()}")
    far = Far(tmp_path, rounds=30)
    assert far.finish() == far.undisturbed()
