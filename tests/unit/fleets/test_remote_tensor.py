"""What is at the cut stays with the worker that has the device, unless a method computes with it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import gapsl
from gapsl.fleets.processes import ProcessFleet
from gapsl.fleets.remote_tensor import RemoteTensor, TensorName
from gapsl.methods.contribution import Contribution, Regulariser
from gapsl.methods.psl import Psl
from gapsl.run.build import prepare
from gapsl.run.config import make_config
from gapsl.run.observers import Observer
from gapsl.run.records import RoundRecord

QUICK: dict[str, Any] = {
    "dataset": "digits", "model": "small", "devices": 4, "partition": "iid", "rounds": 3, "evaluate_every": 3,
    "train_samples": 200, "test_samples": 20, "seed": 3,
}  # fmt: skip
SMALL, LARGE = 4, 24  # samples in a mini-batch
WORDS = 48  # bytes that larger numbers in messages may take, per device and round; labels would take 160
LONG = torch.arange(12.0).reshape(3, 4)


class Store:
    """What workers have, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[TensorName, int]] = []

    def __call__(self, what: TensorName, device: int) -> Tensor:
        self.asked.append((what, device))
        return LONG


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def kept(store: Store) -> RemoteTensor:
    return RemoteTensor.of(torch.empty_like(LONG, device="meta"), "gradient", 7, store)


def test_what_is_asked_of_its_shape_fetches_nothing(kept: RemoteTensor, store: Store) -> None:
    assert (kept.shape, len(kept), kept.nbytes, kept.stride()) == ((3, 4), 3, 48, (4, 1))
    assert not store.asked


def test_it_is_divided_where_it_is(kept: RemoteTensor, store: Store) -> None:
    third, zeros = kept / 3, torch.zeros_like(kept)
    assert isinstance(third, RemoteTensor) and third.away and third.divisor == 3
    assert isinstance(zeros, RemoteTensor) and zeros.away
    assert not store.asked
    assert torch.equal(third, LONG / 3) and torch.equal(zeros, torch.zeros(3, 4))
    assert torch.equal(kept / 3 / 7, LONG / 3 / 7)  # which is not a twenty-first, to the bit


@pytest.mark.parametrize(
    "compute",
    [
        lambda t: t + 1,
        lambda t: t[1:],
        lambda t: torch.cat([t, t]),
        lambda t: t / torch.full((4,), 2.0),
        lambda t: t.detach().requires_grad_(),
        lambda t: torch.from_numpy(t.numpy()),
    ],
)
def test_whoever_computes_with_it_gets_the_numbers(kept: RemoteTensor, store: Store, compute: Any) -> None:
    found = compute(kept)
    assert type(found) is Tensor and torch.equal(found, compute(LONG))
    assert set(store.asked) == {("gradient", 7)}


def test_what_is_changed_in_place_stays_changed(kept: RemoteTensor) -> None:
    half = kept / 2
    kept.mul_(10)
    assert torch.equal(kept, LONG * 10) and torch.equal(kept / 2, LONG * 5)
    assert not kept.away  # so that it is sent as it is now
    assert torch.equal(half, LONG / 2)


def trained(monkeypatch: pytest.MonkeyPatch, **words: Any) -> tuple[int, ProcessFleet]:
    """Train in two processes; return the bytes that went through pipes by device and round, and the fleet."""
    crossed = 0
    tell, hear = ProcessFleet._tell, ProcessFleet._hear

    def noted_tell(self: ProcessFleet, link: Any, job: Any) -> None:
        nonlocal crossed
        crossed += 0 if job.name == "evaluate" else len(pickle.dumps(job))
        tell(self, link, job)

    def noted_hear(self: ProcessFleet, link: Any) -> Any:
        nonlocal crossed
        answer = hear(self, link)
        crossed += len(pickle.dumps(answer))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(ProcessFleet, "_tell", noted_tell)
        patched.setattr(ProcessFleet, "_hear", noted_hear)
        run = prepare(make_config({**QUICK, **words, "processes": 2}))
        assert isinstance(run.fleet, ProcessFleet)
        run.run()
    return crossed // (QUICK["devices"] * QUICK["rounds"]), run.fleet


