"""Devices on the actors of a Ray cluster: the same weights to the bit, also when actors die."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import records_of

import gapsl
from gapsl.common.errors import InputError, Unavailable
from gapsl.fleets.ray import RayFleet, check_there
from gapsl.run.observers import Observer
from gapsl.run.records import RoundRecord

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

QUICK: dict[str, Any] = {
    "dataset": "digits", "model": "small", "devices": 4, "partition": "dirichlet:0.3", "batch_size": 8,
    "rounds": 4, "evaluate_every": 2, "checkpoint_every": 2, "train_samples": 200, "test_samples": 40,
    "seed": 3,
}  # fmt: skip
PULL = {"lambda": 0.05, "exclusion": "none"}
RUNS: dict[str, dict[str, Any]] = {
    "gapsl": {"method": "gapsl", "gapsl": PULL, "norm": "batch", "dropout": 0.2},
    "gapsl, finite": {"method": "gapsl", "gapsl": {**PULL, "penalty": "finite"}},
    "gapsl, sketches": {"method": "gapsl", "gapsl": PULL, "gradient_rows": "sketch"},
    "psl, sketches": {"method": "psl", "gradient_rows": "sketch"},
    "sfl": {"method": "sfl", "sfl": {"interval": 3}},
    "epsl": {"method": "epsl"},
    "papsl": {"method": "papsl", "layout": "channels-last"},
    "gradients agreed on": {"method": "papsl", "probe_gradients": True},
    "labels seen": {"method": "psl", "calibration": "prior", "calibration_counts": "seen"},
}


def trained(out: Path | None = None, **words: Any) -> gapsl.RunResult:
    result = gapsl.train(**{**QUICK, **words}, out=out)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of two nodes on this machine, a core each."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found.address
    ray.shutdown()
    found.shutdown()


@pytest.mark.slow  # a cluster takes long to begin
@pytest.mark.timeout(1800)
def test_two_nodes_train_the_weights_of_one_process(cluster: str, tmp_path: Path) -> None:
    words = RUNS["gapsl"]
    spread = trained(**words, fleet="ray", ray_address=cluster, out=tmp_path)
    assert spread.final.weights_sha256 == trained(**words).final.weights_sha256
    spent = records_of(tmp_path)[-1].device_seconds
    assert set(spent) == {"forward", "server", "backward"}
    assert all(set(own) == {0, 1, 2, 3} for own in spent.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in RUNS if name != "gapsl"])
def test_every_method_trains_the_weights_of_one_process(cluster: str, name: str) -> None:
    alone = trained(**RUNS[name])
    spread = trained(**RUNS[name], fleet="ray", ray_address=cluster, processes=2)
    assert spread.final.weights_sha256 == alone.final.weights_sha256
    for measure in ("device_accuracy", "ensemble", "merged", "test_loss", "drift"):
        assert getattr(spread.final, measure) == getattr(alone.final, measure), measure


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ["psl", "gapsl", "papsl"])
def test_what_travels_does_not_grow_with_the_batch(
    cluster: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    travelled: list[int] = []
    call, get = RayFleet._call, RayFleet._get

    def noted_call(self: RayFleet, link: Any, name: str, *arguments: Any) -> None:
        sent = [one for one in arguments if not isinstance(one, ray.ObjectRef)]  # but the server's weights
        travelled.append(len(pickle.dumps(sent)))
        call(self, link, name, *arguments)

    def noted_get(self: RayFleet, link: Any) -> Any:
        found = get(self, link)
        travelled.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(RayFleet, "_call", noted_call)
    monkeypatch.setattr(RayFleet, "_get", noted_get)
    words = {"method": method, "partition": "iid", "fleet": "ray", "ray_address": cluster, "processes": 2}
    totals = []
    for batch in (4, 24):
        travelled.clear()
        trained(**words, batch_size=batch)
        totals.append(sum(travelled))
    per_device = (totals[1] - totals[0]) / (QUICK["devices"] * QUICK["rounds"])
    assert per_device < 48  # bytes in a round, by larger numbers in messages; labels alone would take 160


SCRIPT = """
import multiprocessing  # before torch: the script is then a module that pickle looks into first
import sys

import torch
from torch import nn

import gapsl


class Scaled(nn.Module):
    order = torch.contiguous_format

    def forward(self, x):
        return 0.5 * x.contiguous(memory_format=self.order)


class Smooth:
    def __call__(self, logits, labels, device):
        return nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)


def trained(**words):
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 16), Scaled(), nn.ReLU(), nn.Linear(16, 10)]
    result = gapsl.train(
        model=nn.Sequential(*layers), cut=3, loss=Smooth(), dataset="digits", devices=2, batch_size=8,
        rounds=2, train_samples=60, test_samples=20, **words
    )
    return result.final.weights_sha256


assert trained(fleet="ray", ray_address=sys.argv[1], processes=2) == trained()
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_script_with_a_model_and_a_loss_of_its_own_trains_on_actors(cluster: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = subprocess.run([sys.executable, script, cluster], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


class Killer(Observer):
    """Kills an actor's process after some rounds, and notes what is said."""

    def __init__(self, fleets: list[RayFleet], *rounds: int) -> None:
        self.fleets, self.rounds, self.said = fleets, list(rounds), []

    def round(self, record: RoundRecord) -> None:
        if self.rounds and record.round == self.rounds[0]:
            self.rounds.pop(0)
            os.kill(self.fleets[-1]._running[1].process, signal.SIGKILL)

    def warned(self, message: str) -> None:
        self.said.append(message)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_actor_is_started_again_and_the_end_is_the_same(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleets: list[RayFleet] = []
    begin = RayFleet.__init__

    def noted(self: RayFleet, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        fleets.append(self)

    monkeypatch.setattr(RayFleet, "__init__", noted)
    killer = Killer(fleets, 1, 3)
    words = {"method": "sfl", "fleet": "ray", "ray_address": cluster, "processes": 2}
    spread = trained(tmp_path / "run", **words, observers=[killer])
    assert not killer.rounds
    assert spread.final.weights_sha256 == trained(method="sfl").final.weights_sha256
    assert [said for said in killer.said if "the Ray actor of devices 2 to 3" in said]


def test_an_address_that_nobody_answers_is_an_outage() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"no Ray cluster answers at 127.0.0.1:.*ray start --head"):
            check_there(address)


@pytest.mark.parametrize("address", ["nonsense", "ray://here:10001", "here:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="a Ray cluster has an address like HOST:6379"):
        check_there(address)


def test_without_ray_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'gapsl\[ray\]'"):
        trained(fleet="ray")


def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="set fleet = ray"):
        trained(ray_address="auto")
