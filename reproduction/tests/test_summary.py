"""What is stored of a run, against the run's own files read in the most naive way."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gapsl_reproduction.runs import RunSpec, of_config
from gapsl_reproduction.store import Store, as_text
from gapsl_reproduction.summary import summarise, summarise_failure

import gapsl
from gapsl.common.errors import TrainingStopped
from gapsl.run.api import compose
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source

TINY: dict[str, Any] = {
    "dataset": "digits", "train_samples": 200, "test_samples": 50, "devices": 4, "batch_size": 8,
    "model": "mlp", "width": 0.25, "rounds": 7, "evaluate_every": 3,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "gapsl": {"validation": 0.1},
    "psl": {"method": "psl", "participation": 0.5},
    "gapsl half": {"participation": 0.5},
    "sfl": {"method": "sfl", "sfl": {"interval": 2}, "validation": 0.1},
    "central": {"method": "central"},
    "probed": {"method": "psl", "probes": 2, "participation": 0.5},
}

Made = tuple[RunSpec, RunFolder, dict[str, Any]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    done: dict[str, Made] = {}

    def made(kind: str) -> Made:
        if kind not in done:
            config = compose(words={**TINY, **KINDS[kind]})
            folder = tmp_path_factory.mktemp("runs") / "run"
            gapsl.train(config, out=folder)
            run, opened = of_config(config), RunFolder(folder)
            done[kind] = (run, opened, summarise(run, opened))
        return done[kind]

    return made


def near(value: Any) -> Any:
    return pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_run_is_its_result(trained: Callable[[str], Made], kind: str) -> None:
    run, folder, stored = trained(kind)
    whole = json.loads(folder.result_file.read_text(encoding="utf-8"))
    assert stored["key"] == run.key and stored["config"] == run.settings
    assert (stored["method"], stored["seed"]) == (whole["method"], whole["seed"])
    assert (stored["rounds"], stored["rounds_per_epoch"]) == (7, whole["rounds_per_epoch"])
    for name in ("device_mean", "device_std", "device_min", "device_max", "ensemble", "merged", "local"):
        assert stored["final"][name] == near(whole["final"][name]), name
    for name in ("test_loss", "class_accuracy", "converged_epoch", "seconds"):
        assert stored["final"][name] == near(whole["final"][name]), name
    assert stored["final"]["device_accuracy"] == near(list(whole["final"]["device_accuracy"].values()))
    assert stored["final"]["weights_sha256"] == whole["final"]["weights_sha256"]
    assert stored["final"]["bytes_sent"] == sum(whole["final"]["bytes_sent"].values())
    assert stored["final"]["bytes_received"] == sum(whole["final"]["bytes_received"].values())
    assert ("validation" in stored["final"]) == ("validation" in KINDS[kind])
    if "validation" in KINDS[kind]:
        assert stored["final"]["validation"]["device_mean"] == near(
            whole["final"]["validation"]["device_mean"]
        )
        assert stored["final"]["validation"]["class_accuracy"] == near(
            whole["final"]["validation"]["class_accuracy"]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_history_is_every_evaluation(trained: Callable[[str], Made], kind: str) -> None:
    _, folder, stored = trained(kind)
    whole = json.loads(folder.result_file.read_text(encoding="utf-8"))
    assert [entry["round"] for entry in stored["history"]] == [3, 6, 7]
    for ours, theirs in zip(stored["history"], whole["history"], strict=True):
        for name in ("epoch", "device_mean", "ensemble", "merged", "local", "test_loss", "seconds"):
            assert ours[name] == near(theirs[name]), name
        assert ours["split"] == ("validation" if "validation" in KINDS[kind] else "test")
        assert ours["device_accuracy"] == near(list(theirs["device_accuracy"].values()))
        assert ours["drift"] == near(mean(theirs["drift"].values()))
        assert ours["bytes_sent"] == sum(theirs["bytes_sent"].values())
        assert ours["bytes_received"] == sum(theirs["bytes_received"].values())


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_means_over_the_rounds_since_the_evaluation_before(
    trained: Callable[[str], Made], kind: str
) -> None:
    _, folder, stored = trained(kind)
    lines = folder.records_file.read_text(encoding="utf-8").splitlines()
    records = [flattened(json.loads(line)) for line in lines]
    assert [window["round"] for window in stored["windows"]] == [3, 6, 7]
    for window, numbers in zip(stored["windows"], ([1, 2, 3], [4, 5, 6], [7]), strict=True):
        rounds = [record for record in records if record["round"] in numbers]
        expected = {"round": numbers[-1], "loss": mean(r["loss"] for r in rounds)}
        for name in ("angle_mean", "ratio", "threshold", "apart"):
            known = [r[name] for r in rounds if name in r]
            if known:
                expected[name] = mean(known)
        scores: dict[int, list[float]] = {device: [] for device in range(4)}
        dispersions, kept = [], {device: [] for device in range(4)}
        led: dict[int, list[bool]] = {device: [] for device in range(4)}
        agreed: dict[int, list[float]] = {device: [] for device in range(4)}
        for record in rounds:
            devices = sorted(map(int, record["losses"]))
            if "angles" in record:
                own = []
                for i, device in enumerate(devices):
                    above = record["angles"]["above"]
                    others = [above[min(i, j)][abs(i - j) - 1] for j in range(len(devices)) if j != i]
                    score = mean(others)
                    if "scores" in record:  # stored with more digits than the angles
                        assert record["scores"][str(device)] == pytest.approx(score, abs=1e-4)
                        score = record["scores"][str(device)]
                    own.append(score)
                    scores[device].append(score)
                centre = mean(own)
                dispersions.append(math.sqrt(mean((score - centre) ** 2 for score in own)))
            for device in devices if "kept" in record else []:
                kept[device].append(device in record["kept"])
                led[device].append(device in record["leader"])
            for device, score in record.get("probe_scores", {}).items():
                agreed[int(device)].append(score)
        if dispersions:
            expected["scores"] = [mean(own) if own else None for own in scores.values()]
            expected["dispersion"] = mean(dispersions)
        if any(kept.values()):
            expected["kept"] = mean(len(record["kept"]) for record in rounds)
            expected["kept_share"] = [mean(own) if own else None for own in kept.values()]
            expected["leader_share"] = [mean(own) if own else None for own in led.values()]
        if any(agreed.values()):
            expected["probe_scores"] = [mean(own) if own else None for own in agreed.values()]
        assert set(window) == set(expected)
        for name, value in expected.items():
            assert alike(window[name], value), name
    assert ("scores" in stored["windows"][0]) == (kind != "central")
    assert ("kept" in stored["windows"][0]) == kind.startswith("gapsl")
    assert ("probe_scores" in stored["windows"][0]) == (kind == "probed")


def flattened(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with what the method chose and what probes say beside the rest."""
    probes = record.get("probes", {})
    agreed = {"apart": probes["apart"], "probe_scores": probes["scores"]} if probes else {}
    return {**record, **record.get("selection", {}), **agreed}


