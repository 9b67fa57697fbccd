"""The same run, in one process and over real links: the same weights bit for bit, and the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from network import SMALL, parameter_server, trained_over_loopback
from processes import records_of

import gapsl
from gapsl.common.errors import InputError
from gapsl.methods.registry import METHODS
from gapsl.run.api import compose
from gapsl.run.config import preset
from gapsl.run.records import Evaluation, FinalEvaluation, RunResult
from gapsl.run.served_run import served_settings

# What takes how long differs, and where no parameter server is nobody may see client-side models.
OTHERWISE = ("seconds", "device_seconds", "merged")

METHODS_AND_SETTINGS: dict[str, dict[str, Any]] = {
    "psl": {},
    "papsl": {},
    "gapsl": {"gapsl": {"penalty": "finite"}},
    "epsl": {},
    "sfl": {"sfl": {"interval": 2}, "norm": "batch"},
    "sfl-v2": {"sfl": {"interval": 2}},
    "vanilla": {"vanilla": {"turn": "batch"}},
    "frozen": {},
    "single": {},
    "gapsl/non-lgi": {},
    "gapsl/rand-lgi": {},
    "gapsl/non-gda": {},
    "gapsl/rand-gda": {},
    "gapsl/fixed-ratio": {},
    "gapsl/fixed-threshold": {},
}
FURTHER: dict[str, dict[str, Any]] = {
    "penalty none": {"gapsl": {"penalty": "none"}},
    "penalty exact": {"gapsl": {"penalty": "exact"}},
    "recommended": preset("recommended"),
    "recommended, normalised at the cut": {**preset("recommended"), "cut_norm": "sample"},
    "recommended, channels-last": {**preset("recommended"), "layout": "channels-last"},
    "probes and a pull": {**preset("recommended"), "probe_steps": 0},
    "gradients agreed on": {**preset("recommended"), "probe_gradients": True},
    "BatchNorm": {"method": "psl", "norm": "batch"},
    "channels-last": {"method": "psl", "layout": "channels-last", "norm": "batch"},
    "channels-last gapsl": {"layout": "channels-last"},
    "half take part": {"method": "psl", "participation": 0.5, "devices": 4},
    "float64": {"method": "psl", "precision": "float64"},
    "AdamW, clipping, a schedule": {
        "method": "psl",
        "device_optimizer": {"name": "adamw", "clip": 0.5, "schedule": "cosine"},
    },
    "vanilla, a pass a turn": {"method": "vanilla", "vanilla": {"turn": "pass"}, "batch_size": 64},
    "labels that are wrong": {"method": "psl", "faults": "labels:1"},
    "labels on the device": {"method": "psl", "labels": "device"},
    "labels on the device, gapsl": {"labels": "device", "gapsl": {"penalty": "finite"}},
    "a validation split": {"method": "psl", "validation": 0.2},
}

# What the others have in them, or devices do not see.
RARE = {
    "penalty none", "recommended, normalised at the cut", "recommended, channels-last", "channels-last gapsl",
    "AdamW, clipping, a schedule", "labels on the device",
}  # fmt: skip


def compare(words: dict[str, Any], folder: Path) -> None:
    """Train twice, and find no difference."""
    config = compose(words={**SMALL, **words})
    here = gapsl.train(config)
    if METHODS[config.method].moves_client_models:
        with parameter_server(folder / "parameters", config.devices) as address:
            there = trained_over_loopback(config, folder, network={"parameter_server": address})
        assert there.final.merged == here.final.merged
    else:
        there = trained_over_loopback(config, folder)
    assert there.config == here.config
    assert comparable(there.final) == comparable(here.final)
    assert [comparable(entry) for entry in there.history] == [comparable(e) for e in here.history]


def comparable(measures: Evaluation) -> dict[str, Any]:
    """Return measures without what may differ."""
    found = {name: value for name, value in measures.to_dict().items() if name not in OTHERWISE}
    if isinstance(measures, FinalEvaluation) and measures.validation is not None:
        found["validation"] = comparable(measures.validation)
    return found


def test_every_method_is_compared() -> None:
    ours = {name for name, method in METHODS.items() if method.__module__.startswith("gapsl.")}
    assert METHODS_AND_SETTINGS.keys() == ours - {"central"}


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=[pytest.mark.slow] * method.startswith("gapsl/"))
        for method in METHODS_AND_SETTINGS
    ],
)
def test_a_method_gives_the_same_weights_over_the_network(method: str, tmp_path: Path) -> None:
    compare({"method": method, **METHODS_AND_SETTINGS[method]}, tmp_path)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in RARE)) for case in FURTHER]
)
def test_settings_give_the_same_weights_over_the_network(case: str, tmp_path: Path) -> None:
    compare(FURTHER[case], tmp_path)


# --- with fewer bytes

# What a number takes under each codec; int8 has a scale for each row besides.
CODED = {"none": 4, "fp16": 2, "bf16": 2, "int8": 1}
LEARNING = {
    **SMALL, "method": "psl", "partition": "iid", "norm": "batch", "rounds": 25, "evaluate_every": 25,
    "server_optimizer": {"lr": 0.05}, "device_optimizer": {"lr": 0.05},
}  # fmt: skip


def traffic(result: RunResult) -> tuple[int, int]:
    """Return the bytes of activations (labels left out) and gradients of a device in a round."""
    final, rounds, rows = result.final, result.rounds, result.config["batch_size"]
    return final.bytes_sent[0] // rounds - 8 * rows, final.bytes_received[0] // rounds


@pytest.mark.parametrize(
    ("activations", "gradients"), [("fp16", "bf16"), ("bf16", "none"), ("int8", "bf16"), ("int8", "int8")]
)
def test_a_codec_takes_the_bytes_it_promises_and_the_run_still_learns(
    activations: str, gradients: str, tmp_path: Path
) -> None:
    config = compose(words=LEARNING)
    result = trained_over_loopback(
        config, tmp_path, network={"activations": activations, "gradients": gradients}
    )
    numbers = traffic(gapsl.train(config, rounds=1))[0] // 4
    scales = {"int8": 4 * config.batch_size}
    assert traffic(result) == (
        numbers * CODED[activations] + scales.get(activations, 0),
        numbers * CODED[gradients] + scales.get(gradients, 0),
    )
    losses = [record.loss for record in records_of(tmp_path / "run")]
    assert sum(losses[-3:]) / 3 < 0.8 * sum(losses[:3]) / 3


def test_zstd_takes_fewer_bytes_for_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    config = compose(words={**SMALL, "method": "psl"})
    here = gapsl.train(config)
    there = trained_over_loopback(config, tmp_path, network={"compression": "zstd"})
    assert there.final.weights_sha256 == here.final.weights_sha256
    assert traffic(there)[0] < 0.95 * traffic(here)[0], "of activations after a ReLU many are zero"
    assert traffic(there)[1] <= traffic(here)[1]


def test_a_served_run_goes_on_beyond_its_end_as_in_one_process(tmp_path: Path) -> None:
    settings = {**SMALL, "method": "psl"}
    trained_over_loopback(compose(words={**settings, "rounds": 3}), tmp_path)
    longer, network = served_settings(None, None, {"rounds": 5}, tmp_path / "run")
    result = trained_over_loopback(longer, tmp_path, network=network.model_dump(mode="json"))
    here = gapsl.train(**{**settings, "rounds": 5})
    assert here is not None and result.final.weights_sha256 == here.final.weights_sha256
    assert result.rounds == 5 and not result.extended
    fewer, _ = served_settings(None, None, {"rounds": 4}, tmp_path / "run")
    with pytest.raises(InputError, match="5 rounds already; to train longer, give more"):
        trained_over_loopback(fewer, tmp_path)
