"""Every method and option computes what it computed when the table was recorded, to the bit.

However it is trained: in one process, killed and gone on with, or over the network. `record.py` says when the
table may be written again.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import golden
import pytest
from cases import GROUPS, KILLED, NETWORKED

import gapsl

RUNS = golden.runs()


@pytest.mark.parametrize("group", GROUPS)
def test_runs_have_the_recorded_weights(group: str) -> None:
    entries = {name: entry for name, entry in RUNS.items() if entry["group"] == group}
    done = golden.trained(entries)
    expected = golden.recorded(entries, done["fingerprints"])
    if not expected:
        pytest.skip(golden.unknown(done["fingerprints"]))
    found = {name: done["runs"][name]["weights_sha256"] for name in expected}
    assert {name: found[name] for name in expected if found[name] != expected[name]} == {}


def test_the_table_has_every_run_and_every_method() -> None:
    assert {name: entry["group"] for name, entry in RUNS.items()} == {
        name: group for group, members in GROUPS.items() for name in members
    }
    shipped = {name for name, method in gapsl.METHODS.items() if method.__module__.startswith("gapsl.")}
    assert shipped <= {entry["settings"]["method"] for entry in RUNS.values()}


def test_settings_are_spelt_out_in_the_table() -> None:
    everywhere = set.intersection(*(set(entry["settings"]) for entry in RUNS.values()))
    assert {"probes", "calibration", "layout", "threads", "seed", "cut_norm"} <= everywhere
    assert all("momentum" in entry["settings"]["server_optimizer"] for entry in RUNS.values())


def expected_of(name: str) -> str:
    """Return the recorded hash of a run, if there is one for this machine."""
    hashes = golden.recorded({name: RUNS[name]}, golden.fingerprints())
    if name not in hashes:
        pytest.skip(golden.unknown(golden.fingerprints()))
    return hashes[name]


def some(names: tuple[str, ...], few: int) -> list[Any]:
    """Return names of runs, of which `make test` has time for a few."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (i >= few)) for i, name in enumerate(names)]


@pytest.mark.parametrize("name", some(KILLED, 3))
def test_a_run_that_was_killed_is_resumed_to_the_same_weights(name: str, tmp_path: Path) -> None:
    expected, run = expected_of(name), tmp_path / "run"
    # Checkpoints are every two rounds: the round is in the records only.
    assert golden.killed(RUNS[name], run, round=3) == -signal.SIGKILL
    assert golden.lines_of(run / "records.jsonl") == 3
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["round-000002"]
    golden.gapsl("resume", run, "--quiet")
    assert golden.hash_of(run) == expected


@pytest.mark.parametrize("name", some(NETWORKED, 2))
def test_a_run_over_the_network_has_the_same_weights(name: str, tmp_path: Path) -> None:
    expected, settings = expected_of(name), RUNS[name]["settings"]
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    code = golden.networked(
        tmp_path,
        ["--config", file],
        devices=settings["devices"],
        parameters=settings["method"] in ("sfl", "sfl-v2", "vanilla"),
    )
    assert code == 0
    assert golden.hash_of(tmp_path / "run") == expected


@pytest.mark.slow  # processes that start afresh
def test_a_fleet_of_processes_has_the_same_weights_and_is_replayed(tmp_path: Path) -> None:
    expected, settings = expected_of("gapsl, two devices"), RUNS["gapsl, two devices"]["settings"]
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    golden.gapsl("fleet", "up", "--config", file, "--out", tmp_path / "fleet", "--wait")
    run = tmp_path / "fleet" / "run"
    assert golden.hash_of(run) == expected
    assert "the same weights, bit for bit" in golden.gapsl("replay", run, "--quiet")
