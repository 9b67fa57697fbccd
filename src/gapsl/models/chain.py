"""What a chain is: a module that runs its children one after the other and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gapsl.models.refusals import CutError
from gapsl.models.untouched import untouched


def is_chain(module: nn.Module) -> bool:
    """Tell whether a module runs its children in order and does nothing else."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module's children by name, one that occurs twice (a shared ReLU) twice."""
    # named_children() leaves repetitions out, and a chain without its second ReLU is another function.
    return ((name, child) for name, child in module._modules.items() if child is not None)


def refuse_other_output(module: nn.Module, chained: nn.Module, sample: torch.Tensor) -> None:
    """Refuse a chain that does not compute what the module computes, in training as in evaluation."""
    fix = (
        "put all that its forward does into an nn.Sequential (nn.Flatten for a flatten or view, nn.ReLU for "
        "a functional one), give it a method `cut(at) -> Split`, or give the two halves directly"
    )
    runs = {type(module).__name__: module, "the chain of its children": chained}
    for training in (False, True):
        outputs = []
        for who, run in runs.items():
            with untouched(module), torch.no_grad():
                torch.manual_seed(0)  # the same dropout in both runs
                module.train(training)
                try:
                    outputs.append(run(sample.clone()))
                except Exception as error:  # a stranger's forward may raise anything
                    raise CutError(f"{who} fails on the sample: {error}; {fix}") from error
        whole, other = outputs
        if not (
            isinstance(whole, torch.Tensor)
            and isinstance(other, torch.Tensor)
            and whole.shape == other.shape
            and torch.allclose(whole, other, equal_nan=True)
        ):
            mode = "training" if training else "evaluation"
            raise CutError(
                f"{type(module).__name__} is not the chain of its children: run one after the other they "
                f"give another output than its forward (in {mode} mode); {fix}"
            )
