"""Cut a module in two: the device's half runs up to the cut, the server's half from there on.

Both halves hold the very parameters of the module, nothing is copied: training a half trains the
module. They also keep the module's parameter names, so its files fit them and theirs fit it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from gapsl.common.registry import nearest
from gapsl.models.chain import children_of, is_chain, refuse_other_output
from gapsl.models.refusals import CutError

Children = OrderedDict[str, nn.Module]


@dataclass(frozen=True)
class Split:
    """A model in two halves; the uncut model is `server(device(x))`."""

    device: nn.Module
    server: nn.Module


@runtime_checkable
class Cuttable(Protocol):
    """A module that knows how to cut itself, because its children alone do not say how it runs."""

    def cut(self, at: int | str) -> Split:
        """Return the halves on either side of this cut."""
        ...


def split(module: nn.Module, at: int | str, sample: torch.Tensor | None = None) -> Split:
    """Cut a module after its first `at` children, or after the child with this dotted name.

    A module that has a method `cut(at) -> Split` cuts itself. An `nn.Sequential` is cut as it is. Of any
    other module only a trial can tell whether its children run in order: give a `sample` batch for it.
    A cut inside a child goes through `nn.Sequential`s only: inside a residual block there is none.
    """
    if isinstance(module, Cuttable):
        return module.cut(at)
    halves = cut_chain(module, at)
    if sample is not None:
        refuse_other_output(module, nn.Sequential(halves.device, halves.server), sample)
    elif not is_chain(module):
        raise CutError(
            f"{type(module).__name__} is no nn.Sequential, so nothing says that its children run in order; "
            "pass `sample`, a small batch of inputs, to have it tried, or give the two halves directly"
        )
    return halves


def cut_chain(module: nn.Module, at: int | str) -> Split:
    """Cut a module whose children run in order; the caller vouches for the order."""
    name = _name_of_index(module, at) if isinstance(at, int) else at
    if name not in set(_names(module)):
        raise CutError(f"{type(module).__name__} has no cut {name!r}; {nearest(name, cuts_of(module))}")
    front, back = _parts(module, name.split("."))
    halves = Split(nn.Sequential(front), nn.Sequential(back))
    for side, half in (("device", halves.device), ("server", halves.server)):
        if next(half.parameters(), None) is None:
            why = "no layer" if len(list(half.children())) == 0 else "no parameters"
            raise CutError(
                f"the cut {at!r} leaves the {side} with {why}, so it has nothing to train; cut elsewhere, "
                f"the device's last layer can be {', '.join(cuts_of(module)) or 'none of this module'}"
            )
    lost = module.state_dict().keys() - halves.device.state_dict().keys() - halves.server.state_dict().keys()
    if lost:
        raise CutError(
            f"{', '.join(sorted(lost))} would belong to neither half, because no child of the module holds "
            "it; give the module a method `cut(at) -> Split`, or give the two halves directly"
        )
    return halves


def cuts_of(module: nn.Module) -> list[str]:
    """Return the names after which a chain can be cut so that both halves have parameters."""
    found = []
    for name in _names(module):
        front, back = _parts(module, name.split("."))
        if all(next(nn.Sequential(half).parameters(), None) is not None for half in (front, back)):
            found.append(name)
    return found


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
    """Deal a chain's children out to the two halves, opening the containers along the path."""
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
