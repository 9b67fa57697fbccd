"""Training from Python: own models, own data, own methods, and a caller's process left as it was."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import Launcher, result_of, strict_json, timeless
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import gapsl
from gapsl.methods import Contribution, Outcome
from gapsl.run.records import RoundRecord, RunResult

# Small enough to take a tenth of a second.
SMALL: dict[str, Any] = {
    "devices": 3,
    "rounds": 12,
    "batch_size": 4,
    "checkpoint_every": 5,
    "partition": "iid",
}


def datasets() -> tuple[TensorDataset, TensorDataset]:
    """Three classes of 6×6 images that differ in brightness."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(150) % 3
    inputs = torch.randn(150, 1, 6, 6, generator=draws) + labels.view(-1, 1, 1, 1)
    return TensorDataset(inputs[:120], labels[:120]), TensorDataset(inputs[120:], labels[120:])


def model(hidden: int = 8) -> nn.Sequential:
    """An own model, always with the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(36, hidden), nn.Tanh(), nn.Dropout(0.2), nn.Linear(hidden, 3)
        )


def weights(result: RunResult | None) -> str:
    assert result is not None
    return str(result.final.weights_sha256)


def trained(**settings: Any) -> dict[str, Any]:
    """Train the own model on the own data to the end."""
    result = gapsl.train(**{"model": model(), "cut": 3, "dataset": datasets(), **SMALL, **settings})
    assert result is not None
    return result


class Interrupter:
    """Asks to stop after some rounds."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


# --- what can be brought along


def test_an_own_sequential_with_a_cut_learns_own_data_and_is_left_as_it_was() -> None:
    ours = model()
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    result = trained(model=ours, rounds=60, device_optimizer={"lr": 0.05}, server_optimizer={"lr": 0.05})
    assert result.final.device_mean > 0.7
    assert (result.method, result.rounds, len(result.final.bytes_sent)) == ("gapsl", 60, 3)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())


def test_two_parts_are_the_same_as_the_model_they_are_of() -> None:
    whole = model()
    parts = gapsl.Split(nn.Sequential(whole[0], whole[1], whole[2]), nn.Sequential(whole[3], whole[4]))
    ours = gapsl.train(model=parts, dataset=datasets(), **SMALL)
    assert ours is not None
    assert ours.final.device_accuracy == trained().final.device_accuracy


def test_a_model_of_ones_own_needs_a_cut_that_exists() -> None:
    with pytest.raises(gapsl.InputError, match=r"cut=.*gapsl\.Split"):
        gapsl.train(model=model(), dataset=datasets(), **SMALL)
    with pytest.raises(gapsl.InputError, match="no cut 9"):
        trained(cut=9)
    four = TensorDataset(torch.zeros(20, 1, 6, 6), torch.arange(20) % 4)
    with pytest.raises(gapsl.InputError, match="4 classes"):
        trained(dataset=(four, four))


def test_any_dataset_of_pairs_is_the_same_as_its_tensors() -> None:
    class Pairs(Dataset[tuple[Tensor, int]]):
        def __init__(self, inner: TensorDataset) -> None:
            self.inner = inner

        def __len__(self) -> int:
            return len(self.inner)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            inputs, label = self.inner[index]
            return inputs, int(label)

    train, test = datasets()
    assert weights(trained(dataset=(Pairs(train), Pairs(test)))) == weights(trained())


def test_a_method_is_one_class_and_one_call() -> None:
    class Loudest(gapsl.Parallel):
        """Only the device with the longest gradient counts."""

        summary = "the loudest device wins"

        def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
            loudest = int(gradients.norm(dim=1).argmax())
            self.server.part.step(round, gradients[loudest].clone())
            alone = contributions[loudest].device
            replies = {c.device: self.reply(c.activation_gradient, c.device, [alone]) for c in contributions}
            losses = {c.device: c.loss for c in contributions}
            return Outcome(replies, losses, details={"loudest": alone})

    name = f"loudest-{id(Loudest)}"
    gapsl.register_method(name, Loudest)
    heard: list[int] = []

    class Listener(gapsl.Observer):
        def round(self, record: RoundRecord) -> None:
            heard.append(record.details["loudest"])

    result = trained(method=name, observers=[Listener()])
    assert result.method == name
    assert len(heard) == 12
    assert set(heard) <= {0, 1, 2}
    assert weights(result) not in (weights(trained(method="psl")), weights(trained()))
    with pytest.raises(gapsl.InputError, match="registered already"):
        gapsl.register_method(name, Loudest)


def test_an_observer_hears_everything_in_order() -> None:
    heard: list[str] = []

    class Listener(gapsl.Observer):
        def started(self, run: Any) -> None:
            heard.append(f"started at {run.first_round} of {run.total_rounds}")

        def round(self, record: RoundRecord) -> None:
            heard.append(f"round {record.round}")

        def finished(self, result: RunResult) -> None:
            heard.append(f"finished with {len(result.history)} evaluations")

        def closed(self) -> None:
            heard.append("closed")

    trained(rounds=2, evaluate_every=1, observers=[Listener()])
    assert heard == ["started at 1 of 2", "round 1", "round 2", "finished with 2 evaluations", "closed"]


