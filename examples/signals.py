"""1-D signals: a convolution along time, cut in two. Run it with `python examples/signals.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import gapsl

digits = (
    load_digits()
)  # real handwriting: what a scanner sees of a digit, line by line, is a signal of 64 steps
signals = (digits.data / 16).astype(np.float32)[:, None]  # (1797, 1, 64): one channel
model = nn.Sequential(
    nn.Conv1d(1, 16, 9, stride=2, padding=4), nn.ReLU(),
    nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    run = Path(folder) / "run"
    result = gapsl.train(
        method="sfl", model=model, cut=2, dataset=(signals, digits.target), devices=4, partition="iid",
        rounds=100, device_optimizer={"lr": 0.05}, server_optimizer={"lr": 0.05}, out=run,
    )  # fmt: skip
    trained = gapsl.load(run, model=model)  # the whole model, to be used
assert result is not None
print(f"accuracy: {100 * result.final.device_mean:.1f} %")
print(f"the first signal is a {trained.classes[int(trained.predict(signals[0]).argmax())]}")
