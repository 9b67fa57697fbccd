"""Batches: full, fair to every sample, resumable, and nobody else's business."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, Batches, load_source, make_transform

# The input of sample i is the number i, so that a batch shows which samples it holds.
NUMBERED = ArraySamples(torch.arange(500.0).view(-1, 1, 1, 1), torch.arange(500) % 7)


def batches(indices, batch_size, *, seed=0, device=0):
    return Batches(
        NUMBERED,
        np.array(indices),
        seed=seed,
        device=device,
        batch_size=batch_size,
        transform=lambda raw, *name: raw,
    )


def numbers(drawn):
    return drawn[0].flatten().long().tolist()


@given(st.integers(1, 50), st.integers(1, 70), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_over_whole_local_epochs_every_sample_appears_equally_often(size, batch_size, epochs):
    own = list(range(100, 100 + size))
    ours = batches(own, batch_size)
    count = epochs * np.lcm(size, batch_size) // batch_size
    drawn = [numbers(ours.draw(t)) for t in range(count)]
    assert {len(batch) for batch in drawn} == {batch_size}
    seen = Counter(chain(*drawn))
    assert set(seen) == set(own)
    assert set(seen.values()) == {count * batch_size // size}


@given(st.integers(1, 50), st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_the_sequence_is_one_permutation_after_another(size, batch_size):
    ours = batches(range(size), batch_size)
    sequence = list(chain(*(numbers(ours.draw(t)) for t in range(1 + 3 * size // batch_size))))
    for start in range(0, len(sequence) - size + 1, size):
        assert sorted(sequence[start : start + size]) == list(range(size))


def test_local_epochs_are_ordered_differently():
    ours = batches(range(50), 50)
    assert numbers(ours.draw(1)) != numbers(ours.draw(2))


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_drawn_is_all_there_is_to_restore(size, batch_size, before):
    first = batches(range(size), batch_size)
    for t in range(before):
        first.draw(t)
    second = batches(range(size), batch_size)
    second.drawn = first.drawn
    assert first.drawn == before
    for t in range(3):
        assert numbers(first.draw(t)) == numbers(second.draw(t))


def test_going_back_gives_the_same_batches_again():
    ours = batches(range(10), 7)
    once = [numbers(ours.draw(t)) for t in range(5)]
    ours.drawn = 0
    assert [numbers(ours.draw(t)) for t in range(5)] == once


def test_a_device_draws_the_same_whatever_others_draw():
    alone = batches(range(30), 8, device=1)
    expected = [numbers(alone.draw(t)) for t in range(6)]
    other, ours = batches(range(30), 8, device=0), batches(range(30), 8, device=1)
    mixed = []
    for t in range(6):
        others = numbers(other.draw(t))
        mixed.append(numbers(ours.draw(t)))
        torch.rand(5)
        assert others != mixed[-1]
    assert mixed == expected


def test_labels_go_with_their_inputs():
    inputs, labels = batches(range(100, 200), 64).draw(1)
    assert torch.equal(labels, inputs.flatten().long() % 7)


def test_a_pass_is_as_many_batches_as_show_every_sample():
    assert batches(range(100), 32).batches_per_pass == 4
    assert batches(range(96), 32).batches_per_pass == 3
    assert batches(range(5), 32).batches_per_pass == 1


def test_the_transform_is_told_round_and_turn():
    told = []
    ours = batches([1, 2], 2, seed=5, device=3)
    ours.transform = lambda raw, *name: told.append(name) or raw
    ours.draw(8, turn=2)
    assert told == [(5, 3, 8, 2)]


def test_a_training_batch_is_float32_and_normalised():
    digits = load_source("digits")
    ours = Batches(
        digits.train, np.arange(1437), seed=0, device=0, batch_size=1437, transform=make_transform(digits)
    )
    inputs, labels = ours.draw(1)
    assert inputs.dtype == torch.float32
    assert inputs.shape == (1437, 1, 8, 8)
    assert labels.dtype == torch.int64
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-3)
    assert float(inputs.std()) == pytest.approx(1, abs=1e-3)


def test_no_samples_and_no_batch_are_refused():
    with pytest.raises(InputError, match="device 4 has no samples"):
        batches([], 2, device=4)
    with pytest.raises(InputError, match="batch_size = 0"):
        batches([1], 0)
