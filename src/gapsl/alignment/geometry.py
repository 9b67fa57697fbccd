"""Angles between gradients, all pairs from one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Squares of gradients shorter or longer than this leave the range of float32.
_TINY, _HUGE = 1e-30, 1e30
BLOCK, PIECE = 128, 2**14  # rows, and numbers of each, that are multiplied at a time
# Rounding errors of a cosine in machine epsilons of the gradients' precision: so many at least, and with long
# gradients so many times the root of their length. How many it is depends on the processor's way of adding.
ROUNDING, ROUNDING_BY_LENGTH = 8.0, 0.5


def pairwise_angles(gradients: Tensor) -> Tensor:
    """Return theta_ij of Eq. (1) for every pair of rows: float64, symmetric, zero on the diagonal.

    A zero gradient is at pi/2 to everything but itself.
    """
    gram = products_of_pairs(gradients)
    if _out_of_range(gram.diagonal()):
        gram = products_of_pairs(_rescaled(gradients))
    lengths = gram.diagonal().sqrt()
    angles = _angles(gram, torch.outer(lengths, lengths), gradients)
    return _alike(angles.fill_diagonal_(0.0))


def products_of_pairs(rows: Tensor) -> Tensor:
    """Return the inner product of every pair of rows: float64, symmetric; each pair of blocks once."""
    gram = torch.empty(len(rows), len(rows), dtype=torch.float64)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]
    for number, here in enumerate(blocks):
        for there in blocks[:number]:
            gram[here, there] = _product(rows[here], rows[there])
            gram[there, here] = gram[here, there].T
        own = _product(rows[here], rows[here])
        gram[here, here] = (own + own.T) / 2  # in float32 not symmetric, and equal scores would differ
    return gram


def _product(rows: Tensor, others: Tensor) -> Tensor:
    """Return the inner products of rows with others, added up by pieces that fit a processor's cache."""
    pieces = zip(torch.split(rows, PIECE, dim=1), torch.split(others, PIECE, dim=1), strict=True)
    return sum(((a @ b.T).cpu().double() for a, b in pieces), torch.zeros((), dtype=torch.float64))


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


def nonzero_rows(rows: Tensor) -> Tensor:
    """Say of every row whether it has a number that is not zero."""
    found: Tensor = torch.linalg.vector_norm(rows, dim=1).cpu() > 0
    for index in (~found).nonzero().flatten().tolist():
        found[index] = rows[index].any()  # squares of the smallest numbers are zero, too
    return found


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
