"""Certified norms of rows of tensors: squares are added up in the tensors' own precision, block by
block, and rounded up.

For blocks of `BLOCK` numbers with computed norms n_k the bound is

    |v|^2 <= (sum_k n_k^2 + absolute) * factor

(docs/proofs/sums.md, section 1, and `numerics.norm_error`): `factor` is above the relative rounding
of the block sums and of their roots, `absolute` above what underflows.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from discreet.numerics import norm_error
from discreet.training.rounding.precision import LARGEST_INPUT, UP

__all__ = ["BLOCK", "last_squares", "norm_bound", "row_squares"]

BLOCK = 1024
"""Numbers of one sum of squares in the tensor's own precision."""

_TO_LARGEST = 2.0**1023 / LARGEST_INPUT**2 * 2.0


def row_squares(rows: Tensor) -> Tensor:
    """Upper bounds of the squared norm of each entry of the first axis, as `last_squares`."""
    return last_squares(rows.reshape(rows.shape[0], math.prod(rows.shape[1:])))


def last_squares(values: Tensor) -> Tensor:
    """Upper bounds of the squared norms along the last axis, float64.

    A norm of torch reads its numbers once and stores nothing in between; its root costs a rounding,
    which is bounded too. Infinite for a norm above `LARGEST_INPUT`: such a record is left out.
    """
    columns = values.shape[-1]
    whole = columns // BLOCK * BLOCK
    remainder = values[..., whole:] if whole else values
    sums: Tensor = torch.linalg.vector_norm(remainder, dim=-1).double().square_()

    if whole:
        blocks = values[..., :whole].reshape(*values.shape[:-1], whole // BLOCK, BLOCK)
        sums += torch.linalg.vector_norm(blocks, dim=-1).double().square_().sum(-1)

    factor, absolute, back = norm_bound(values.dtype, columns)

    return sums.add_(absolute).mul_(factor).mul_(back)


@lru_cache(1024)
def norm_bound(dtype: torch.dtype, columns: int) -> tuple[float, float, float]:
    """(f, a, g) such that (s + a) f g is at or above the squared norm.

    s is the sum of squares of computed norms of blocks. f and g have a power of two and its
    inverse: what is above `LARGEST_INPUT` squared overflows in between, and is infinite.
    """
    name = str(dtype).removeprefix("torch.")
    error = norm_error(np.dtype(name), columns, BLOCK)
    # A root that is off by up to one unit of the last place, squared.
    root = 4.0 * float(np.finfo(name).eps)
    factor = error.factor * (1.0 + root) * UP * (1.0 + 2.0**-50)

    return factor * _TO_LARGEST, error.absolute * (1.0 + root), 1.0 / _TO_LARGEST
