"""Cut a module in two: the client-side model runs up to the cut, the server-side model from there on.

Both parts hold the very parameters of the module, nothing is copied: training a part trains the
module. They also keep the module's parameter names, so its files fit them and theirs fit it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest

Children = OrderedDict[str, nn.Module]


class CutError(InputError):
    """The model cannot be trained in two parts as it is; the message says what to change."""


@dataclass(frozen=True)
class Split:
    """A model in two parts; the uncut model is `server(device(x))`."""

    device: nn.Module
    server: nn.Module


GivenModel = nn.Module | Split  # what a caller may bring: a module to be cut, or both parts


@runtime_checkable
class Cuttable(Protocol):
    """A module that knows how to cut itself, because its children alone do not say how it runs."""

    def cut(self, at: int | str) -> Split:
        """Return the parts on either side of this cut."""
        ...


def split(module: nn.Module, at: int | str, sample: Tensor | None = None) -> Split:
    """Cut a module after its first `at` children, or after the child with this dotted name.

    A module that has a method `cut(at) -> Split` cuts itself. An `nn.Sequential` is cut as it is. Of any
    other module only a trial can tell whether its children run in order: give a `sample` batch for it.
    A cut inside a child goes through `nn.Sequential` only: inside a residual block there is none.
    """
    if isinstance(module, Cuttable):
        return module.cut(at)
    parts = cut_chain(module, at)
    if sample is not None:
        refuse_other_output(module, nn.Sequential(parts.device, parts.server), sample)
    elif not is_chain(module):
        raise CutError(
            f"{type(module).__name__} is no nn.Sequential, so nothing says that its children run in order; "
            "pass `sample`, a small batch of inputs, to have it tried, or give the two parts directly"
        )
    return parts


def cut_chain(module: nn.Module, at: int | str) -> Split:
    """Cut a module whose children run in order; the caller vouches for the order."""
    name = _name_of_index(module, at) if isinstance(at, int) else at
    if name not in set(_names(module)):
        raise CutError(f"the model has no cut {name!r}; {nearest(name, cuts_of(module))}")
    front, back = _parts(module, name.split("."))
    parts = Split(nn.Sequential(front), nn.Sequential(back))
    for side, part in (("device", parts.device), ("server", parts.server)):
        if not has_weights(part):
            why = "no layer" if len(list(part.children())) == 0 else "no parameters"
            raise CutError(
                f"the cut {at!r} leaves the {side} with {why}, so it has nothing to train; cut elsewhere, "
                f"the device's last layer can be {', '.join(cuts_of(module)) or 'none of this module'}"
            )
    lost = module.state_dict().keys() - parts.device.state_dict().keys() - parts.server.state_dict().keys()
    if lost:
        raise CutError(
            f"{', '.join(sorted(lost))} would belong to neither part, because no child of the module holds "
            "it; give the module a method `cut(at) -> Split`, or give the two parts directly"
        )
    return parts


def cuts_of(module: nn.Module) -> list[str]:
    """Return the names after which a chain can be cut so that both parts have parameters."""
    parts = {name: _parts(module, name.split(".")) for name in _names(module)}
    return [name for name, own in parts.items() if all(has_weights(nn.Sequential(part)) for part in own)]


def has_weights(module: nn.Module) -> bool:
    """Say whether there is something to train."""
    return next(module.parameters(), None) is not None


def behead(server: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return what stays with the server, and the last layer with parameters and all that follows it.

    A chain (`nn.Sequential`) gives its last part; of any other module it is the child called `head`.
    """
    if is_chain(server):
        children = list(server.named_children())
        with_weights = [i for i, (_, child) in enumerate(children) if has_weights(child)]
        if len(with_weights) >= 2:
            last = with_weights[-1]
            front, back = children[:last], children[last:]
            return nn.Sequential(OrderedDict(front)), nn.Sequential(OrderedDict(back))
    head = getattr(server, "head", None)
    if isinstance(head, nn.Module) and has_weights(head):
        server.head = nn.Identity()
        return server, head
    raise CutError(
        "labels = device needs a last layer that can be taken off the server-side model: two layers with "
        "weights in an nn.Sequential, or a child called head; cut earlier, or let the server have the labels"
    )


