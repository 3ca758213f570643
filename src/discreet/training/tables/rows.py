"""The clipped sum of a table's gradients, over the rows that were looked up.

It has the numbers that the sum over the whole table has in these rows; all others are zero there.
Sensitive, as which rows there are is.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.factors.factors import Factor, Lookups

__all__ = ["RowSums", "other_use"]


@final
class RowSums:
    """Sums of lookups, row by row.

    Attributes:
        rows: which rows, rising, (U,).
        values: their sums, float64, (U, width).

    Args:
        leaf: of the table.
        width: numbers of a row.
    """

    __slots__ = ("_leaf", "rows", "values")

    def __init__(self, leaf: str, width: int) -> None:
        self._leaf = leaf
        self.rows = torch.zeros(0, dtype=torch.int64)
        self.values = torch.zeros(0, width, dtype=torch.float64)

    def add(self, factor: Factor, weights: Tensor) -> None:
        """Add sum_i w_i G_i of one pass.

        Args:
            factor: of a pass.
            weights: (m,), float64.

        Raises:
            ModelError: the table was used otherwise than by lookups.
        """
        if not isinstance(factor, Lookups):
            raise other_use(self._leaf, f"a gradient of the form {type(factor).__name__}")

        width = self.values.shape[1]
        here = factor.ids.reshape(-1) >= 0
        weighted = factor.b.double() * weights.reshape(-1, 1, 1)

        # A sum of the pass's own, then added: `lookup_chunk` counts the additions in this way.
        rows, places = torch.unique(factor.ids.reshape(-1)[here], return_inverse=True)
        of_pass = weighted.new_zeros(len(rows), width)
        of_pass.index_add_(0, places, weighted.reshape(-1, width)[here])

        # Two numbers at most come together here, and zero.
        joined, places = torch.unique(torch.cat([self.rows, rows]), return_inverse=True)
        total = of_pass.new_zeros(len(joined), width)
        self.values = total.index_add_(0, places, torch.cat([self.values, of_pass]))
        self.rows = joined


def other_use(leaf: str, use: str) -> ModelError:
    """A table is used where all of its rows would be read."""
    return ModelError(
        expected=f"the table {leaf.removeprefix('grad/')} in torch.nn.functional.embedding alone, "
        "with ids of records",
        got=f"another use: {use}",
        do="Leave it out of PrivateRun(..., tables=...): then every step has noise on all rows.",
    )
