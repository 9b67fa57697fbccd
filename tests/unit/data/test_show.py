"""The picture of a partition: it fits the terminal and says what is in it."""

import numpy as np
import pytest

from gapsl.data import make_partition, render_counts


def picture(devices, classes, width=80):
    labels = np.arange(20_000) % classes
    spec = "dirichlet:0.1" if classes >= 10 else "iid"
    made = make_partition(spec, labels, classes=classes, devices=devices, seed=0)
    names = [f"class{c}" for c in range(classes)]
    counts = made.label_counts(labels, classes)
    return counts, render_counts(counts, names, width=width).split("\n")


@pytest.mark.parametrize("devices", [1, 10, 100])
@pytest.mark.parametrize("classes", [1, 2, 10, 20, 100, 1000])
@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_wider_than_the_terminal(devices, classes, width):
    _, lines = picture(devices, classes, width)
    assert max(len(line) for line in lines) <= width


def test_with_few_classes_every_count_is_written():
    counts, lines = picture(10, 10)
    for device, line in enumerate(lines[1:11]):
        words = line.replace("·", "0").split()
        assert [int(word) for word in words[:12]] == [device, *counts[device], counts[device].sum()]


def test_with_many_classes_a_block_shows_each_class_that_is_there():
    counts, lines = picture(10, 40)
    for device, line in enumerate(lines[1:11]):
        blocks = line[8:48]
        assert [block != " " for block in blocks] == (counts[device] > 0).tolist()
        assert blocks[int(counts[device].argmax())] == "█"


def test_with_many_devices_some_are_shown_and_all_are_summarised():
    counts, lines = picture(100, 10)
    assert "(20 of 100 devices shown; what follows is over all of them)" in lines
    assert len(lines) == 1 + 20 + 1 + 3
    sizes = counts.sum(axis=1)
    assert (
        lines[-2] == f"samples per device: min {sizes.min()}, median {np.median(sizes):g}, max {sizes.max()}"
    )


def test_the_longest_bar_is_the_largest_device():
    counts, lines = picture(10, 10)
    bars = [line.count("█") for line in lines[1:11]]
    assert bars[int(counts.sum(axis=1).argmax())] == 10 == max(bars)
