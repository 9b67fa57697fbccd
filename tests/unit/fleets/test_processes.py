"""Devices in several processes: the same weights to the bit, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import records_of

import gapsl
from gapsl.common.errors import InputError, Unavailable
from gapsl.device.device import Device
from gapsl.device.exchange import Reply
from gapsl.fleets.local import LocalFleet
from gapsl.run.build import prepare
from gapsl.run.config import make_config
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer
from gapsl.run.records import RoundRecord

QUICK: dict[str, Any] = {
    "dataset": "digits", "model": "mlp", "width": 0.25, "devices": 5, "partition": "dirichlet:0.3",
    "batch_size": 8, "rounds": 4, "evaluate_every": 2, "checkpoint_every": 2, "train_samples": 240,
    "test_samples": 40, "seed": 3,
}  # fmt: skip
PULL = {"lambda": 0.05, "exclusion": "none"}  # a regulariser that matters

RUNS: dict[str, dict[str, Any]] = {
    "psl": {"method": "psl"},
    "frozen": {"method": "frozen"},
    "papsl": {"method": "papsl", "model": "small"},
    "gradients agreed on": {
        "method": "papsl",
        "model": "small",
        "probe_gradients": True,
        "participation": 0.8,
    },
    "sfl": {"method": "sfl", "sfl": {"interval": 3}},
    "epsl": {"method": "epsl"},
    "epsl, hidden per-device": {"method": "epsl", "epsl": {"hidden": "per-device"}},
    "epsl without averaged rows": {"method": "epsl", "epsl": {"phi": 0.0}},
    "gapsl, exact": {"method": "gapsl", "gapsl": {**PULL, "penalty": "exact"}},
    "gapsl, finite": {"method": "gapsl", "gapsl": {**PULL, "penalty": "finite"}},
    "gapsl, excluded plain": {"method": "gapsl", "gapsl": {"excluded": "plain"}},
    "gapsl, clipped rows": {"method": "gapsl", "gapsl": PULL, "robust": "clip"},
    "gapsl/rand-lgi": {"method": "gapsl/rand-lgi"},
    "gapsl/non-gda": {"method": "gapsl/non-gda"},
    "an outlier": {"method": "gapsl", "gapsl": PULL, "faults": "scale:1"},
    "some of the devices": {"method": "gapsl", "participation": 0.6},
    "BatchNorm and dropout": {"method": "psl", "model": "small", "norm": "batch", "dropout": 0.2},
    "channels-last": {"method": "papsl", "model": "small", "layout": "channels-last"},
    "calibration by labels seen": {"method": "psl", "calibration": "prior", "calibration_counts": "seen"},
    "calibration of devices alone": {"method": "gapsl", "calibration": "prior", "gapsl": PULL},
    "adamw": {"method": "psl", "server_optimizer": {"name": "adamw"}, "device_optimizer": {"name": "adamw"}},
    "validation": {"method": "psl", "validation": 0.2},
}
SKETCHED: dict[str, dict[str, Any]] = {
    "psl": {"method": "psl", "model": "small", "norm": "batch", "dropout": 0.2},
    "psl by samples": {"method": "psl", "reduction": "samples"},
    "papsl": {"method": "papsl", "model": "small"},
    "gapsl, exact": {"method": "gapsl", "gapsl": {"lambda": 0.05}},
    "gapsl, finite": {"method": "gapsl", "gapsl": {**PULL, "penalty": "finite"}},
    "gapsl/non-gda": {"method": "gapsl/non-gda", "participation": 0.8},
    "an outlier": {"method": "gapsl", "gapsl": PULL, "faults": "scale:1"},
}


def trained(out: Path | None = None, **words: Any) -> gapsl.RunResult:
    result = gapsl.train(**{**QUICK, **words}, out=out)
    assert result is not None
    return result


@pytest.mark.parametrize("name", RUNS)
def test_weights_and_measures_are_those_of_one_process(name: str) -> None:
    alone = trained(**RUNS[name])
    spread = trained(**RUNS[name], processes=2 if name != "psl" else 3)
    assert spread.final.weights_sha256 == alone.final.weights_sha256
    for measure in ("device_accuracy", "ensemble", "merged", "test_loss", "drift", "bytes_sent"):
        assert getattr(spread.final, measure) == getattr(alone.final, measure), measure


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", ["gapsl, finite", "sfl", "epsl"])
def test_records_tell_how_long_each_device_takes(name: str, processes: int, tmp_path: Path) -> None:
    trained(**RUNS[name], processes=processes, out=tmp_path / "run")
    first, *others = records_of(tmp_path / "run")
    assert set(first.device_seconds) == {"forward", "server", *(["backward"] if processes == 1 else [])}
    for record in others:
        assert set(record.device_seconds) == {"forward", "server", "backward"}
        assert all(set(own) == set(range(5)) for own in record.device_seconds.values())
        assert all(min(own.values()) > 0 for own in record.device_seconds.values())


@pytest.mark.parametrize("name", SKETCHED)
def test_sums_beside_sketches_have_the_same_bits_for_any_number_of_processes(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gapsl.methods.sketched.BUCKETS", 64)
    words = {**SKETCHED[name], "gradient_rows": "sketch"}
    alone = trained(**words).final.weights_sha256
    assert trained(**words, processes=2).final.weights_sha256 == alone
    rounds: list[int] = []

    class Count(Observer):
        def round(self, record: RoundRecord) -> None:
            rounds.append(record.round)

    folder = tmp_path / "run"
    gapsl.train(**{**QUICK, **words}, out=folder, observers=[Count()], stop=lambda: len(rounds) == 3)
    result = gapsl.resume(folder, processes=3)
    assert result is not None and result.final.weights_sha256 == alone


def test_off_linux_a_run_stays_in_one_process_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapsl.run.local_fleet.sys.platform", "darwin")
    run = prepare(make_config({**QUICK, "processes": "auto"}))
    assert type(run.fleet) is LocalFleet
    assert run.plan.notice is not None and "need Linux, not darwin" in run.plan.notice


def test_sketches_by_themselves_follow_the_configuration_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def angles(rows: str, method: str = "psl", **words: Any) -> list[float | None]:
        out = tmp_path / f"{method} {rows} {len(words)}"
        trained(method=method, gradient_rows=rows, out=out, **words)
        return [record.angle_mean for record in RunFolder(out).records()]

    # A sketch estimates the angles; the weights may be those of exact rows, by how their sum is rounded.
    exact, sketch = angles("exact"), angles("sketch")
    assert angles("auto") == exact != sketch
    monkeypatch.setattr("gapsl.options.compatibility.MANY_BYTES", 1)
    watcher = Watcher()
    assert angles("auto", observers=[watcher]) == sketch
    assert any("angles come from sketches" in message for message in watcher.said)
    assert angles("auto", "epsl") == angles("exact", "epsl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "sfl"}, "sfl needs more of the devices' gradients.*gradient_rows = exact"),
        ({"method": "epsl"}, "epsl needs more"),
        ({"robust": "median"}, "robust = median needs the devices' gradients"),
        ({"method": "psl", "labels": "device"}, "with labels = device their loss is elsewhere"),
    ],
    ids=str,
)
def test_what_sketches_do_not_tell_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(**words, gradient_rows="sketch")


@pytest.mark.parametrize(
    "name", ["psl", "papsl", "BatchNorm and dropout", "channels-last", "some of the devices"]
)
def test_graphs_that_are_computed_again_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = trained(**RUNS[name]).final.weights_sha256
    again = []

    def one_graph(self: Device, *arguments: Any) -> torch.Tensor:
        again.append(self.id)
        return run_again(self, *arguments)

    run_again = Device._run_again
    monkeypatch.setattr(Device, "_run_again", one_graph)
    monkeypatch.setattr("gapsl.run.local_fleet.graph_bytes", lambda *_: 2**20)
    assert trained(**RUNS[name], graph_memory=2).final.weights_sha256 == kept
    assert again
    assert trained(**RUNS[name], graph_memory=2, processes=2).final.weights_sha256 == kept


def test_a_slow_process_reads_its_replies_before_another_takes_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(self: Device, round: int, reply: Reply) -> None:
        if self.id < 2:  # of the first process
            time.sleep(0.1)
        backward(self, round, reply)

    words = {"method": "psl", "participation": 0.8, "rounds": 6}
    alone = trained(**words)
    backward = Device.backward
    monkeypatch.setattr(Device, "backward", slow)
    spread = trained(**words, processes=2)
    assert spread.final.weights_sha256 == alone.final.weights_sha256


def test_a_budget_below_one_graph_is_refused() -> None:
    with pytest.raises(InputError, match=r"graph_memory is 1 MB, and the graph of one device takes \d+ MB"):
        trained(model="small", width=4, batch_size=64, graph_memory=1)


def test_some_of_the_devices_are_evaluated_by_lot() -> None:
    everybody, some = trained(), trained(evaluate_devices=2)
    assert some.final.weights_sha256 == everybody.final.weights_sha256
    assert len(some.final.device_accuracy) == 2
    for device, accuracy in some.final.device_accuracy.items():
        assert accuracy == everybody.final.device_accuracy[device]
    spread = trained(evaluate_devices=2, processes=2)
    assert spread.final.device_accuracy == some.final.device_accuracy
    assert spread.final.local == some.final.local
    with pytest.raises(InputError, match="evaluate_devices is 6, but there are 5 devices"):
        trained(evaluate_devices=6)


def test_angles_of_very_many_devices_are_measured_at_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapsl.methods.base.CHEAP", 4)
    means: dict[int, float | None] = {}

    class Angles(Observer):
        def round(self, record: RoundRecord) -> None:
            means[record.round] = record.angle_mean

    trained(method="psl", observers=[Angles()])
    assert [round for round, mean in means.items() if mean is not None] == [2, 4]


class Watcher(Observer):
    """Kills a process of the fleet after some rounds, and notes what is said."""

    def __init__(self, *rounds: int) -> None:
        self.rounds, self.said, self.killed = list(rounds), [], 0
        self._others = children()  # which other tests have started

    def round(self, record: RoundRecord) -> None:
        if self.rounds and record.round == self.rounds[0]:
            self.rounds.pop(0)
            os.kill([pid for pid in children() if pid not in self._others][-1], signal.SIGKILL)
            self.killed += 1

    def warned(self, message: str) -> None:
        self.said.append(message)


def children() -> list[int]:
    """Return the processes that this one has forked, by the kernel, the newest last."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return list(map(int, found))


