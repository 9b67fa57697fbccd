"""A run goes on beyond its end as if it had been planned so, where nothing depends on the end."""

import pytest
from quick import QUICK

import gapsl
from gapsl.common.errors import InputError
from gapsl.run.folder import RunFolder

EXACT = ["psl", "epsl", "frozen", "papsl"]
STRETCHED = ["gapsl", "sfl"]


def train(rounds, out=None, **settings):
    return gapsl.train(**{**QUICK, "rounds": rounds, "evaluate_every": 2, **settings}, out=out)


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("finished", [True, False])
def test_training_longer_is_what_it_would_have_been(method, finished, tmp_path, caplog):
    out, calls = tmp_path / "run", iter(range(1, 100))
    settings = {"method": method, "server_optimizer": {"schedule": "step", "step_every": 3}}
    if finished:
        train(4, out, **settings)
    else:
        stop = lambda: next(calls) >= 3  # noqa: E731
        assert (
            gapsl.train(**{**QUICK, "rounds": 4, "evaluate_every": 2, **settings}, out=out, stop=stop) is None
        )
    longer = gapsl.resume(out, rounds=7)
    assert longer.final.weights_sha256 == train(7, **settings).final.weights_sha256
    assert longer.rounds == 7 and longer.config["extended_to"] == 7
    assert not longer.extended and not caplog.messages
    assert [record.round for record in RunFolder.open(out).records()] == list(range(1, 8))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        *(({"method": method}, "depends on the number of rounds") for method in STRETCHED),
        ({"method": "psl", "device_optimizer": {"schedule": "cosine"}}, "is stretched"),
    ],
)
def test_what_depends_on_the_end_is_warned_of_and_told_by_the_result(settings, why, tmp_path, caplog):
    train(4, tmp_path / "run", **settings)
    longer = gapsl.resume(tmp_path / "run", rounds=6)
    assert longer.extended and longer.rounds == 6
    (message,) = caplog.messages
    assert why in message
    with pytest.raises(InputError, match="was extended"):
        gapsl.replay(tmp_path / "run")


def test_an_extended_run_keeps_its_identity_its_first_result_and_its_new_end(tmp_path):
    out = tmp_path / "run"
    first = train(4, out, method="psl")
    calls = iter(range(1, 100))
    assert gapsl.resume(out, rounds=8, stop=lambda: next(calls) >= 2) is None
    assert gapsl.resume(out).rounds == 8, "it remembers how long it is to be"
    assert first.final.weights_sha256 in (out / "result-000004.json").read_text()
    assert gapsl.resume(out, rounds=8).rounds == 8, "nothing is left to do"


@pytest.mark.parametrize("rounds", [1, 3])
def test_fewer_rounds_are_refused(rounds, tmp_path):
    train(4, tmp_path / "run", method="psl")
    with pytest.raises(InputError, match="4 rounds already; to train longer, give more"):
        gapsl.resume(tmp_path / "run", rounds=rounds)
    assert RunFolder.open(tmp_path / "run").result().rounds == 4


def test_an_extension_is_not_shortened_and_what_was_planned_is_no_extension(tmp_path):
    out, calls = tmp_path / "run", iter(range(1, 100))
    train(4, out, method="gapsl")
    assert gapsl.resume(out, rounds=20, stop=lambda: next(calls) >= 3) is None
    with pytest.raises(InputError, match="20 rounds already; to train longer, give more"):
        gapsl.resume(out, rounds=10)
    again, calls = tmp_path / "again", iter(range(1, 100))
    settings = {**QUICK, "rounds": 4, "method": "gapsl"}
    assert gapsl.train(**settings, out=again, stop=lambda: next(calls) >= 2) is None
    assert not gapsl.resume(again, rounds=4).extended


def test_a_new_run_is_not_extended(tmp_path):
    with pytest.raises(InputError, match="set rounds = N"):
        train(4, tmp_path / "run", method="psl", extended_to=6)


def test_more_rounds_than_settings_hold_are_refused_before_they_are_written(tmp_path):
    train(2, tmp_path / "run", method="psl")
    with pytest.raises(InputError, match="extended_to: give 1000000000 or less"):
        gapsl.resume(tmp_path / "run", rounds=10**10)
    assert gapsl.resume(tmp_path / "run").rounds == 2


def test_a_run_that_cannot_go_on_is_left_as_it_is(tmp_path, caplog):
    out = tmp_path / "run"
    train(4, out)
    records = out / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-50])
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(InputError, match="lacks rounds that its checkpoints have: its run is finished"):
        gapsl.resume(out, rounds=7)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert not caplog.messages