def test_nothing_an_observer_draws_changes_the_training() -> None:
    class Gambler(gapsl.Observer):
        def round(self, record: RoundRecord) -> None:
            torch.manual_seed(record.round)
            torch.rand(7)
            np.random.seed(5)
            random.seed(5)

    assert weights(trained(observers=[Gambler()])) == weights(trained())


def test_a_loss_of_ones_own_is_the_one_that_is_trained() -> None:
    def doubled(logits: Tensor, labels: Tensor, device: int) -> Tensor:
        return 2 * nn.functional.cross_entropy(logits, labels)

    plain = {"momentum": 0.0, "lr": 0.02}
    twice = {"momentum": 0.0, "lr": 0.01}
    ours = trained(method="psl", loss=doubled, device_optimizer=twice, server_optimizer=twice)
    theirs = trained(method="psl", device_optimizer=plain, server_optimizer=plain)
    assert ours.final.test_loss == pytest.approx(theirs.final.test_loss, rel=1e-4)


# --- a guest in somebody's process


@pytest.mark.parametrize("ends", ["finished", "stopped", "refused"])
def test_the_callers_random_state_threads_and_gradients_are_left_alone(ends: str) -> None:
    torch.set_num_threads(2)
    torch.manual_seed(11)
    np.random.seed(12)
    random.seed(13)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    try:
        if ends == "refused":
            with pytest.raises(gapsl.InputError):
                trained(cut=9)
        elif ends == "stopped":
            assert gapsl.train(model="mlp", stop=Interrupter(2), dropout=0.2, **SMALL) is None
        else:
            trained()
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()
        assert random.getstate() == before[2]
        assert torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float32
    finally:
        torch.set_num_threads(1)


def test_the_callers_random_state_does_not_matter() -> None:
    torch.manual_seed(1)
    first = weights(gapsl.train(model="small", dropout=0.2, **SMALL))
    torch.manual_seed(2)
    assert weights(gapsl.train(model="small", dropout=0.2, **SMALL)) == first


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained()
    assert list(tmp_path.iterdir()) == []


# --- files and going on


def test_train_and_resume_return_what_the_result_file_holds(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = gapsl.train(model="mlp", out=folder, test_samples=5, **SMALL)  # some classes have no test sample
    stored = strict_json((folder / "result.json").read_text(encoding="utf-8"))
    assert gapsl.resume(folder) == result
    assert result is not None and result.to_dict() == stored


def test_a_run_with_own_objects_is_gone_on_with_when_it_gets_them_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = gapsl.train(model=model(), cut=3, dataset=datasets(), out=folder, stop=Interrupter(7), **SMALL)
    assert stopped is None
    assert not (folder / "result.json").exists()

    for given in ({}, {"model": model()}, {"dataset": datasets()}):
        missing = {"model", "dataset"} - set(given)
        with pytest.raises(gapsl.InputError) as refused:
            gapsl.resume(folder, **given)
        for name in missing:
            assert f"{name}=..." in str(refused.value)
        assert f"gapsl.resume({str(folder)!r}" in str(refused.value)

    with pytest.raises(gapsl.InputError, match="does not fit"):
        gapsl.resume(folder, model=model(hidden=9), dataset=datasets())
    train, test = datasets()
    with pytest.raises(gapsl.InputError, match=r"is not what .* was (made of|started with)"):
        gapsl.resume(folder, model=model(), dataset=(test, train))

    result = gapsl.resume(folder, model=model(), dataset=datasets())
    assert result is not None
    expected = trained()
    assert weights(result) == weights(expected)
    assert timeless(result) == timeless(expected)
    assert gapsl.resume(folder) == result_of(folder), "a finished run needs nothing any more"


def test_the_command_line_says_that_such_a_run_goes_on_in_python(cli: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**SMALL, "out": folder, "stop": Interrupter(3)}
    assert gapsl.train(model=model(), cut=3, dataset=datasets(), **settings) is None
    ended = cli.run("resume", folder)
    assert ended.code == 2
    assert "gapsl.resume(" in ended.stderr
    assert "model=... (Sequential)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_stopped_in_every_round_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = {"model": model(), "dataset": datasets()}
    result = gapsl.train(cut=3, out=folder, stop=Interrupter(1), **given, **SMALL)
    rounds = 1
    while result is None:
        result = gapsl.resume(folder, stop=Interrupter(1), **given)
        rounds += 1
    assert rounds == 12
    assert weights(result) == weights(trained())


def test_words_that_are_no_settings_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(gapsl.InputError, match="unknown setting 'devces'; did you mean 'devices'"):
        gapsl.train(devces=3)
    with pytest.raises(gapsl.InputError, match=r"unknown setting 'gapsl\.lamda'; did you mean 'lambda'"):
        gapsl.train(gapsl={"lamda": 3})
