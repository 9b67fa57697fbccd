"""Checkpoints and records on disk: whole or not there, checked when read, refused with a way out."""

import json
import shutil

import pytest
import torch
from torch import nn

from gapsl.common.errors import InputError, Unavailable
from gapsl.fleets.local import LocalFleet
from gapsl.models.part import ModelPart, digest
from gapsl.run.checkpoint import Checkpoints
from gapsl.run.folder import RunFolder
from gapsl.run.records import RoundRecord

NOBODY = LocalFleet({}, {}, {})


def part_of(seed=0, width=3):
    torch.manual_seed(seed)
    return ModelPart(nn.Linear(2, width), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda t: 0.1)


@pytest.fixture
def store(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", run="mine", keep=2)


def write(store, round, part=None):
    return store.write(round, {"server": part or part_of(round)}, NOBODY, {"spread": [0.1, 1 / 3]})


def test_a_checkpoint_brings_back_its_part_and_its_state(store):
    part = part_of(1)
    part.step(1, torch.ones(part.size))
    write(store, 7, part)
    found = store.latest()
    other = part_of(2)
    found.load_part("server", other)
    assert found.round == 7
    assert found.state == {"spread": [0.1, 1 / 3]}
    assert digest(other.model) == digest(part.model)
    for one in (part, other):
        one.step(2, torch.ones(one.size))
    assert digest(other.model) == digest(part.model)


def test_before_the_first_checkpoint_there_is_none(store):
    assert store.latest() is None


def test_the_newest_are_kept_and_the_last_is_the_latest(store):
    for round in (2, 9, 10, 100):
        write(store, round)
    assert [path.name for path in store.found().values()] == ["round-000010", "round-000100"]
    assert store.latest().round == 100


def test_a_round_can_be_stored_again(store):
    write(store, 3, part_of(1))
    write(store, 3, part_of(2))
    found = part_of(5)
    store.latest().load_part("server", found)
    assert digest(found.model) == digest(part_of(2).model)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "server.safetensors").write_bytes(b""),
        lambda folder: (folder / "server.safetensors").unlink(),
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / "state.json").write_text('{"kind": "gapsl-checkpoint"'),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "state.json").write_text("{}"),
        lambda folder: (folder / "state.json").write_bytes(b"\xff\xfe\x00"),
    ],
    ids=["empty", "missing", "no-state", "cut", "list", "bare", "binary"],
)
def test_a_damaged_checkpoint_is_refused_and_the_way_out_named(store, damage):
    write(store, 2)
    folder = write(store, 4)
    damage(folder)
    with pytest.raises(InputError, match="damaged") as refusal:
        store.latest()
    assert f"delete {folder} to go on from the one after round 2" in str(refusal.value)


def test_a_single_flipped_bit_is_noticed(store):
    folder = write(store, 4)
    file = folder / "server.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"server\.safetensors is not what was written"):
        store.latest()


def test_a_damaged_checkpoint_leaves_the_one_before_it_usable(store):
    write(store, 3)
    newest = write(store, 4)
    (newest / "state.json").unlink()
    with pytest.raises(InputError):
        store.latest()
    shutil.rmtree(newest)
    assert store.latest().round == 3


@pytest.mark.parametrize(("key", "value"), [("schema", 2), ("kind", "something-else")])
def test_another_format_is_refused_with_both_versions_named(store, key, value):
    folder = write(store, 4)
    header = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**header, key: value}))
    with pytest.raises(InputError, match=f"{value!r}.*this gapsl reads"):
        store.latest()


def test_another_run_s_checkpoint_is_refused(store, tmp_path):
    write(store, 4)
    with pytest.raises(InputError, match="another run"):
        Checkpoints(tmp_path / "checkpoints", run="theirs", keep=2).latest()


def test_a_model_that_does_not_fit_is_refused(store):
    write(store, 4)
    with pytest.raises(InputError, match="does not fit"):
        store.latest().load_part("server", part_of(width=5))


def test_going_back_removes_what_came_after(store):
    for round in (10, 20, 30):
        write(store, round)
    store.forget_after(20)
    assert [path.name for path in store.found().values()][-1] == "round-000020"


def test_a_draft_that_a_killed_process_left_is_no_checkpoint_and_is_swept(store):
    write(store, 3)
    draft = store.folder / ".draft-99999"
    draft.mkdir()
    (draft / "server.safetensors").write_bytes(b"half of it")
    assert store.latest().round == 3
    store.tidy()
    assert not draft.exists()


def test_a_write_that_fails_leaves_the_older_checkpoints_and_no_draft(store):
    write(store, 3)

    class FullDisk:
        def save(self, folder, round):
            raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="No space left"):
        store.write(4, {"server": part_of()}, FullDisk(), {})
    assert [path.name for path in store.folder.iterdir()] == ["round-000003"]
    assert store.latest().round == 3


# Records


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def record_of(round, **values):
    known = {"loss": 0.5, "losses": {}, "bytes_sent": {}, "bytes_received": {}, "seconds": {}}
    return RoundRecord(**{"round": round, "epoch": 0.1 * round, **known, **values})


def test_records_come_back_as_they_were_written(folder):
    written = [record_of(round, loss=0.1 * round) for round in (1, 2, 3)]
    for record in written:
        folder.append(record)
    assert list(folder.records()) == written


def test_there_are_no_records_before_the_first_round(folder):
    assert list(folder.records()) == []


def test_what_is_no_number_is_null_and_keys_are_strings(folder):
    folder.append(record_of(1, loss=float("nan"), losses={1: 0.5}, details={"x": {0: float("inf")}}))
    (stored,) = map(json.loads, folder.records_file.read_text().splitlines())
    assert (stored["loss"], stored["losses"], stored["details"]) == (None, {"1": 0.5}, {"x": {"0": None}})


@pytest.mark.parametrize("cut", range(1, 18))
def test_a_last_record_cut_short_by_a_crash_is_left_out(folder, cut):
    for round in (1, 2):
        folder.append(record_of(round))
    content = folder.records_file.read_bytes()
    folder.records_file.write_bytes(content[:-cut])
    found = list(folder.records())
    assert found in ([record_of(1)], [record_of(1), record_of(2)])
    assert (len(found) == 2) == (cut == 1)  # only the end of the line is missing


@pytest.mark.parametrize("line", ["garbage", "[1, 2", "\ufffd\ufffd"])
def test_one_line_that_never_was_a_record_is_an_error_and_not_no_rounds(folder, line):
    folder.records_file.write_text(line)
    with pytest.raises(InputError, match="is damaged in line 1"):
        list(folder.records())


def test_a_damaged_record_before_the_last_is_an_error(folder):
    for round in (1, 2, 3):
        folder.append(record_of(round))
    lines = folder.records_file.read_text().splitlines(keepends=True)
    folder.records_file.write_text(lines[0] + lines[1][:5] + "\n" + lines[2])
    with pytest.raises(InputError, match="damaged"):
        list(folder.records())


def test_rounds_that_will_be_trained_again_are_forgotten(folder):
    for round in (1, 2, 3, 4):
        folder.append(record_of(round, loss=1 / 3))
    with folder.records_file.open("a") as file:
        file.write('{"round": 5, "lo')
    assert folder.forget_after(2) == [record_of(1, loss=1 / 3), record_of(2, loss=1 / 3)]
    folder.append(record_of(3))
    assert [record.round for record in folder.records()] == [1, 2, 3]
