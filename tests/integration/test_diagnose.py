"""`gapsl diagnose` on real runs: well, ill, unfinished, old, several at once, and none at all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Launcher, contents, records_of, strict_json
from rich.cells import cell_len
from torch.utils.data import TensorDataset

import gapsl

NARROW = {"COLUMNS": "80"}
SHORT = [
    "--dataset", "digits", "--model", "mlp", "--devices", "4", "--rounds", "15", "--batch-size", "32",
    "--evaluate-every", "5",
]  # fmt: skip
RATE = ["--set", "server_optimizer.lr={0}", "--set", "device_optimizer.lr={0}"]


@pytest.fixture(scope="module")
def trained(cli: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns the folder of a run of 15 rounds at this learning rate; each is trained once."""
    done: dict[tuple[str, ...], Path] = {}

    def run(rate: str, *args: str) -> Path:
        if (rate, *args) not in done:
            folder = tmp_path_factory.mktemp("diagnosed") / "run"
            ended = cli.run("train", *SHORT, *(word.format(rate) for word in RATE), *args, "--out", folder)
            assert ended.code in (0, 3), ended.stderr
            done[(rate, *args)] = folder
        return done[(rate, *args)]

    return run


def diagnosed(cli: Launcher, folder: Path) -> list[str]:
    """Return what is printed about a folder at 80 columns."""
    ended = cli.run("diagnose", folder, env=NARROW)
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert all(cell_len(line) <= 80 or str(folder) in line for line in lines)
    return lines


def described(cli: Launcher, folder: Path) -> dict[str, Any]:
    """Return the one run that --json describes."""
    ended = cli.run("diagnose", folder, "--json", env=NARROW)
    assert (ended.code, ended.stderr) == (0, "")
    found = strict_json(ended.stdout)
    assert found["schema"] == 3
    (run,) = found["runs"]
    return dict(run)


def names(run: dict[str, Any], *severities: str) -> set[str]:
    return {f["name"] for f in run["findings"] if f["severity"] in (severities or ("watch", "trouble"))}


