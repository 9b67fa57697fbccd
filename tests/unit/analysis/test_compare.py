"""`gapsl.compare`: names and objects of one's own, in this process and in others, begun and gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import gapsl
from gapsl.analysis.compare import default_workers, name_of
from gapsl.methods.psl import Psl
from gapsl.run.config import make_config

TINY = {"model": "mlp", "width": 0.25, "devices": 3, "partition": "iid", "rounds": 3, "batch_size": 8}
FEW = {"train_samples": 100, "test_samples": 30}


class Mine(Psl):
    """A method that only this program has."""

    summary = "PSL under another name"


@pytest.fixture
def own() -> dict[str, object]:
    """A model and data that have no name."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(90, 1, 4, 4, generator=generator), torch.arange(90) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    data = TensorDataset(inputs[:60], labels[:60]), TensorDataset(inputs[60:], labels[60:])
    return {"model": model, "dataset": data, "cut": 2, "devices": 3, "rounds": 3, "batch_size": 4}


def weights(results) -> list[str]:
    return [result.final.weights_sha256 for result in results]


def test_names_in_this_process_and_in_others_give_what_single_runs_give(tmp_path: Path) -> None:
    here = gapsl.compare(["psl", "gapsl"], seeds=[0, 1], out=tmp_path / "here", **TINY, **FEW)
    there = gapsl.compare(["psl", "gapsl"], seeds=[0, 1], out=tmp_path / "there", workers=1, **TINY, **FEW)
    named = [(result.method, result.seed) for result in here.results]
    assert named == [("psl", 0), ("gapsl", 0), ("psl", 1), ("gapsl", 1)]
    alone = gapsl.train(method="gapsl", seed=1, **TINY, **FEW)
    assert weights(here.results) == weights(there.results)
    assert weights(here.results)[-1] == weights([alone])[0]
    assert not here.failures and not here.stopped
    assert [path.name for path in sorted((tmp_path / "here").iterdir())] == [
        "gapsl-seed0", "gapsl-seed1", "order.json", "psl-seed0", "psl-seed1",
    ]  # fmt: skip
    assert len(here.table().numbers) == 2, "a row per method"


@pytest.mark.filterwarnings("error")
def test_objects_of_ones_own_reach_other_processes(tmp_path: Path, own: dict[str, object]) -> None:
    here = gapsl.compare([Mine, "psl"], out=tmp_path / "here", **own)
    there = gapsl.compare([Mine, "psl"], out=tmp_path / "there", workers=2, **own)
    assert not there.failures, there.failures
    assert [result.method for result in there.results] == ["mine", "psl"]
    assert weights(here.results) == weights(there.results)
    assert len(set(weights(here.results))) == 1, "the same method under two names"
    assert name_of(Mine) == "mine", "it is registered once"


def test_a_registered_name_that_only_this_process_knows_reaches_other_processes(tmp_path: Path) -> None:
    name_of(Mine)
    done = gapsl.compare(["mine"], out=tmp_path / "out", workers=1, **TINY, **FEW)
    assert not done.failures and len(done.results) == 1


def test_what_is_there_is_not_done_again_and_what_was_stopped_goes_on(tmp_path: Path) -> None:
    asked = iter([False] * 3 + [True] * 9)
    out = tmp_path / "out"
    words = {**TINY, **FEW, "checkpoint_every": 1}
    first = gapsl.compare(["psl", "sfl"], out=out, stop=lambda: next(asked), **words)
    assert first.stopped and not first.failures and len(first.results) < 2
    second = gapsl.compare(["psl", "sfl"], out=out, **words)
    assert [result.method for result in second.results] == ["psl", "sfl"]
    before = (out / "psl-seed0" / "result.json").stat()
    assert weights(gapsl.compare(["psl"], out=out, **words).results) == weights(second.results)[:1]
    assert (out / "psl-seed0" / "result.json").stat() == before
    alone = gapsl.train(method="sfl", **words)
    assert weights([alone]) == weights(second.results[1:])


def test_a_run_that_fails_keeps_no_other_from_its_end_and_says_why() -> None:
    class Diverging(Psl):
        summary = "sends nothing but infinity"

        def reply(self, gradient, device, members):
            return super().reply(gradient * float("nan"), device, members)

    for workers in (0, 1):
        done = gapsl.compare([Diverging, "psl"], workers=workers, **{**TINY, "rounds": 8}, **FEW)
        assert [result.method for result in done.results] == ["psl"]
        (failure,) = done.failures.values()
        assert failure.code == gapsl.TrainingStopped.exit_code
        assert "finite" in failure.message


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, own: dict[str, object]) -> None:
    out = tmp_path / "out"
    for words, message in (
        ({"methods": []}, "name one method or more"),
        ({"methods": ["psl"], "seeds": []}, "one seed or more"),
        ({"methods": ["pls"]}, "did you mean 'psl'"),
        ({"methods": ["psl"], "seed": 3}, "takes seeds"),
        ({"methods": ["psl"], "method": "sfl"}, "takes methods"),
        ({"methods": ["psl"], "devices": 1000}, "devices"),
        ({"methods": ["psl"], "workers": 2, "threads": 2, **own}, "workers=0"),
    ):
        with pytest.raises(gapsl.InputError, match=message):
            gapsl.compare(**{"out": out, **TINY, **FEW, **words})
        assert not out.exists()


def test_one_run_shows_its_progress_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = iter([False, True])
    words = {**TINY, **FEW, "out": tmp_path / "run", "method": "psl"}
    assert gapsl.train(progress=True, stop=lambda: next(asked), **words) is None
    gapsl.resume(tmp_path / "run", progress=True)
    shown = capsys.readouterr().out
    assert "psl: going on from round 2 of 3" in shown and "psl: round 3/3 loss" in shown


def test_progress_is_shown_and_a_comparison_becomes_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    done = gapsl.compare(["psl"], seeds=[0, 1], progress=True, **TINY, **FEW)
    assert "psl-seed1: round 3/3 loss" in capsys.readouterr().out
    assert done.to_pandas()["seed"].tolist() == [0, 1]
    assert "seeds 0, 1" in str(done.table())


def test_settings_that_a_preset_keeps_against_those_asked_for_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"device_optimizer": {"lr": 0.05}, "probes": 4, "balance": "classes", **TINY, **FEW}
    gapsl.compare(["psl", "recommended"], progress=True, stop=lambda: True, out=tmp_path / "out", **words)
    said = [line for line in capsys.readouterr().out.splitlines() if "keeps" in line]
    assert said == ["recommended keeps its own settings: probes=2, device_optimizer.lr=0.003"]
    gapsl.compare(["psl", "recommended"], progress=True, stop=lambda: True, out=tmp_path / "b", **TINY, **FEW)
    assert "keeps" not in capsys.readouterr().out


def test_runs_share_a_gpu_one_at_a_time_and_cores_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    there = [make_config({"device": name}) for name in ("cpu", "cuda", "mps")]
    assert [default_workers([config]) for config in there] == [64, 1, 1]
    assert default_workers(there) == 1
