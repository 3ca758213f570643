"""Groups of k units under Poisson sampling, without detour over one unit.

Of k units a Poisson sample with probability q holds i with probability Bin(k, q)(i), and i units
move the sum by at most i. So

    sum_i Bin(k, q)(i) N(i, s^2)   against   N(0, s^2),   in both directions,

is a pair that dominates one step for data sets that differ in k units, all added, all removed or
all zeroed out (docs/proofs/group_mixture.md; [Ganesh2024]). It is far better than k steps from one
data set to the other.

Legend: N(i) = N(i, s^2) with s the noise multiplier, a_i for i = 1, 2, ... the weight of N(i) in P,
a_0 = 1 - a_1 - a_2 - ... that of N(0), Q = N(0), and r_i(x) = exp((2 i x - i^2)/(2 s^2)) the ratio
of N(i) to N(0). The loss of P against Q

    L(x) = ln(a_0 + a_1 r_1(x) + a_2 r_2(x) + ...)

increases. For a cell of x with masses N_i, and an edge x_g with L(x_g) = g,

    P - e^g Q = sum_(i > 0) a_i (N_i - r_i(x_g) N_0),

in which every term is positive if the edge is the cell's lower end, and negative if it is its upper
one: the same argument as for one unit (docs/proofs/tight.md, section 4), term by term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from discreet import _validate as check
from discreet.accounting._binomial import at_least
from discreet.accounting.costs import Cost, Gaussian, PoissonGaussian
from discreet.accounting.meaning.group_privacy import group_gaussian
from discreet.accounting.tight.analyses.atoms import with_infinite
from discreet.accounting.tight.analyses.poisson import (
    FARTHEST,
    PoissonRemove,
    log_density,
    normal_cells,
    quadrature_nodes,
    reversed_cells,
)
from discreet.accounting.tight.interface import Bounds, Cells, Direction, Quadrature
from discreet.accounting.tight.lattice.bracket import Bracket, epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.accounting.tight.rounding import FloatArray, U
from discreet.errors import AccountingError

__all__ = ["ShiftsAdd", "ShiftsRemove", "group_directions", "group_epsilon"]

# Where more units than so many have a smaller probability than this, they go to an infinite loss.
_BEYOND = 1e-32
_OUTWARD = 1.0 + 1e-12
_MOST_UNITS = 1000

# The inverse of the loss takes so many Newton steps at most.
_ROUNDS = 60

# Largest residual of the inverse of the loss; it goes into the slack.
_ACCEPTED = 1e-11


def group_directions(cost: Cost, *, size: int) -> tuple[Direction, Direction]:
    """Both directions of one step for a group of `size` units.

    Raises:
        AccountingError: for costs other than Poisson sampling and no sampling, and for
            replace-one.
    """
    k = check.whole("group_directions", "size", size, least=1)

    # Without sampling all units are in: the sum moves by k times the sensitivity.
    if isinstance(cost, Gaussian):
        unsampled = PoissonRemove(1.0, group_gaussian(cost, size=k).noise_multiplier)
        return unsampled, unsampled

    if not isinstance(cost, PoissonGaussian) or cost.replace or k > _MOST_UNITS:
        raise AccountingError(
            expected=(
                "a Gaussian or Poisson-sampled Gaussian cost, not replace-one, and at most "
                f"{_MOST_UNITS} units"
            ),
            got=f"{cost!r} with {k} units",
            do="Use group_privacy.group_guarantee, which holds for every mechanism.",
        )

    weights, beyond = _weights(k, cost.probability)
    pair = ShiftsRemove(weights, cost.noise_multiplier, beyond)
    return pair, ShiftsAdd(pair)


def group_epsilon(
    counted: Sequence[tuple[Cost, int]], *, size: int, delta: float, tolerance: float = 1e-3
) -> Bracket:
    """Bracket of epsilon at delta for any group of `size` units over a composition of (cost, count)
    pairs.

    | case                                          | result                                    |
    |-----------------------------------------------|-------------------------------------------|
    | no steps, or every count 0                    | 0.0, 0.0                                  |
    | a group of one unit                           | the bracket of add-or-remove              |
    | a cost whose pair only dominates              | lower 0.0                                 |
    | replace-one, other samplings, over 1000 units | AccountingError                           |
    | a loss of one step beyond 500 (little noise)  | AccountingError                           |
    | size 0; delta 0 or 1                          | ParameterError                            |

    >>> bracket = group_epsilon([(PoissonGaussian(0.005, 1.0), 200)], size=20, delta=1e-6)
    >>> bracket.lower <= 13.5717 <= bracket.upper * 1.001
    True
    """
    delta = check.fraction("group_epsilon", "delta", delta)
    pairs = [(group_directions(cost, size=size), count) for cost, count in counted if count]

    if not pairs:
        return Bracket(0.0, 0.0)

    # The second direction is only refined where it is not certified to be the better one.
    removed = Composition(tuple((remove, count) for (remove, _), count in pairs))
    added = Composition(tuple((add, count) for (_, add), count in pairs))
    first = epsilon_bracket(removed, delta, tolerance)
    second = epsilon_bracket(added, delta, tolerance, first)

    # The pair of a group is attained wherever that of one unit is: the units contribute alike.
    attained = all(cost.attained for cost, _ in counted)
    lower = max(first.lower, second.lower) if attained else 0.0
    return Bracket(lower, max(first.upper, second.upper))


def _weights(k: int, q: float) -> tuple[tuple[float, ...], float]:
    """Weights of 1, 2, ... units whose tails are not below the binomial ones, and the mass beyond
    the last.

    Larger tails are a stochastically larger number of units, which dominates.
    """
    # tails[i] bounds P[at least i units], i = 0, 1, ...; a tail is never above the one before.
    tails = [1.0]
    beyond = 0.0

    for i in range(1, k + 1):
        tail = min(at_least(i, k, q)[1] * _OUTWARD, tails[-1])
        if tail < _BEYOND:
            beyond = tail
            break

        tails.append(tail)

    # P[exactly i] is a difference of tails; the last weight takes all that is left.
    ends = [*tails[2:], 0.0]
    weights = tuple(
        max(math.nextafter(tail - after, 1.0), 0.0)
        for tail, after in zip(tails[1:], ends, strict=True)
    )
    total = math.fsum(weights)
    if total <= 1.0:
        return weights, beyond

    # Hardly any sample without a unit: what rounding takes from the weights goes to an infinite
    # loss.
    return tuple(weight / (total * (1.0 + 1e-15)) for weight in weights), beyond + 1e-14


@dataclass(frozen=True, slots=True)
class ShiftsRemove:
    """A mixture of shifted Gaussians against the Gaussian in the middle: P against Q of the header.

    Args:
        weights: a_1, a_2, ..., not negative, with a sum of at most 1.
        noise_multiplier: s.
        infinite: additional mass of P at an infinite loss.
    """

    weights: tuple[float, ...]
    noise_multiplier: float
    infinite: float = 0.0

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, under P."""
        x = quadrature_nodes(self.noise_multiplier, len(self.weights))
        loss = _loss(self, x)
        return Quadrature(loss, log_density(self.noise_multiplier, x) + loss)

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the cells by the header's sum; what is at infinity lies in the last one."""
        masses = _Masses.of(self, edges)
        return Cells(
            with_infinite(masses.mass(), self.infinite),
            with_infinite(masses.over(), self.infinite),
            masses.under(),
            masses.slack,
        )


