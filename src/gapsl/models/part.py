"""A part of a cut model with what trains it: parameters, optimizer, learning rate by round, clipping."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from gapsl.common import tensors
from gapsl.common.settings import Settings

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Rate = Callable[[int], float]
Schedule = Literal["constant", "cosine", "linear", "step"]
DTYPES = {"float32": torch.float32, "float64": torch.float64}  # by the name of a precision


class OptimizerConfig(Settings):
    """How one part is trained."""

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


class ModelPart:
    """One side's model and optimizer; devices and the server each train one."""

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, rate: Rate, clip: float | None = None
    ) -> None:
        self.model = model
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in self.parameters)
        self._make_optimizer, self._rate, self._clip = make_optimizer, rate, clip
        self.optimizer = make_optimizer(self.parameters)

    def copy(self) -> ModelPart:
        """Return an independent part with the same weights and a fresh optimizer."""
        return ModelPart(copy.deepcopy(self.model), self._make_optimizer, self._rate, self._clip)

    def flat(self) -> Tensor:
        """Return a copy of the trainable parameters as one flat vector."""
        return torch.cat([p.detach().flatten() for p in self.parameters])

    def views(self, flat: Tensor) -> list[Tensor]:
        """Cut a flat vector into views shaped like the trainable parameters."""
        pieces = torch.split(flat, [p.numel() for p in self.parameters])
        return [piece.view_as(p) for piece, p in zip(pieces, self.parameters, strict=True)]

    def take_gradient(self) -> Tensor:
        """Return the gradient that backward left, as one flat vector, and leave none."""
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        self.optimizer.zero_grad(set_to_none=True)
        return torch.cat([gradient.flatten() for gradient in found])

    def step(self, round: int, gradient: Tensor | None = None) -> None:
        """Take one optimizer step at this round's learning rate, on a flat gradient if one is given."""
        if gradient is not None:
            for parameter, piece in zip(self.parameters, self.views(gradient), strict=True):
                parameter.grad = piece
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(round)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that has to be stored: weights and buffers, and the optimizer's state."""
        stored = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                if value is not None:
                    stored[f"optimizer.{index}.{slot}"] = torch.as_tensor(value)
        return {name: value.detach().contiguous() for name, value in stored.items()}

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned; raises KeyError or RuntimeError where it does not fit."""
        weights = {n.removeprefix("model."): t for n, t in stored.items() if n.startswith("model.")}
        self.model.load_state_dict(weights, strict=True)
        state: dict[int, dict[str, Any]] = {}
        for name, value in stored.items():
            if name.startswith("optimizer."):
                _, index, slot = name.split(".", 2)
                state.setdefault(int(index), {})[slot] = value.clone()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def make_part(model: nn.Module, settings: OptimizerConfig, total_rounds: int) -> ModelPart:
    """Return a part with the optimizer its settings name."""
    return ModelPart(model, settings.maker(), settings.rate(total_rounds), settings.clip)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a detached view of a model's weights and buffers by name."""
    return {name: value.detach() for name, value in model.state_dict().items()}


def model_bytes(model: nn.Module) -> int:
    """Return how many bytes a model's weights and buffers take when they are sent."""
    return sum(value.nbytes for value in model.state_dict().values())


def average(models: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of models' weights and buffers, added in the order given.

    Whole numbers (a BatchNorm's count of batches) have no mean: the largest is taken.
    """
    total = sum(weights)
    merged: dict[str, Tensor] = {}
    for name, first in models[0].items():
        if first.is_floating_point():
            merged[name] = torch.zeros_like(first)
            for model, weight in zip(models, weights, strict=True):
                merged[name].add_(model[name], alpha=weight / total)
        else:
            merged[name] = torch.stack([model[name] for model in models]).amax(dim=0)
    return merged


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of a model's weights and buffers, names and shapes included."""
    return tensors.digest(model.state_dict())


def all_finite(*tensors: Tensor) -> bool:
    """Say whether no number in the tensors is NaN or infinite."""
    # A sum is NaN or infinite if any summand is, and much faster than looking at each; but the sum of
    # large numbers may overflow by itself, and then each has to be looked at.
    return all(bool(torch.isfinite(t.sum())) or bool(torch.isfinite(t).all()) for t in tensors)


def length_of(vector: Tensor) -> float:
    """Return a vector's length, also where its squares overflow; not finite only where the vector is not."""
    length = float(torch.linalg.vector_norm(vector))
    if math.isfinite(length):
        return length
    largest = torch.linalg.vector_norm(vector, ord=torch.inf)
    return float(largest) * float(torch.linalg.vector_norm(vector / largest))
