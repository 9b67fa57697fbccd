"""Sources: real data where the machine has it, official formats in small where not."""

import gzip
import hashlib
import io
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gapsl.common.errors import InputError
from gapsl.data import SOURCES, Places, load_source
from gapsl.data.benchmarks import CIFAR10, CIFAR100, DEBIAN, load_cifar, read_idx
from gapsl.data.benchmarks import FASHION_FILES as FILES

PREPARE_CIFAR = Path(__file__).parents[4] / "shared" / "data" / "cifar.py"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Keep the user's own files out of the search."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GAPSL_DATA", raising=False)


def scaled(samples):
    return samples.inputs.double() / (255 if samples.inputs.dtype == torch.uint8 else 1)


def assert_normalised_by_its_own_statistics(source):
    pixels = scaled(source.train)
    for channel in range(pixels.shape[1]):
        assert float(pixels[:, channel].mean()) == pytest.approx(source.mean[channel], abs=6e-5)
        assert float(pixels[:, channel].std()) == pytest.approx(source.std[channel], abs=6e-5)


def test_an_unknown_dataset_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="unknown dataset 'cifar11'; did you mean 'cifar1"):
        load_source("cifar11")
    with pytest.raises(InputError, match="did you mean 'digits'"):
        load_source("digits:8")
    assert set(SOURCES) == {"digits", "fashion-mnist", "cifar10", "cifar100", "described:", "folder:"}


# digits


def test_digits_are_those_of_scikit_learn():
    oracle = pytest.importorskip("sklearn.datasets").load_digits()
    digits = load_source("digits", download=False)
    ours = torch.cat([digits.train.inputs, digits.test.inputs]).flatten(1).mul(16).numpy()
    labels = torch.cat([digits.train.labels, digits.test.labels]).numpy()

    def rows(images, labels):
        return sorted(map(tuple, np.column_stack([images, labels]).astype(int).tolist()))

    assert rows(ours, labels) == rows(oracle.data, oracle.target)


def test_digits_are_split_the_same_way_always():
    digits = load_source("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.input_shape == (1, 8, 8)
    shares = digits.test.labels.bincount() / (digits.train.labels.bincount() + digits.test.labels.bincount())
    assert float((shares - 0.2).abs().max()) < 0.005
    assert digits.augment == "none"
    assert_normalised_by_its_own_statistics(digits)
    assert digits.fingerprint == load_source("digits").fingerprint
    assert digits.fingerprint.startswith("4bfa5a9a")  # written down: saved partitions rely on it


# CIFAR


def small_cifar(layout, root, rows=4):
    """Write the layout's files with few rows, as a folder and as an archive; return layout and rows."""
    rng = np.random.default_rng(0)
    small = replace(layout, train=dict.fromkeys(layout.train, rows), test=dict.fromkeys(layout.test, rows))
    content = {}
    for name in (*small.train, *small.test):
        drawn = rng.integers(0, 256, (rows, small.row_bytes), dtype=np.uint8)
        drawn[:, : small.label_bytes] %= len(small.classes)
        content[name] = drawn
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / small.archive, "w:gz") as tar:
        for name, drawn in {"../evil": np.zeros(3, np.uint8), **content}.items():
            member = tarfile.TarInfo(f"{small.folder}/{name}")
            member.size = drawn.nbytes
            tar.addfile(member, io.BytesIO(drawn.tobytes()))
    md5 = hashlib.md5((root / small.archive).read_bytes()).hexdigest()
    return replace(small, md5=md5), content


def extract(content, folder):
    folder.mkdir(parents=True)
    for name, drawn in content.items():
        (folder / name).write_bytes(drawn.tobytes())


@pytest.mark.parametrize("layout", [CIFAR10, CIFAR100], ids=lambda layout: layout.name)
def test_cifar_reads_the_archive_and_the_folder_alike(layout, tmp_path):
    layout, content = small_cifar(layout, tmp_path / "archive")
    extract(content, tmp_path / "folder" / layout.folder)
    packed = load_cifar(layout, Places(tmp_path / "archive", may_download=False))
    plain = load_cifar(layout, Places(tmp_path / "folder", may_download=False))
    assert packed.fingerprint == plain.fingerprint
    assert not (tmp_path / "archive" / "evil").exists()

    train = np.concatenate([content[name] for name in layout.train])
    assert packed.train.labels.tolist() == train[:, layout.label_bytes - 1].tolist()
    red, green = train[1, layout.label_bytes :].reshape(3, 32, 32)[:2]
    image = packed.train.read(torch.tensor([1]))[0].numpy()
    assert (image[0] == red).all()
    assert (image[1] == green).all()
    assert packed.augment == "crop-flip"


