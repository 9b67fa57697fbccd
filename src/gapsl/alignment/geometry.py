"""Angles between gradients, all pairs from one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Squares of gradients shorter or longer than this leave the range of float32.
_TINY, _HUGE = 1e-30, 1e30
# Rounding errors of a cosine in machine epsilons of the gradients' precision: so many at least, and with long
# gradients so many times the root of their length. How many it is depends on the processor's way of adding.
ROUNDING, ROUNDING_BY_LENGTH = 8.0, 0.5


def pairwise_angles(gradients: Tensor) -> Tensor:
    """Return theta_ij of Eq. (1) for every pair of rows: float64, symmetric, zero on the diagonal.

    A zero gradient is at pi/2 to everything but itself.
    """
    gram = (gradients @ gradients.T).cpu().double()
    if _out_of_range(gram.diagonal()):
        rows = _rescaled(gradients)
        gram = (rows @ rows.T).cpu().double()
    # In float32 the product is not symmetric to the last bit, and equal scores would differ.
    gram = (gram + gram.T) / 2
    lengths = gram.diagonal().sqrt()
    angles = _angles(gram, torch.outer(lengths, lengths), gradients)
    return _alike(angles.fill_diagonal_(0.0))


def _alike(angles: Tensor) -> Tensor:
    """Give rows that are parallel the same angles to all others: their mean.

    Some processors' matrix products round a row differently by where it stands, and devices with the same
    gradient would be ranked by that.
    """
    parallel = angles == 0
    if int(parallel.sum()) == len(angles):  # each to itself alone
        return angles
    mean = parallel.double() / parallel.sum(dim=1, keepdim=True)
    shared = mean @ angles @ mean.T
    return ((shared + shared.T) / 2).fill_diagonal_(0.0)


def angles_between(gradients: Tensor, direction: Tensor) -> Tensor:
    """Return the float64 angle of every row to one vector; pi/2 where either of them is zero."""
    lengths = _lengths(gradients, direction)
    if _out_of_range(lengths):
        gradients, direction = _rescaled(gradients), _rescaled(direction[None, :])[0]
        lengths = _lengths(gradients, direction)
    products = (gradients @ direction).cpu().double()
    return _angles(products, lengths, gradients)


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


def _angles(products: Tensor, lengths: Tensor, gradients: Tensor) -> Tensor:
    cosines = torch.where(lengths > 0, products / lengths.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    # Near 1 the arc cosine turns a rounding error e into an angle of sqrt(2 e), and identical gradients
    # would differ: what rounding cannot tell from parallel is parallel.
    epsilons = max(ROUNDING, ROUNDING_BY_LENGTH * gradients.shape[1] ** 0.5)
    parallel = 1 - cosines.abs() <= epsilons * torch.finfo(gradients.dtype).eps
    return torch.acos(torch.where(parallel, cosines.sign(), cosines).clamp(-1.0, 1.0))


def _lengths(rows: Tensor, direction: Tensor) -> Tensor:
    """Return the products of every row's length with the direction's."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1).cpu().double()
    return lengths * float(torch.linalg.vector_norm(direction))


def _out_of_range(squares: Tensor) -> bool:
    """Say whether some squared lengths under- or overflowed; an honest zero may be among them."""
    return not bool(((squares > _TINY) & (squares < _HUGE)).all())


def _rescaled(rows: Tensor) -> Tensor:
    """Return rows of a length near 1, zero rows as they are: an angle does not depend on length."""
    longest = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
    return rows / torch.where(longest > 0, longest, 1.0)[:, None]
