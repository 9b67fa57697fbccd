"""A run resumed from a checkpoint is the run that was never interrupted, to the bit, for every method."""

import os
import shutil

import pytest
from processes import CLOCKED
from quick import QUICK

import gapsl
from gapsl.common.errors import InputError
from gapsl.run.folder import RunFolder

# Everything that has state: momentum, AdamW, dropout, BatchNorm, partial participation, running spreads.
MIXED = {
    **QUICK, "rounds": 6, "devices": 5, "participation": 0.6, "partition": "unequal:1",
    "model": "small", "norm": "batch", "dropout": 0.2, "validation": 0.1, "evaluate_every": 2,
    "curve_samples": 7,
    "device_optimizer": {"lr": 0.05, "schedule": "cosine"},
    "server_optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.05, "warmup": 2},
    "sfl": {"interval": 4}, "vanilla": {"turn": "pass"},
}  # fmt: skip


def settings_of(method):
    # Probes would be in the devices' batch statistics.
    return {**MIXED, "method": method, **({"norm": "group"} if method == "papsl" else {})}


class Killed(BaseException):
    pass


class KilledIn(gapsl.Observer):
    """Ends the process's work as a crash would: the record is written, the checkpoint is not."""

    def __init__(self, round):
        self.at = round

    def round(self, record):
        if record.round == self.at:
            raise Killed


def stop_after(rounds):
    calls = iter(range(1, 1000))
    return lambda: next(calls) >= rounds


