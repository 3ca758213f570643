"""A table, as a user declares it: a parameter that the run itself updates, by plain SGD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["SparseTable"]

# Learning rates that differ are whole multiples of 1/1024 of the largest: so sums of weighted
# integers stay exact.
_RESOLUTION = 2**10


@final
@dataclass(frozen=True, slots=True)
class SparseTable:
    """The update of a table of which a step touches few rows: plain SGD, no momentum, no decay.

    With it, a step costs what it touches: a row gets the noise of the steps that it missed when it
    is read. What it holds then, and what all rows hold at the end, has the law that it has with
    noise on all rows in every step (docs/proofs/sparse.md).

    | learning rates | what is executed |
    |---|---|
    | one | this one, in every step |
    | one for each step | each as a multiple of 1/1024 of the largest, the nearest |
    | negative, NaN, infinite, all zero | `ParameterError` |

    >>> SparseTable(learning_rate=0.5).weights(2), SparseTable(learning_rate=[0.5, 0.25]).weights(2)
    ((1, 1), (1024, 512))

    Args:
        learning_rate: of all steps, or of each step of the plan; public, fixed in advance.
    """

    learning_rate: float | Sequence[float]

    def __post_init__(self) -> None:
        rates = self.learning_rate
        listed = list(rates) if isinstance(rates, Sequence) else [rates]
        checked = tuple(check.real("SparseTable", "learning_rate", rate) for rate in listed)
        if not checked or min(checked) < 0.0 or max(checked) == 0.0:
            raise ParameterError(
                owner="SparseTable",
                name="learning_rate",
                expected="numbers that are 0 or larger, and not all 0",
                got=repr(rates)[:80],
            )

        whole = checked if isinstance(rates, Sequence) else checked[0]
        object.__setattr__(self, "learning_rate", whole)

    def weights(self, steps: int) -> tuple[int, ...]:
        """Give the weight of every step: its learning rate in units of `unit`.

        Raises:
            ParameterError: another number of learning rates than of steps.
        """
        rates = self.learning_rate
        if not isinstance(rates, Sequence):
            return (1,) * steps

        if len(rates) != steps:
            raise ParameterError(
                owner="SparseTable",
                name="learning_rate",
                expected=f"one number, or one for each of the plan's {steps} steps",
                got=f"{len(rates)} numbers",
            )

        largest = max(rates)
        return tuple(round(rate / largest * _RESOLUTION) for rate in rates)

    @property
    def unit(self) -> float:
        """The learning rate of weight 1."""
        rates = self.learning_rate
        return max(rates) / _RESOLUTION if isinstance(rates, Sequence) else rates
