"""Bad input gets a message that names the fix, exit code 2, no traceback, and nothing is damaged."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import arranged
from processes import (
    TINY,
    Ended,
    Launcher,
    contents,
    records_of,
    result_of,
    rounds_done,
    timeless,
    weights_of,
)
from torch.utils.data import TensorDataset

import gapsl
from conftest import Runs

SMALL: dict[str, Any] = {"model": "mlp", "devices": 3, "rounds": 2, "batch_size": 4}


def assert_refused(ended: Ended, *words: str, code: int = 2) -> None:
    """Check that a command was refused in a few plain lines that say these words."""
    assert ended.code == code, ended.stderr or ended.stdout
    assert "Traceback" not in ended.stderr
    assert "─" not in ended.stderr, "a framed traceback or usage instead of a message"
    assert ended.stderr.startswith("error: ")
    for word in words:
        assert word in ended.stderr


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--method", "gaspl"], ["unknown method 'gaspl'", "did you mean 'gapsl'?"]),
        (["--dataset", "digit"], ["unknown dataset 'digit'", "did you mean 'digits'?"]),
        (["--model", "smal"], ["unknown model 'smal'", "did you mean 'small'?"]),
        (["--preset", "paper-cifar10"], ["unknown preset 'paper-cifar10'", "paper-cifar10-vgg16"]),
        (["--set", "rouns=3"], ["unknown setting 'rouns'", "did you mean 'rounds'?"]),
        (["--set", "server_optimizer.lrr=1"], ["'server_optimizer.lrr'", "did you mean 'lr'?"]),
        (["--set", "gapsl.etta=1"], ["'gapsl.etta'", "did you mean 'eta'?"]),
        (["--set", "sections=5"], ["sections"]),
        (["--set", "gapsl=0.3"], ["gapsl must be a section", "{name: value}"]),
        (["--set", "gapsl.eta"], ["--set takes name=value", "'gapsl.eta'"]),
        (["--set", "=3"], ["--set takes name=value"]),
        (["--set", "gapsl.eta=[1"], ["--set gapsl.eta=[1", "YAML"]),
        (["--partition", "dirichlet:0"], ["dirichlet:0", "alpha must be a number above 0"]),
        (["--partition", "dirichlet:-1"], ["dirichlet:-1:", "alpha must be a number above 0"]),
        (["--partition", "dirichlt:1"], ["unknown partition 'dirichlt'", "did you mean 'dirichlet'?"]),
        (
            ["--devices", "2000", "--partition", "iid"],
            ["2000 devices", "1437 training samples", "at most 1437"],
        ),
        (["--devices", "0"], ["devices", "give 1 or more"]),
        (["--set", "gapsl.k_min=0"], ["gapsl.k_min", "give more than 0"]),
        (["--set", "gapsl.k_max=1.5"], ["gapsl.k_max", "give 1 or less"]),
        (["--set", "gapsl.k_min=0.9"], ["k_min (0.9)", "k_max (0.8)"]),
        (["--set", "gapsl.eta=.nan"], ["gapsl.eta"]),
        (["--set", "server_optimizer.lr=.inf"], ["server_optimizer.lr"]),
        (["--set", "width=.inf"], ["width", "finite number"]),
        (["--cut", "9"], ["no cut 9", "1 to 2"]),
        (["--cut", "hiden.0"], ["no cut 'hiden.0'", "did you mean 'hidden.0'?"]),
        (["--participation", "0"], ["participation", "give more than 0"]),
        (["--seed", "-1"], ["seed"]),
        (["--device", "tpu"], ["unknown device 'tpu'", "cpu"]),
        (["--pretrained", "/nowhere/weights.pt"], ["/nowhere/weights.pt"]),
        (["--partition", "file:/nowhere/partition.json"], ["/nowhere/partition.json", "check the path"]),
        (["--set", "test_samples=361"], ["test_samples", "360"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_a_setting_that_cannot_be_used(
    cli: Launcher, tmp_path: Path, given: list[str], words: list[str]
) -> None:
    assert_refused(cli.run("train", *TINY, *given, "--out", tmp_path / "run"), *words)
    assert not (tmp_path / "run" / "records.jsonl").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_this_machine_does_not_have(cli: Launcher, tmp_path: Path) -> None:
    ended = cli.run("train", *TINY, "--device", "cuda", "--out", tmp_path / "run")
    assert_refused(ended, "no usable cuda", "--device cpu")


@pytest.mark.parametrize(
    "given",
    [["--dataset", "digit"], ["--model", "smal"], ["--cut", "9"], ["--partition", "dirichlet:0"]],
    ids=" ".join,
)
def test_a_refused_command_leaves_no_run_behind_so_that_the_corrected_one_works(
    cli: Launcher, tmp_path: Path, given: list[str]
) -> None:
    folder = tmp_path / "run"
    assert_refused(cli.run("train", *TINY, *given, "--out", folder))
    ended = cli.run("train", *TINY, "--rounds", "1", "--out", folder)
    assert ended.code == 0, ended.stderr


def test_a_held_out_share_that_holds_out_nothing_is_refused_not_ignored(
    cli: Launcher, tmp_path: Path
) -> None:
    """Otherwise the history, on which settings are chosen, would silently be the test set's."""
    ended = cli.run("train", *TINY, "--rounds", "1", "--validation", "0.0001", "--out", tmp_path / "run")
    assert_refused(ended, "validation")


