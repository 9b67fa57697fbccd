"""Run the halves forward on a made-up batch and refuse what does not come out as it must."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gapsl.models.cut import Split
from gapsl.models.refusals import ActivationError, InPlaceError, LogitsError, RunError, SmallBatchError


def run(split: Split, side: str, given: Tensor) -> Tensor:
    """Run one half, or refuse it if it fails."""
    half = split.device if side == "device" else split.server
    try:
        out: Tensor = half(given)
    except Exception as error:  # a stranger's forward may raise anything
        if side == "device":
            what, fix = "a batch", "check the data's shape and the first layers"
        else:
            what = "activations"
            fix = (
                "the layers on either side of the cut must fit, and a flatten between them has to be a layer"
            )
        raise RunError(
            f"the {side}'s half fails on {what} of shape {shape(given)}: {error}; {fix}"
        ) from error
    return out


def run_counted(split: Split, side: str, given: Tensor) -> tuple[Tensor, int]:
    """Run one half and count its operations, or refuse it if it overwrites what it was given."""
    kept, version = given.clone(), given._version
    with FlopCounterMode(display=False) as counter:
        out = run(split, side, given)
    # The version counts in-place operations, on views too; the values catch what evades it (`.data`).
    if given._version != version or not torch.allclose(given, kept, rtol=0, atol=0, equal_nan=True):
        what = "the activations it was sent" if side == "server" else "the batch it was given"
        raise InPlaceError(
            f"the {side}'s half overwrites {what}, which others still need; make its first operation "
            "not in place (nn.ReLU(inplace=False), x = x + y for x += y), or move the cut behind it"
        )
    return out, counter.get_total_flops()


def refuse_activations(activations: object, batch_size: int) -> None:
    """Refuse anything but one floating-point tensor with the batch in front."""
    if not isinstance(activations, Tensor):
        raise ActivationError(
            f"the device's half gives a {type(activations).__name__}, but exactly one tensor crosses the "
            "cut; cut where one tensor carries everything (a recurrent layer also returns its state: wrap "
            "it in a module that returns the output alone)"
        )
    if not activations.is_floating_point():
        raise ActivationError(
            f"the device's half gives {activations.dtype} numbers, through which no gradient flows; "
            "cut behind a layer whose output is floating-point"
        )
    if activations.dim() < 2 or len(activations) != batch_size:
        raise ActivationError(
            f"the device's half turns a batch of {batch_size} into activations of shape "
            f"{shape(activations)}; the first dimension must be the batch, and more must follow it: cut "
            "elsewhere, or transpose inside the half"
        )


def refuse_logits(logits: object, batch_size: int, classes: int) -> None:
    """Refuse anything but one row of floating-point logits for each sample."""
    if not isinstance(logits, Tensor) or logits.shape != (batch_size, classes):
        found = shape(logits) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise LogitsError(
            f"the server's half gives {found}, but a batch of {batch_size} with {classes} classes needs "
            f"logits of shape {batch_size}×{classes}; change its last layer, or the number of classes"
        )
    if not logits.is_floating_point():
        raise LogitsError(
            f"the server's half gives {logits.dtype} numbers; return logits, not the classes chosen from them"
        )


def refuse_unfit_for_one(split: Split, sample: Tensor, classes: int) -> None:
    """Refuse halves that lose the batch's dimension when it is 1, for example by squeeze()."""
    with torch.no_grad():
        try:
            refuse_logits(run(split, "server", run(split, "device", sample)), 1, classes)
        except (RunError, LogitsError) as error:
            raise SmallBatchError(
                f"in evaluation mode a single sample does not pass: {error} (a squeeze() loses the batch's "
                "dimension and a view() may fix its size: name the dimension, or use nn.Flatten)"
            ) from error


def shape(tensor: Tensor) -> str:
    """Return a tensor's shape for a message."""
    return "×".join(map(str, tensor.shape)) or "() (a single number)"
