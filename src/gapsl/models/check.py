"""Try a cut out on a made-up batch before training, and refuse it with a reason if it cannot work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from gapsl.common.errors import InputError
from gapsl.models.backward import refuse_missing_gradients
from gapsl.models.cut import Split
from gapsl.models.forward import refuse_activations, refuse_logits, refuse_unfit_for_one, run_counted
from gapsl.models.ownership import refuse_batch_norm_of_one, refuse_lazy, refuse_shared
from gapsl.models.untouched import untouched


@dataclass(frozen=True)
class HalfReport:
    """How large a half is and what a batch costs it."""

    parameters: int  # numbers in its parameters
    buffers: int  # numbers in its buffers, such as BatchNorm's running means
    flops: int  # of one batch's forward pass: products and sums of its matrices and convolutions


@dataclass(frozen=True)
class CutReport:
    """What crosses the cut with every batch, and what lies on either side."""

    activation_shape: tuple[int, ...]  # with the batch in front
    activation_dtype: torch.dtype
    activation_bytes: int  # of one batch
    device: HalfReport
    server: HalfReport


def check_cut(
    split: Split,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    batch_size: int,
    device_of: str | torch.device = "cpu",
    twice: bool = False,
) -> CutReport:
    """Report on a cut, or refuse it; the halves are left exactly as they were.

    `device_of` is where the halves are; `twice` also asks for second derivatives of the server's half.
    """
    if batch_size < 1:
        raise InputError(f"a batch of {batch_size} holds nothing; give a batch size of 1 or more")
    refuse_lazy(split)
    refuse_shared(split)
    refuse_batch_norm_of_one(split, batch_size)
    with untouched(split.device, split.server):
        torch.manual_seed(0)
        dtype = next((p.dtype for p in split.device.parameters() if p.is_floating_point()), torch.float32)
        batch = torch.randn(batch_size, *input_shape, dtype=dtype, device=device_of)
        split.device.train()
        split.server.train()
        with torch.no_grad():
            activations, device_flops = run_counted(split, "device", batch)
            refuse_activations(activations, batch_size)
            logits, server_flops = run_counted(split, "server", activations)
            refuse_logits(logits, batch_size, classes)
        split.device.eval()
        split.server.eval()
        refuse_unfit_for_one(split, batch[:1], classes)
        split.device.train()
        split.server.train()
        refuse_missing_gradients(split, batch[:2], twice)  # two rows tell as much as all
    return CutReport(
        activation_shape=tuple(activations.shape),
        activation_dtype=activations.dtype,
        activation_bytes=activations.numel() * activations.element_size(),
        device=_report(split.device, device_flops),
        server=_report(split.server, server_flops),
    )


def _report(half: nn.Module, flops: int) -> HalfReport:
    return HalfReport(
        parameters=sum(parameter.numel() for parameter in half.parameters()),
        buffers=sum(buffer.numel() for buffer in half.buffers()),
        flops=flops,
    )
