"""Samples of fixed size without replacement: which pairs bound a step from above, and which two
data sets attain from below.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet.accounting.tight.analyses.exchange import Exchange
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.units import Adjacency

if TYPE_CHECKING:
    from discreet.accounting.costs import FixedSizeGaussian
    from discreet.accounting.tight.interface import Direction

__all__ = ["fixed_size_attained", "fixed_size_directions"]


def fixed_size_directions(cost: FixedSizeGaussian) -> tuple[Direction, Direction]:
    """The dominating pair of one step, replace-one and zero-out: one direction twice, because the
    pair is its own reverse.

    Guarantee: dominates in every direction and under adaptive composition
    (docs/proofs/fixed_size.md). Not claimed: that some data sets attain it.
    """
    pair = Exchange(_fraction(cost, math.inf), cost.noise_multiplier / 2.0)
    return pair, pair


def fixed_size_attained(cost: FixedSizeGaussian, adjacency: Adjacency) -> tuple[Direction, ...]:
    """Pairs that two explicit data sets attain in every step, for a lower bound; empty where none
    is offered.

    Replace-one: every other record contributes -1, the one in question +1 or -1: the sum is -size,
    or -size + 2 if the record is in the sample. Each direction may be composed with itself; the
    larger epsilon is a lower bound.
    """
    if adjacency is not Adjacency.REPLACE_ONE:
        return ()
    fraction, noise = _fraction(cost, 0.0), cost.noise_multiplier / 2.0
    return PoissonRemove(fraction, noise), PoissonAdd(fraction, noise)


def _fraction(cost: FixedSizeGaussian, towards: float) -> float:
    return min(math.nextafter(cost.size / cost.records, towards), 1.0)
