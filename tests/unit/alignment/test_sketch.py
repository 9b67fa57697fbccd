"""Sketches keep angles; sums by a tree do not depend on who adds what."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gapsl.alignment import pairwise_angles
from gapsl.alignment.sketch import CountSketch, TreeSum, total_of


def sketch_of(size, buckets, seed=0, dtype=torch.float64):
    return CountSketch(size, torch.Generator().manual_seed(seed), torch.zeros(1, dtype=dtype), buckets)


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 5, 64, 65, 640, 1000])
def test_a_sketch_is_linear_and_adds_up_every_coordinate_once(size):
    sketch, one, other = sketch_of(size, 64), normal(size), normal(size, seed=2)
    assert torch.allclose(sketch(2 * one - other), 2 * sketch(one) - sketch(other))
    found = torch.stack([sketch(row) for row in torch.eye(size, dtype=torch.float64)])
    assert found.shape == (size, min(size, 64))
    assert torch.equal(found.abs().sum(dim=1), torch.ones(size, dtype=torch.float64))
    assert (found.count_nonzero(dim=0) <= math.ceil(size / 64)).all()


def test_what_fits_its_buckets_keeps_every_angle():
    rows, sketch = normal(6, 50), sketch_of(50, 64)
    assert torch.allclose(pairwise_angles(torch.stack([sketch(row) for row in rows])), pairwise_angles(rows))


def test_inner_products_are_right_on_average_and_off_by_as_much_as_is_said():
    one, other = normal(3000), normal(3000, seed=2) + normal(3000) / 2
    products = torch.stack([(s := sketch_of(3000, 256, seed))(one) @ s(other) for seed in range(2000)])
    usual = math.sqrt(float(one @ one * (other @ other) + (one @ other) ** 2) / 256)
    assert abs(float(products.mean() - one @ other)) < 4 * usual / math.sqrt(2000)
    assert float(products.std()) < 1.1 * usual


def test_gradients_with_the_period_of_the_buckets_are_told_apart():
    # Without shifts, coordinates of the same residue would always meet.
    rows = normal(40, 256).repeat(1, 50)
    exact = torch.cos(pairwise_angles(rows))
    off = []
    for seed in range(5):
        sketch = sketch_of(12800, 256, seed)
        off.append(torch.cos(pairwise_angles(torch.stack([sketch(row) for row in rows]))) - exact)
    spread = float(torch.stack(off).square().mean().sqrt()) * 16
    assert spread < 1.3


@given(st.sets(st.integers(0, 200), min_size=1), st.sets(st.integers(1, 200)))
def test_a_sum_has_the_same_bits_however_devices_are_shared_out(devices, cuts):
    rows = {device: normal(3, seed=device).float() for device in sorted(devices)}
    alone = TreeSum()
    for device, row in rows.items():
        alone.add(device, row, 0.3)
    ((_, total),) = alone.branches()
    branches = []
    for first, end in pairwise([0, *sorted(cuts), 201]):
        part = TreeSum(first - 1 if first else None)
        for device in [device for device in rows if first <= device < end]:
            part.add(device, rows[device], 0.3)
        mine = part.branches(end)
        assert len(mine) <= 2 * (200).bit_length()
        branches += mine
    assert torch.equal(total_of(reversed(branches)), total)
    assert torch.allclose(total, 0.3 * torch.stack(list(rows.values())).sum(dim=0), atol=1e-5)


def test_a_sum_keeps_few_gradients_at_a_time():
    total = TreeSum()
    for device in range(1000):
        total.add(device, torch.ones(1))
        assert len(total._branches) <= 11
    assert total.branches()[0][1].item() == 1000
