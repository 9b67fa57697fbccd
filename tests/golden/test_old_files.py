"""Files that were written by gapsl 0.1.0 are read, shown, explained and gone on with as they were then."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import golden
import pytest

import gapsl
from gapsl.analysis.diagnose import read_run
from gapsl.analysis.diagnose.participation import kept_shares
from gapsl.run.folder import RunFolder
from gapsl.run.records import RunResult

FINISHED, UNFINISHED = golden.FIXTURES / "finished", golden.FIXTURES / "unfinished"
COMPARISON, NETWORK = golden.FIXTURES / "comparison", golden.FIXTURES / "network"

MADE_ON = "7dbfef5dcb0e7483"  # the fingerprint of the arithmetic of the machine that made the files

# Parts of the newest checkpoint, and a hash of all their names and numbers.
WEIGHTS = {
    FINISHED: (
        ["device-0000", "device-0001", "device-0002", "server"],
        "504859f6fc50a02c1443647efaf3d96fb1f5819ca65e9c2e07c93ba5d0031f62",
    ),
    UNFINISHED: (
        ["device-0000", "device-0001", "device-0002", "server"],
        "fcbc42793a5cebd71aeaa2a27e54708a8d3fa6bd19240be55969f374c54dad0f",
    ),
    COMPARISON / "sfl-seed0": (
        ["device-0000", "device-0001", "device-0002", "server-0000", "server-0001", "server-0002"],
        "571b5418dce2f8f11fc789fd3c238d3a016f9cbbc8e603339202e3b4b698f91d",
    ),
    NETWORK / "run": (["server"], "1990bc0ee67a4d9331a843f3a6ae15b9cd82697d9340f7f80127d85c3a0c93b2"),
}


@pytest.mark.parametrize("run", WEIGHTS, ids=lambda run: run.name)
def test_weights_are_loaded(run: Path) -> None:
    weights = gapsl.trained(run)
    found = hashlib.sha256()
    for part in sorted(weights):
        for name, tensor in sorted(weights[part].items()):
            found.update(f"{part} {name} {list(tensor.shape)} {tensor.dtype}".encode())
            found.update(tensor.contiguous().numpy().tobytes())
    assert (sorted(weights), found.hexdigest()) == WEIGHTS[run]


def test_the_public_names_of_then_are_still_there() -> None:
    names = """METHODS GapslError InputError Observer Parallel Parameters Source Split Strategy
    TrainingStopped build_model check_cut load_source make_partition register_method register_model resume
    split train trained"""
    assert set(names.split()) <= set(gapsl.__all__)


def test_a_finished_run_is_shown() -> None:
    shown = golden.gapsl("show", FINISHED)
    assert "digits, mlp, 3 devices, dirichlet:0.3, 8 rounds, seed 1" in shown
    assert "GAPSL 20.0 2.0 17.5 22.5 22.5 20.0 21.3" in " ".join(shown.split())
    assert "leader % by device:  62  62  50" in shown
    assert "kept %   by device:  38  25  50" in shown


def test_a_comparison_is_shown() -> None:
    shown = " ".join(golden.gapsl("show", COMPARISON).split())
    assert "PSL 12.5 3.5 7.5 15.0 15.0 15.0 8.1" in shown
    assert "SFL 15.0 0.0 15.0 15.0 15.0 15.0 16.1" in shown


def test_what_is_not_finished_is_said_to_be_so() -> None:
    for folder, state in ((UNFINISHED, "round 5 of 8"), (NETWORK / "run", "round 7 of 60")):
        shown = golden.gapsl("show", folder)
        assert f"{folder.name} is at {state}; finish it with: gapsl " in shown


def diagnosed(folder: Path) -> list[dict[str, Any]]:
    found = json.loads(golden.gapsl("diagnose", "--json", folder))
    assert found["schema"] == 3
    return list(found["runs"])


def test_a_finished_run_is_diagnosed() -> None:
    (run,) = diagnosed(FINISHED)
    assert (run["method"], run["seed"], run["round"], run["finished"]) == ("gapsl", 1, 8, True)
    (skew,) = run["findings"]
    assert (skew["name"], skew["severity"]) == ("label-skew", "info")
    assert len(skew["numbers"]["distances"]) == 3
    assert kept_shares(read_run(RunFolder(FINISHED))) == {0: 0.375, 1: 0.25, 2: 0.5}


@pytest.mark.parametrize(("folder", "round"), [(UNFINISHED, 5), (NETWORK / "run", 7)])
def test_an_unfinished_run_is_diagnosed(folder: Path, round: int) -> None:
    (run,) = diagnosed(folder)
    assert (run["round"], run["finished"]) == (round, False)
    assert run["findings"]


def test_a_comparison_is_diagnosed() -> None:
    assert [(run["method"], run["healthy"]) for run in diagnosed(COMPARISON)] == [
        ("psl", False),
        ("sfl", True),
    ]


def test_finished_runs_stay_as_they_are(tmp_path: Path) -> None:
    run, comparison = tmp_path / "run", tmp_path / "comparison"
    shutil.copytree(FINISHED, run)
    shutil.copytree(COMPARISON, comparison)
    assert "finished already" in golden.gapsl("resume", run)
    assert gapsl.resume(run) == RunResult.from_dict(golden.result_of(FINISHED))
    assert "SFL" in golden.gapsl("resume", comparison, "--quiet")
    for folder, before in ((run, FINISHED), (comparison, COMPARISON)):
        files = [file.relative_to(before) for file in before.rglob("*") if file.is_file()]
        assert all((folder / file).read_bytes() == (before / file).read_bytes() for file in files)


@pytest.mark.parametrize("name", golden.FINISHED)
def test_what_was_begun_is_finished_with_the_recorded_weights(name: str, tmp_path: Path) -> None:
    fingerprints = golden.fingerprints()
    hashes = golden.table()["fixtures"][name]
    if fingerprints["arithmetic"] not in hashes:
        pytest.skip(golden.unknown(fingerprints))
    assert golden.FINISHED[name](tmp_path) == hashes[fingerprints["arithmetic"]]
    if name == "network" and fingerprints["arithmetic"] == MADE_ON:  # elsewhere its first rounds are others
        replayed = golden.gapsl("replay", tmp_path / "network" / "run", "--quiet")
        assert "the same weights, bit for bit" in replayed
