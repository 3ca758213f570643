"""From a leaf to the directions of its dominating pair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    Leaf,
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


def directions(leaf: Leaf) -> tuple[Direction, Direction]:
    """The two directions (unit under P, unit under Q) of the leaf's pair; the same one twice if the
    pair is symmetric.

    Raises:
        AccountingError: if no tight analysis of this leaf exists.
    """
    _check_range(leaf)
    rule = _RULES.get(type(leaf))
    if rule is None:
        raise AccountingError(
            expected="a leaf with a tight analysis: "
            + ", ".join(sorted(kind.__name__ for kind in _RULES)),
            got=type(leaf).__name__,
            do="Use the 'rdp' accountant, if it has one.",
        )
    return rule(leaf)


def _check_range(leaf: Leaf) -> None:
    """Losses of one step must be far inside the range of float64; beyond, only the Rényi accountant
    answers.
    """
    if isinstance(leaf, BoundedRange | Laplace | Response):
        loss = _largest_loss(leaf)
        fits = loss < _LARGEST_LOSS
    else:
        fits = _NOISE[0] < leaf.noise_multiplier < _NOISE[1]
    if not fits:
        raise OutOfRangeError(
            expected=(
                f"noise multipliers in {_NOISE}, or losses below {_LARGEST_LOSS:g} in one step, "
                "for the tight accountant"
            ),
            got=repr(leaf),
            do="Use more noise, or the 'rdp' accountant.",
        )


def _largest_loss(leaf: BoundedRange | Laplace | Response) -> float:
    match leaf:
        case BoundedRange():
            return leaf.epsilon
        case Laplace():
            return 1.0 / leaf.noise_multiplier
        case Response():
            return leaf.gap


def _gaussian(leaf: Gaussian) -> tuple[Direction, Direction]:
    one = PoissonRemove(1.0, leaf.noise_multiplier)
    return one, one


def _poisson(leaf: PoissonGaussian) -> tuple[Direction, Direction]:
    q, s = leaf.probability, leaf.noise_multiplier
    if leaf.replace:
        one = PoissonReplace(q, s)
        return one, one
    return PoissonRemove(q, s), PoissonAdd(q, s)


def _laplace(leaf: Laplace) -> tuple[Direction, Direction]:
    reach = math.nextafter(1.0 / leaf.noise_multiplier, math.inf)
    one = Segment(reach, 0.5 * math.exp(-0.5 * reach), (0.5 * math.exp(-reach), 0.0, 0.5))
    return one, one


def _bounded_range(leaf: BoundedRange) -> tuple[Direction, Direction]:
    one = Segment(leaf.epsilon, 0.5 / math.sinh(0.5 * leaf.epsilon), (0.0, 0.0, 0.0))
    return one, one


def _response(leaf: Response) -> tuple[Direction, Direction]:
    truth = leaf.truth_probability
    other = (1.0 - truth) / (leaf.categories - 1)
    rest = max(1.0 - truth - other, 0.0)
    one = Segment(leaf.gap, 0.0, (other, rest, truth))
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
