"""Transformers of Hugging Face are cut after a block, and compute what they did in one piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gapsl
from gapsl.models import CutError
from gapsl.models.huggingface import cut_transformer

NEEDED = "the extra `huggingface` is not installed"
SMALL: dict[str, Any] = {
    "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 16, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 10, "attn_implementation": "eager",
}  # fmt: skip


def vit() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason=NEEDED)
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL))


@pytest.mark.parametrize("at", [1, 2])
def test_the_parts_compute_what_the_model_does(at: int) -> None:
    model, images = vit().eval(), torch.randn(3, 1, 8, 8)
    parts = cut_transformer(model, at)
    assert torch.allclose(parts.server(parts.device(images)), model(images).logits, atol=1e-5)
    whole = sum(parameter.numel() for parameter in model.parameters())
    assert whole == sum(p.numel() for part in (parts.device, parts.server) for p in part.parameters())


@pytest.mark.parametrize("settings", [{"method": "gapsl"}, {"method": "psl", "labels": "device"}])
def test_it_is_trained_and_loaded(settings: dict[str, str], tmp_path: Any) -> None:
    gapsl.train(
        model=cut_transformer(vit(), 1), dataset="digits", train_samples=60, test_samples=20, devices=2,
        partition="iid", batch_size=4, rounds=2, out=tmp_path / "run", **settings,
    )  # fmt: skip
    loaded = gapsl.load(tmp_path / "run", 1, model=cut_transformer(vit(), 1))
    assert loaded.predict(torch.rand(2, 1, 8, 8)).shape == (2, 10)


def test_other_models_and_cuts_are_refused() -> None:
    with pytest.raises(CutError, match="Sequential is no vision transformer"):
        cut_transformer(nn.Sequential(nn.Linear(2, 2)), 1)
    for at in (0, 3, True, "1"):
        with pytest.raises(CutError, match="has 3 blocks; cut after 1 to 2"):
            cut_transformer(vit(), at)  # type: ignore[arg-type]


def test_a_model_that_does_more_is_refused() -> None:
    model = vit()
    model.vit.layernorm.register_forward_hook(lambda module, inputs, output: output * 2)
    whole = model.forward
    model.forward = lambda images: type(whole(images))(logits=whole(images).logits + 1)
    with pytest.raises(CutError, match="does more than its blocks"):
        cut_transformer(model, 1)
