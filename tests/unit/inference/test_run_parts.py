"""The models that are taken out of runs are those that the runs evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from quick import QUICK
from small_runs import LEARNS, copy_of, run_of
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import gapsl
from gapsl.common.errors import InputError
from gapsl.device.build import limited_to
from gapsl.run.folder import RunFolder

FIXTURES = Path(__file__).parents[2] / "fixtures"
METHODS = ["psl", "gapsl", "papsl", "sfl", "sfl-v2", "vanilla", "central"]


def evaluation_samples() -> tuple[Tensor, Tensor]:
    config, _ = RunFolder(run_of("psl")).config()
    test = limited_to(config, gapsl.load_source("digits")).test
    return test.read(torch.arange(len(test))), test.labels


def accuracy(model: gapsl.SplitModel, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(model.preprocess(inputs)).argmax(dim=1) == labels).double().mean())


@pytest.mark.parametrize("method", METHODS)
def test_every_model_has_the_accuracy_that_its_run_measured(method: str) -> None:
    run = run_of(method)
    final = RunFolder(run).result().final
    inputs, labels = evaluation_samples()
    for device, expected in final.device_accuracy.items():
        assert accuracy(gapsl.load(run, device), inputs, labels) == expected
    assert accuracy(gapsl.load(run, "merged"), inputs, labels) == final.merged
    assert accuracy(gapsl.load(run, "ensemble"), inputs, labels) == final.ensemble


def test_raw_inputs_need_the_normalisation() -> None:
    run = run_of("sfl", rounds=150)
    inputs, labels = evaluation_samples()
    model = gapsl.load(run)
    right = accuracy(model, inputs, labels)
    with torch.no_grad():
        raw = float((model(inputs).argmax(dim=1) == labels).double().mean())
    assert raw < right


def test_a_model_is_a_plain_module_in_evaluation_mode() -> None:
    model = gapsl.load(run_of("psl", norm="batch", model="small"), 1)
    assert isinstance(model, nn.Module)
    assert not model.training
    assert model.classes == tuple("0123456789")
    one = torch.rand(1, 8, 8)
    assert model.preprocess(one).shape == (1, 1, 8, 8)
    assert torch.allclose(model.predict(one).sum(), torch.tensor(1.0))
    assert torch.equal(model(model.preprocess(one)), model(model.preprocess(one.numpy())))


def test_bytes_are_scaled() -> None:
    model = gapsl.load(run_of("psl"))
    pixels = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(model.preprocess(pixels), model.preprocess(pixels.float() / 255))


def test_whole_numbers_that_are_no_bytes_are_refused_not_taken_for_shares() -> None:
    with pytest.raises(InputError, match=r"inputs: dtype torch.int64; give uint8 \(0 to 255\) or floating"):
        gapsl.load(run_of("psl")).predict(torch.full((1, 8, 8), 200))


def test_double_precision_stays() -> None:
    model = gapsl.load(run_of("psl", precision="float64", rounds=2), 0)
    assert model.preprocess(torch.rand(1, 8, 8)).dtype == torch.float64
    assert model.predict(torch.rand(1, 8, 8)).dtype == torch.float64


def test_devices_with_heads_have_them_in_their_models() -> None:
    run = run_of("psl", labels="device")
    final = RunFolder(run).result().final
    inputs, labels = evaluation_samples()
    for device, expected in final.device_accuracy.items():
        assert accuracy(gapsl.load(run, device), inputs, labels) == expected
    assert accuracy(gapsl.load(run, "ensemble"), inputs, labels) == final.ensemble
    with pytest.raises(InputError, match=r"heads of their own.*--client ensemble"):
        gapsl.load(run)


def test_an_ensemble_gives_the_mean_probabilities() -> None:
    run, inputs = run_of("psl"), torch.rand(5, 1, 8, 8)
    each = torch.stack([gapsl.load(run, device).predict(inputs) for device in range(3)])
    assert torch.allclose(gapsl.load(run, "ensemble").predict(inputs), each.mean(dim=0), atol=1e-6)


def test_the_loading_draws_nothing_from_the_global_generator() -> None:
    run = run_of("psl")
    torch.manual_seed(3)
    before = torch.get_rng_state()
    gapsl.load(run, 0)
    assert torch.equal(torch.get_rng_state(), before)


# --- own models and data


def own_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TensorDataset, float]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (90,), generator=generator)
    data = TensorDataset(torch.randn(90, 3, 4, generator=generator) + labels.view(-1, 1, 1), labels)
    out = tmp_path_factory.mktemp("own") / "run"
    result = gapsl.train(
        method="psl",
        model=own_model(),
        cut=3,
        dataset=(data, data),
        devices=2,
        rounds=30,
        partition="iid",
        out=out,
    )
    return out, data, result.final.device_accuracy[1]


def test_a_model_of_ones_own_is_given_again(own: tuple[Path, TensorDataset, float]) -> None:
    run, data, expected = own
    model = gapsl.load(run, 1, model=own_model())
    assert accuracy(model, *data.tensors) == expected
    assert model.info.inputs == "own"
    with pytest.raises(InputError, match=r"given from Python \(Sequential\).*gapsl.load\(..., model="):
        gapsl.load(run, 1)
    with pytest.raises(InputError, match="does not fit this model"):
        gapsl.load(run, 1, model=nn.Sequential(nn.Flatten(), nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3)))


def test_two_modules_of_ones_own_are_given_again(tmp_path: Path) -> None:
    def parts() -> gapsl.Split:
        front = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh())
        return gapsl.Split(front, nn.Sequential(nn.Linear(6, 2)))

    labels = torch.arange(40) % 2
    data = TensorDataset(torch.randn(40, 4) + labels[:, None], labels)
    gapsl.train(
        model=parts(), dataset=(data, data), devices=2, rounds=3, out=tmp_path / "run", partition="iid"
    )
    assert gapsl.load(tmp_path / "run", 0, model=parts()).predict(torch.randn(3, 4)).shape == (3, 2)
    with pytest.raises(InputError, match="two modules"):
        gapsl.load(tmp_path / "run", 0, model=nn.Sequential(*parts().device, *parts().server))


# --- old and damaged runs


@pytest.mark.parametrize("name", ["finished", "comparison/sfl-seed0"])
def test_runs_of_an_older_version_are_read(name: str) -> None:
    run = FIXTURES / name
    assert not (run / "model.json").exists()
    model = gapsl.load(run, 1)
    config, _ = RunFolder(run).config()
    test = limited_to(config, gapsl.load_source("digits")).test
    found = accuracy(model, test.read(torch.arange(len(test))), test.labels)
    assert found == pytest.approx(RunFolder(run).result().final.device_accuracy[1], abs=0.026)


def test_an_old_run_whose_data_are_not_here_says_what_to_do(tmp_path: Path) -> None:
    run = copy_of(run_of("psl"), tmp_path / "run")
    (run / "model.json").unlink()
    text = (run / "config.yaml").read_text().replace("dataset: digits", "dataset: folder:/nowhere")
    (run / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"written by an older gapsl.*--data-dir"):
        gapsl.load(run)


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    run = run_of("psl")
    with pytest.raises(InputError, match="no client '7'; give a number from 0 to 2, merged or ensemble"):
        gapsl.load(run, 7)
    with pytest.raises(InputError, match="no client 'all'"):
        gapsl.load(run, "all")
    with pytest.raises(InputError, match="there is no folder"):
        gapsl.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="neither a run in it"):
        gapsl.load(tmp_path)
    with pytest.raises(InputError, match=r"inputs of shape \(2, 3, 8, 8\); the model takes \(1, 8, 8\)"):
        gapsl.load(run).preprocess(torch.rand(2, 3, 8, 8))


def test_a_run_without_checkpoints_or_with_damaged_ones_is_refused(tmp_path: Path) -> None:
    run = copy_of(run_of("psl"), tmp_path / "run")
    (checkpoint,) = (run / "checkpoints").glob("round-*40")
    (file,) = checkpoint.glob("devices-*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"devices-.*.safetensors is not what was written"):
        gapsl.load(run)
    for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match="has no checkpoint yet; train it with: gapsl resume"):
        gapsl.load(run)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "model.json cannot be read"),
        ("[]", "does not describe a model"),
        (json.dumps({"kind": "gapsl-model", "schema": 9}), "schema 9, this gapsl reads 1"),
        (json.dumps({"kind": "gapsl-model", "schema": 1, "classes": 3}), "classes"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path: Path, content: str, words: str) -> None:
    run = copy_of(run_of("psl"), tmp_path / "run")
    (run / "model.json").write_text(content)
    with pytest.raises(InputError, match=words):
        gapsl.load(run)


@pytest.mark.parametrize("wrong", [{"std": [0.0]}, {"std": [-1.0]}, {"input_shape": [1, 0, 8]}])
def test_a_description_that_no_model_has_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    run = copy_of(run_of("psl"), tmp_path / "run")
    said = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps({**said, **wrong}))
    with pytest.raises(InputError, match=f"{next(iter(wrong))}.*greater than 0"):
        gapsl.load(run)


def test_a_run_says_how_its_model_is_fed(tmp_path: Path) -> None:
    gapsl.train(method="psl", out=tmp_path / "run", **{**QUICK, **LEARNS, "rounds": 1})
    said = json.loads((tmp_path / "run" / "model.json").read_text())
    assert (said["cut"], said["inputs"], said["input_shape"]) == (1, "unit", [1, 8, 8])
    assert (said["mean"], said["std"], said["classes"]) == ([0.3054], [0.3761], list("0123456789"))
