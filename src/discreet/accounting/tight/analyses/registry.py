"""From a cost to the directions of its dominating pair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.analyses.replace import PoissonReplace
from discreet.accounting.tight.analyses.segment import Segment
from discreet.accounting.tight.analyses.truncated import truncated_directions
from discreet.accounting.tight.rounding import OutOfRangeError
from discreet.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.accounting.tight.interface import Direction

__all__ = ["directions"]

_LARGEST_LOSS = 300.0
_NOISE = (0.02, 1e100)


def directions(cost: Cost) -> tuple[Direction, Direction]:
    """The two directions (unit under P, unit under Q) of the cost's pair; the same one twice if the
    pair is symmetric.

    Raises:
        AccountingError: if no tight analysis of this cost exists.
    """
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
    if isinstance(cost, BoundedRange | Laplace | Response):
        loss = _largest_loss(cost)
        fits = loss < _LARGEST_LOSS
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
    match cost:
        case BoundedRange():
            return cost.epsilon
        case Laplace():
            return 1.0 / cost.noise_multiplier
        case Response():
            return cost.gap


def _gaussian(cost: Gaussian) -> tuple[Direction, Direction]:
    one = PoissonRemove(1.0, cost.noise_multiplier)
    return one, one


def _poisson(cost: PoissonGaussian) -> tuple[Direction, Direction]:
    q, s = cost.probability, cost.noise_multiplier
    if cost.replace:
        one = PoissonReplace(q, s)
        return one, one
    return PoissonRemove(q, s), PoissonAdd(q, s)


def _laplace(cost: Laplace) -> tuple[Direction, Direction]:
    reach = math.nextafter(1.0 / cost.noise_multiplier, math.inf)
    one = Segment(reach, 0.5 * math.exp(-0.5 * reach), (0.5 * math.exp(-reach), 0.0, 0.5))
    return one, one


def _bounded_range(cost: BoundedRange) -> tuple[Direction, Direction]:
    one = Segment(cost.epsilon, 0.5 / math.sinh(0.5 * cost.epsilon), (0.0, 0.0, 0.0))
    return one, one


def _response(cost: Response) -> tuple[Direction, Direction]:
    truth = cost.truth_probability
    other = (1.0 - truth) / (cost.categories - 1)
    rest = max(1.0 - truth - other, 0.0)
    one = Segment(cost.gap, 0.0, (other, rest, truth))
    return one, one


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
