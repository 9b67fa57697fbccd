"""Models and datasets that the caller brings: used as they are meant, or refused before training."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import gapsl

INPUTS, LABELS = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3
TABLE = (TensorDataset(INPUTS[:60], LABELS[:60]), TensorDataset(INPUTS[60:], LABELS[60:]))
WORDS = {"cut": 2, "dataset": TABLE, "devices": 3, "partition": "iid", "batch_size": 8}


def perceptron(*extra: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), *extra, nn.Tanh(), nn.Linear(4, 3))


def sha(**words):
    return gapsl.train(**{"rounds": 4, "method": "gapsl", **WORDS, **words}).final.weights_sha256


@pytest.mark.parametrize("method", ["psl", "sfl", "gapsl"])
def test_a_model_handed_over_in_evaluation_mode_trains_like_any_other(method):
    def model():
        return perceptron(nn.BatchNorm1d(4), nn.Dropout(0.3))

    assert sha(method=method, model=model().eval()) == sha(method=method, model=model().train())


class Noisy(Dataset):
    """A dataset that transforms at random, as people's do."""

    def __init__(self, part):
        self.part = part

    def __len__(self):
        return len(self.part)

    def __getitem__(self, index):
        inputs, label = self.part[index]
        return inputs + 0.1 * torch.randn(6), int(label)


def test_a_dataset_that_draws_at_random_draws_from_the_run_s_streams(tmp_path):
    noisy = tuple(map(Noisy, TABLE))
    words = {"model": perceptron(), "dataset": noisy, "rounds": 6}
    torch.manual_seed(1)
    whole = sha(**words)
    torch.manual_seed(2)
    assert sha(**words) == whole
    assert sha(**words, seed=1) != whole
    asked = iter([False, True])
    stopped = {**WORDS, **words, "method": "gapsl", "out": tmp_path / "run"}
    assert gapsl.train(**stopped, stop=lambda: next(asked)) is None
    resumed = gapsl.resume(tmp_path / "run", model=perceptron(), dataset=noisy)
    assert resumed.final.weights_sha256 == whole


def test_the_weights_of_a_run_come_back_with_the_model_s_own_names(tmp_path):
    model = perceptron()
    result = gapsl.train(method="psl", rounds=4, model=model, out=tmp_path / "run", **WORDS)
    weights = gapsl.trained(tmp_path / "run")
    assert sorted(weights) == ["device-0000", "device-0001", "device-0002", "server"]
    right = 0
    for device in ("device-0000", "device-0001", "device-0002"):
        model.load_state_dict({**weights[device], **weights["server"]})
        right += int((model(INPUTS[60:]).argmax(dim=1) == LABELS[60:]).sum())
    assert right / 90 == pytest.approx(result.final.device_mean)


def test_a_run_without_a_checkpoint_has_no_weights_to_give(tmp_path):
    with pytest.raises(gapsl.InputError, match="no run in it"):
        gapsl.trained(tmp_path)


def test_the_result_says_that_model_and_data_were_the_caller_s():
    result = gapsl.train(rounds=1, model=perceptron(), **WORDS)
    assert result.config["custom"] == {"model": "Sequential", "dataset": "tuple"}


def test_tied_weights_within_a_part_are_stored_and_restored(tmp_path):
    def tied():
        model = perceptron(nn.Linear(4, 4), nn.Linear(4, 4))
        model[4].weight = model[3].weight
        return model

    whole = sha(model=tied(), rounds=6)
    asked = iter([False, True])
    words = {**WORDS, "method": "gapsl", "rounds": 6, "out": tmp_path / "run"}
    assert gapsl.train(model=tied(), stop=lambda: next(asked), **words) is None
    resumed = gapsl.resume(tmp_path / "run", model=tied(), dataset=TABLE)
    assert resumed.final.weights_sha256 == whole


@pytest.mark.parametrize("side", ["client-side", "server-side"])
def test_a_part_with_nothing_to_train_is_refused(side):
    model = perceptron()
    for layer in model[:2] if side == "client-side" else model[2:]:
        layer.requires_grad_(False)
    with pytest.raises(gapsl.InputError, match=f"the {side} model has no parameter to train"):
        sha(model=model)


@pytest.mark.parametrize("model", [5, nn.Linear])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(gapsl.InputError, match="is no model; give a name, a torch module"):
        sha(model=model)


def test_settings_that_a_given_model_would_ignore_are_refused():
    with pytest.raises(gapsl.InputError, match="width does nothing"):
        sha(model=perceptron(), width=2.0)
    parts = gapsl.split(perceptron(), 2)
    with pytest.raises(gapsl.InputError, match="cut does nothing"):
        sha(model=parts)


def test_a_given_model_starts_from_a_file_if_one_is_named(tmp_path):
    other = perceptron()
    for parameter in other.parameters():
        parameter.data.add_(0.1)
    save_file(other.state_dict(), tmp_path / "start.safetensors")
    assert sha(model=perceptron(), pretrained=str(tmp_path / "start.safetensors")) == sha(model=other)


def test_one_batch_that_is_no_number_does_not_live_on_in_a_device_s_batch_norm():
    inputs = INPUTS[:60].clone()
    inputs[7] = torch.nan
    torch.manual_seed(0)
    device = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh())
    parts = gapsl.Split(device, nn.Sequential(nn.Linear(5, 3)))
    data = (TensorDataset(inputs, LABELS[:60]), TABLE[1])
    words = {key: value for key, value in WORDS.items() if key not in ("cut", "dataset")}
    result = gapsl.train(method="psl", rounds=3, model=parts, dataset=data, **words)
    assert result.final.test_loss is not None


def test_a_wrong_value_is_told_also_in_the_section_of_another_method():
    with pytest.raises(gapsl.InputError, match=r"gapsl\.k_min"):
        gapsl.train(method="psl", rounds=1, gapsl={"k_min": 7})


def test_central_refuses_a_feature_shift():
    with pytest.raises(gapsl.InputError, match=r"no device shifts it \(iid\+noise:0\.1\)"):
        gapsl.train(method="central", rounds=1, partition="iid+noise:0.1")


PAIR = TABLE[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ((PAIR,), r"a tuple of 1 things that are no samples; .* a pair \(train, test\)"),
        ((PAIR, PAIR, PAIR), r"a pair \(train, test\)"),
        ((item for item in ()), "the generator gives nothing"),
        (7, r"int is no dataset; .*a pair \(train, test\)"),
        ({"train": PAIR}, r"dict is no dataset; .*a pair \(train, test\)"),
        (INPUTS, "Tensor: inputs without labels"),
        ((INPUTS, None), "inputs without labels"),
        ((INPUTS, LABELS[:-1]), "inputs but .* labels"),
        (TensorDataset(INPUTS[:1], LABELS[:1]), r"1 samples cannot be parted; give a pair"),
        ((PAIR, TensorDataset(INPUTS[:, :5], LABELS)), r"have shape \(6,\), test samples \(5,\)"),
        ((TensorDataset(INPUTS[:, 0], LABELS),) * 2, "a single number"),
        ((TensorDataset(INPUTS, INPUTS[:, :3]),) * 2, "labels must be integers"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_a_sentence(data, why):
    with pytest.raises(gapsl.InputError, match=why):
        gapsl.train(**{**WORDS, "model": perceptron(), "rounds": 1, "dataset": data})
