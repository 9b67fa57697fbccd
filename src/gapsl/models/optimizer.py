"""How a half is trained: its optimizer, and its learning rate as a pure function of the round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from gapsl.common.settings import Settings

Schedule = Literal["constant", "cosine", "linear", "step"]


class OptimizerConfig(Settings):
    """How one half is trained."""

    name: Literal["sgd", "adamw"] = Field("sgd", description="the optimizer")
    lr: float = Field(0.01, gt=0, le=1e9, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum (sgd)")
    weight_decay: float = Field(0.0, ge=0, le=1e9, description="weight decay")
    schedule: Schedule = Field("constant", description="how the learning rate changes over the rounds")
    warmup: int = Field(0, ge=0, description="rounds of linear warm-up")
    step_every: int = Field(100, ge=1, description="rounds between two drops of schedule 'step'")
    step_factor: float = Field(0.1, gt=0, le=1, description="what a drop multiplies the rate by")
    clip: float | None = Field(None, gt=0, description="largest norm of a gradient; unset: no clipping")

    def maker(self) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
        """Return a function that makes this optimizer for some parameters."""
        if self.name == "adamw":
            return lambda parameters: torch.optim.AdamW(
                parameters, lr=self.lr, weight_decay=self.weight_decay
            )
        return lambda parameters: torch.optim.SGD(
            parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )

    def rate(self, total_rounds: int) -> Callable[[int], float]:
        """Return the learning rate by round (from 1): a linear warm-up, then the schedule."""

        def by_round(round: int) -> float:
            if round <= self.warmup:
                return self.lr * round / (self.warmup + 1)
            since = round - self.warmup - 1
            done = since / max(1, total_rounds - self.warmup)
            if self.schedule == "cosine":
                return self.lr * (1 + math.cos(math.pi * done)) / 2
            if self.schedule == "linear":
                return self.lr * (1 - done)
            if self.schedule == "step":
                return self.lr * float(self.step_factor ** (since // self.step_every))
            return self.lr

        return by_round