def test_a_truncated_cifar_file_is_named_with_both_sizes(tmp_path):
    layout, content = small_cifar(CIFAR10, tmp_path / "archive")
    extract(content, tmp_path / layout.folder)
    path = tmp_path / layout.folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        InputError, match=r"data_batch_3\.bin in .* has 12291 bytes, expected 12292.*extract cifar-10-"
    ):
        load_cifar(layout, Places(tmp_path))
    path.unlink()
    with pytest.raises(InputError, match=r"data_batch_3\.bin missing in"):
        load_cifar(layout, Places(tmp_path))


def test_a_damaged_cifar_archive_is_named(tmp_path):
    layout, _ = small_cifar(CIFAR10, tmp_path)
    archive = tmp_path / layout.archive
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"\(\d+ bytes\) has md5 .*; remove .* to have it downloaded again"):
        load_cifar(layout, Places(tmp_path))
    # With the checksum of the damaged file itself, what is inside still has to be right.
    for damaged in (whole[: len(whole) // 2], b"not gzip at all", b""):
        archive.write_bytes(damaged)
        fooled = replace(layout, md5=hashlib.md5(damaged).hexdigest())
        with pytest.raises(InputError, match=r"cannot be read|data_batch_1.bin, .* missing in"):
            load_cifar(fooled, Places(tmp_path))
    archive.write_bytes(whole)
    with pytest.raises(InputError, match=r"data_batch_1.bin in .* has 12292 bytes, expected 15365"):
        load_cifar(replace(layout, train=dict.fromkeys(layout.train, 5)), Places(tmp_path))


def test_cifar_that_is_nowhere_says_where_to_put_it(tmp_path):
    with pytest.raises(
        InputError, match=r"cifar-10-binary\.tar\.gz is not in .*put it in one of these folders"
    ):
        load_source("cifar10", data_dir=tmp_path, download=False)


def test_cifar_classes_are_in_the_order_of_their_labels():
    assert len(CIFAR10.classes) == len(set(CIFAR10.classes)) == 10
    assert len(CIFAR100.classes) == len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "each"), [("cifar10", 5000), ("cifar100", 500)])
def test_the_real_cifar(name, each, tmp_path):
    if not PREPARE_CIFAR.is_file():
        pytest.skip(f"{PREPARE_CIFAR} is not there to lay out the real CIFAR")
    subprocess.run([sys.executable, str(PREPARE_CIFAR), "--to", str(tmp_path), name], check=True)
    real = load_source(name, data_dir=tmp_path, download=False)
    assert real.input_shape == (3, 32, 32)
    assert (len(real.train), len(real.test)) == (50_000, 10_000)
    assert set(real.train.labels.bincount().tolist()) == {each}
    assert set(real.test.labels.bincount().tolist()) == {each // 5}
    assert_normalised_by_its_own_statistics(real)


# Fashion-MNIST


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_read_plain_and_compressed(suffix, tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(idx(array)) if suffix else idx(array))
    assert (read_idx(path, (2, 3, 4)) == array).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((9, 3, 4), np.uint8)), "starts with 0000080300000009"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "starts with 00000803ffffffff"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], "holds 39 bytes, expected 40"),
        (idx(np.zeros((2, 3, 4), np.uint8)) + b"x", "holds more bytes, expected 40"),
        (b"", "starts with "),
    ],
)
def test_an_idx_file_must_be_what_its_name_says(content, message, tmp_path):
    for suffix in ("", ".gz"):
        path = tmp_path / f"file{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)
        with pytest.raises(InputError, match=message):
            read_idx(path, (2, 3, 4))


def test_a_truncated_gzip_is_named(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (2, 3, 4), np.uint8)))[:-12])
    with pytest.raises(InputError, match=r"images\.gz \(\d+ bytes\) cannot be read"):
        read_idx(path, (2, 3, 4))


