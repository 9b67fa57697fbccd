"""A device's own checkpoints: whole or not there, and never another's past."""

import resource

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.tensors import digest
from gapsl.network.device.store import KEPT, Store

CPU = torch.device("cpu")


def state(value=1.0):
    return {
        "model.weight": torch.full((3, 4), value),
        "model.count": torch.tensor(7, dtype=torch.int64),
        "optimizer.0.momentum": torch.full((5,), value, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
    }


def rounds(store):
    return [found.round for found in store.stored()]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run" / "cam")


def test_a_file_that_has_lost_its_digest_is_not_believed(store):
    store.write(5, 1, state())
    path = store.folder / "round-000005.safetensors"
    path.write_bytes(path.read_bytes().replace(b"sha256", b"sha257"))
    with pytest.raises(InputError, match="is damaged; delete it to go on from an older one"):
        store.read(5, torch.device("cpu"))


def test_a_device_that_has_stored_nothing_has_nothing_to_restore(store):
    assert store.stored() == []


def test_what_is_read_is_what_was_written_bit_for_bit(store):
    written = state(0.1)
    written["odd"] = torch.arange(12.0).view(3, 4).t()  # not contiguous
    store.write(5, 42, written)
    read = store.read(5, CPU)
    assert read.keys() == written.keys()
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor)


def test_a_state_is_known_by_its_round_and_generation(store):
    store.write(5, 42, state())
    store.write(10, 2**62 + 1, state())
    assert [(s.round, s.generation) for s in store.stored()] == [(5, 42), (10, 2**62 + 1)]


def test_the_oldest_make_room(store):
    for round in range(5, 5 * (KEPT + 3), 5):
        store.write(round, 1, state())
    assert rounds(store) == list(range(5, 5 * (KEPT + 3), 5))[-KEPT:]


def test_a_round_that_is_trained_again_replaces_the_first_attempt(store):
    store.write(5, 1, state(1.0))
    store.write(5, 2, state(2.0))
    assert [(s.round, s.generation) for s in store.stored()] == [(5, 2)]
    assert float(store.read(5, CPU)["model.weight"][0, 0]) == 2.0


def test_going_back_drops_what_came_after(store):
    for round in (5, 10, 15):
        store.write(round, 1, state())
    store.forget_after(5)
    assert rounds(store) == [5]
    store.forget_after(0)
    assert rounds(store) == []


def test_a_process_killed_while_it_writes_leaves_the_others_as_they_were(store):
    store.write(5, 1, state())
    draft = store.folder / ".draft-4711"
    draft.write_bytes((store.folder / "round-000005.safetensors").read_bytes()[:100])
    assert rounds(store) == [5]
    store.write(10, 1, state())
    assert rounds(store) == [5, 10]
    assert not draft.exists(), "and its draft does not lie about for ever"


def test_a_file_that_cannot_be_read_is_no_state(store):
    store.write(5, 1, state())
    store.write(10, 1, state())
    (store.folder / "round-000010.safetensors").write_bytes(b"\x00" * 50)
    (store.folder / "round-000011.safetensors").write_bytes(b"")
    (store.folder / "round-x.safetensors").write_bytes(b"")
    assert rounds(store) == [5]


def test_a_damaged_file_is_refused_with_what_to_do(store):
    store.write(5, 1, state())
    path = store.folder / "round-000005.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"round-000005\.safetensors is damaged; delete it to go on from an older"
    ):
        store.read(5, CPU)


def test_a_round_that_is_not_there_is_named(store):
    with pytest.raises(InputError, match=r"round-000009\.safetensors cannot be read"):
        store.read(9, CPU)


def test_a_full_disk_stops_with_a_word_and_without_damage(store):
    store.write(5, 1, state())
    large = {"model.weight": torch.zeros(100_000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # as a file system with so much left
    try:
        with pytest.raises(
            Unavailable, match=r"cannot write .*round-000010.*make room, and start the device again"
        ):
            store.write(10, 1, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in store.folder.iterdir()] == ["round-000005.safetensors"]
    assert torch.equal(store.read(5, CPU)["model.weight"], state()["model.weight"])
    store.write(10, 1, large)
    assert rounds(store) == [5, 10]


def test_a_device_that_starts_on_a_full_disk_may_come_again(store, monkeypatch):
    def full(*arguments, **words):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("gapsl.common.tensors.save_file", full)
    with pytest.raises(Unavailable, match="No space left on device; make room, and try again"):
        store.check()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(Unavailable, match="cannot write"):
        Store(tmp_path / "run" / "cam").write(5, 1, state())


def test_anothers_checkpoints_are_refused_by_name_and_stay_as_they_are(tmp_path):
    other = Store(tmp_path / "cam", "run/other")
    other.write(5, 1, state())
    with pytest.raises(InputError, match=r"is of run/other, not of run/cam; put it back where it was"):
        Store(tmp_path / "cam", "run/cam").check()
    other.check()
    assert rounds(other) == [5]


def test_checkpoints_that_do_not_say_whose_they_are_are_ones_own(tmp_path):
    store = Store(tmp_path / "cam", "run/cam")
    store.write(5, 1, state())
    plain = store.read(5, CPU)
    save_file(plain, store.folder / "round-000005.safetensors", {"generation": "1", "sha256": digest(plain)})
    store.check()
    assert rounds(store) == [5]


def test_a_folder_is_tried_before_it_is_needed(tmp_path):
    store = Store(tmp_path / "run" / "cam", "run/cam")
    store.check()
    assert list(store.folder.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write to .*choose another --state"):
        Store(tmp_path / "file" / "cam").check()
