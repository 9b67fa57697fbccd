"""Angles between gradients, all pairs from one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Squares of gradients shorter or longer than this leave the range of float32.
_TINY, _HUGE = 1e-30, 1e30
ROUNDING = 8  # rounding errors of a cosine, in machine epsilons of the gradients' precision


def pairwise_angles(gradients: Tensor) -> Tensor:
    """Return theta_ij of Eq. (1) for every pair of rows: float64, symmetric, zero on the diagonal.

    A zero gradient is at pi/2 to everything but itself.
    """
    rows = _within_range(gradients)
    gram = (rows @ rows.T).cpu().double()
    # In float32 the product is not symmetric to the last bit, and equal scores would differ.
    gram = (gram + gram.T) / 2
    lengths = gram.diagonal().sqrt()
    angles = _angles(gram, torch.outer(lengths, lengths), gradients.dtype)
    return angles.fill_diagonal_(0.0)


def angles_between(gradients: Tensor, direction: Tensor) -> Tensor:
    """Return the float64 angle of every row to one vector; pi/2 where either of them is zero."""
    rows = _within_range(gradients)
    target = _within_range(direction[None, :])[0]
    products = (rows @ target).cpu().double()
    lengths = torch.linalg.vector_norm(rows, dim=1).cpu().double() * float(torch.linalg.vector_norm(target))
    return _angles(products, lengths, gradients.dtype)


def sum_of_rows(rows: Tensor, members: Sequence[int]) -> Tensor:
    """Return the sum of the rows with these indices, added in ascending order."""
    first, *rest = sorted(members)
    total = rows[first].clone()
    for index in rest:
        total += rows[index]
    return total


def mean_of_rows(rows: Tensor, members: Sequence[int]) -> Tensor:
    """Return the mean of the rows with these indices, added in ascending order."""
    return sum_of_rows(rows, members).div_(len(members))


def _angles(products: Tensor, lengths: Tensor, precision: torch.dtype) -> Tensor:
    cosines = torch.where(lengths > 0, products / lengths.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    # Near 1 the arc cosine turns a rounding error e into an angle of sqrt(2 e), and identical gradients
    # would differ: what rounding cannot tell from parallel is parallel.
    parallel = 1 - cosines.abs() <= ROUNDING * torch.finfo(precision).eps
    return torch.acos(torch.where(parallel, cosines.sign(), cosines).clamp(-1.0, 1.0))


def _within_range(rows: Tensor) -> Tensor:
    """Scale rows whose squares would under- or overflow; an angle does not depend on length."""
    longest = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
    odd = (longest > 0) & ((longest < _TINY**0.5) | (longest > _HUGE**0.5))
    if not bool(odd.any()):
        return rows
    return torch.where(odd[:, None], rows / longest.clamp_min(torch.finfo(rows.dtype).tiny)[:, None], rows)
