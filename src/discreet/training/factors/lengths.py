"""Norms of small factors of one position, all of them at once: the same bounds as one by one, with
far fewer calls.

    |G_i| = |v_i|  for a Dense,      |G_i| = |a_i| |b_i|  for an Outer of one position

The second is the identity of [Goodfellow2015]. The lengths of all rows are computed one tensor
after the other, in the tensors' own precision, and everything after that for all of them together
in float64.

Legend: m records, k tensors, n factors. All of it is sensitive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer
from discreet.training.rounding.norms import BLOCK, norm_bound
from discreet.training.rounding.precision import UP

__all__ = ["squares_together"]

_Sides: TypeAlias = tuple[Tensor, ...]


def squares_together(factors: Sequence[Factor]) -> Tensor | None:
    """Upper bounds of the squared norms, which are the squared spreads too: (m, n), float64.

    Args:
        factors: of the same records.

    Returns:
        None if one of them has several positions, or is not small.
    """
    sides = [_sides(factor) for factor in factors]
    if not sides or not all(sides):
        return None

    # A weight and its bias share one side: the same memory, measured once.
    tensors = list(chain.from_iterable(sides))
    lengths: dict[object, Tensor] = {}
    lengths_km = torch.stack([_lengths(tensor, lengths) for tensor in tensors])

    # The bound of each tensor, from its precision and the length of its rows.
    columns = tuple([tensor.numel() // tensor.shape[0] for tensor in tensors])
    factor_k1, absolute_k1, back = _bounds(tuple([tensor.dtype for tensor in tensors]), columns)

    squares_km = lengths_km.cpu().numpy().astype(np.float64)

    # What is too long becomes infinite, as in `norm_bound`.
    with np.errstate(invalid="ignore", over="ignore"):
        squares_km *= squares_km
        squares_km += absolute_k1
        squares_km *= factor_k1
        squares_km *= back
        return torch.from_numpy(_products(squares_km, sides))


def _lengths(rows: Tensor, lengths: dict[object, Tensor]) -> Tensor:
    # By place and size in memory: two views of the same numbers are the same rows.
    key = (rows.data_ptr(), rows.numel(), rows.dtype) if rows.is_contiguous() else id(rows)
    if key not in lengths:
        lengths[key] = torch.linalg.vector_norm(rows, dim=tuple(range(1, rows.ndim)))

    return lengths[key]


def _sides(factor: Factor) -> _Sides:
    # A record's norm is the product of the lengths of these; none if it is not that simple, or not
    # small: then a block of numbers no longer holds a row (see `norms`).
    sides: _Sides = ()
    if isinstance(factor, Dense):
        sides = (factor.values,)
    elif isinstance(factor, Outer) and factor.positions == 1:
        sides = (factor.a, factor.b)

    for side in sides:
        records = side.shape[0]
        if side.ndim < 2 or records == 0 or side.numel() > BLOCK * records:
            return ()

    return sides


def _products(squares_km: NDArray[np.float64], sides: Sequence[_Sides]) -> NDArray[np.float64]:
    # (m, n). Infinity times zero is no number: such a record is left out.
    products_mn = np.empty((squares_km.shape[1], len(sides)))
    row = 0

    for column, pair in enumerate(sides):
        products_mn[:, column] = squares_km[row]
        if len(pair) == 2:
            products_mn[:, column] *= squares_km[row + 1] * UP

        row += len(pair)

    return products_mn


@lru_cache(1024)
def _bounds(
    kinds: tuple[torch.dtype, ...], columns: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    # What turns squares of computed lengths into upper bounds: factors (k, 1), absolute terms (k,
    # 1), and a factor that all have in common.
    # The common factor depends on no tensor: it is the inverse of a power of two.
    bounds = [norm_bound(kind, count) for kind, count in zip(kinds, columns, strict=True)]
    factors, absolutes = (np.array([bound[at] for bound in bounds])[:, np.newaxis] for at in (0, 1))
    return factors, absolutes, bounds[0][2]