def test_an_option_that_does_not_exist(cli: Launcher, tmp_path: Path) -> None:
    ended = cli.run("train", *TINY, "--rouns", "3", "--out", tmp_path / "run")
    assert ended.code == 2
    assert "--rounds" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- configuration files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rouns: 3", ["unknown setting 'rouns'", "did you mean 'rounds'?"]),
        ("device_optimizer: {momentun: 0.5}", ["'device_optimizer.momentun'", "did you mean 'momentum'?"]),
        ("gapsl: {k_mim: 0.5}", ["'gapsl.k_mim'", "did you mean 'k_min'?"]),
        ("sfl: {intervall: 5}", ["'sfl.intervall'", "did you mean 'interval'?"]),
        ("rouns: 3\ndevces: 4", ["'rouns'", "'devces'"]),  # all mistakes at once
        ("rounds: [", ["settings.yaml is not a readable YAML file"]),
        ("- 1\n- 2", ["settings.yaml must hold settings"]),
        ("1: 2", ["1"]),
        ("method: 2024-01-01", ["method", "give text"]),
        ("!!python/object/apply:os.system ['true']", ["settings.yaml is not a readable YAML file"]),
        (b"\xff\xfe\x80", ["settings.yaml is not a readable YAML file"]),
    ],
)
def test_a_configuration_file_with_a_mistake(
    cli: Launcher, tmp_path: Path, text: str | bytes, words: list[str]
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_refused(cli.run("train", "--config", path, "--out", tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


def test_a_configuration_file_that_is_not_there_or_is_a_folder(cli: Launcher, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert_refused(cli.run("train", "--config", missing, "--out", tmp_path / "run"), str(missing))
    assert_refused(cli.run("train", "--config", tmp_path, "--out", tmp_path / "run"), str(tmp_path))


# --- folders ------------------------------------------------------------------------------------------------


def test_an_output_folder_that_cannot_be_used(cli: Launcher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's", encoding="utf-8")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("somebody's", encoding="utf-8")
    assert_refused(cli.run("train", *TINY, "--out", file), "is a file", "--out")
    assert_refused(cli.run("train", *TINY, "--out", file / "run"), "--out")
    assert_refused(cli.run("train", *TINY, "--out", foreign), "is not empty", "--out")
    assert_refused(cli.run("train", *TINY, "--out", "/proc/gapsl/run"), "cannot write", "--out")
    assert_refused(cli.run("compare", *TINY, "--methods", "psl", "--out", file), "--out")
    assert contents(foreign) == {"thesis.tex": b"somebody's"}
    assert file.read_text(encoding="utf-8") == "somebody's"


def test_an_output_folder_with_another_run_in_it(cli: Launcher, undisturbed: Runs, tmp_path: Path) -> None:
    folder = undisturbed()
    before = contents(folder)
    assert_refused(
        cli.run("train", *TINY, "--seed", "1", "--out", folder),
        "has a run in it already",
        f"gapsl resume {folder}",
        "--out",
    )
    assert_refused(cli.run("compare", *TINY, "--methods", "psl", "--out", folder), "single run", "--out")

    comparison = tmp_path / "comparison"
    shutil.copytree(folder, comparison / "gapsl-seed0")
    ended = cli.run("compare", *TINY, "--methods", "gapsl", "--rounds", "9", "--out", comparison)
    assert_refused(ended, "other settings", "rounds", "--out")
    assert contents(folder) == before == contents(comparison / "gapsl-seed0")


def test_a_folder_without_a_run(cli: Launcher, tmp_path: Path) -> None:
    for command in ("resume", "show"):
        assert_refused(cli.run(command, tmp_path), "has no run in it", "gapsl train")
        assert_refused(cli.run(command, tmp_path / "nowhere"), "there is no folder", "check the path")
    assert contents(tmp_path) == {}


def test_two_processes_cannot_train_in_one_folder_at_once(cli: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = cli.start("train", *TINY, "--rounds", "2000", "--out", folder)
    assert first.until(lambda: rounds_done(folder) >= 2, "round 2"), first.stderr
    assert_refused(cli.run("resume", folder), "another process is training", str(folder), code=4)
    assert_refused(cli.run("train", *TINY, "--out", folder), "has a run in it already", "gapsl resume")
    done = rounds_done(folder)
    assert first.until(lambda: rounds_done(folder) > done, "another round"), "the first process was disturbed"
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    assert [record.round for record in records_of(folder)] == list(range(1, rounds_done(folder) + 1))


# --- checkpoints --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(cli: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after round 12, with checkpoints of rounds 5 and 10."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    kill = arranged("kill@recorded:round=12", folder.with_name("killed"))
    assert cli.run("train", *TINY, "--out", folder, env=kill).code == -signal.SIGKILL
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["round-000005", "round-000010"]
    return folder


def flip_a_byte(path: Path, position: int = -5) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a byte of the server's weights flipped": (
        lambda c: flip_a_byte(c / "server.safetensors"),
        ["damaged", "server.safetensors", "delete"],
    ),
    "a byte of a device's header flipped": (
        lambda c: flip_a_byte(c / "devices-0000-0003.safetensors", 20),
        ["damaged", "devices-0000-0003.safetensors", "delete"],
    ),
    "a file truncated": (
        lambda c: truncate(c / "devices-0000-0003.safetensors"),
        ["damaged", "devices-0000-0003.safetensors", "delete"],
    ),
    "a file missing": (
        lambda c: (c / "devices-0000-0003.safetensors").unlink(),
        ["damaged", "devices-0000-0003.safetensors", "delete"],
    ),
    "no JSON": (lambda c: (c / "state.json").write_bytes(b"\x00garbage"), ["damaged", "delete"]),
    "JSON cut short": (lambda c: truncate(c / "state.json"), ["damaged", "delete"]),
    "JSON of something else": (lambda c: (c / "state.json").write_text("[1, 2]"), ["damaged", "delete"]),
    "JSON missing": (lambda c: (c / "state.json").unlink(), ["damaged", "delete"]),
    "a number of the state changed": (
        lambda c: edit(c / "state.json", lambda s: s["state"]["strategy"].update(spread=[0.0, 1.0])),
        ["damaged", "delete"],
    ),
    "another round's name": (lambda c: edit(c / "state.json", lambda s: s.update(round=8)), ["delete"]),
    "a future version": (
        lambda c: edit(c / "state.json", lambda s: s.update(schema=99)),
        ["version 99", "environment.json"],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_is_not_what_was_written(
    cli: Launcher, stopped: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    newest = folder / "checkpoints" / "round-000010"
    do, words = DAMAGES[damage]
    do(newest)
    before = contents(folder)
    assert_refused(cli.run("resume", folder), str(newest), *words)
    assert contents(folder) == before


def test_where_no_older_checkpoint_is_left_nobody_is_told_to_go_on_from_it(
    cli: Launcher, stopped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    *older, newest = sorted((folder / "checkpoints").glob("round-*"))
    for other in older:
        shutil.rmtree(other)
    flip_a_byte(newest / "server.safetensors")
    assert_refused(cli.run("resume", folder), f"put {newest} back from a copy, or start a new run")


def test_following_the_advice_for_a_damaged_checkpoint_ends_with_the_same_weights(
    cli: Launcher, undisturbed: Runs, stopped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    newest = folder / "checkpoints" / "round-000010"
    flip_a_byte(newest / "server.safetensors")
    assert f"delete {newest} to go on from the one after round 5" in cli.run("resume", folder).stderr
    shutil.rmtree(newest)
    ended = cli.run("resume", folder)
    assert ended.code == 0, ended.stderr
    assert "going on from round 5" in ended.stdout
    assert weights_of(folder) == weights_of(undisturbed())


@pytest.mark.parametrize(
    "setting", [["--seed", "1"], ["--set", "gapsl.eta=0.4"], ["--set", "width=0.25"]], ids=" ".join
)
def test_a_checkpoint_of_another_run(
    cli: Launcher, undisturbed: Runs, stopped: Path, tmp_path: Path, setting: list[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    foreign = folder / "checkpoints" / "round-000040"
    shutil.copytree(undisturbed(*setting) / "checkpoints" / "round-000040", foreign)
    before = contents(folder)
    assert_refused(cli.run("resume", folder), str(foreign), "another run", "delete")
    assert contents(folder) == before


def test_records_that_are_damaged_are_not_thrown_away(cli: Launcher, stopped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    records = folder / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"round": 2,', b'"round": ,', 1))
    before = contents(folder)
    assert_refused(cli.run("resume", folder), "records.jsonl is damaged")
    assert contents(folder) == before


# --- results and partitions ---------------------------------------------------------------------------------


def test_a_result_of_a_future_version_or_of_nobody(cli: Launcher, undisturbed: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(), folder)
    edit(folder / "result.json", lambda result: result.update(schema=99))
    before = contents(folder)
    for command in ("show", "resume"):
        assert_refused(cli.run(command, folder), "result.json", "version 99", "environment.json")
    assert contents(folder) == before
    (folder / "result.json").write_text("[]", encoding="utf-8")
    assert_refused(
        cli.run("show", folder), "result.json is not a result of gapsl", "delete it, and gapsl resume"
    )


def test_following_the_advice_for_a_damaged_result_makes_it_again(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(), folder)
    (folder / "result.json").write_bytes((folder / "result.json").read_bytes()[:400])
    assert_refused(cli.run("resume", folder), "delete it, and gapsl resume")
    (folder / "result.json").unlink()
    assert cli.run("resume", folder).code == 0
    assert timeless(result_of(folder)) == timeless(result_of(undisturbed()))


def test_records_that_lack_rounds_of_the_checkpoints_are_not_gone_on_with(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    """The last evaluation that is left in them would be taken for that of the last round."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(), folder)
    (folder / "result.json").unlink()
    records = (folder / "records.jsonl").read_bytes()
    (folder / "records.jsonl").write_bytes(records[:-50])
    advice = "delete what it has after round 39, and the checkpoints after that"
    before = contents(folder)
    assert_refused(cli.run("resume", folder), "records.jsonl lacks rounds that its checkpoints have", advice)
    assert contents(folder) == before
    shutil.rmtree(folder / "checkpoints" / "round-000040")
    assert cli.run("resume", folder).code == 0
    assert timeless(result_of(folder)) == timeless(result_of(undisturbed()))


def test_damaged_records_of_a_finished_run_are_no_reason_to_delete_anything(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(), folder)
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b"garbage\n")
    ended = cli.run("diagnose", folder)
    assert_refused(ended, "its run is finished, result and weights are there; put it back from a copy")


def test_settings_of_a_run_that_cannot_be_read_are_named_in_a_line(
    cli: Launcher, stopped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    (folder / "config.yaml").write_text("method: psl\nrounds: [1,\n", encoding="utf-8")
    ended = cli.run("resume", folder)
    assert_refused(ended, "config.yaml is not a readable YAML file", "put it back from a copy of the folder")
    assert len(ended.stderr.splitlines()) == 1


def test_settings_for_a_server_are_told_from_a_misspelt_one(cli: Launcher, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: psl\nnetwork: {closing: all}\n", encoding="utf-8")
    ended = cli.run("train", "--config", file, "--out", tmp_path / "run")
    assert_refused(ended, "the section 'network' is for gapsl serve; to train in one process leave it out")


def test_a_partition_of_a_future_version_of_other_data_or_for_other_devices(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    path = tmp_path / "partition.json"

    def refusal(*args: str) -> Ended:
        return cli.run("train", *TINY, "--partition", f"file:{path}", *args, "--out", tmp_path / "run")

    saved = json.loads((undisturbed() / "partition.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps(saved), encoding="utf-8")
    assert_refused(refusal("--devices", "5"), "is for 4 devices")
    assert_refused(refusal("--set", "train_samples=500"), "1437", "500")
    path.write_text(json.dumps({**saved, "schema": 99}), encoding="utf-8")
    assert_refused(refusal(), "schema 99", "dirichlet:0.1")
    path.write_text(json.dumps({**saved, "fingerprint": "0" * 64}), encoding="utf-8")
    assert_refused(refusal(), "other data")
    path.write_text(json.dumps({**saved, "devices": [[0, 1], [1], [2], [3]]}), encoding="utf-8")
    assert_refused(refusal(), "sample 1 is listed twice")
    path.write_text(json.dumps(saved)[:-10], encoding="utf-8")
    assert_refused(refusal(), "is not a partition")


# --- comparisons, data and models ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--seeds", "a,b"], ["--seeds", "0,1,2", "'a,b'"]),
        (["--seeds", "0.5"], ["--seeds", "0,1,2"]),
        (["--seeds", ","], ["--seeds is empty"]),
        (["--seeds", "-1"], ["seed"]),
        (["--methods", "psl,gaspl"], ["unknown method 'gaspl'", "did you mean 'gapsl'?"]),
        (["--methods", ""], ["--methods is empty"]),
        (["--dataset", "digit"], ["did you mean 'digits'?"]),
        (["--set", "gapsl.k_min=0.9"], ["k_min (0.9)"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_a_comparison_is_refused_before_any_run_starts(
    cli: Launcher, tmp_path: Path, given: list[str], words: list[str]
) -> None:
    assert_refused(cli.run("compare", *TINY, *given, "--out", tmp_path / "comparison"), *words)
    assert not (tmp_path / "comparison").exists()


def test_a_data_file_cut_short(cli: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(bytes(3073 * 9))
    for command in (
        ["data", "get", "cifar10"],
        ["train", "--dataset", "cifar10", "--out", str(tmp_path / "run")],
    ):
        ended = cli.run(*command, "--data-dir", tmp_path)
        assert_refused(ended, "data_batch_1.bin", "truncated", "extract cifar-10-binary.tar.gz again")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["model", "vgg"], ["did you mean 'vgg16'?"]),
        (["model", "vgg16", "--cut", "99"], ["no cut 99", "1 to 13"]),
        (["model", "vgg16", "--input", "3x32"], ["CHANNELSxHEIGHTxWIDTH"]),
        (["model", "vgg16", "--norm", "layer"], ["unknown norm 'layer'"]),
        (["methods", "gaspl"], ["did you mean 'gapsl'?"]),
        (["data", "get", "cifar"], ["did you mean 'cifar10'?"]),
        (["data", "get", "folder:/nowhere"], ["folder:/nowhere", "no such folder"]),
        (["data", "show", "--partition", "shards:11"], ["shards:11", "up to 10"]),
        (["data", "show", "--save", "/proc/gapsl.json"], ["/proc/gapsl.json", "another folder"]),
        (["data", "show", "--png", "/proc/gapsl.png"], ["/proc/gapsl.png"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_other_commands_refuse_as_clearly(cli: Launcher, command: list[str], words: list[str]) -> None:
    assert_refused(cli.run(*command), *words)


def test_labels_out_of_range() -> None:
    inputs = torch.zeros(20, 1, 4, 4)
    good, bad = TensorDataset(inputs, torch.arange(20) % 2), TensorDataset(inputs, torch.arange(20) % 2 - 1)
    good.classes = bad.classes = ["cat", "dog"]
    with pytest.raises(gapsl.InputError, match=r"test sample 0 has label -1.*2 classes"):
        gapsl.train(dataset=(good, bad), **SMALL)
    good.classes = ["cat"]
    with pytest.raises(gapsl.InputError, match=r"train sample 1 has label 1.*1 classes"):
        gapsl.train(dataset=(good, good), **SMALL)


# --- training that cannot go on: exit code 3 ----------------------------------------------------------------


def test_an_exploding_learning_rate_stops_training_with_code_3(cli: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    exploding = ["--method", "psl", "--set", "server_optimizer.lr=1e9", "--checkpoint-every", "1"]
    for command in (["train", *TINY, *exploding, "--out", str(folder)], ["resume", str(folder)]):
        ended = cli.run(*command)
        assert ended.code == 3
        assert "Traceback" not in ended.stderr
        for word in (
            "round 3",
            "all devices were outliers (device 0: its loss or gradient is not finite",
            str(folder / "checkpoints" / "round-000002"),
            "learning rate",
        ):
            assert word in ended.stderr
    assert not (folder / "result.json").exists()
    assert [record.round for record in records_of(folder)] == [1, 2, 3]
    assert list(records_of(folder)[2].skipped) == [0, 1, 2, 3]


def test_a_comparison_whose_run_stops_ends_with_code_3_and_names_it(cli: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    ended = cli.run("compare", *TINY, "--methods", "psl", "--set", "server_optimizer.lr=1e9", "--out", out)
    assert ended.code == 3
    assert "psl-seed0: training stopped in round 3" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_inputs_that_are_no_numbers_stop_training() -> None:
    broken = TensorDataset(torch.full((30, 1, 4, 4), torch.nan), torch.arange(30) % 3)
    with pytest.raises(gapsl.TrainingStopped, match="round 1: all devices were outliers") as stopped:
        gapsl.train(dataset=(broken, broken), partition="iid", **SMALL)
    assert stopped.value.exit_code == 3


def test_one_device_without_numbers_ends_nobody_s_run() -> None:
    """The others go on without it."""
    inputs = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 3
    inputs[labels == 2] = torch.nan
    rounds: list[int] = []

    class Listener(gapsl.Observer):
        def round(self, record: Any) -> None:
            rounds.append(record.round)
            assert len(record.skipped) == 1

    data = TensorDataset(inputs, labels)
    settings = {**SMALL, "rounds": 20, "partition": "shards:1"}
    assert gapsl.train(dataset=(data, data), observers=[Listener()], **settings) is not None
    assert rounds == list(range(1, 21))