@dataclass(frozen=True, slots=True)
class ShiftsAdd:
    """Q against P of the header; what P has at an infinite loss is left out, which only adds to the
    loss of the others.
    """

    pair: ShiftsRemove

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, under Q, by increasing -L."""
        x = quadrature_nodes(self.pair.noise_multiplier, 0)
        log_weight = log_density(self.pair.noise_multiplier, x)
        return Quadrature(-_loss(self.pair, x)[::-1], log_weight[::-1])

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the cells of the reversed pair, from those of the pair at the edges -l."""
        masses = _Masses.of(self.pair, -edges[::-1])
        slack = np.full(len(edges), masses.slack)
        return reversed_cells(masses.zero, masses.over(), masses.under(), edges, slack)


@dataclass(frozen=True, slots=True)
class _Masses:
    """Masses of the cells under N(0) and under every shift, and the ratios r_i at the edges, each
    with bounds.
    """

    pair: ShiftsRemove
    edges: FloatArray
    zero: Bounds
    shifted: tuple[Bounds, ...]
    ratio: tuple[Bounds, ...]
    slack: float

    @classmethod
    def of(cls, pair: ShiftsRemove, edges: FloatArray) -> _Masses:
        """Find the x of every edge, and the masses between them."""
        s = pair.noise_multiplier
        if not np.all(np.abs(edges) < FARTHEST):
            raise AccountingError(
                expected="a privacy loss of one step within the range of float64",
                got=f"noise multiplier {s:.3g} at loss {float(np.max(np.abs(edges))):.4g}",
                do="Use more noise, or group_privacy.group_guarantee.",
            )

        x, slack = _inverse(pair, edges)
        shifts = range(1, len(pair.weights) + 1)
        shifted = tuple(normal_cells((x - i) / s) for i in shifts)
        ratio = tuple(_ratio(pair, x, i) for i in shifts)
        return cls(pair, edges, normal_cells(x / s), shifted, ratio, slack)

    def mass(self) -> Bounds:
        """The mass of P in every cell."""
        # a_0 is known to 2u only, absolutely: its bounds are that far out.
        unshifted = _unshifted(self.pair)
        lower = max(unshifted - 2.0 * U, 0.0) * self.zero.lower
        upper = (unshifted + 2.0 * U) * self.zero.upper

        for weight, shifted in zip(self.pair.weights, self.shifted, strict=True):
            lower = lower + weight * shifted.lower
            upper = upper + weight * shifted.upper

        return self._outward(lower, upper, 3)

    def over(self) -> Bounds:
        """P - e^g Q at the lower edge of every cell but the first."""
        lower, upper = np.zeros_like(self.edges), np.zeros_like(self.edges)

        for weight, shifted, ratio in zip(self.pair.weights, self.shifted, self.ratio, strict=True):
            most_zero = ratio.upper * self.zero.upper[1:] * (1.0 + 4.0 * U)
            least_zero = ratio.lower * self.zero.lower[1:] * (1.0 - 4.0 * U)
            lower = lower + weight * np.maximum(shifted.lower[1:] - most_zero, 0.0)
            upper = upper + weight * np.maximum(shifted.upper[1:] - least_zero, 0.0)

        # An edge below every loss has r = 0: there N(0) itself is worth a_0 - e^g.
        outside = self.ratio[0].upper == 0.0
        worth = np.maximum(_unshifted(self.pair) - np.exp(self.edges), 0.0)
        worth = np.where(outside, worth, 0.0)
        lower = lower + np.maximum(worth - 16.0 * U, 0.0) * self.zero.lower[1:]
        upper = upper + np.where(outside, worth + 16.0 * U, 0.0) * self.zero.upper[1:]
        return self._outward(np.concatenate([[0.0], lower]), np.concatenate([[0.0], upper]), 8)

    def under(self) -> Bounds:
        """e^g Q - P at the upper edge of every cell but the last."""
        lower, upper = np.zeros_like(self.edges), np.zeros_like(self.edges)

        for weight, shifted, ratio in zip(self.pair.weights, self.shifted, self.ratio, strict=True):
            least_zero = ratio.lower * self.zero.lower[:-1] * (1.0 - 4.0 * U)
            most_zero = ratio.upper * self.zero.upper[:-1] * (1.0 + 4.0 * U)
            lower = lower + weight * np.maximum(least_zero - shifted.upper[:-1], 0.0)
            upper = upper + weight * np.maximum(most_zero - shifted.lower[:-1], 0.0)

        return self._outward(np.concatenate([lower, [0.0]]), np.concatenate([upper, [0.0]]), 8)

    def _outward(self, lower: FloatArray, upper: FloatArray, operations: int) -> Bounds:
        """Bounds with the rounding of a sum over the shifts, and of a few operations besides."""
        error = 4.0 * U * (len(self.shifted) + operations)
        return Bounds(lower * (1.0 - error), upper * (1.0 + error))


