"""The benchmarks run to their tables; how long anything takes is not asserted."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)  # on a busy machine

FOLDER = Path(__file__).parents[2] / "benchmarks"
SMALL = ["--width", "0.0625", "--devices", "3", "--batch-size", "4", "--repeat", "1", "--no-memory"]


def printed(name, *words):
    command = [sys.executable, str(FOLDER / name), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1100).stdout


def test_a_round_is_held_against_bare_torch():
    table = printed("round.py", *SMALL)
    for row in ("bare torch", "psl", "gapsl exact, all kept", "recommended"):
        assert f"| {row} |" in table


@pytest.mark.slow
def test_cores_and_many_devices_are_measured():
    table = printed("scale.py", "--quick")
    assert "| --processes 2 |" in table and "| 50, graph_memory 256 |" in table


@pytest.mark.slow
def test_growth_is_fitted_and_drawn(tmp_path):
    table = printed("growth.py", "--quick", "--out", str(tmp_path / "growth.png"))
    assert table.count("| devices |") == 3
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