def timeless(value):
    """A result without what the clock says."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in (*CLOCKED, "schema")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def records(out):
    return [timeless(record.to_dict()) for record in RunFolder.open(out).records()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    done = {}

    def run(method):
        if method not in done:
            out = tmp_path_factory.mktemp("whole") / "run"
            done[method] = gapsl.train(out=out, **settings_of(method)), records(out)
        return done[method]

    return run


@pytest.mark.parametrize("method", list(gapsl.METHODS))
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(method, uninterrupted, tmp_path):
    out = tmp_path / "run"
    assert gapsl.train(out=out, stop=stop_after(3), **settings_of(method)) is None
    result = gapsl.resume(out)
    expected, lines = uninterrupted(method)
    assert result.final.weights_sha256 == expected.final.weights_sha256
    assert timeless(result.to_dict()) == timeless(expected.to_dict())
    assert records(out) == lines


@pytest.mark.parametrize("method", list(gapsl.METHODS))
def test_a_killed_run_goes_on_from_its_last_checkpoint(method, uninterrupted, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Killed):
        gapsl.train(out=out, observers=[KilledIn(4)], **settings_of(method), checkpoint_every=3)
    result = gapsl.resume(out)
    expected, lines = uninterrupted(method)
    assert result.final.weights_sha256 == expected.final.weights_sha256
    assert records(out) == lines


def test_a_run_killed_before_its_first_checkpoint_starts_again(uninterrupted, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Killed):
        gapsl.train(method="gapsl", out=out, observers=[KilledIn(2)], **MIXED, checkpoint_every=5)
    assert not RunFolder.open(out).checkpoints.exists()
    result = gapsl.resume(out)
    assert result.final.weights_sha256 == uninterrupted("gapsl")[0].final.weights_sha256
    assert records(out) == uninterrupted("gapsl")[1]


def test_a_run_can_be_stopped_again_and_again(uninterrupted, tmp_path):
    out = tmp_path / "run"
    assert gapsl.train(method="gapsl", out=out, stop=stop_after(1), **MIXED) is None
    for _ in range(4):
        assert gapsl.resume(out, stop=stop_after(1)) is None
    result = gapsl.resume(out, stop=stop_after(1))  # the last round ends it, asked to stop or not
    assert result.final.weights_sha256 == uninterrupted("gapsl")[0].final.weights_sha256


def test_how_often_it_checkpoints_does_not_make_it_another_run(uninterrupted, tmp_path):
    out = tmp_path / "run"
    gapsl.train(method="psl", out=out, stop=stop_after(2), **MIXED)
    result = gapsl.resume(out, checkpoint_every=1, keep_checkpoints=3)
    assert result.final.weights_sha256 == uninterrupted("psl")[0].final.weights_sha256
    assert [path.name for path in sorted(RunFolder.open(out).checkpoints.iterdir())] == [
        "round-000004", "round-000005", "round-000006",
    ]  # fmt: skip


def test_a_finished_run_s_result_is_returned_as_it_is(tmp_path):
    out = tmp_path / "run"
    result = gapsl.train(out=out, **QUICK)
    assert gapsl.resume(out) == result


def test_the_record_that_a_crash_cut_short_is_trained_again(uninterrupted, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Killed):
        gapsl.train(method="psl", out=out, observers=[KilledIn(4)], **MIXED, checkpoint_every=2)
    file = RunFolder.open(out).records_file
    file.write_bytes(file.read_bytes()[:-40])
    gapsl.resume(out)
    assert records(out) == uninterrupted("psl")[1]


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_serves(uninterrupted, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Killed):
        gapsl.train(method="psl", out=out, observers=[KilledIn(5)], **MIXED, checkpoint_every=2)
    newest = out / "checkpoints" / "round-000004"
    broken = newest / "server.safetensors"
    content = bytearray(broken.read_bytes())
    content[-1] ^= 1
    broken.write_bytes(content)
    with pytest.raises(InputError, match=r"round-000004.*server\.safetensors") as refusal:
        gapsl.resume(out)
    assert f"delete {newest}" in str(refusal.value)
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    result = gapsl.resume(out)
    assert result.final.weights_sha256 == uninterrupted("psl")[0].final.weights_sha256


def test_another_seed_s_checkpoint_is_refused(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    gapsl.train(out=mine, stop=stop_after(2), **QUICK)
    gapsl.train(out=theirs, stop=stop_after(3), **QUICK, seed=1)
    (theirs / "checkpoints" / "round-000003").rename(mine / "checkpoints" / "round-000003")
    with pytest.raises(InputError, match="another run"):
        gapsl.resume(mine)


def test_a_folder_with_a_run_in_it_is_not_trained_over(tmp_path):
    gapsl.train(out=tmp_path / "run", stop=stop_after(1), **QUICK)
    with pytest.raises(InputError, match="gapsl resume"):
        gapsl.train(out=tmp_path / "run", **QUICK)


def test_a_run_that_has_lost_its_checkpoints_does_not_begin_anew_unasked(tmp_path):
    out = tmp_path / "run"
    gapsl.train(**{**MIXED, "method": "psl", "checkpoint_every": 2}, out=out, stop=stop_after(5))
    shutil.rmtree(out / "checkpoints")
    before = (out / "records.jsonl").read_bytes()
    with pytest.raises(InputError, match="has lost its checkpoints, and its records go to round 5"):
        gapsl.resume(out)
    assert (out / "records.jsonl").read_bytes() == before
    (out / "records.jsonl").unlink()
    assert gapsl.resume(out).rounds == 6


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of one round that has no result."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    gapsl.train(**{**QUICK, "rounds": 1}, out=out)
    (out / "result.json").unlink()
    return out


def link_to_nowhere(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("instead", [os.mkdir, os.mkfifo, link_to_nowhere])
@pytest.mark.parametrize(
    "name", ["environment.json", "model.json", "partition.json", "records.jsonl", "result.json", "told"]
)
def test_what_is_no_file_where_a_run_has_one_is_refused(name, instead, stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    (out / name).unlink(missing_ok=True)
    instead(out / name)
    with pytest.raises(InputError, match=f"{name} is no file; put it back from a copy of the folder, or rem"):
        gapsl.resume(out)


def test_a_lock_that_is_a_pipe_keeps_nobody_waiting(tmp_path):
    out = tmp_path / "run"
    gapsl.train(**{**QUICK, "rounds": 1}, out=out)
    for name in (".lock", "result.json"):
        (out / name).unlink()
    os.mkfifo(out / ".lock")
    assert gapsl.status(out).state == "stopped"
