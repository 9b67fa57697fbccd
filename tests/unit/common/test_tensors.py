"""Tensors in files: whole or not at all, listed by round, and checked when they are read."""

import os

import pytest
import torch

from gapsl.common.errors import InputError
from gapsl.common.files import locked, write_text
from gapsl.common.tensors import Rounds, digest, place_tensors, read_tensors, said_by, write_tensors

WEIGHT = torch.arange(6.0).view(2, 3)


def stored(folder, *rounds):
    found = Rounds(folder, ".safetensors")
    for round in rounds:
        place_tensors(found.path(round), {"weight": WEIGHT})
    return found


def test_rounds_are_listed_by_number_and_nothing_else_is(tmp_path):
    rounds = stored(tmp_path, 10, 2, 1_000_000)
    for other in ("round-x.safetensors", "round-000005", "round-.safetensors", "set-0-00001.safetensors"):
        (tmp_path / other).touch()
    assert list(rounds.found()) == [2, 10, 1_000_000]
    assert rounds.found()[2].name == "round-000002.safetensors"


def test_a_folder_that_is_not_there_has_no_rounds(tmp_path):
    assert Rounds(tmp_path / "none").found() == {}


def test_the_newest_are_kept_and_those_that_are_asked_for(tmp_path):
    rounds = stored(tmp_path, 0, 5, 10, 15)
    rounds.prune(2, but=(0,))
    assert list(rounds.found()) == [0, 10, 15]
    rounds.forget_after(10)
    assert list(rounds.found()) == [0, 10]


def test_folders_are_rounds_too(tmp_path):
    rounds = Rounds(tmp_path)
    for round in (1, 2, 3):
        rounds.path(round).mkdir()
        (rounds.path(round) / "file").touch()
    rounds.prune(1)
    assert list(rounds.found()) == [3]


def test_drafts_are_no_rounds_and_are_swept(tmp_path):
    rounds = stored(tmp_path, 1)
    rounds.draft().touch()
    (tmp_path / ".draft-4711").mkdir()
    assert list(rounds.found()) == [1]
    rounds.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001.safetensors"]


def test_a_crash_leaves_what_was_there(tmp_path, monkeypatch):
    rounds = stored(tmp_path, 1)

    def crash(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        place_tensors(rounds.path(1), {"weight": WEIGHT + 1})
    assert torch.equal(read_tensors(rounds.path(1))["weight"], WEIGHT)


def test_tied_tensors_are_written_once_each(tmp_path):
    write_tensors(tmp_path / "a", {"one": WEIGHT, "two": WEIGHT})
    found = read_tensors(tmp_path / "a")
    assert torch.equal(found["one"], WEIGHT) and torch.equal(found["two"], WEIGHT)


def test_a_file_says_what_it_was_told_to_and_one_that_cannot_be_read_nothing(tmp_path):
    place_tensors(tmp_path / "new" / "a", {}, owner="cam")
    assert said_by(tmp_path / "new" / "a") == {"owner": "cam"}
    (tmp_path / "b").write_bytes(b"no tensors")
    assert said_by(tmp_path / "b") == said_by(tmp_path / "c") == {}


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-4] + b"\1\2\3\4", lambda data: data.replace(b"sha2", b"sha3")]
)
def test_tensors_are_those_of_the_digest(tmp_path, damage):
    path = tmp_path / "a"
    place_tensors(path, {"weight": WEIGHT}, sha256=digest({"weight": WEIGHT}))
    assert torch.equal(read_tensors(path, checked=True)["weight"], WEIGHT)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match="is damaged; look elsewhere"):
        read_tensors(path, checked=True, way_out="look elsewhere")


def test_a_digest_depends_on_names_types_and_shapes():
    others = ({"other": WEIGHT}, {"weight": WEIGHT.view(3, 2)}, {"weight": WEIGHT.view(torch.int32)}, {})
    assert len({digest({"weight": WEIGHT}), *map(digest, others)}) == 5
    assert digest({"weight": WEIGHT.t().contiguous().t()}) == digest({"weight": WEIGHT})


def test_a_file_that_cannot_be_read_names_the_way_out(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read: .*; put it back from a copy"):
        read_tensors(tmp_path / "none")


def test_a_pipe_or_a_folder_is_no_file_of_tensors(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, why in {"pipe": "it is no file", "folder": "Is a directory"}.items():
        with pytest.raises(InputError, match=rf"{why}: .*; put it back from a copy"):
            read_tensors(tmp_path / name)
        assert said_by(tmp_path / name) == {}


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="a device or a pipe is there"):
        write_text(tmp_path / "pipe", "x")
    with pytest.raises(FileExistsError, match="a device or a pipe is there"):
        place_tensors(tmp_path / "pipe", {"weight": WEIGHT})
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="cannot write to"), locked(tmp_path / "run", "--out", "busy"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
