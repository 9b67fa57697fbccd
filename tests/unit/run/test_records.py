"""Records and results: written and read alike, old ones too, and what is none refused with a sentence."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from quick import QUICK

import gapsl
from gapsl.common.errors import InputError
from gapsl.device.exchange import ProbeRecord, Selection
from gapsl.fleets.base import FleetEvents
from gapsl.run.folder import RunFolder, read_result
from gapsl.run.recorder import brief, brief_selection, by_phase, measured_angles
from gapsl.run.records import (
    Angles,
    Evaluation,
    FinalEvaluation,
    RoundRecord,
    RunResult,
    documented,
)

TYPES = (RunResult, Evaluation, FinalEvaluation, RoundRecord, Angles, Selection, ProbeRecord, FleetEvents)
PAGE = Path(__file__).parents[3] / "docs" / "files.md"

EVALUATION = Evaluation(
    round=3, epoch=0.5, split="test", device_mean=0.5, device_std=0.1, device_min=0.4, device_max=0.6,
    device_accuracy={0: 0.4, 2: 0.6}, class_accuracy=(0.5, None), drift={0: 0.1, 2: 0.2},
    bytes_sent={0: 10, 1: 0, 2: 20}, bytes_received={0: 1, 1: 0, 2: 2}, seconds=1.5, away=(1,),
)  # fmt: skip
RECORD = RoundRecord(
    round=3, epoch=0.5, loss=1.5, losses={0: 1.0, 2: 2.0}, norms={0: 0.1}, skipped=(1,), averaged=True,
    bytes_sent={0: 10, 1: 0, 2: 20}, bytes_received={0: 1, 1: 0, 2: 2}, seconds={"server": 0.5},
    device_seconds={"forward": {0: 0.25, 2: 0.5}},
    angle_mean=0.7, angles=Angles(devices=(0, 2), above=((0.7,), ())),
    selection=Selection(leader=(0,), kept=(0, 2), scores={0: 0.7, 2: 0.7}, lead_angles={0: 0.0, 2: 0.7}),
    probes=ProbeRecord(apart=0.0, scores={0: 0.1}, leaders=(2,)),
    events=FleetEvents(absent={1: (0, 1)}, restored_after={2: 1}), evaluation=EVALUATION,
    details={"mine": [1]},
)  # fmt: skip
OLD: dict[str, Any] = {
    "round": 3, "epoch": 0.5, "loss": None, "losses": {"0": 1.0, "2": None, "5": 1.5}, "skipped": [1],
    "bytes_sent": [10, 20], "bytes_received": [1, 2], "seconds": {"server": 1.0}, "averaged": False,
    "angles": [[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]], "scores": [1.5, 1.25, 1.75],
    "lead_angles": [0.1, 0.2, 0.3], "cos": [0.9, 0.8, 0.7], "kept": [0, 5], "leader": [2],
    "penalty": {"0": 0.5, "5": 0.25}, "ratio": 0.3, "threshold": 0.25, "dispersion": 0.1,
    "apart": 0.02, "probe_scores": {"0": 0.1}, "absent": [[0, 1], [1, 1]], "restored_before": {"2": 1},
    "loudest": 2,
}  # fmt: skip


def test_a_record_comes_back_as_it_was_and_leaves_out_what_is_not_there() -> None:
    stored = json.loads(json.dumps(RECORD.to_dict(), allow_nan=False))
    assert RoundRecord.from_dict(stored) == RECORD
    assert stored["schema"] == 2
    least = RoundRecord(
        round=1, epoch=0.1, loss=None, losses={}, bytes_sent={}, bytes_received={}, seconds={}
    )
    assert set(least.to_dict()) == {
        "schema", "round", "epoch", "loss", "losses", "bytes_sent", "bytes_received", "seconds",
    }  # fmt: skip
    assert RoundRecord.from_dict(least.to_dict()) == least


def test_lists_of_the_first_schema_get_the_ids_of_their_devices() -> None:
    record = RoundRecord.from_dict(OLD)
    assert record.losses == {0: 1.0, 5: 1.5} and record.norms is None
    assert record.bytes_sent == {0: 10, 1: 20}
    assert record.angles is not None and record.angles.devices == (0, 2, 5)
    assert record.angles.matrix() == OLD["angles"]
    assert record.angles.scores() == {0: 1.5, 2: 1.25, 5: 1.75}
    chosen = record.selection
    assert chosen is not None and (chosen.leader, chosen.kept) == ((2,), (0, 5))
    assert chosen.scores == record.scores == {0: 1.5, 2: 1.25, 5: 1.75}
    assert chosen.penalty == {0: 0.5, 5: 0.25} and chosen.lead_angles[5] == 0.3
    assert record.probes == ProbeRecord(apart=0.02, scores={0: 0.1})
    assert record.events == FleetEvents(absent={1: (0, 1)}, restored_before={2: 1})
    assert record.details == {"loudest": 2}
    assert RoundRecord.from_dict(record.to_dict()) == record


def test_angles_of_some_exchange_alone_have_no_ids_in_the_first_schema() -> None:
    assert RoundRecord.from_dict({**OLD, "angles": [[0.0, 1.0], [1.0, 0.0]]}).angles is None


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    out = tmp_path_factory.mktemp("runs") / "run"
    result = gapsl.train(out=out, **{**QUICK, "evaluate_every": 2, "method": "gapsl"})
    assert result is not None
    return out, result


def test_what_train_returns_is_what_the_file_holds(finished: tuple[Path, RunResult]) -> None:
    out, result = finished
    assert read_result(out / "result.json") == result
    assert result.final.device_mean == result.history[-1].device_mean


def test_subscripts_still_work_and_say_what_to_write_instead(finished: tuple[Path, RunResult]) -> None:
    _, result = finished
    with pytest.warns(DeprecationWarning, match=r"\.final instead of \['final'\]"):
        final = result["final"]
    with pytest.warns(DeprecationWarning, match="device_mean"):
        assert final["device_mean"] == result.final.device_mean
    with pytest.warns(DeprecationWarning, match="kept"):
        assert RECORD["kept"] == (0, 2)
    assert RECORD["mine"] == [1]
    with pytest.raises(KeyError, match="nothing"):
        RECORD["nothing"]


def test_a_data_frame_has_a_row_an_evaluation(
    finished: tuple[Path, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    _, result = finished
    frame = result.to_pandas()
    assert list(frame["round"]) == [2, 4]
    assert list(frame["device_mean"]) == [entry.device_mean for entry in result.history]
    assert set(frame["method"]) == {"gapsl"}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        result.to_pandas()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))][:400]


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and to is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], to)
    return copy


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("wrong", [..., None, "x", [], {}, [[]], -1, True, 1e400], ids=repr)
def test_wrong_or_missing_fields_are_read_or_refused_with_a_sentence(
    finished: tuple[Path, RunResult], schema: int, wrong: Any
) -> None:
    """Whatever is changed in a file, nothing but an InputError comes of it."""
    results = Path(__file__).parents[2] / "fixtures" / "finished" / "result.json"
    old_result = json.loads(results.read_text(encoding="utf-8"))
    cases = {
        RunResult: old_result if schema == 1 else finished[1].to_dict(),
        RoundRecord: OLD if schema == 1 else RECORD.to_dict(),
    }
    for kind, value in cases.items():
        for path in places(value)[wrong is ... :]:
            with suppress(InputError):
                kind.from_dict(changed(value, path, wrong))  # type: ignore[attr-defined]


def test_a_newer_schema_is_refused_by_name(finished: tuple[Path, RunResult], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({**finished[1].to_dict(), "schema": 99}), encoding="utf-8")
    with pytest.raises(InputError, match=r"version 99, .* reads 1 to 2; .*environment\.json"):
        read_result(file)
    file.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match="is not a result of gapsl"):
        read_result(file)


def test_a_line_of_wrong_numbers_is_damage(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(RECORD)
    folder.records_file.write_text(re.sub('"loss": 1.5', '"loss": "x"', folder.records_file.read_text()))
    with pytest.raises(InputError, match=r"records\.jsonl is damaged in line 1: loss is wrong"):
        list(folder.records())


def with_tables(text: str) -> str:
    """Return docs/files.md with its tables of fields made anew from the types."""
    for kind in TYPES:
        rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in documented(kind))
        table = f"<!-- fields of {kind.__name__} -->\n| field | what |\n| --- | --- |\n{rows}<!-- end -->"
        text = re.sub(
            rf"<!-- fields of {kind.__name__} -->.*?<!-- end -->", lambda _, t=table: t, text, flags=re.S
        )
    return text


def test_the_page_of_files_has_every_field() -> None:
    """To write it: python tests/unit/run/test_records.py"""
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- fields of {kind.__name__} -->" in text for kind in TYPES)
    assert with_tables(text) == text


def test_records_of_very_many_devices_stay_small() -> None:
    angles = torch.ones(201, 201)
    mean, pairs = measured_angles(range(201), angles, whole=True)
    assert mean == 1.0 and pairs is None
    assert measured_angles(range(200), angles[:200, :200], whole=True)[1] is not None
    assert measured_angles(range(21), angles[:21, :21], whole=False)[1] is None
    assert by_phase({2: {"forward": 1 / 3}, 1: {"forward": 0.0}}) == {"forward": {1: 0.0, 2: 0.333}}
    few, many = dict.fromkeys(range(100), 1 / 3), dict.fromkeys(range(101), 1 / 3)
    assert brief(few)[0] == 1 / 3 and brief(many)[0] == 0.333333
    chosen = Selection(leader=(0,), kept=(0,), scores=many, lead_angles=many, threshold=1 / 3)
    assert brief_selection(chosen).lead_angles[100] == 0.333333 and brief_selection(chosen).threshold == 1 / 3


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
