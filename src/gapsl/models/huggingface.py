"""Vision transformers of Hugging Face's `transformers`, cut after a block; nothing of it is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.models.cut import CutError, Split, untouched

HOW = "give a ViTForImageClassification or a model built like it, or the two parts as gapsl.Split"


class FirstBlocks(nn.Module):
    """The embeddings of a vision transformer and its first blocks."""

    def __init__(self, embeddings: nn.Module, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.embeddings, self.blocks = embeddings, nn.ModuleList(blocks)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens at the cut."""
        return _run(self.blocks, _first(self.embeddings(images)))


class LastBlocks(nn.Module):
    """Its other blocks, the last normalisation, and the head on the class token."""

    def __init__(self, blocks: Sequence[nn.Module], norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm, self.head = nn.ModuleList(blocks), norm, head

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.norm(_run(self.blocks, tokens))[:, 0])
        return logits


def cut_transformer(model: nn.Module, at: int) -> Split:
    """Cut a transformer for image classification after its first `at` blocks; weights are the model's own.

    Whether the parts compute what the model does is tried on a made-up batch.
    """
    backbone = getattr(model, str(getattr(model, "base_model_prefix", "")), None)
    inner = getattr(backbone, "encoder", backbone)
    blocks = getattr(inner, "layers", None) or getattr(inner, "layer", None)
    parts = [getattr(backbone, "embeddings", None), getattr(backbone, "layernorm", None)]
    head, config = getattr(model, "classifier", None), getattr(model, "config", None)
    if blocks is None or head is None or config is None or not all(isinstance(p, nn.Module) for p in parts):
        raise CutError(f"{type(model).__name__} is no vision transformer for image classification; {HOW}")
    count = len(blocks)
    if isinstance(at, bool) or not isinstance(at, int) or not 1 <= at < count:
        raise CutError(f"{type(model).__name__} has {count} blocks; cut after 1 to {count - 1}, not {at!r}")
    embeddings, norm = parts
    assert embeddings is not None and norm is not None
    found = Split(FirstBlocks(embeddings, blocks[:at]), LastBlocks(blocks[at:], norm, head))
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else size
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, config.num_channels, height, width, generator=generator)
    _refuse_other_logits(model, found, images)
    return found


def _refuse_other_logits(model: nn.Module, parts: Split, images: Tensor) -> None:
    with untouched(model), torch.no_grad():
        model.eval()
        expected = model(images).logits
        found = parts.server(parts.device(images))
    if expected.shape != found.shape or not torch.allclose(expected, found, atol=1e-4, rtol=1e-4):
        raise CutError(
            f"{type(model).__name__} does more than its blocks and a head on the class token; {HOW}"
        )


def _run(blocks: nn.ModuleList, tokens: Tensor) -> Tensor:
    for block in blocks:
        tokens = _first(block(tokens))
    return tokens


def _first(given: Any) -> Tensor:
    """Return the tokens of what a block gives, which is a tuple in some versions."""
    tokens: Tensor = given[0] if isinstance(given, tuple) else given
    return tokens