def _unshifted(pair: ShiftsRemove) -> float:
    """The weight a_0, to within 2u."""
    return max(1.0 - math.fsum(pair.weights), 0.0)


def _ratio(pair: ShiftsRemove, x: FloatArray, shift: int) -> Bounds:
    """The ratio r_shift at the edges; 0 at x = -inf."""
    # r_i(x) = exp((2 i x - i^2) / (2 s^2)); its relative error grows with the exponent's size.
    square = 2.0 * pair.noise_multiplier**2
    is_finite = np.isfinite(x)
    finite = np.where(is_finite, x, 0.0)
    exponent = (2.0 * shift * finite - shift * shift) / square
    size = (2.0 * shift * np.abs(finite) + shift * shift) / square
    value = np.where(is_finite, np.exp(np.minimum(exponent, 709.0)), 0.0)
    error = 8.0 * U * (1.0 + size)
    return Bounds(value * (1.0 - error), value * (1.0 + error))


def _loss(pair: ShiftsRemove, x: FloatArray) -> FloatArray:
    """L(x) = ln1p(sum_i a_i (r_i - 1)) near 0, by the logarithm of a sum elsewhere."""
    square = 2.0 * pair.noise_multiplier**2
    unshifted = _unshifted(pair)

    # `near` is cut at y = 30, far outside of where it is used.
    total = np.full_like(x, math.log(unshifted) if unshifted > 0.0 else -math.inf)
    near = np.zeros_like(x)

    for i, weight in enumerate(pair.weights, start=1):
        if weight > 0.0:
            y = (2.0 * i * x - i * i) / square
            total = np.logaddexp(total, math.log(weight) + y)
            near = near + weight * np.expm1(np.minimum(y, 30.0))

    return np.where(np.abs(near) < 0.5, np.log1p(np.maximum(near, -0.9)), total)


