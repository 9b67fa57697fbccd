"""Devices on the actors of a Ray cluster: the same weights to the bit, also when actors die."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
@pytest.mark.timeout(600)
def test_two_nodes_train_the_weights_of_one_process(cluster: str) -> None:
    words = RUNS["gapsl"]
    spread = trained(**words, fleet="ray", ray_address=cluster)
    assert spread.final.weights_sha256 == trained(**words).final.weights_sha256


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in RUNS if name != "gapsl"])
def test_every_method_trains_the_weights_of_one_process(cluster: str, name: str) -> None:
    alone = trained(**RUNS[name])
    spread = trained(**RUNS[name], fleet="ray", ray_address=cluster, processes=2)
    assert spread.final.weights_sha256 == alone.final.weights_sha256
    for measure in ("device_accuracy", "ensemble", "merged", "test_loss", "drift"):
        assert getattr(spread.final, measure) == getattr(alone.final, measure), measure


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
@pytest.mark.timeout(600)
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