def normalise_at_cut(parts: Split) -> Split:
    """Let the client-side model normalise each sample's activations over all of them, without a parameter.

    It is a hook and no layer, so that parameters keep their names, whatever kind of module the part is.
    """
    parts.device.register_forward_hook(_normalised)
    return parts


def is_chain(module: nn.Module) -> bool:
    """Tell whether a module runs its children in order and does nothing else."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module's children by name, one that occurs twice (a shared ReLU) twice."""
    # named_children() leaves repetitions out, and a chain without its second ReLU is another function.
    return ((name, child) for name, child in module._modules.items() if child is not None)


def refuse_other_output(module: nn.Module, chained: nn.Module, sample: Tensor) -> None:
    """Refuse a chain that does not compute what the module computes, in training as in evaluation."""
    fix = (
        "put all that its forward does into an nn.Sequential (nn.Flatten for a flatten or view, nn.ReLU for "
        "a functional one), give it a method `cut(at) -> Split`, or give the two parts directly"
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
            isinstance(whole, Tensor)
            and isinstance(other, Tensor)
            and whole.shape == other.shape
            and torch.allclose(whole, other, equal_nan=True)
        ):
            mode = "training" if training else "evaluation"
            raise CutError(
                f"{type(module).__name__} is not the chain of its children: run one after the other they "
                f"give another output than its forward (in {mode} mode); {fix}"
            )


@contextmanager
def untouched(*modules: nn.Module) -> Iterator[None]:
    """Put back each module's training mode and buffers, and torch's generators, after the block.

    Gradients are the caller's duty: `torch.autograd.grad` does not write any.
    """
    parts = list(dict.fromkeys(part for module in modules for part in module.modules()))
    modes = [part.training for part in parts]
    # A forward may write into a buffer (BatchNorm) or bind another tensor to its name: undo both.
    buffers = [
        (part, name, buffer, buffer.detach().clone())
        for part in parts
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                part._buffers[name] = buffer.copy_(value)


def _normalised(part: nn.Module, inputs: tuple[Tensor, ...], activations: Tensor) -> Tensor:
    """Return the activations with mean 0 and variance 1 in every row, in the memory order they came in."""
    return F.group_norm(activations, 1)


def _names(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Yield every child's dotted name in running order, going into containers that are chains."""
    for name, child in children_of(module):
        if is_chain(child):
            yield from _names(child, f"{prefix}{name}.")
        yield f"{prefix}{name}"


def _name_of_index(module: nn.Module, at: int) -> str:
    names = [name for name, _ in children_of(module)]
    if isinstance(at, bool) or not 1 <= at < len(names):
        inside = [name for name in cuts_of(module) if "." in name]
        raise CutError(
            f"{type(module).__name__} has {len(names)} children, so there is no cut {at}: a number says how "
            f"many of them, from 1 to {len(names) - 1}, go to the device"
            + (f"; a name cuts inside one: {', '.join(inside)}" if inside else "")
        )
    return names[at - 1]


def _parts(module: nn.Module, path: list[str]) -> tuple[Children, Children]:
    """Deal a chain's children out to the two parts, opening the containers along the path."""
    front, back = Children(), Children()
    passed = False
    for name, child in children_of(module):
        if name != path[0]:
            (back if passed else front)[name] = child
            continue
        passed = True
        if len(path) == 1:
            front[name] = child
        else:
            inner_front, inner_back = _parts(child, path[1:])
            front[name] = nn.Sequential(inner_front)
            if inner_back:
                back[name] = nn.Sequential(inner_back)
    return front, back