def _inverse(pair: ShiftsRemove, edges: FloatArray) -> tuple[FloatArray, float]:
    """Where L equals the edge (-inf for edges below every loss), and how far off it is at most."""
    s = pair.noise_multiplier
    unshifted = _unshifted(pair)
    inside = edges > (math.log(unshifted) + 16.0 * U if unshifted > 0.0 else -math.inf)
    x = np.full_like(edges, -np.inf)
    wanted = edges[inside]
    if len(wanted) == 0:
        return x, 64.0 * U

    root = _newton(pair, wanted)
    residual = float(np.max(np.abs(_loss(pair, root) - wanted)))
    if not residual < _ACCEPTED:
        raise AccountingError(
            expected=f"an inverse of the privacy loss to {_ACCEPTED}",
            got=(
                f"a residual of {residual:.3g} at noise multiplier {s:.3g} with "
                f"{len(pair.weights)} shifts"
            ),
            do="Use group_privacy.group_guarantee.",
        )

    x[inside] = root

    # However the root was found, the loss there is off by the residual and by what rounding adds
    # to the evaluation of L: relative errors of its exponents and of the logarithm.
    units = len(pair.weights)
    exponent = units * (2.0 * float(np.max(np.abs(root))) + units) / (2.0 * s * s)
    return x, residual + 16.0 * U * (4.0 + units + exponent + float(np.max(np.abs(edges))))


def _newton(pair: ShiftsRemove, wanted: FloatArray) -> FloatArray:
    """The x with L(x) = wanted, by Newton steps that must stay inside a bracket; else bisection."""
    # A table of losses puts every edge between two neighbours, from which Newton starts.
    s = pair.noise_multiplier
    table = np.linspace(*_reach(pair, float(wanted.min()), float(wanted.max())), 4096)
    place = np.clip(np.searchsorted(_loss(pair, table), wanted), 1, len(table) - 1)
    low, high = table[place - 1].copy(), table[place].copy()
    guess = 0.5 * (low + high)

    for _ in range(_ROUNDS):
        gap = _loss(pair, guess) - wanted
        if bool(np.max(np.abs(gap)) < 1e-15):
            break

        low, high = np.where(gap < 0.0, guess, low), np.where(gap < 0.0, high, guess)

        # The slope by a central difference: it only has to lead to the root.
        width = 1e-6 * np.maximum(s, np.abs(guess))
        slope = (_loss(pair, guess + width) - _loss(pair, guess - width)) / (2.0 * width)
        newton = guess - np.divide(gap, slope, where=slope > 0.0, out=np.full_like(gap, np.inf))
        usable = np.isfinite(newton) & (newton > low) & (newton < high)
        moved = np.where(usable, newton, 0.5 * (low + high))

        # A step below the spacing of floats cannot improve the guess.
        settled = bool(np.max(np.abs(moved - guess) / np.maximum(s, np.abs(guess))) < 4.0 * U)
        guess = moved
        if settled:
            break

    return guess


def _reach(pair: ShiftsRemove, least: float, greatest: float) -> tuple[float, float]:
    """An interval of x whose losses contain both; towards x = -inf as near to the least loss as
    float64 can tell.
    """
    low, high, width = -1.0, 1.0, max(pair.noise_multiplier**2, pair.noise_multiplier, 1.0)

    for _ in range(100):
        below, above = _loss(pair, np.array([low, high]))
        if below <= least and above >= greatest:
            break

        if below > least:
            low -= width

        if above < greatest:
            high += width

        width *= 1.3

    return low, high
