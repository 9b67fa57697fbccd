"""A Hugging Face transformer and dataset. It needs `gapsl[huggingface,datasets]` and scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image
from PIL import Image as Pillow
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification

import gapsl
from gapsl.data.huggingface import HuggingFaceData
from gapsl.models.huggingface import cut_transformer

digits = load_digits()  # real handwriting, as a dataset of Hugging Face: no hub is asked
images = [Pillow.fromarray((one * 255 / 16).astype(np.uint8)) for one in digits.images]
features = Features({"image": Image(), "label": ClassLabel(names=list("0123456789"))})
data = Dataset.from_dict({"image": images, "label": digits.target.tolist()}, features=features)
torch.manual_seed(0)
config = ViTConfig(
    image_size=8, patch_size=4, num_channels=1, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
    intermediate_size=64, num_labels=10,
)  # fmt: skip
model = ViTForImageClassification(config)  # random weights; from_pretrained(FOLDER) has others
result = gapsl.train(
    method="sfl", model=cut_transformer(model, 1), dataset=HuggingFaceData(data), devices=4, partition="iid",
    rounds=120, device_optimizer={"name": "adamw", "lr": 0.005},
    server_optimizer={"name": "adamw", "lr": 0.005},
)  # fmt: skip
assert result is not None
print(f"accuracy: {100 * result.final.device_mean:.1f} %")
