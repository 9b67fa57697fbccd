"""Starting from a file: what is taken, what is resized, what is refused."""

import logging
import os
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.models import Split, build_model, load_pretrained
from gapsl.models.chains import small, vgg16
from gapsl.models.vit import Size, ViT, resize_patches, resize_positions


def tiny(classes: int = 3, side: int = 8, patch: int = 4, channels: int = 3) -> ViT:
    return ViT(Size(16, 2, 2), classes, (channels, side, side), patch, 0.0)


def narrow(classes: int = 3, norm: str = "none") -> nn.Module:
    return vgg16(classes, (3, 32, 32), width=0.125, norm=norm)


def write(path: Path, state: dict[str, Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def assert_equal(model: nn.Module, state: dict[str, Tensor]) -> None:
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("build", [tiny, narrow, lambda: narrow(norm="batch"), lambda: small(3, (1, 8, 8))])
def test_a_round_trip_through_a_file(tmp_path: Path, suffix: str, build: object) -> None:
    source, target = build(), build()
    path = write(tmp_path / f"weights{suffix}", source.state_dict())
    report = load_pretrained(target, path)
    assert_equal(target, source.state_dict())
    assert set(report.loaded) == source.state_dict().keys()
    assert report.skipped == report.unused == ()


@pytest.mark.parametrize("build", [tiny, narrow])
def test_the_parts_are_loaded_like_the_whole(tmp_path: Path, build: object) -> None:
    source, target = build(), build()
    path = write(tmp_path / "weights.pt", source.state_dict())
    load_pretrained(target.cut(1), path)
    assert_equal(target, source.state_dict())


def test_one_part_takes_its_part(tmp_path: Path) -> None:
    source, target = tiny(), tiny()
    report = load_pretrained(target.cut(1).device, write(tmp_path / "weights.pt", source.state_dict()))
    assert torch.equal(target.pos_embed, source.pos_embed)
    assert "head.weight" in report.unused
    assert not torch.equal(target.head.weight, source.head.weight)


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_wrappers_and_the_prefix_of_data_parallel_are_taken_off(tmp_path: Path, wrapper: str) -> None:
    source, target = tiny(), tiny()
    state = {f"module.{name}": value for name, value in source.state_dict().items()}
    torch.save({wrapper: state, "epoch": 3}, tmp_path / "weights.pth")
    load_pretrained(target, tmp_path / "weights.pth")
    assert_equal(target, source.state_dict())


def test_torchvisions_large_head_is_skipped_and_reported(tmp_path: Path) -> None:
    source, target = narrow(classes=3), narrow(classes=3)
    before = target.classifier[0].weight.clone()
    state = source.state_dict()
    state["classifier.0.weight"], state["classifier.0.bias"] = torch.zeros(40, 250), torch.zeros(40)
    state["classifier.3.weight"] = torch.zeros(40, 40)
    report = load_pretrained(target, write(tmp_path / "weights.pth", state))
    assert report.skipped == ("classifier.0.weight", "classifier.0.bias")
    assert report.unused == ("classifier.0.weight", "classifier.0.bias", "classifier.3.weight")
    assert torch.equal(target.classifier[0].weight, before)
    assert torch.equal(target.features[0].weight, source.features[0].weight)


def test_a_head_for_other_classes_is_skipped_even_if_the_file_has_none(tmp_path: Path) -> None:
    state = {name: value for name, value in tiny().state_dict().items() if not name.startswith("head")}
    report = load_pretrained(tiny(), write(tmp_path / "weights.safetensors", state))
    assert report.skipped == ("head.weight", "head.bias")


def test_old_files_without_batch_counts_are_taken(tmp_path: Path) -> None:
    source, target = narrow(norm="batch"), narrow(norm="batch")
    state = {name: value for name, value in source.state_dict().items() if "num_batches" not in name}
    report = load_pretrained(target, write(tmp_path / "weights.pth", state))
    assert len(report.skipped) == 13
    del state["features.1.running_mean"]
    with pytest.raises(InputError, match=r"features\.1\.running_mean \(missing"):
        load_pretrained(target, write(tmp_path / "weights.pth", state))


def test_positions_are_interpolated_and_the_class_token_kept(tmp_path: Path) -> None:
    source, target = tiny(side=8), tiny(side=16)
    report = load_pretrained(target.cut(1), write(tmp_path / "weights.pt", source.state_dict()))
    assert "pos_embed" in report.loaded
    assert torch.equal(target.pos_embed[:, 0], source.pos_embed[:, 0])
    expected = resize_positions(source.pos_embed.detach(), (4, 4))
    assert torch.equal(target.pos_embed.detach(), expected)


def test_interpolated_positions_follow_a_slope_in_each_direction() -> None:
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    grid = torch.stack([rows, columns], -1).reshape(1, 64, 2)
    positions = torch.cat([torch.full((1, 1, 2), 9.0), grid], 1)
    wide = resize_positions(positions, (4, 16))
    assert wide is not None
    image = wide[0, 1:].reshape(4, 16, 2)
    # Pixel centres: twice as coarse down, twice as fine across; the borders bend, the middle does not.
    torch.testing.assert_close(image[1:3, 8, 0], torch.tensor([2.5, 4.5]), atol=0.1, rtol=0)
    torch.testing.assert_close(image[2, 4:12, 1], torch.arange(4, 12) / 2 - 0.25, atol=0.02, rtol=0)
    assert torch.equal(wide[0, 0], torch.tensor([9.0, 9.0]))


def test_positions_off_a_square_grid_are_refused(tmp_path: Path) -> None:
    state = tiny().state_dict()
    state["pos_embed"] = torch.zeros(1, 4, 16)
    with pytest.raises(InputError, match="pos_embed"):
        load_pretrained(tiny(), write(tmp_path / "weights.pt", state))


@pytest.mark.parametrize("new", [6, 8, 16])
def test_an_enlarged_patch_kernel_answers_to_enlarged_patches_as_before(new: int) -> None:
    torch.manual_seed(0)
    kernel, patch = torch.randn(5, 3, 4, 4).double(), torch.randn(1, 3, 4, 4).double()
    enlarged = nn.functional.interpolate(patch, size=(new, new), mode="bilinear", align_corners=False)
    response = (resize_patches(kernel, (new, new)) * enlarged).sum((1, 2, 3))
    torch.testing.assert_close(response, (kernel * patch).sum((1, 2, 3)))


def test_patches_of_another_size_are_resampled(tmp_path: Path) -> None:
    source, target = tiny(side=32, patch=16), tiny(side=8, patch=4)
    load_pretrained(target, write(tmp_path / "weights.pt", source.state_dict()))
    expected = resize_patches(source.patch_embed.proj.weight.detach(), (4, 4))
    assert torch.equal(target.patch_embed.proj.weight.detach(), expected)


def test_a_file_of_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.pt", narrow().state_dict())
    with pytest.raises(InputError, match=r"no parameter in common.*features.0.weight.*cls_token"):
        load_pretrained(tiny(), path)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (narrow, lambda: vgg16(3, (3, 32, 32), width=0.25), r"features\.0\.weight"),
        (narrow, lambda: narrow(norm="batch"), r"features\.1\.weight \(missing"),
        (lambda: tiny(channels=1), tiny, r"patch_embed\.proj\.weight .*input channels"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, source: object, target: object, message: str
) -> None:
    model = target()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match=message):
        load_pretrained(model, write(tmp_path / "weights.pt", source().state_dict()))
    assert_equal(model, before)


def test_parts_that_use_a_name_twice_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.pt", nn.Linear(2, 2).state_dict())
    with pytest.raises(InputError, match="load each part by itself"):
        load_pretrained(Split(nn.Linear(2, 2), nn.Linear(2, 2)), path)


class Payload:
    """Unpickling it makes a directory: proof that code ran."""

    def __init__(self, proof: Path) -> None:
        self.proof = str(proof)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.proof,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    proof, path = tmp_path / "ran", tmp_path / "weights.pt"
    torch.save({**tiny().state_dict(), "x": Payload(proof)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="could run code"):
        load_pretrained(tiny(), path)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the payload is harmless, so this test shows nothing"


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 half a zip", b"\xff" * 64])
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"weights\."):
        load_pretrained(tiny(), path)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_cut_short_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"weights{suffix}", tiny().state_dict())
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match="damaged"):
        load_pretrained(tiny(), path)


@pytest.mark.parametrize("content", [torch.zeros(3), [1, 2], {"epoch": 3}, {}, OrderedDict(a=1)])
def test_a_file_without_a_state_dict_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"no plain state_dict|no parameter in common"):
        load_pretrained(tiny(), tmp_path / "weights.pt")


def test_missing_files_and_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no weights file"):
        load_pretrained(tiny(), tmp_path / "none.pt")
    (tmp_path / "weights.pkl").touch()
    with pytest.raises(InputError, match=r"give a \.safetensors"):
        load_pretrained(tiny(), tmp_path / "weights.pkl")


def test_building_from_a_file_says_what_it_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = small(5, (1, 8, 8))
    path = write(tmp_path / "weights.pt", source.state_dict())
    with caplog.at_level(logging.INFO, "gapsl"):
        parts = build_model("small", classes=3, input_shape=(1, 8, 8), pretrained=path)
    assert torch.equal(parts.device.stages[0].conv.weight, source.stages[0].conv.weight)
    assert "not loaded: ['classifier.weight', 'classifier.bias']" in caplog.text
