"""What a run leaves in its folder, and that it says everything needed to repeat the run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from processes import TINY, Launcher, records_of, result_of, strict_json, timeless, weights_of

import gapsl
from conftest import Runs
from gapsl.methods.registry import METHODS
from gapsl.run.config import Config
from gapsl.run.records import RoundRecord

MEASURES = {"device_mean", "device_std", "device_min", "device_max", "ensemble", "merged", "local"}
PHASES = {"collect", "server", "deliver", "move"}


def test_a_run_folder_has_everything_and_nothing_else(undisturbed: Runs) -> None:
    folder = undisturbed("--seed", "3")
    shown = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    files = {
        "config.yaml",
        "environment.json",
        "model.json",
        "partition.json",
        "records.jsonl",
        "result.json",
    }
    assert shown == files | {"checkpoints"}
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert kept == ["round-000035", "round-000040"]
    assert {path.suffix for path in (folder / "checkpoints").rglob("*.*")} == {".json", ".safetensors"}


def test_the_environment_names_versions_commit_and_machine(undisturbed: Runs) -> None:
    found = strict_json((undisturbed() / "environment.json").read_text(encoding="utf-8"))
    assert found["gapsl"] == gapsl.__version__
    for name in (
        "commit",
        "python",
        "torch",
        "numpy",
        "platform",
        "processor",
        "cores",
        "command",
        "started",
    ):
        assert found[name], name
    assert found["command"][1] == "train"


def test_the_stored_configuration_is_resolved_and_repeats_the_run(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    folder = undisturbed("--model", "small", "--set", "dropout=0.1", "--participation", "0.6", "--seed", "2")
    stored = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert stored == result_of(folder).config
    assert stored["gapsl"]["k_min"] == 0.2, "defaults are filled in"
    assert set(Config.model_fields) - {"sections"} <= set(stored)

    again = tmp_path / "again"
    ended = cli.run("train", "--config", folder / "config.yaml", "--out", again)
    assert ended.code == 0, ended.stderr
    assert timeless(result_of(again)) == timeless(result_of(folder))
    assert (again / "config.yaml").read_bytes() == (folder / "config.yaml").read_bytes()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    ended = cli.run("train", *TINY, "--seed", "1", "--out", tmp_path / "run")
    assert ended.code == 0, ended.stderr
    assert weights_of(tmp_path / "run") == weights_of(undisturbed("--seed", "1"))
    assert timeless(records_of(tmp_path / "run")) == timeless(records_of(undisturbed("--seed", "1")))
    assert weights_of(tmp_path / "run") != weights_of(undisturbed())


@pytest.mark.parametrize("method", ["gapsl", "psl", "vanilla"])
def test_there_is_one_record_a_round_with_what_is_measured(undisturbed: Runs, method: str) -> None:
    folder = undisturbed(*([] if method == "gapsl" else ["--method", method]))
    records = records_of(folder)
    assert [record.round for record in records] == list(range(1, 41))
    for record in records:
        assert (
            record.loss == pytest.approx(sum(record.losses.values()) / len(record.losses))
            or method == "vanilla"
        )
        assert len(record.bytes_sent) == len(record.bytes_received) == 4
        assert set(record.seconds) >= PHASES
        assert record.skipped == ()
        assert (record.evaluation is not None) == (record.round % 10 == 0)
        if method != "vanilla":  # vanilla has no two gradients at the same weights
            assert record.angles is not None and record.angles.devices == (0, 1, 2, 3)
            assert [len(row) for row in record.angles.above] == [3, 2, 1, 0]
            assert all(0 <= angle <= math.pi for row in record.angles.above for angle in row)
    if method == "gapsl":
        for record in records:
            chosen = record.selection
            assert chosen is not None
            assert list(chosen.scores) == list(chosen.lead_angles) == [0, 1, 2, 3]
            assert 0.2 <= chosen.ratio <= 0.8
            assert len(chosen.leader) == max(1, math.ceil(chosen.ratio * 4 - 1e-9))
            assert set(chosen.leader) <= {0, 1, 2, 3}
            below = {d for d in range(4) if chosen.lead_angles[d] <= chosen.threshold + 1e-9}
            assert set(chosen.kept) == below or (not below and chosen.kept)
            assert set(chosen.penalty) == set(chosen.kept)


def test_the_result_has_all_measures_and_the_bytes_of_every_device(undisturbed: Runs) -> None:
    folder = undisturbed()
    result, records = result_of(folder), records_of(folder)
    stored = strict_json((folder / "result.json").read_text(encoding="utf-8"))
    assert {"schema", "method", "seed", "rounds", "config", "final", "history"} <= set(stored)
    assert (stored["schema"], result.method, result.seed, result.rounds) == (2, "gapsl", 0, 40)
    assert [entry.round for entry in result.history] == [10, 20, 30, 40]
    for entry in [*result.history, result.final]:
        each = list(entry.device_accuracy.values())
        assert entry.device_mean == pytest.approx(sum(each) / 4)
        assert (entry.device_min, entry.device_max) == (min(each), max(each))
        mean = sum(each) / 4
        assert entry.device_std == pytest.approx(math.sqrt(sum((a - mean) ** 2 for a in each) / 4))
        assert all(0 <= getattr(entry, name) <= 1 for name in MEASURES)
        upto = [record for record in records if record.round <= entry.round]
        for name in ("bytes_sent", "bytes_received"):
            total = {d: sum(getattr(record, name)[d] for record in upto) for d in range(4)}
            assert getattr(entry, name) == total
    assert len(result.final.weights_sha256) == 64
    told = [record.evaluation for record in records if record.evaluation]
    assert list(result.history) == [replace(one, confusion=()) for one in told]
    assert told[-1].confusion == result.final.confusion != ()


def test_bytes_are_those_that_cross_the_cut_and_gapsl_sends_no_more_than_psl(undisturbed: Runs) -> None:
    ours, psl, sfl = (
        undisturbed(*a) for a in ([], ["--method", "psl"], ["--method", "sfl", "--set", "sfl.interval=10"])
    )
    first = records_of(ours)[0]
    assert first.bytes_sent == dict.fromkeys(range(4), 8 * 32 * 4 + 8 * 8), (
        "8 samples of 32 floats, and 8 labels"
    )
    assert first.bytes_received == dict.fromkeys(range(4), 8 * 32 * 4)
    final, of_psl, of_sfl = (result_of(folder).final for folder in (ours, psl, sfl))
    for name in ("bytes_sent", "bytes_received"):
        assert getattr(final, name) == getattr(of_psl, name)
        assert all(getattr(of_psl, name)[d] < getattr(of_sfl, name)[d] for d in range(4))


def test_every_method_writes_strict_json_even_where_a_class_has_no_test_sample(
    cli: Launcher, tmp_path: Path
) -> None:
    """With 5 test samples some classes have no accuracy: null, not NaN."""
    folder = tmp_path / "run"
    ended = cli.run("train", *TINY, "--rounds", "2", "--set", "test_samples=5", "--out", folder)
    assert ended.code == 0, ended.stderr
    assert None in result_of(folder).final.class_accuracy
    assert len(records_of(folder)) == 2


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].pooled])
def test_every_method_starts_from_the_same_weights_and_batches(method: str) -> None:
    """The first mini-batch of every device has the same loss, whatever the method makes of it."""

    def first_losses(name: str) -> dict[int, float]:
        found: list[dict[int, float]] = []

        class Listener(gapsl.Observer):
            def round(self, record: RoundRecord) -> None:
                found.append(dict(record.losses))

        gapsl.train(
            method=name,
            model="mlp",
            dropout=dropout,
            devices=3,
            rounds=1,
            batch_size=4,
            test_samples=9,
            vanilla={"turn": "batch"},
            probes=0,  # which would take rows of the batch
            balance="none",
            observers=[Listener()],
        )
        return found[0]

    dropout = (
        0.0 if method == "frozen" else 0.2
    )  # whose client-side models do not train, so nothing drops out
    ours, psl = first_losses(method), first_losses("psl")
    if method == "single":  # the others are silent
        psl = {0: psl[0]}
    if method == "vanilla":  # the devices after the first get client-side models that have stepped
        assert set(ours) == set(psl)
        assert ours[0] == psl[0]
    elif method == "sfl-v2":  # the devices after the first meet a server that has stepped
        assert sum(ours[device] == psl[device] for device in psl) >= 1
    else:
        assert ours == psl


def test_tensorboard_events_are_written_if_asked_for(cli: Launcher, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    ended = cli.run("train", *TINY, "--rounds", "20", "--tensorboard", "--out", folder)
    assert ended.code == 0, ended.stderr
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert losses == [(r.round, pytest.approx(r.loss)) for r in records_of(folder)]
    accuracy = [(event.step, event.value) for event in events.Scalars("accuracy/device_mean")]
    assert accuracy == [(e.round, pytest.approx(e.device_mean)) for e in result_of(folder).history]


def test_a_stored_partition_repeats_the_division_in_another_run(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    stored = undisturbed() / "partition.json"
    folder = tmp_path / "run"
    ended = cli.run(
        "train", *TINY, "--rounds", "1", "--seed", "7", "--partition", f"file:{stored}", "--out", folder
    )
    assert ended.code == 0, ended.stderr
    ours, theirs = (
        json.loads(path.read_text(encoding="utf-8")) for path in (folder / "partition.json", stored)
    )
    assert ours["devices"] == theirs["devices"]
    assert ours["schema"] == 1
    assert sorted(index for own in ours["devices"] for index in own) == list(range(1437))
    assert (
        theirs["devices"]
        != json.loads((undisturbed("--seed", "1") / "partition.json").read_text("utf-8"))["devices"]
    )


def test_a_stored_partition_serves_runs_on_another_part_of_the_test_set(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    """A partition divides the training samples; the test samples are none of its business."""
    stored, folder = undisturbed() / "partition.json", tmp_path / "run"
    settings = ["--rounds", "1", "--set", "test_samples=90", "--partition", f"file:{stored}"]
    ended = cli.run("train", *TINY, *settings, "--out", folder)
    assert ended.code == 0, ended.stderr


def test_with_a_validation_split_history_is_on_it_and_the_test_set_is_read_once(undisturbed: Runs) -> None:
    folder = undisturbed("--validation", "0.1")
    result = result_of(folder)
    assert [entry.split for entry in result.history] == ["validation"] * 4
    assert {r.evaluation.split for r in records_of(folder) if r.evaluation is not None} == {"validation"}
    assert result.final.split == "test"
    assert result.final.validation == result.history[-1]
    assert result.final.weights_sha256
    partition = json.loads((folder / "partition.json").read_text(encoding="utf-8"))
    assert len(partition["validation"]) == round(0.1 * 1437)
    assert not set(partition["validation"]) & {index for own in partition["devices"] for index in own}
    # 60 test samples, 144 held out: an accuracy tells which set it is of.
    assert all(60 * a == pytest.approx(round(60 * a)) for a in result.final.device_accuracy.values())
    for entry in result.history:
        assert all(144 * a == pytest.approx(round(144 * a)) for a in entry.device_accuracy.values())
