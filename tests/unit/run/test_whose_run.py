"""A folder holds one comparison, and a run is one run: what differs is told, not mixed."""

import json
from pathlib import Path

import pytest

import gapsl
from gapsl.analysis.comparison_folder import lay_out, runs_in
from gapsl.analysis.workers import Job
from gapsl.run.api import compose
from gapsl.run.config import make_config

TINY = {"model": "mlp", "devices": 3, "partition": "iid", "rounds": 4, "test_samples": 30}


def job(out: Path, method: str, **words) -> Job:
    return Job(f"{method}-seed0", out / f"{method}-seed0", make_config({**TINY, "method": method, **words}))


def test_a_comparison_grows_by_methods_but_not_by_other_settings(tmp_path):
    lay_out(tmp_path, [job(tmp_path, "psl")], {})
    lay_out(tmp_path, [job(tmp_path, "gapsl", gapsl={"eta": 0.1})], {})
    assert [run.path.name for run in runs_in(tmp_path)] == ["psl-seed0", "gapsl-seed0"]
    with pytest.raises(gapsl.InputError, match=r"another comparison in it \(rounds differ in"):
        lay_out(tmp_path, [job(tmp_path, "sfl", rounds=5)], {})
    assert [run.path.name for run in runs_in(tmp_path)] == ["psl-seed0", "gapsl-seed0"]


def test_a_partition_that_was_changed_is_another_run(tmp_path):
    asked = iter([False, True])
    assert gapsl.train(method="psl", out=tmp_path / "run", stop=lambda: next(asked), **TINY) is None
    path = tmp_path / "run" / "partition.json"
    content = json.loads(path.read_text("utf-8"))
    content["devices"][:2] = content["devices"][1::-1]
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(gapsl.InputError, match=r"another run, .* put back config\.yaml and partition\.json"):
        gapsl.resume(tmp_path / "run")


def test_rounds_and_epochs_together_are_refused():
    with pytest.raises(gapsl.InputError, match="give one of them"):
        compose(words={"rounds": 2, "epochs": 3})
