"""Fit a transformer's pretrained weights to another image or patch size."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def resize_positions(positions: Tensor, grid: tuple[int, int]) -> Tensor | None:
    """Interpolate position embeddings (1, 1 + n·n, d) to another grid of patches; keep the class token's.

    Returns None if they do not lie on a square grid behind one class token.
    """
    side = math.isqrt(max(positions.shape[1] - 1, 0))
    if side == 0 or side * side != positions.shape[1] - 1:
        return None
    if (side, side) == grid:
        return positions
    token, patches = positions[:, :1].float(), positions[:, 1:].float()
    image = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    image = F.interpolate(image, size=grid, mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([token, image.flatten(2).transpose(1, 2)], dim=1)


def resize_patches(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """Resample patch kernels (d, c, h, w) to another patch size, by FlexiViT's pseudo-inverse resize.

    With B the linear map that resizes a patch, the new kernel w' solves B^T w' = w in the least squares:
    it answers to a resized patch as the old one answered to the patch (exactly so when enlarging).
    """
    old = (kernel.shape[2], kernel.shape[3])
    if old == size:
        return kernel
    basis = torch.eye(math.prod(old), dtype=torch.float64).reshape(-1, 1, *old)
    resized = F.interpolate(basis, size=size, mode="bilinear", antialias=True, align_corners=False)
    transposed = resized.flatten(1)  # (old pixels, new pixels), which is B^T
    solution: Tensor = kernel.double().flatten(2) @ torch.linalg.pinv(transposed).T
    return solution.reshape(*kernel.shape[:2], *size).to(kernel.dtype)
