"""A model and data of your own. Run it with `python examples/own_model.py`."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

import gapsl

inputs, labels = torch.randn(600, 1, 8, 8), torch.randint(0, 3, (600,))
inputs += labels.view(-1, 1, 1, 1)  # something to learn
train, test = TensorDataset(inputs[:500], labels[:500]), TensorDataset(inputs[500:], labels[500:])
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 3))
result = gapsl.train(method="gapsl", model=model, cut=3, dataset=(train, test), devices=5, rounds=60)
assert result is not None
print(f"accuracy of the devices: {100 * result.final.device_mean:.1f} %")
