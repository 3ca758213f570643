"""Which form of a factor is fastest: measured once, in the first step, under one budget of memory for all.

Every form gives the same norms and sums up to rounding, which the sensitivity covers; so the choice is about time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discreet.training.factors import Dense, Factor
from discreet.training.precision import most_spread

__all__ = ["Choice", "Chooser"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured for one use of a leaf: seconds by form, bytes kept for the chosen one."""

    leaf: str
    form: str
    seconds: dict[str, float]
    bytes: int


class Chooser:
    """Remembers the form of every use.

    Args:
        budget: bytes that gradients of records may take, all leaves together.
        form: always this form, where a factor has it; None to measure.
    """

    def __init__(self, budget: int, form: str | None = None) -> None:
        self._left = budget
        self._form = form
        self.choices: dict[tuple[str, int], Choice] = {}

    def finished(self, leaf: str, number: int, factor: Factor, numel: int) -> Factor:
        """The factor in the form that was chosen for this use."""
        forms = factor.forms()
        key = (leaf, number)
        if key not in self.choices:
            self.choices[key] = self._measured(leaf, factor, numel)
        name = self.choices[key].form
        return forms[name]() if name in forms else factor

    def _measured(self, leaf: str, factor: Factor, numel: int) -> Choice:
        forms = factor.forms()
        first = next(iter(forms))
        size = 4 * numel * factor.records
        names = [name for name in forms if name == first or size <= self._left]
        if self._form is not None:
            names = [self._form] if self._form in forms else names[:1]
        seconds = {}
        if len(names) > 1:
            total = torch.zeros(numel, dtype=torch.float64)
            # On zeros: numbers next to zero are slow to compute with, and no record may decide how the others are summed.
            idle = factor.keep(torch.zeros(factor.records, dtype=torch.bool)).forms()
            for name in names:
                seconds[name] = _time(idle[name], total)
            names = [min(seconds, key=lambda name: seconds[name])]
        used = size if names[0] != first or isinstance(factor, Dense) else 0
        self._left -= used
        return Choice(leaf, names[0], seconds, used)


def _time(form: Callable[[], Factor], total: Tensor) -> float:
    start = time.perf_counter()
    factor = form()
    factor.measured()
    factor.add_to(total.view(factor.shape), total.new_ones(factor.records), most_spread(factor.positions))
    return time.perf_counter() - start
