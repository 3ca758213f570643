"""From a cost to the directions of its dominating pair.

The pairs, and why each dominates its step, are those of docs/proofs/tight.md, section 2; samplings
with a proof of their own name it in their file. The limits are those of section 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.accounting.tight.analyses.balls_in_bins import balls_in_bins_directions
from discreet.accounting.tight.analyses.fixed_size import fixed_size_directions
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove, PoissonReplace
from discreet.accounting.tight.analyses.segment import Segment
from discreet.accounting.tight.analyses.truncated import truncated_directions
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.rounding import OutOfRangeError
from discreet.errors import AccountingError

__all__ = ["directions"]

# The largest loss of one step, for mechanisms whose losses lie on a segment.
_LARGEST_LOSS = 300.0

# Multipliers between which a Gaussian's losses fit into float64.
_NOISE = (0.02, 1e100)


def directions(cost: Cost) -> tuple[Direction, Direction]:
    """The two directions (unit under P, unit under Q) of the cost's pair; the same one twice if the
    pair is symmetric.

    Raises:
        AccountingError: if no tight analysis of this cost exists.
    """
    # Told apart from an unknown cost: where a loss is out of range, the Rényi bound still answers.
    _check_range(cost)
    rule = _RULES.get(type(cost))
    if rule is None:
        raise AccountingError(
            expected="a cost with a tight analysis: "
            + ", ".join(sorted(kind.__name__ for kind in _RULES)),
            got=type(cost).__name__,
            do="Use the 'rdp' accountant, if it has one.",
        )

    return rule(cost)


def _check_range(cost: Cost) -> None:
    """Losses of one step must be far inside the range of float64; beyond, only the Rényi accountant
    answers.
    """
    # Losses that are bounded are judged by their bound, all others by the noise.
    if isinstance(cost, BoundedRange | Laplace | Response):
        fits = _largest_loss(cost) < _LARGEST_LOSS
    else:
        fits = _NOISE[0] < cost.noise_multiplier < _NOISE[1]

    if not fits:
        raise OutOfRangeError(
            expected=(
                f"noise multipliers in {_NOISE}, or losses below {_LARGEST_LOSS:g} in one step, "
                "for the tight accountant"
            ),
            got=repr(cost),
            do="Use more noise, or the 'rdp' accountant.",
        )


def _largest_loss(cost: BoundedRange | Laplace | Response) -> float:
    """The largest privacy loss of one step, about."""
    match cost:
        case BoundedRange():
            return cost.epsilon
        case Laplace():
            return 1.0 / cost.noise_multiplier
        case Response():
            return cost.gap


def _gaussian(cost: Gaussian) -> tuple[Direction, Direction]:
    """N(1) against N(0), which the reflection x -> 1 - x turns around."""
    pair = PoissonRemove(1.0, cost.noise_multiplier)
    return pair, pair


def _poisson(cost: PoissonGaussian) -> tuple[Direction, Direction]:
    """Two directions for add-or-remove and zero-out; replace-one is its own reverse."""
    q, s = cost.probability, cost.noise_multiplier
    if cost.replace:
        pair = PoissonReplace(q, s)
        return pair, pair

    return PoissonRemove(q, s), PoissonAdd(q, s)


def _laplace(cost: Laplace) -> tuple[Direction, Direction]:
    """Losses between -1/b and 1/b, both ends attained with positive probability."""
    # A longer segment only spreads the loss further, so the reach is rounded up.
    reach = math.nextafter(1.0 / cost.noise_multiplier, math.inf)
    pair = Segment(reach, 0.5 * math.exp(-0.5 * reach), (0.5 * math.exp(-reach), 0.0, 0.5))
    return pair, pair


def _bounded_range(cost: BoundedRange) -> tuple[Direction, Direction]:
    """The pair that dominates the whole family of choices with this range."""
    pair = Segment(cost.epsilon, 0.5 / math.sinh(0.5 * cost.epsilon), (0.0, 0.0, 0.0))
    return pair, pair


def _response(cost: Response) -> tuple[Direction, Direction]:
    """Three losses: the true answer, the one in question, and any other answer."""
    # Rounding may leave less than nothing for the answers that are in question of neither.
    truth = cost.truth_probability
    lie = (1.0 - truth) / (cost.categories - 1)
    neither = max(1.0 - truth - lie, 0.0)
    pair = Segment(cost.gap, 0.0, (lie, neither, truth))
    return pair, pair


_RULES: dict[type, Callable[[Any], tuple[Direction, Direction]]] = {
    BallsInBinsGaussian: balls_in_bins_directions,
    BoundedRange: _bounded_range,
    FixedSizeGaussian: fixed_size_directions,
    Gaussian: _gaussian,
    Laplace: _laplace,
    PoissonGaussian: _poisson,
    Response: _response,
    TruncatedPoissonGaussian: truncated_directions,
}