@pytest.mark.parametrize("rows", ["exact", "sketch"])
@pytest.mark.parametrize("method", ["psl", "gapsl", "papsl"])
def test_what_crosses_does_not_grow_with_the_batch(
    method: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"method": method, "gradient_rows": rows}
    less, _ = trained(monkeypatch, **words, batch_size=SMALL)
    more, fleet = trained(monkeypatch, **words, batch_size=LARGE)
    assert more - less < WORDS
    memory = fleet._memory
    of_probes = memory.probes.shape[1]  # the pull on them goes back: as many numbers, however large the batch
    assert of_probes == (2 * memory.cut.shape[1] // LARGE if method == "papsl" else 0)
    assert not memory.cut[:, of_probes:].any() and not memory.labels.any()


def test_what_epsl_averages_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fleet = trained(monkeypatch, method="epsl", batch_size=SMALL)
    assert fleet._memory.cut.any()


@pytest.mark.parametrize("method", ["psl", "gapsl", "sfl"])
def test_records_have_the_lengths_of_one_process(method: str) -> None:
    class Lengths(Observer):
        def __init__(self) -> None:
            self.found: list[Any] = []

        def round(self, record: RoundRecord) -> None:
            self.found.append(record.norms)

    alone, spread = Lengths(), Lengths()
    gapsl.train(**QUICK, method=method, observers=[alone])
    gapsl.train(**QUICK, method=method, observers=[spread], processes=2)
    assert len(alone.found) == 3 and spread.found == alone.found


class Meddling(Psl):
    """A method of a user's that computes with all it gets."""

    summary = "PSL that sends back more than it should"

    def reply(self, gradient: Tensor, device: int, members: Any) -> Any:
        gradient.mul_(1.5)
        return super().reply(gradient + gradient.abs().max(), device, members)

    def combine(self, round: int, contributions: Any, gradients: Tensor) -> Any:
        known: list[Contribution] = list(contributions)
        gradients *= float(known[0].upload.activations.norm()) / (1 + len(known[0].upload.labels.unique()))
        return super().combine(round, contributions, gradients)


class Swapping(Psl):
    """One whose first device gets a constant, and the others what is the first one's."""

    summary = "PSL that mixes replies up"

    def reply(self, gradient: Tensor, device: int, members: Any) -> Any:
        if device == 0:
            self.first = gradient
            return super().reply(torch.full(tuple(gradient.shape), 1e-3), device, members)
        return super().reply(self.first, device, members)


class OneByOne(Psl):
    """One that regularises towards two leaders, device by device, and computes with what comes."""

    summary = "PSL with two regularisers"

    def combine(self, round: int, contributions: Any, gradients: Tensor) -> Any:
        leaders = gradients.mean(0).clone(), gradients[0].clone()
        self.returned: dict[int, list[Tensor]] = {}
        for leader in leaders:
            for one, row in zip(contributions, gradients, strict=True):
                (found,) = self.server.regularise([one], [row], leader, Regulariser("exact", 0.1))
                assert found is not None
                self.returned.setdefault(one.device, []).append(found)
        return super().combine(round, contributions, gradients)

    def reply(self, gradient: Tensor, device: int, members: Any) -> Any:
        first, second = self.returned[device]
        return super().reply(first if device else 2 * first - second, device, members)


@pytest.mark.parametrize("method", [Meddling, Swapping, OneByOne])
def test_a_method_that_computes_at_the_cut_trains_the_same_weights(method: type[Psl]) -> None:
    gapsl.register_method(method.__name__.lower(), method)
    words = {**QUICK, "method": method.__name__.lower()}
    alone, spread = (gapsl.train(**words, processes=n) for n in (1, 2))
    assert alone is not None and spread is not None
    assert spread.final.weights_sha256 == alone.final.weights_sha256


class Delayed(Psl):
    """One whose devices get what was theirs a round ago."""

    summary = "PSL a round late"
    computes = False

    def reply(self, gradient: Tensor, device: int, members: Any) -> Any:
        before = vars(self).setdefault("before", {})
        last, before[device] = before.get(device, gradient), gradient
        return super().reply(last + 0 if self.computes else last, device, members)


class Computing(Delayed):
    computes = True


@pytest.mark.parametrize("method", [Delayed, Computing])
def test_what_is_of_an_earlier_exchange_is_refused_in_words(method: type[Psl]) -> None:
    gapsl.register_method(method.__name__.lower(), method)
    with pytest.raises(RuntimeError, match="gradient of device 0 are of an earlier exchange; clone them in"):
        gapsl.train(**QUICK, method=method.__name__.lower(), processes=2)


class Replacing(Psl):
    summary = "PSL that regularises something else"

    def combine(self, round: int, contributions: Any, gradients: Tensor) -> Any:
        doubled = [replace(one, activation_gradient=2 * one.activation_gradient) for one in contributions]
        self.server.regularise(doubled, list(gradients), gradients[0], Regulariser("exact", 0.1))


def test_a_regulariser_of_another_gradient_is_refused_in_words() -> None:
    gapsl.register_method("replacing", Replacing)
    with pytest.raises(ValueError, match="change what comes back, or train in one process"):
        gapsl.train(**QUICK, method="replacing", processes=2)
