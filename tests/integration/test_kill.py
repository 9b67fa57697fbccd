"""A run that was killed with `kill -9`, at any moment and however often, ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from faults import arranged
from processes import TINY, Command, Launcher, records_of, result_of, rounds_done, timeless

from conftest import Runs

# Everything that has a state of its own: dropout, BatchNorm, who takes part, momentum, AdamW, hand-overs.
VARIANTS = {
    "gapsl": [
        "--model", "small", "--set", "norm=batch", "--set", "dropout=0.2", "--participation", "0.6",
    ],
    "sfl": ["--method", "sfl", "--set", "sfl.interval=7", "--set", "server_optimizer.name=adamw"],
    "vanilla": ["--method", "vanilla", "--set", "server_optimizer.schedule=cosine"],
}  # fmt: skip

Moment = Callable[[Path], bool]


def folder_is_there(folder: Path) -> bool:
    return folder.exists()


def settings_are_written(folder: Path) -> bool:
    return (folder / "config.yaml").exists()


def data_is_divided(folder: Path) -> bool:
    return (folder / "partition.json").exists()


BEGINNING = (folder_is_there, settings_are_written, data_is_divided)


def after_round(round: int) -> Moment:
    return lambda folder: rounds_done(folder) >= round


def while_a_checkpoint_is_written_after(round: int) -> Moment:
    return lambda folder: rounds_done(folder) >= round and any((folder / "checkpoints").glob(".draft-*"))


def start_or_go_on(cli: Launcher, folder: Path, args: Iterable[str], env: Mapping[str, str] = {}) -> Command:
    """Do what a person would: `gapsl resume`, or the command again where there is no run yet."""
    if settings_are_written(folder):
        return cli.start("resume", folder, env=env)
    return cli.start("train", *TINY, *args, "--out", folder, env=env)


def killed_at(cli: Launcher, folder: Path, args: Iterable[str], moment: Moment | str) -> bool:
    """Start or go on with a run, kill it at a moment, and say whether the kill came in time.

    A moment that has a name in faults.py is met however fast the run is.
    """
    if isinstance(moment, str):
        env = arranged(f"kill@{moment}", folder.with_name(moment))
        return start_or_go_on(cli, folder, args, env).wait().code == -signal.SIGKILL
    # However late the kill comes, a run that begins is not beyond its first round.
    env = arranged("stall@recorded:round=1", folder.with_name(moment.__name__)) if moment in BEGINNING else {}
    command = start_or_go_on(cli, folder, args, env)
    command.until(lambda: moment(folder), "the moment to kill")
    command.kill()
    return command.code == -signal.SIGKILL


def assert_same_run(folder: Path, expected: Path) -> None:
    """Check that a run is another's twin in everything but time."""
    ours, theirs = result_of(folder), result_of(expected)
    assert ours.final.weights_sha256 == theirs.final.weights_sha256
    assert timeless(ours) == timeless(theirs)
    assert [record.round for record in records_of(folder)] == list(range(1, theirs.rounds + 1))
    assert timeless(records_of(folder)) == timeless(records_of(expected))
    assert (folder / "partition.json").read_bytes() == (expected / "partition.json").read_bytes()
    assert not list((folder / "checkpoints").glob(".draft-*"))


@pytest.mark.parametrize(
    ("variant", "moments"),
    [
        (
            "gapsl",
            [
                folder_is_there,
                settings_are_written,
                "recorded:round=3",  # there is no checkpoint yet
                "checkpoint:round=5",  # the first one
                "recorded:round=14",
                "checkpoint:round=20",
                "checkpoint:round=40",  # the last one; there is no result yet
            ],
        ),
        ("sfl", [data_is_divided, "checkpoint:round=10", "recorded:round=24"]),
        ("vanilla", ["recorded:round=1", "recorded:round=12", "checkpoint:round=30"]),
    ],
)
def test_killed_again_and_again_it_ends_with_the_same_weights(
    cli: Launcher, undisturbed: Runs, tmp_path: Path, variant: str, moments: list[Moment | str]
) -> None:
    folder, args = tmp_path / "run", VARIANTS[variant]
    for number, moment in enumerate(moments, start=1):
        assert killed_at(cli, folder, args, moment), f"the run ended before kill {number}"

    ended = start_or_go_on(cli, folder, args).wait()
    assert ended.code == 0, ended.stderr
    assert_same_run(folder, undisturbed(*args))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_thirty_kills_at_random_moments(
    cli: Launcher, undisturbed: Runs, tmp_path: Path, variant: str
) -> None:
    chance = random.Random(f"kills of {variant}")
    args, expected = VARIANTS[variant], undisturbed(*VARIANTS[variant])
    kills = runs = 0
    while kills < 30:
        runs += 1
        folder = tmp_path / f"run-{runs}"
        while not (folder / "result.json").exists() and kills < 30:
            done = rounds_done(folder)
            moments = [
                after_round(done + chance.randint(1, 9)),
                while_a_checkpoint_is_written_after(done + chance.randint(0, 9)),
                folder_is_there if not done else data_is_divided,
            ]
            kills += killed_at(cli, folder, args, chance.choices(moments, weights=[3, 3, 1])[0])
        ended = start_or_go_on(cli, folder, args).wait()
        assert ended.code == 0, f"after {kills} kills: {ended.stderr}"
        assert_same_run(folder, expected)
    assert runs > 1


def test_a_run_killed_before_its_settings_were_written_is_started_again_by_the_same_command(
    cli: Launcher, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.yaml.4711").write_text("method: ga", encoding="utf-8")  # a draft cut short

    ended = cli.run("resume", folder)
    assert ended.code == 2
    assert "gapsl train" in ended.stderr

    ended = cli.run("train", *TINY, "--rounds", "1", "--out", folder)
    assert ended.code == 0, ended.stderr
