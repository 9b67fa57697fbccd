"""Try a cut out on a made-up batch before training: a report, or a sentence that says why it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from gapsl.common.errors import InputError
from gapsl.models.cut import CutError, Split, children_of, is_chain, untouched


@dataclass(frozen=True)
class Layer:
    """One layer, or one block of them that no cut can fall into."""

    name: str  # as in the state_dict
    kind: str  # for example "Conv2d(3, 64, kernel_size=(3, 3), ...)"
    parameters: int


@dataclass(frozen=True)
class PartReport:
    """How large a part is and what a batch costs it."""

    parameters: int  # numbers in its parameters
    buffers: int  # numbers in its buffers, such as BatchNorm's running means
    flops: int  # of one batch's forward pass: products and sums of its matrices and convolutions
    layers: tuple[Layer, ...]  # in running order


@dataclass(frozen=True)
class CutReport:
    """What crosses the cut with every batch, and what lies on either side."""

    activation_shape: tuple[int, ...]  # with the batch in front
    activation_dtype: torch.dtype
    activation_bytes: int  # of one batch
    device: PartReport
    server: PartReport


def check_cut(
    split: Split,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    batch_size: int,
    twice: bool = False,
) -> CutReport:
    """Report on a cut, or refuse it; the parts are left exactly as they were.

    `twice` also asks for second derivatives of the server-side model.
    """
    if batch_size < 1:
        raise InputError(f"a batch of {batch_size} holds nothing; give a batch size of 1 or more")
    refuse_lazy_or_shared(split)
    if batch_size == 1:
        refuse_batch_norm(split)
    both = nn.ModuleList([split.device, split.server])
    with untouched(both):
        torch.manual_seed(0)
        dtype = next((p.dtype for p in split.device.parameters() if p.is_floating_point()), torch.float32)
        batch = torch.randn(batch_size, *input_shape, dtype=dtype)
        both.train()
        with torch.no_grad():
            activations, device_flops = run_counted(split, "client-side", batch)
            refuse_activations(activations, batch_size)
            logits, server_flops = run_counted(split, "server-side", activations)
            refuse_logits(logits, batch_size, classes)
        both.eval()
        refuse_unfit_for_one(split, batch[:1], classes)
        both.train()
        refuse_missing_gradients(split, batch[:2], twice)  # two rows tell as much as all
    return CutReport(
        activation_shape=tuple(activations.shape),
        activation_dtype=activations.dtype,
        activation_bytes=activations.nbytes,
        device=_report(split.device, device_flops),
        server=_report(split.server, server_flops),
    )


def _report(part: nn.Module, flops: int) -> PartReport:
    return PartReport(
        parameters=sum(parameter.numel() for parameter in part.parameters()),
        buffers=sum(buffer.numel() for buffer in part.buffers()),
        flops=flops,
        layers=tuple(_layers(part)),
    )


def _layers(module: nn.Module, prefix: str = "") -> Iterator[Layer]:
    """Yield a part's own parameters, then its layers, going into chains only."""
    for name, parameter in module.named_parameters(recurse=False):
        yield Layer(prefix + name, f"Parameter({', '.join(map(str, parameter.shape))})", parameter.numel())
    for name, child in children_of(module):
        if is_chain(child):
            yield from _layers(child, f"{prefix}{name}.")
        else:
            settings = "" if list(child.children()) else child.extra_repr()
            count = sum(parameter.numel() for parameter in child.parameters())
            yield Layer(prefix + name, f"{type(child).__name__}({settings})", count)


def refuse_lazy_or_shared(split: Split) -> None:
    """Refuse a layer that takes its size from the first batch, and a tensor that both parts own."""
    for side, part in (("client-side", split.device), ("server-side", split.server)):
        for name in (name for name, tensor in _tensors(part) if is_lazy(tensor)):
            raise CutError(
                f"{name} in the {side} model has no size yet; run a batch through the model before "
                "cutting it, or use the layer's ordinary class instead of the lazy one"
            )
    # By address, so that a tied tensor is found even if each part wraps it in a Parameter of its own.
    owned = {tensor.data_ptr(): name for name, tensor in _tensors(split.device) if tensor.numel() > 0}
    for name, tensor in _tensors(split.server):
        if tensor.numel() > 0 and tensor.data_ptr() in owned:
            raise CutError(
                f"{owned[tensor.data_ptr()]} of the client-side model and {name} of the server-side one are "
                "one tensor, but they live on two machines; untie them (copy.deepcopy one of the layers), "
                "or move the cut so that both are on one side"
            )


