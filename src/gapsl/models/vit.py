"""Vision transformers with timm's parameter names, cut after a block."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gapsl.common.errors import InputError
from gapsl.models.chains import checked_dropout, image_shape
from gapsl.models.cut import CutError, Split


@dataclass(frozen=True)
class Size:
    """How large a transformer is."""

    embedding: int
    depth: int
    heads: int


SIZES = {
    "vit-base": Size(768, 12, 12),
    "vit-small": Size(384, 12, 6),
    "vit-tiny": Size(192, 12, 3),
    "vit-micro": Size(192, 6, 3),
}


class PatchEmbedding(nn.Module):
    """Turn an image into one token for each square patch."""

    def __init__(self, channels: int, embedding: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, embedding, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.proj(images)
        return tokens.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Let every token look at all others, several heads at once."""

    def __init__(self, embedding: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(embedding, 3 * embedding)
        self.proj = nn.Linear(embedding, embedding)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, embedding = tokens.shape
        size = embedding // self.heads
        query, key, value = self.qkv(tokens).view(batch, count, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        # Written out, because alignment differentiates twice and the fused kernel behind
        # scaled_dot_product_attention has no second derivative.
        weights = (size**-0.5 * query @ key.transpose(-2, -1)).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, count, embedding)
        out: Tensor = self.drop(self.proj(mixed))
        return out


def perceptron(embedding: int, dropout: float) -> nn.Sequential:
    """Return what transforms each token by itself."""
    return nn.Sequential(
        OrderedDict(
            fc1=nn.Linear(embedding, 4 * embedding),
            act=nn.GELU(),
            fc2=nn.Linear(4 * embedding, embedding),
            drop=nn.Dropout(dropout),
        )
    )


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, embedding: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embedding, eps=1e-6)
        self.attn = Attention(embedding, heads, dropout)
        self.norm2 = nn.LayerNorm(embedding, eps=1e-6)
        self.mlp = perceptron(embedding, dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out


class Front(nn.Module):
    """The client-side model: from images to the tokens after its blocks."""

    def __init__(
        self,
        cls_token: nn.Parameter,
        pos_embed: nn.Parameter,
        patch_embed: nn.Module,
        pos_drop: nn.Module,
        blocks: nn.Sequential,
        grid: tuple[int, int],
    ) -> None:
        super().__init__()
        self.cls_token, self.pos_embed = cls_token, pos_embed
        self.patch_embed, self.pos_drop, self.blocks = patch_embed, pos_drop, blocks
        self.grid = grid  # patches down and across, which the length of pos_embed alone does not tell

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], dim=1)
        out: Tensor = self.blocks(self.pos_drop(tokens + self.pos_embed))
        return out


class Back(nn.Module):
    """The server-side model: from tokens through the remaining blocks to the logits."""

    def __init__(self, blocks: nn.Sequential, norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm, self.head = blocks, norm, head

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits


class ViT(Front):
    """A whole transformer: a front with all the blocks, a final norm and a head on the class token."""

    def __init__(
        self, size: Size, classes: int, input_shape: tuple[int, int, int], patch: int, dropout: float
    ):
        channels, height, width = input_shape
        grid = (height // patch, width // patch)
        super().__init__(
            cls_token=nn.Parameter(torch.zeros(1, 1, size.embedding)),
            pos_embed=nn.Parameter(torch.zeros(1, 1 + grid[0] * grid[1], size.embedding)),
            patch_embed=PatchEmbedding(channels, size.embedding, patch),
            pos_drop=nn.Dropout(dropout),
            blocks=nn.Sequential(*(Block(size.embedding, size.heads, dropout) for _ in range(size.depth))),
            grid=grid,
        )
        self.norm = nn.LayerNorm(size.embedding, eps=1e-6)
        self.head = nn.Linear(size.embedding, classes)
        for tensor in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(tensor, std=0.02)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(super().forward(images))[:, 0])
        return logits

    def cut(self, at: int | str) -> Split:
        """Cut after block `at`, counted from 1, or after the block named "blocks.i", counted from 0."""
        names = {f"blocks.{index}": index + 1 for index in range(len(self.blocks) - 1)}
        after = names.get(at, 0) if isinstance(at, str) else at
        if isinstance(at, bool) or not 1 <= after < len(self.blocks):
            raise CutError(
                f"there is no cut {at!r}: a cut falls after block 1 to {len(names)}, "
                f"also named blocks.0 to blocks.{len(names) - 1}; the server needs the last block"
            )
        # The blocks keep their numbers, so that both parts keep the model's parameter names.
        blocks = list(self.blocks.named_children())
        front, back = (nn.Sequential(OrderedDict(part)) for part in (blocks[:after], blocks[after:]))
        return Split(
            Front(self.cls_token, self.pos_embed, self.patch_embed, self.pos_drop, front, self.grid),
            Back(back, self.norm, self.head),
        )


def vit(name: str, classes: int, input_shape: tuple[int, ...], dropout: float = 0.0, patch: int = 4) -> ViT:
    """Build the transformer with this name; its width is in the name, and its norm is always LayerNorm."""
    shape = image_shape(input_shape, name)
    if patch < 1 or shape[1] % patch or shape[2] % patch:
        raise InputError(
            f"patches of {patch}×{patch} pixels do not tile an image of {shape[1]}×{shape[2]}; "
            "choose a patch that divides both sides"
        )
    return ViT(SIZES[name], classes, shape, patch, checked_dropout(dropout))


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