def mean(values: Any) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def alike(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(alike, found, expected))
    return (found is None) == (expected is None) and (expected is None or found == near(expected))


@pytest.mark.parametrize("kind", ["gapsl", "central"])
def test_label_counts_are_those_of_the_partition(trained: Callable[[str], Made], kind: str) -> None:
    run, folder, stored = trained(kind)
    labels = take_source(run.config, None).train.labels.tolist()
    parts = json.loads(folder.partition_file.read_text(encoding="utf-8"))["devices"]
    expected = [[sum(labels[i] == label for i in part) for label in range(10)] for part in parts]
    assert stored["label_counts"] == expected
    assert sum(map(sum, expected)) == round(200 * (1 - KINDS[kind].get("validation", 0)))


def test_numbers_are_short_settings_are_whole_and_it_says_what_made_it(
    trained: Callable[[str], Made],
) -> None:
    _, _, stored = trained("gapsl")
    assert all(window["loss"] == float(f"{window['loss']:.5g}") for window in stored["windows"])
    assert stored["made"]["torch"] and stored["made"]["python"] and stored["made"]["processor"]
    assert stored["made"]["gapsl"] == gapsl.__version__ and stored["made"]["device"] == "cpu"
    assert stored["elapsed"] >= stored["final"]["seconds"] * 0.5
    precise = of_config(compose(words={**TINY, "server_optimizer": {"lr": 0.123456789}}))
    assert precise.settings["server_optimizer"]["lr"] == 0.123456789


def test_a_stored_result_of_the_size_of_the_experiments_is_small(trained: Callable[[str], Made]) -> None:
    """40 devices, 15 evaluations and every list a method has."""
    _, _, stored = trained("gapsl")
    one = stored["history"][0] | {"device_accuracy": [0.54321] * 40}
    shares = {"scores": [1.5432] * 40, "kept_share": [0.54321] * 40, "leader_share": [0.54321] * 40}
    large = {
        **stored,
        "history": [one] * 15,
        "windows": [stored["windows"][0] | shares] * 15,
        "label_counts": [[1234] * 10] * 40,
    }
    assert len(as_text(large)) < 40_000


def test_what_is_stored_has_the_form_of_the_results_that_are_committed(
    trained: Callable[[str], Made],
) -> None:
    _, _, ours = trained("sfl")
    results = Path(__file__).parents[2] / "results" / "standard" / "runs"
    finished = [
        found for path in results.glob("*.json") if "final" in (found := json.loads(path.read_text()))
    ]
    assert finished
    for theirs in finished:
        assert list(theirs) == list(ours) and theirs["schema"] == ours["schema"]
        for part in ("final", "made"):
            assert set(theirs[part]) == set(ours[part])
        assert set(theirs["history"][0]) == set(ours["history"][0])
        assert len(theirs["final"]["device_accuracy"]) == len(theirs["label_counts"])


def test_a_run_that_stopped_is_stored_with_the_reason_and_what_it_did(tmp_path: Path) -> None:
    config = compose(words={**TINY, "method": "psl", "server_optimizer": {"lr": 1e9}, "evaluate_every": 1})
    folder = tmp_path / "run"
    with pytest.raises(TrainingStopped) as stopped:
        gapsl.train(config, out=folder)
    run = of_config(config)
    stored = summarise_failure(run, RunFolder(folder), str(stopped.value))
    assert "all devices were outliers" in stored["failed"]
    assert str(tmp_path) not in stored["failed"]
    assert "final" not in stored
    assert stored["rounds"] == len((folder / "records.jsonl").read_text(encoding="utf-8").splitlines())
    store = Store(tmp_path / "results")
    store.put(stored)
    assert store.get(run.key) is not None
