"""Runs small enough for a test, and what a plain torch loop needs to be compared with them."""

import copy

import numpy as np
import torch
from torch import nn

from gapsl.data import Batches, make_transform
from gapsl.device.build import take_partition
from gapsl.models.device_files import devices_in, read_devices
from gapsl.run.api import compose
from gapsl.run.build import prepare
from gapsl.run.parts import take_model, take_source

QUICK = {
    "dataset": "digits", "train_samples": 120, "test_samples": 40, "partition": "iid", "devices": 3,
    "batch_size": 4, "model": "mlp", "width": 0.25, "rounds": 4, "evaluate_every": 1000,
}  # fmt: skip
PLAIN = {"name": "sgd", "momentum": 0.0}


def config_of(**settings):
    return compose(words={**QUICK, **settings})


def prepared(**settings):
    return prepare(config_of(**settings))


def trained(**settings):
    training = prepared(**settings)
    training.run()
    return training


def play_round(training, t):
    """One round of a run, by the hooks that every method and fleet has."""
    outcomes = []
    for exchange in training.strategy.exchanges(t, training.present(t)):
        if exchange.hand_over is not None:
            training.fleet.hand_over(*exchange.hand_over)
        outcome = training.strategy.step(t, exchange, training.fleet.collect(t, exchange))
        training.fleet.deliver(t, outcome.replies)
        outcomes.append(outcome)
    shares = training.strategy.averaging(t)
    if shares is not None:
        training.strategy.average(shares)
        training.fleet.average(shares)
    return outcomes


def device_states(training, folder):
    """What every device would store: weights, buffers, optimizer state, batches drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    training.fleet.save(folder, training.state.round)
    return [state for _, state in read_devices(folder, devices_in(folder))]


def model_state(state):
    return {name.removeprefix("model."): t for name, t in state.items() if name.startswith("model.")}


def server_state(training):
    return training.strategy.server_model().state_dict()


class Uncut:
    """The same model at the same start and the same batches, for a loop that knows no cut."""

    def __init__(self, config, *, pooled=False):
        source = take_source(config, None)
        partition = take_partition(config, source, None)
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        self.dtype = dtype
        model = take_model(config, source, None)
        self.device, self.server = model.device.to(dtype), model.server.to(dtype)
        self.model = nn.Sequential(self.device, self.server).train()
        owners = [np.sort(np.concatenate(partition.devices))] if pooled else partition.devices
        self.batches = [
            Batches(
                source.train, indices, seed=config.seed, device=i, batch_size=config.batch_size,
                transform=make_transform(source, None, None),
            )
            for i, indices in enumerate(owners)
        ]  # fmt: skip
        self.sizes = [len(indices) for indices in owners]

    def loss(self, owner, t, turn=0, model=None):
        inputs, labels = self.batches[owner].draw(t, turn)
        return nn.functional.cross_entropy((model or self.model)(inputs.to(self.dtype)), labels)

    def copy(self):
        return copy.deepcopy(self.model)


def same_state(found, expected):
    """Two state dicts, equal to the bit."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def near_state(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, **tolerance), name