@pytest.mark.parametrize("folder", ["fashion-mnist", "."])
def test_fashion_mnist_is_found_in_its_own_folder_or_beside_others(folder, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, (_, shape) in FILES.items():
        (tmp_path / folder / name).write_bytes(idx(rng.integers(0, 10, shape, dtype=np.uint8)))
    fashion = load_source("fashion-mnist", data_dir=tmp_path, download=False)
    assert (len(fashion.train), len(fashion.test)) == (60_000, 10_000)
    assert fashion.input_shape == (1, 28, 28)


def test_the_real_fashion_mnist_of_debian(tmp_path):
    if not (DEBIAN / "fashion-mnist").is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    real = load_source("fashion-mnist", data_dir=tmp_path, download=False)
    assert set(real.train.labels.bincount().tolist()) == {6000}
    assert_normalised_by_its_own_statistics(real)


# Folders of images


def write_images(folder, count, size=(6, 5), mode="RGB", shade=0):
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new(mode, size, (shade + i,) * 3 if mode == "RGB" else shade + i).save(folder / f"{i}.png")


def test_a_folder_with_train_and_test_is_taken_as_it_is(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        write_images(tmp_path / part / "cat", count, shade=10)
        write_images(tmp_path / part / "dog", count, shade=100)
    ours = load_source(f"folder:{tmp_path}")
    assert ours.classes == ("cat", "dog")
    assert ours.input_shape == (3, 5, 6)
    assert ours.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert ours.train.inputs[:, 0, 0, 0].tolist() == [10, 11, 12, 100, 101, 102]
    assert len(ours.test) == 4
    assert ours.mean == pytest.approx([56 / 255] * 3)


def test_a_folder_of_classes_is_split_stratified_and_the_same_way_always(tmp_path):
    write_images(tmp_path / "a", 40)
    write_images(tmp_path / "b", 10, shade=50)
    first, second = load_source(f"folder:{tmp_path}"), load_source(f"folder:{tmp_path}")
    assert len(first.test) == 10
    assert 1 <= int((first.test.labels == 1).sum()) <= 3
    assert first.fingerprint == second.fingerprint
    assert sorted(
        [*first.train.inputs[:, 0, 0, 0].tolist(), *first.test.inputs[:, 0, 0, 0].tolist()]
    ) == sorted([*range(40), *range(50, 60)])


def test_images_take_the_most_common_size_or_the_one_asked_for(tmp_path):
    write_images(tmp_path / "a", 5, size=(6, 6))
    write_images(tmp_path / "b", 3, size=(9, 9))
    assert load_source(f"folder:{tmp_path}").input_shape == (3, 6, 6)
    assert load_source(f"folder:{tmp_path}?size=4").input_shape == (3, 4, 4)
    with pytest.raises(InputError, match=r"write \?size=PIXELS"):
        load_source(f"folder:{tmp_path}?size=big")


def test_grey_images_have_one_channel_unless_one_is_coloured(tmp_path):
    write_images(tmp_path / "a", 5, mode="L")
    write_images(tmp_path / "b", 5, mode="L")
    assert load_source(f"folder:{tmp_path}").input_shape == (1, 5, 6)
    Image.new("RGB", (6, 5)).save(tmp_path / "a" / "colour.png")
    assert load_source(f"folder:{tmp_path}").input_shape == (3, 5, 6)


def test_a_broken_image_is_named(tmp_path):
    write_images(tmp_path / "a", 5)
    (tmp_path / "a" / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"a/broken\.png is not an image .* replace or remove it"):
        load_source(f"folder:{tmp_path}")
    noise = Image.effect_noise((64, 64), 50)
    noise.save(tmp_path / "a" / "broken.png")
    whole = (tmp_path / "a" / "broken.png").read_bytes()
    (tmp_path / "a" / "broken.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"a/broken\.png is damaged"):
        load_source(f"folder:{tmp_path}")


def test_folders_that_cannot_be_used_say_why(tmp_path):
    with pytest.raises(InputError, match=r"no such folder; write folder:PATH"):
        load_source(f"folder:{tmp_path}/none")
    with pytest.raises(InputError, match="has no folders"):
        load_source(f"folder:{tmp_path}")
    write_images(tmp_path / "train" / "a", 2)
    with pytest.raises(InputError, match="has train/ alone"):
        load_source(f"folder:{tmp_path}")
    write_images(tmp_path / "test" / "b", 2)
    with pytest.raises(InputError, match="test/b is a class that train/ does not have"):
        load_source(f"folder:{tmp_path}")
    (tmp_path / "train" / "b").mkdir()
    with pytest.raises(InputError, match="train/b has no images"):
        load_source(f"folder:{tmp_path}")


def test_without_pillow_the_message_says_what_to_install(tmp_path, monkeypatch):
    write_images(tmp_path / "a", 5)
    monkeypatch.setitem(sys.modules, "PIL", None)  # what an import sees where pillow is not installed
    with pytest.raises(InputError, match=r'pip install "gapsl\[datasets\]"'):
        load_source(f"folder:{tmp_path}")