def rewritten(folder: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a run, changing its records."""
    shutil.copytree(folder, to)
    records = [record.to_dict() for record in records_of(to)]
    for record in records:
        change(record)
    (to / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return to


def test_a_run_that_goes_well_is_healthy_and_nothing_in_it_is_touched(
    cli: Launcher, trained: Callable[..., Path]
) -> None:
    folder = trained("0.2", "--method", "sfl", "--partition", "iid")
    before = contents(folder)
    lines = diagnosed(cli, folder)
    assert lines[0] == "healthy"
    run = described(cli, folder)
    assert (run["healthy"], run["finished"], run["round"], run["unseen"]) == (True, True, 15, [])
    assert names(run) == set()
    assert contents(folder) == before


def test_a_learning_rate_far_too_high_is_found_with_a_lower_one_to_try(
    cli: Launcher, trained: Callable[..., Path]
) -> None:
    folder = trained("1e5", "--method", "psl")
    run = described(cli, folder)
    assert names(run, "trouble") >= {"skipped-devices", "exploding-gradients"}
    assert not run["finished"], "training stopped by itself"
    settings = {s for f in run["findings"] for a in f["advice"] for s in a["settings"]}
    assert {"server_optimizer.lr=10000", "device_optimizer.lr=10000", "server_optimizer.clip=1"} <= settings
    lines = diagnosed(cli, folder)
    assert "things to look at" in lines[0]
    assert any(line.startswith("trouble  Gradients have exploded") for line in lines)
    assert any(line.startswith("  server_optimizer.lr=10000") for line in lines)


def test_a_learning_rate_too_high_is_found_where_no_number_is_infinite(
    cli: Launcher, trained: Callable[..., Path]
) -> None:
    run = described(cli, trained("3", "--method", "psl"))
    assert run["finished"]
    assert "exploding-gradients" in names(run, "trouble")
    assert any(f["advice"][0]["name"] == "server_optimizer.lr=0.3" for f in run["findings"] if f["advice"])


def test_label_skew_and_exclusion_of_a_run_of_gapsl(cli: Launcher, trained: Callable[..., Path]) -> None:
    run = described(cli, trained("0.2", "--method", "gapsl", "--set", "gapsl.eta=2"))
    assert "exclusion" in names(run)
    found = {finding["name"]: finding for finding in run["findings"]}
    assert 0.3 < found["label-skew"]["numbers"]["mean_distance"] < 1
    assert set(found["exclusion"]["numbers"]["by_device"]) == {"0", "1", "2", "3"}
    assert [advised["name"] for advised in found["exclusion"]["advice"]] == [
        "gapsl.eta=1.5", "gapsl.exclusion=none",
    ]  # fmt: skip


def test_a_run_of_what_is_recommended_is_not_advised_it_again(
    cli: Launcher, trained: Callable[..., Path]
) -> None:
    run = described(cli, trained("0.005", "--preset", "recommended"))
    found = {finding["name"]: finding for finding in run["findings"]}
    assert "calibration takes that out of the loss" in found["label-skew"]["text"]
    assert "probes-not-aligned" not in found
    advised = {advice["name"] for finding in run["findings"] for advice in finding["advice"]}
    assert "preset recommended" not in advised


def test_client_side_models_that_learn_too_fast_do_not_agree_on_the_probes(
    cli: Launcher, trained: Callable[..., Path]
) -> None:
    run = described(cli, trained("0.1", "--preset", "recommended"))
    found = {finding["name"]: finding for finding in run["findings"]}
    assert found["probes-not-aligned"]["advice"][0]["name"] == "device_optimizer.lr=0.01"


def test_following_the_printed_advice_is_one_command(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    lines = diagnosed(cli, trained("0.05", "--method", "gapsl"))
    start = next(i for i, line in enumerate(lines) if line.startswith("for example: "))
    command = " ".join(lines[start:]).removeprefix("for example: gapsl ").replace("\\", "")
    words = [str(tmp_path / "next") if word == "FOLDER" else word for word in command.split()]
    ended = cli.run(*words, "--quiet")
    assert ended.code == 0, ended.stderr


def test_an_unfinished_run_with_a_line_cut_short(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained("0.2", "--method", "sfl", "--partition", "iid"), folder)
    (folder / "result.json").unlink()
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:7]) + lines[7][:50], encoding="utf-8")
    printed = diagnosed(cli, folder)
    assert printed[0] == "healthy so far"
    assert "round 7 of 15, not finished" in " ".join(printed[:4])

    (folder / "records.jsonl").write_text("".join(lines[:3]), encoding="utf-8")
    run = described(cli, folder)
    assert (run["finished"], run["round"], run["rounds"]) == (False, 3, 15)
    assert run["unseen"] == ["accuracy (there has been no evaluation yet)"]


def test_a_run_of_an_older_version_without_drift_and_norms(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    def older(record: dict[str, Any]) -> None:
        record.pop("norms", None)
        record.get("evaluation", {}).pop("drift", None)

    folder = rewritten(trained("3", "--method", "psl"), tmp_path / "run", older)
    run = described(cli, folder)
    assert "loss-rising" in names(run, "trouble")
    assert run["unseen"] == ["how long gradients are (recorded by later versions only)"]


def test_python_gets_the_same_findings(cli: Launcher, trained: Callable[..., Path]) -> None:
    folder = trained("0.05", "--method", "gapsl")
    findings = gapsl.diagnose(folder)
    assert [finding.name for finding in findings] == [f["name"] for f in described(cli, folder)["findings"]]
    assert str(findings[0]).startswith(f"{findings[0].severity.word}: {findings[0].title}. ")
    with pytest.raises(gapsl.InputError, match="has no run in it"):
        gapsl.diagnose(folder.parent)


def test_a_comparison_is_told_run_by_run_even_if_one_has_not_begun(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    well, ill = trained("0.2", "--method", "sfl", "--partition", "iid"), trained("3", "--method", "psl")
    for name, folder in (("sfl-seed0", well), ("psl-seed0", ill)):
        shutil.copytree(folder, tmp_path / name)
    (tmp_path / "psl-seed1").mkdir()
    shutil.copy(ill / "config.yaml", tmp_path / "psl-seed1")
    (tmp_path / "order.json").write_text('["psl-seed0", "psl-seed1", "sfl-seed0"]', encoding="utf-8")
    lines = diagnosed(cli, tmp_path)
    assert lines[0].startswith("psl-seed0: 15 rounds, accuracy ")
    assert "trouble: devices were skipped for their numbers" in " ".join(" ".join(lines).split())
    assert any(line.startswith("psl-seed1: ") and "has no rounds yet" in line for line in lines)
    assert any(line.startswith("sfl-seed0: 15 rounds") and line.endswith("healthy.") for line in lines)
    ended = cli.run("diagnose", tmp_path, "--json")
    runs = strict_json(ended.stdout)["runs"]
    assert [run.get("healthy") for run in runs] == [False, None, True]
    assert "no rounds yet" in runs[1]["error"]


def test_data_that_came_from_python_and_a_method_that_is_not_known_here(
    cli: Launcher, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(90, 1, 4, 4, generator=generator), torch.arange(90) % 3
    data = TensorDataset(inputs[:60], labels[:60]), TensorDataset(inputs[60:], labels[60:])
    folder = tmp_path / "run"
    gapsl.train(method="psl", model="mlp", dataset=data, devices=3, rounds=3, batch_size=4, out=folder)
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(config.replace("method: psl", "method: mine"), encoding="utf-8")
    run = described(cli, folder)
    assert run["method"] == "mine"
    assert run["unseen"] == ["labels (the run's data (tuple) came from Python and are not in its files)"]


def test_data_that_this_machine_does_not_have_are_not_downloaded(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained("0.2", "--method", "sfl", "--partition", "iid"), folder)
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    for dataset, words in (("cifar10", "not on this machine"), ("digits", "")):
        (folder / "config.yaml").write_text(
            config.replace("dataset: digits", f"dataset: {dataset}"), encoding="utf-8"
        )
        ended = cli.run("diagnose", folder, "--json", env={"HOME": str(tmp_path), "GAPSL_DATA": ""})
        assert ended.code == 0, ended.stderr
        (run,) = strict_json(ended.stdout)["runs"]
        assert words in "".join(run["unseen"])
        assert bool(words) == bool(run["unseen"])


def test_what_is_not_a_run_is_refused_with_the_reason(
    cli: Launcher, trained: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's", encoding="utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    names = ("unborn", "damaged", "foreign", "changed")
    unborn, damaged, foreign, changed = (tmp_path / name for name in names)
    for folder in (unborn, damaged, foreign, changed):
        shutil.copytree(trained("0.2", "--method", "sfl", "--partition", "iid"), folder)
    for name in ("records.jsonl", "result.json"):
        (unborn / name).unlink()
    (damaged / "records.jsonl").write_text('{"round": 1}\n', encoding="utf-8")
    records = (changed / "records.jsonl").read_text(encoding="utf-8")
    loss = re.sub(r'"loss": ?[0-9.]+', '"loss": "x"', records)
    assert loss != records
    (changed / "records.jsonl").write_text(loss, encoding="utf-8")
    (foreign / "config.yaml").write_text("answer: 42\n", encoding="utf-8")
    for path, words in (
        (tmp_path / "nowhere", ["there is no folder", "check the path"]),
        (file, ["is a file", "folder of a run"]),
        (empty, ["has no run in it", "gapsl train"]),
        (unborn, ["has no rounds yet", "gapsl resume"]),
        (damaged, ["records.jsonl is damaged in line 1", "not what gapsl writes"]),
        (changed, ["records.jsonl is damaged in line 1", "loss", "is wrong"]),
        (foreign, ["names no method"]),
    ):
        for args in ([], ["--json"]):
            ended = cli.run("diagnose", path, *args)
            assert ended.code == 2, ended.stdout
            assert ended.stdout == ""
            assert ended.stderr.startswith("error: ")
            assert "Traceback" not in ended.stderr
            for word in words:
                assert word in ended.stderr
