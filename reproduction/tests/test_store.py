"""Stored results come back as they were; a file that cannot be trusted is set aside and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gapsl_reproduction.runs import RunSpec, run_spec
from gapsl_reproduction.store import DAMAGED, SCHEMA, Store

from gapsl.common.errors import InputError, Unavailable

RUN = run_spec({"method": "psl", "rounds": 3})


def result_for(run: RunSpec = RUN, **more: object) -> dict:
    return {
        "schema": SCHEMA,
        "key": run.key,
        "config": dict(run.settings),
        "final": {"device_mean": 0.5},
        "history": [{"round": 1, "device_mean": 0.25}, {"round": 3, "device_mean": 0.5}],
        "label_counts": [[1, 2], [3, 4]],
        **more,
    }


class Warnings(list):
    __call__ = list.append


def test_what_is_put_in_comes_out_in_this_process_and_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.get(RUN.key) is None
    store.put(result_for())
    assert store.get(RUN.key) == result_for()
    assert Store(tmp_path).get(RUN.key) == result_for()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{RUN.key}.json"]


def test_a_file_is_strict_json_with_a_line_an_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(result_for(elapsed=float("nan")))
    lines = store.path(RUN.key).read_text(encoding="utf-8").splitlines()
    assert ' {"round":1,"device_mean":0.25},' in lines
    assert " [3,4]" in lines
    assert '"elapsed": null' in lines
    assert json.loads("\n".join(lines))["label_counts"] == [[1, 2], [3, 4]]


DAMAGE = {
    "cut short": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "not text": lambda text: "\x00\xff" * 9,
    "a list": lambda text: "[1, 2]",
    "another schema": lambda text: text.replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}'),
    "settings changed": lambda text: text.replace('"rounds":3', '"rounds":4'),
    "key changed": lambda text: text.replace(RUN.key, RUN.key[::-1]),
    "without an end": lambda text: text.replace('"final"', '"finish"'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path, damage) -> None:
    Store(tmp_path).put(result_for())
    path = Store(tmp_path).path(RUN.key)
    broken = damage(path.read_text(encoding="utf-8"))
    path.write_text(broken, encoding="utf-8")

    looked: Warnings = Warnings()
    reader = Store(tmp_path, warn=looked)
    assert reader.get(RUN.key) is None
    assert reader.get(RUN.key) is None
    assert len(looked) == 1 and str(path) in looked[0], "who only reads is told once"
    assert path.read_text(encoding="utf-8") == broken, "and changes nothing"

    told: Warnings = Warnings()
    store = Store(tmp_path, mend=True, warn=told)
    assert store.get(RUN.key) is None
    assert len(told) == 1 and "done again" in told[0]
    aside = path.with_name(path.name + DAMAGED)
    assert not path.exists()
    assert aside.read_text(encoding="utf-8") == broken

    store.put(result_for())
    assert store.get(RUN.key) == result_for()


def test_a_file_under_another_runs_name_is_not_that_run(tmp_path: Path) -> None:
    other = run_spec({"method": "psl", "rounds": 4})
    store = Store(tmp_path)
    store.put(result_for())
    store.path(RUN.key).rename(store.path(other.key))
    told = Warnings()
    assert Store(tmp_path, warn=told).get(other.key) is None
    assert len(told) == 1


def test_one_process_at_a_time_and_the_next_one_after_it(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "results"), Store(tmp_path / "results")
    refused = pytest.raises(Unavailable, match=r"is working on .*results; .*repeat the command")
    with store.locked(), refused, other.locked():
        pass
    with other.locked():
        pass
    assert [path.name for path in (tmp_path / "results").iterdir()] == [".lock"]  # which git ignores


def test_a_full_or_forbidden_place_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way", encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot write to .*--results"):
        Store(tmp_path).put(result_for())