def _tensors(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(part.named_parameters(), part.named_buffers())


def refuse_batch_norm(split: Split) -> None:
    """Refuse BatchNorm, where batches are of a single sample."""
    for name, part in chain(split.device.named_modules(), split.server.named_modules()):
        if isinstance(part, _BatchNorm):
            raise CutError(
                f"{name or type(part).__name__} is a BatchNorm, which in training normalises over the "
                "batch, and a batch of 1 has nothing to compare with; use batches of 2 or more, or "
                "GroupNorm (norm 'group')"
            )


def run(split: Split, side: str, given: Tensor) -> Tensor:
    """Run one part, or refuse it if it fails."""
    if side == "client-side":
        part, what, fix = split.device, "a batch", "check the data's shape and the first layers"
    else:
        part, what = split.server, "activations"
        fix = "the layers on either side of the cut must fit, and a flatten between them must be a layer"
    try:
        out: Tensor = part(given)
    except Exception as error:  # a stranger's forward may raise anything
        raise CutError(f"the {side} model fails on {what} of shape {shape(given)}: {error}; {fix}") from error
    return out


def run_counted(split: Split, side: str, given: Tensor) -> tuple[Tensor, int]:
    """Run one part and count its operations, or refuse it if it overwrites what it was given."""
    kept, version = given.clone(), given._version
    with FlopCounterMode(display=False) as counter:
        out = run(split, side, given)
    # The version counts in-place operations, on views too; the values catch what evades it (`.data`).
    if given._version != version or not torch.allclose(given, kept, rtol=0, atol=0, equal_nan=True):
        what = "the activations it was sent" if side == "server-side" else "the batch it was given"
        raise CutError(
            f"the {side} model overwrites {what}, which others still need; make its first operation "
            "not in place (nn.ReLU(inplace=False), x = x + y for x += y), or move the cut behind it"
        )
    return out, counter.get_total_flops()


def refuse_activations(activations: object, batch_size: int) -> None:
    """Refuse anything but one floating-point tensor with the batch in front."""
    if not isinstance(activations, Tensor):
        raise CutError(
            f"the client-side model gives a {type(activations).__name__}, but exactly one tensor crosses the "
            "cut; cut where one tensor carries everything (a recurrent layer also returns its state: wrap "
            "it in a module that returns the output alone)"
        )
    if not activations.is_floating_point():
        raise CutError(
            f"the client-side model gives {activations.dtype} numbers, through which no gradient flows; "
            "cut behind a layer whose output is floating-point"
        )
    if activations.dim() < 2 or len(activations) != batch_size:
        raise CutError(
            f"the client-side model turns a batch of {batch_size} into activations of shape "
            f"{shape(activations)}; the first dimension must be the batch, and more must follow it: cut "
            "elsewhere, or transpose inside the model"
        )


def refuse_logits(logits: object, batch_size: int, classes: int) -> None:
    """Refuse anything but one row of floating-point logits for each sample."""
    if not isinstance(logits, Tensor) or logits.shape != (batch_size, classes):
        found = shape(logits) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise CutError(
            f"the server-side model gives {found}, but a batch of {batch_size} with {classes} classes needs "
            f"logits of shape {batch_size}×{classes}; change its last layer, or the number of classes"
        )
    if not logits.is_floating_point():
        raise CutError(
            f"the server-side model gives {logits.dtype} numbers; return logits, not the classes chosen "
            "from them"
        )


def refuse_unfit_for_one(split: Split, sample: Tensor, classes: int) -> None:
    """Refuse parts that lose the batch's dimension when it is 1, for example by squeeze()."""
    with torch.no_grad():
        try:
            refuse_logits(run(split, "server-side", run(split, "client-side", sample)), 1, classes)
        except CutError as error:
            raise CutError(
                f"in evaluation mode a single sample does not pass: {error} (a squeeze() loses the batch's "
                "dimension and a view() may fix its size: name the dimension, or use nn.Flatten)"
            ) from error


def shape(tensor: Tensor) -> str:
    """Return a tensor's shape for a message."""
    return "×".join(map(str, tensor.shape)) or "() (a single number)"


def refuse_missing_gradients(split: Split, batch: Tensor, twice: bool) -> None:
    """Refuse parts in which a trainable parameter, or the activations, would get no gradient."""
    activations = run(split, "client-side", batch)
    received = activations.detach().requires_grad_()  # as on the server: the graph ends at the cut
    wanted = {"the activations": received, **_trainable(split.server)}
    gradients = _gradients("server-side", run(split, "server-side", received), wanted, create_graph=twice)
    if twice:
        scalar = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
        try:
            torch.autograd.grad(scalar, list(wanted.values()), allow_unused=True)
        except RuntimeError as error:
            raise CutError(
                f"the server-side model has no second derivative: {error}; write fused attention out "
                "(matmul, softmax, matmul), or choose a method that differentiates once"
            ) from error
    trained = _trainable(split.device)
    if trained:  # a frozen part needs no gradient
        _gradients("client-side", activations, trained)


def _trainable(part: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in part.named_parameters() if parameter.requires_grad}


def _gradients(
    side: str, output: Tensor, wanted: Mapping[str, Tensor], create_graph: bool = False
) -> list[Tensor]:
    if not output.requires_grad:
        raise CutError(
            f"no gradient flows through the {side} model: its forward detaches or runs under no_grad; "
            "remove that, or freeze what is not to be trained (requires_grad_(False))"
        )
    try:
        found = torch.autograd.grad(
            output.square().sum(), list(wanted.values()), create_graph=create_graph, allow_unused=True
        )
    except RuntimeError as error:
        raise CutError(
            f"the {side} model runs forward but not backward: {error}; replace the layer that cannot"
        ) from error
    missing = [name for name, gradient in zip(wanted, found, strict=True) if gradient is None]
    if missing:
        raise CutError(
            f"in the {side} model no gradient reaches {', '.join(missing)}, because its output does not "
            "depend on it; remove what is unused, freeze it (requires_grad_(False)), or move the cut"
        )
    return list(found)
