"""Samples and sources: what they accept, and what they say when they do not."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, DatasetSamples, Shift, Source, make_transform


class Listed(Dataset):
    """A dataset of the given items, with `targets` if they are given."""

    def __init__(self, items, targets=None):
        self.items = items
        if targets is not None:
            self.targets = targets

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def images(count, channels=1, size=4):
    return (
        torch.arange(count * channels * size * size)
        .remainder(256)
        .to(torch.uint8)
        .view(count, channels, size, size)
    )


def source(labels=(0, 1, 2), **changes):
    samples = ArraySamples(images(len(labels)), torch.tensor(labels))
    given = {"train": samples, "test": samples, "classes": ("a", "b", "c"), "mean": (0.5,), "std": (0.2,)}
    return Source(name="ours", **{**given, **changes})


def test_array_samples_read_rows_in_the_order_asked_for():
    samples = ArraySamples(images(5), torch.arange(5))
    assert torch.equal(samples.read(np.array([3, 0, 3])), images(5)[[3, 0, 3]])
    assert len(samples) == 5


def test_array_samples_refuse_labels_that_do_not_match():
    with pytest.raises(InputError, match="5 inputs but 4 labels"):
        ArraySamples(images(5), torch.arange(4))
    with pytest.raises(InputError, match="one integer per sample"):
        ArraySamples(images(2), torch.tensor([0.0, 1.5]))
    with pytest.raises(InputError, match="not one-hot; give one integer per sample"):
        ArraySamples(images(2), torch.tensor([[0, 1, 1], [1, 0, 0]]))
    with pytest.raises(InputError, match="return_inverse=True"):
        ArraySamples(images(2), np.array(["cat", "dog"]))
    with pytest.raises(InputError, match="give uint8"):
        ArraySamples(images(2).long(), torch.arange(2))


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([2.0, 0.0, 1.0]),
        torch.tensor([[2], [0], [1]]),
        torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        [2, 0, 1],
        np.array([2, 0, 1], dtype=np.uint8),
    ],
)
def test_labels_whose_meaning_is_clear_are_taken(labels):
    assert ArraySamples(images(3), labels).labels.tolist() == [2, 0, 1]
    items = [(image, label) for image, label in zip(images(3), labels, strict=True)]
    assert DatasetSamples(Listed(items)).labels.tolist() == [2, 0, 1]


def test_a_dataset_and_its_tensors_are_the_same_samples():
    inputs, labels = images(6), torch.tensor([0, 2, 1, 1, 0, 2])
    samples = DatasetSamples(TensorDataset(inputs, labels))
    assert torch.equal(samples.labels, labels)
    assert torch.equal(samples.read(torch.tensor([5, 1])), inputs[[5, 1]])


def test_a_subset_has_the_labels_of_its_own_items():
    whole = Listed([(images(1)[0], i % 3) for i in range(6)], targets=[i % 3 for i in range(6)])
    assert DatasetSamples(Subset(whole, [1, 4, 5])).labels.tolist() == [1, 1, 2]


def test_labels_are_taken_from_targets_without_reading_items():
    unread = Listed([None] * 3, targets=[2, 1, 0])
    assert DatasetSamples(unread).labels.tolist() == [2, 1, 0]


def test_targets_that_contradict_the_items_are_found_out():
    samples = DatasetSamples(Listed([(images(1)[0], 1)], targets=[0]))
    with pytest.raises(InputError, match=r"item 0 has label 1, .* says 0; drop the target_transform"):
        samples.read(torch.tensor([0]))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (torch.zeros(1, 4, 4), r"item 0 is a Tensor; items must be \(tensor, label\) pairs"),
        (([[0.0] * 4] * 4, 1), "input of item 0 is a list; give the dataset a transform"),
        ((torch.zeros(1, 4, 4), torch.tensor([1, 1, 0])), "labels must be integers from 0 up, or one-hot"),
        ((torch.zeros(1, 4, 4), "cat"), "label of item 0 is 'cat'; labels must be integers"),
        ((torch.zeros(1, 4, 4), 0.5), "label of item 0 is 0.5"),
        ((torch.zeros(1, 4, 4, dtype=torch.int64), 1), "item 0: dtype torch.int64; give uint8"),
    ],
)
def test_items_of_the_wrong_kind_are_named(item, message):
    with pytest.raises(InputError, match=message):
        DatasetSamples(Listed([item]))


def test_items_of_different_shapes_are_named():
    samples = DatasetSamples(Listed([(torch.zeros(1, 4, 4), 0), (torch.zeros(1, 5, 5), 0)]))
    with pytest.raises(InputError, match=r"item 1 has shape \(1, 5, 5\), others \(1, 4, 4\); resize"):
        samples.read(torch.tensor([0, 1]))


def test_a_dataset_whose_targets_are_too_few_is_refused():
    with pytest.raises(InputError, match="2 items but 1 targets"):
        DatasetSamples(Listed([(images(1)[0], 0)] * 2, targets=[0]))


def test_a_source_names_the_sample_whose_label_is_out_of_range():
    with pytest.raises(InputError, match="train sample 2 has label 3, but there are 3 classes"):
        source(labels=(0, 1, 3))
    with pytest.raises(InputError, match="train sample 0 has label -1"):
        source(labels=(-1, 1, 2))


def test_a_source_needs_samples_and_one_mean_per_channel():
    with pytest.raises(InputError, match="test part has no samples"):
        source(test=ArraySamples(images(0), torch.zeros(0, dtype=torch.int64)))
    with pytest.raises(InputError, match="1 channels, but mean is"):
        source(mean=(0.1, 0.2, 0.3), std=(1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="give one mean and one positive std"):
        source(std=(0.0,))
    with pytest.raises(InputError, match=r"a single number; give a tensor of shape \(features,\)"):
        source(train=ArraySamples(torch.zeros(3), torch.arange(3)))


def test_inputs_need_not_be_images_but_then_nothing_turns_or_crops_them():
    table = ArraySamples(torch.arange(12.0).view(3, 4), torch.arange(3))
    rows = source(train=table, test=table, mean=(1.0,) * 4, std=(2.0,) * 4)
    assert rows.input_shape == (4,)
    seen = make_transform(rows)(table.read(torch.tensor([2])), 0, 0, 1)
    assert torch.equal(seen, (torch.tensor([[8.0, 9.0, 10.0, 11.0]]) - 1) / 2)
    for setting in ({"augment": "crop-flip"}, {"shift": Shift("noise", (0.1,))}):
        with pytest.raises(InputError, match="are for images"):
            make_transform(rows, **setting)


def test_the_fingerprint_changes_with_labels_order_and_pixels_alone():
    assert source().fingerprint == source(mean=(0.9,)).fingerprint
    assert source().input_shape == (1, 4, 4)
    brighter = ArraySamples(images(3) + 1, torch.arange(3))
    different = [source(labels=(0, 2, 1)), source(labels=(0, 1)), source(train=brighter)]
    assert len({source().fingerprint, *(s.fingerprint for s in different)}) == 4


def test_the_fingerprint_is_that_of_the_content_not_of_the_container():
    held = ArraySamples(images(3), torch.arange(3))
    read = DatasetSamples(TensorDataset(images(3), torch.arange(3)))
    assert source(train=held).fingerprint == source(train=read).fingerprint
