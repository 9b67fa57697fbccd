"""Tabular data: hospitals that share no patients tell tumours apart. Run: `python examples/tabular.py`."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

import gapsl

data = load_breast_cancer()  # 569 real patients with 30 measurements each
inputs = ((data.data - data.data.mean(axis=0)) / data.data.std(axis=0)).astype(np.float32)
model = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
# Of one dataset a stratified fifth is the test part. Probes, augmentation and shifts are for images.
result = gapsl.train(
    method="psl", model=model, cut=2, dataset=(inputs, data.target), devices=5,
    partition="dirichlet:0.5,min=5", rounds=100, batch_size=16,
    device_optimizer={"lr": 0.05}, server_optimizer={"lr": 0.05},
)  # fmt: skip
assert result is not None
print(f"accuracy of the hospitals' models: {100 * result.final.device_mean:.1f} %")
