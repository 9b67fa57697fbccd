"""Images are predicted as the model takes them, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import run_of

import gapsl
from gapsl.common.errors import InputError
from gapsl.inference.predict import predict


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    test = gapsl.load_source("digits").test
    for index, image in enumerate(test.read(torch.arange(5))[:, 0]):
        Image.fromarray((image * 255).round().to(torch.uint8).numpy()).save(folder / f"{index}.png")
    return folder


def test_predictions_are_those_of_the_model(images: Path) -> None:
    model = gapsl.load(run_of("sfl", rounds=150))
    found = list(predict(model, [images], top=3))
    assert [one.image.name for one in found] == [f"{index}.png" for index in range(5)]
    raw = np.stack([np.asarray(Image.open(one.image))[None] for one in found])
    best = model.predict(raw).topk(3, dim=1)
    assert [one.classes for one in found] == [tuple(map(str, row)) for row in best.indices.tolist()]
    assert torch.allclose(torch.tensor([one.probabilities for one in found]), best.values)


def test_files_and_folders_go_together_and_batches_change_nothing(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gapsl.load(run_of("psl"))
    whole = list(predict(model, [images / "4.png", images], top=20))
    monkeypatch.setattr("gapsl.inference.predict.BATCH", 2)
    parts = list(predict(model, [images / "4.png", images], top=20))
    assert [one.classes for one in whole] == [one.classes for one in parts]
    assert (len(whole), len(whole[0].classes)) == (6, 10)


@pytest.mark.parametrize(("mode", "size"), [("L", (9, 8)), ("RGB", (8, 8)), ("RGBA", (8, 8)), ("P", (8, 8))])
def test_images_of_another_size_or_mode_are_refused_or_fitted(
    mode: str, size: tuple[int, int], tmp_path: Path
) -> None:
    Image.new(mode, size).save(tmp_path / "x.png")
    model = gapsl.load(run_of("psl"))
    with pytest.raises(InputError, match=r"the model takes 8x8 in L; bring images to that with --fit"):
        list(predict(model, [tmp_path / "x.png"]))
    assert len(list(predict(model, [tmp_path / "x.png"], fit=True))) == 1


def test_sixteen_bits_are_scaled_and_numbers_without_a_scale_refused(tmp_path: Path) -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(grey).save(tmp_path / "8.png")
    Image.fromarray(grey.astype(np.uint16) * 256).save(tmp_path / "16.png")
    model = gapsl.load(run_of("psl"))
    eight, sixteen = predict(model, [tmp_path / "8.png", tmp_path / "16.png"], top=10, fit=True)
    assert eight.probabilities == sixteen.probabilities
    Image.new("F", (8, 8)).save(tmp_path / "f.tiff")
    with pytest.raises(InputError, match="save it with 8 or 16 bits"):
        list(predict(model, [tmp_path / "f.tiff"], fit=True))


def test_outputs_that_are_no_numbers_are_not_shown(images: Path) -> None:
    model = gapsl.load(run_of("psl"))
    next(model.server.parameters()).data.fill_(torch.inf)
    with pytest.raises(InputError, match="gives no numbers"):
        list(predict(model, [images]))


def test_what_is_no_image_is_refused_before_anything_is_predicted(images: Path, tmp_path: Path) -> None:
    model = gapsl.load(run_of("psl"))
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "cut.png").write_bytes((images / "0.png").read_bytes()[:60])
    with pytest.raises(InputError, match="not an image that can be read"):
        next(predict(model, [images, tmp_path / "text.png"]))
    with pytest.raises(InputError, match=r"cut.png is damaged|not an image"):
        list(predict(model, [tmp_path / "cut.png"]))
    with pytest.raises(InputError, match="there is no image or folder"):
        list(predict(model, [tmp_path / "nowhere.png"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no images"):
        list(predict(model, [tmp_path / "empty"]))
    with pytest.raises(InputError, match="--top 0: give 1 or more"):
        list(predict(model, [images], top=0))


def test_a_model_of_other_things_takes_no_images(images: Path, tmp_path: Path) -> None:
    labels = torch.arange(40) % 2
    data = torch.utils.data.TensorDataset(torch.randn(40, 4) + labels[:, None], labels)
    gapsl.train(model="mlp", dataset=(data, data), devices=2, rounds=2, partition="iid", out=tmp_path / "run")
    with pytest.raises(InputError, match=r"inputs of shape \(4,\).*gapsl.load"):
        list(predict(gapsl.load(tmp_path / "run"), [images]))
