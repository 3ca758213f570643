"""Norms of small factors of one position, all of them at once: the same bounds as one by one, with
far fewer calls.

    |G_i| = |v_i|  for a Dense,      |G_i| = |a_i| |b_i|  for an Outer of one position

The lengths of all rows are computed one tensor after the other, in the tensors' own precision, and
everything after that for all of them together in float64. Legend: m records, k tensors. All of it
is sensitive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer
from discreet.training.rounding.norms import BLOCK, norm_bound

__all__ = ["squares_together"]

_UP = 1.0 + 2.0**-48  # above the rounding of a product of two upper bounds

_Sides: TypeAlias = tuple[Tensor, ...]


def squares_together(factors: Sequence[Factor]) -> Tensor | None:
    """Upper bounds of the squared norms, which are the squared spreads too: (m, factors), float64.
    None if it cannot be done.

    Args:
        factors: of the same records.
    """
    sides = [_sides(factor) for factor in factors]
    if not sides or not all(sides):
        return None
    tensors = [side for both in sides for side in both]
    found: dict[object, Tensor] = {}  # a weight and its bias share one side: the same memory
    lengths = torch.stack([_lengths(one, found) for one in tensors])
    columns = tuple([one.numel() // len(one) for one in tensors])
    squares_km = lengths.cpu().numpy().astype(np.float64)
    factor_k, absolute_k, back = _bounds(tuple([one.dtype for one in tensors]), columns)
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # what is too long becomes infinite, see `norm_bound`
        squares_km *= squares_km
        squares_km += absolute_k
        squares_km *= factor_k
        squares_km *= back
        return torch.from_numpy(_products(squares_km, [len(both) for both in sides]))


def _lengths(rows: Tensor, found: dict[object, Tensor]) -> Tensor:
    key = (rows.data_ptr(), rows.numel(), rows.dtype) if rows.is_contiguous() else id(rows)
    if key not in found:
        found[key] = torch.linalg.vector_norm(rows, dim=tuple(range(1, rows.ndim)))
    return found[key]


def _sides(factor: Factor) -> _Sides:
    """What a record's norm is the product of the lengths of; nothing if it is not that simple, or
    not small.
    """
    if isinstance(factor, Dense):
        sides: _Sides = (factor.values,)
    elif isinstance(factor, Outer) and factor.positions == 1:
        sides = (factor.a, factor.b)
    else:
        return ()
    for side in sides:
        if side.ndim < 2 or not len(side) or side.numel() > BLOCK * len(side):
            return ()
    return sides


def _products(squares_km: NDArray[np.float64], sides: Sequence[int]) -> NDArray[np.float64]:
    """(m, factors). Infinity times zero is no number: such a record is left out."""
    out = np.empty((squares_km.shape[1], len(sides)))
    row = 0
    for column, count in enumerate(sides):
        if count == 1:
            out[:, column] = squares_km[row]
        else:
            np.multiply(squares_km[row], squares_km[row + 1] * _UP, out=out[:, column])
        row += count
    return out


@lru_cache(1024)
def _bounds(
    kinds: tuple[torch.dtype, ...], columns: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """What turns squares of computed lengths into upper bounds, one for each tensor: (k, 1), (k,
    1), and a common factor.
    """
    bounds = [norm_bound(kind, count) for kind, count in zip(kinds, columns, strict=True)]
    factors, absolutes = (np.array([bound[at] for bound in bounds])[:, np.newaxis] for at in (0, 1))
    return factors, absolutes, bounds[0][2]