@pytest.mark.parametrize("method", ["gapsl", "sfl", "papsl"])
def test_a_killed_process_is_started_again_and_the_end_is_the_same(tmp_path: Path, method: str) -> None:
    words = {"method": method, "model": "small", "norm": "batch" if method == "gapsl" else "group"}
    alone = trained(**words, rounds=6)
    before, watcher = children(), Watcher(1, 5)  # before the first checkpoint, and after another
    spread = trained(tmp_path / "run", **words, rounds=6, processes=2, observers=[watcher])
    assert watcher.killed == 2
    assert spread.final.weights_sha256 == alone.final.weights_sha256
    assert [message for message in watcher.said if "was killed (SIGKILL)" in message]
    assert children() == before


def test_without_checkpoints_a_killed_process_ends_the_run() -> None:
    with pytest.raises(Unavailable, match=r"devices 2 to 4 was killed .*no folder with checkpoints"):
        trained(processes=2, observers=[Watcher(1)])


def test_processes_that_die_again_and_again_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"3 died since the last checkpoint.*--processes 1"):
        trained(tmp_path / "run", processes=2, checkpoint_every=4, observers=[Watcher(1, 1, 1)])


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    alone = trained(method="sfl", rounds=6)
    rounds: list[int] = []

    class Count(Observer):
        def round(self, record: RoundRecord) -> None:
            rounds.append(record.round)

    folder = tmp_path / "run"
    words = {**QUICK, "method": "sfl", "rounds": 6, "processes": 2}
    assert gapsl.train(**words, out=folder, observers=[Count()], stop=lambda: len(rounds) == 3) is None
    assert len(rounds) == 3
    result = gapsl.resume(folder, processes=3)
    assert result is not None and result.final.weights_sha256 == alone.final.weights_sha256


def test_an_error_in_a_process_is_raised_here_and_no_process_is_left() -> None:
    before = children()

    def loss(logits: torch.Tensor, labels: torch.Tensor, device: int) -> torch.Tensor:
        if device == 4:
            raise ValueError("there is no loss for device 4")
        return torch.nn.functional.cross_entropy(logits, labels)

    with pytest.raises(ValueError, match="no loss for device 4"):
        gapsl.train(**QUICK, method="psl", loss=loss, processes=2)
    assert children() == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"method": "vanilla"}, "vanilla computes one device after another"),
        ({"method": "sfl-v2"}, "sfl-v2 computes one device after another"),
        ({"method": "central"}, "central computes one device after another"),
        ({"method": "psl", "labels": "device"}, "the loss is not computed here"),
    ],
    ids=str,
)
def test_what_cannot_be_spread_out_stays_in_one_process_and_says_so(
    words: dict[str, Any], reason: str
) -> None:
    watcher = Watcher()
    spread = trained(**words, rounds=1, processes=2, observers=[watcher])
    assert any(reason in message for message in watcher.said)
    assert spread.final.weights_sha256 == trained(**words, rounds=1).final.weights_sha256


def test_one_process_per_core_is_the_same_run_too() -> None:
    assert trained(processes="auto").final.weights_sha256 == trained().final.weights_sha256


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        (0, "give a number of 1 or more, or auto"),
        (6, "a round has 5 devices; use 5 or fewer"),
        ("many", "or auto"),
    ],
)
def test_a_number_of_processes_that_cannot_be_is_refused(processes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(processes=processes)
