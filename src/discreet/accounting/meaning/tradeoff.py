"""What a guarantee means for an attacker: trade-off curve, advantage, best hit rate, posterior.

A *privacy profile* is a function epsilon -> delta(epsilon), the least delta (or anything above it)
at which the release is (epsilon, delta)-differentially private, in both directions of the
adjacency. An attacker who has to tell two neighbouring data sets apart, with false-positive rate x
and hit rate (true-positive rate) y, satisfies for every epsilon >= 0

    y <= delta + e^epsilon x      and      1 - x <= delta + e^epsilon (1 - y).

Each such line is a valid limit on its own, so taking the best of *some* epsilons is valid too, and
with a profile that is rounded up every limit here errs on the side of the attacker. Proof:
docs/proofs/tradeoff.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import scipy

from discreet import _validate as check
from discreet.accounting.accountant import Accountant, account
from discreet.accounting.rdp._excess import FloatArray
from discreet.accounting.sources import Source
from discreet.errors import ParameterError
from discreet.units import Adjacency

__all__ = [
    "Profile",
    "TradeOff",
    "hit_rate",
    "membership_advantage",
    "posterior",
    "profile_of",
]

Profile: TypeAlias = Callable[[float], float]

# More than all rounding errors of one formula here.
_UP = 1.0 + 2.0**-48

# Beyond, e^epsilon overflows and nothing is claimed.
_FURTHEST = 700.0

# The epsilons that are tried first, each about twice the one before.
_SCAN = (0.0, *np.geomspace(2e-3, 65.0, 16).tolist())


@dataclass(frozen=True, slots=True)
class TradeOff:
    """A lower bound on the attacker's miss rate as a function of its false-positive rate.

    f(x) = max over the points (epsilon, delta) of 0, 1 - delta - e^epsilon x, e^-epsilon (1 - delta
    - x); convex and falling.

    Args:
        epsilons, deltas: points of a profile, each a valid statement.

    >>> curve = TradeOff.of(lambda epsilon: 0.0 if epsilon >= 1.0 else 1.0, [1.0])
    >>> round(float(curve.miss_rate(0.1)), 4)  # 1 - 0.1 e
    0.7282
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise ParameterError(
                owner="TradeOff",
                name="epsilons",
                expected="one delta for each, at least one",
                got=f"{len(self.epsilons)} epsilons and {len(self.deltas)} deltas",
            )

        # A point that is no valid statement would make the curve a false promise.
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            if not epsilon >= 0.0 or not 0.0 <= delta <= 1.0:
                raise ParameterError(
                    owner="TradeOff",
                    name="epsilons",
                    expected="points with epsilon >= 0 and delta in [0, 1]",
                    got=f"({epsilon!r}, {delta!r})",
                )

    @classmethod
    def of(cls, profile: Profile, epsilons: Sequence[float]) -> TradeOff:
        """The curve that these points of a profile prove."""
        return cls(tuple(epsilons), tuple(_delta(profile, epsilon) for epsilon in epsilons))

    def miss_rate(self, false_positive_rate: float | FloatArray) -> FloatArray:
        """At least this share of members is missed at this false-positive rate."""
        x = np.asarray(false_positive_rate, dtype=np.float64)[..., np.newaxis]
        remainder = (1.0 - np.asarray(self.deltas)) * (1.0 - 2.0**-50)
        epsilons = np.asarray(self.epsilons)

        # Both lines of the header, solved for the miss rate 1 - y and rounded down.
        growth = np.exp(np.minimum(epsilons, _FURTHEST)) * _UP
        lines = np.where(
            epsilons <= _FURTHEST,
            np.maximum(remainder - growth * x, (remainder - x) / growth) - 2.0**-50,
            0.0,
        )
        result: FloatArray = np.clip(lines.max(axis=-1), 0.0, 1.0)
        return result


def profile_of(
    source: Source, *, adjacency: Adjacency | None = None, accountant: Accountant = "tight"
) -> Profile:
    """The certified upper profile of a ledger, a plan or (step, count) pairs, each epsilon computed
    once.

    >>> from discreet.ledger.events import Everything, GaussianSum, Step
    >>> from discreet.units import Adjacency
    >>> step = Step(Everything(), [GaussianSum("sum", 1.0, 2.0)])
    >>> profile = profile_of([(step, 1)], adjacency=Adjacency.ZERO_OUT)
    >>> round(membership_advantage(profile), 4)  # 2 Phi(1/4) - 1
    0.1974
    """

    @cache
    def delta(epsilon: float) -> float:
        return account(
            source, epsilon=epsilon, adjacency=adjacency, accountant=accountant, tolerance=1e-2
        ).delta

    return delta


def membership_advantage(profile: Profile) -> float:
    """The most by which the hit rate of any attack can exceed its false-positive rate: delta(0)."""
    return _delta(profile, 0.0)


def hit_rate(profile: Profile, *, false_positive_rate: float) -> float:
    """The best hit rate (true-positive rate) of any attack with this false-positive rate.

    >>> round(hit_rate(lambda epsilon: 0.0 if epsilon >= 1.0 else 1.0, false_positive_rate=0.01), 3)
    0.027
    """
    x = check.fraction("hit_rate", "false_positive_rate", false_positive_rate, zero=True, one=True)

    def bound(epsilon: float) -> float:
        delta = _delta(profile, epsilon)
        return min(delta + math.exp(epsilon) * x, 1.0 - math.exp(-epsilon) * (1.0 - delta - x))

    values: list[float] = []

    for epsilon in _SCAN:
        # Whatever delta is, no bound from here on is below this.
        floor = min(math.exp(epsilon) * x, 1.0 - math.exp(-epsilon) * (1.0 - x))
        if values and floor > min(values):
            break

        values.append(bound(epsilon))

    # Any epsilon gives a valid bound, so the minimum need not be exact.
    best = int(np.argmin(values))
    low, high = _SCAN[max(0, best - 1)], _SCAN[min(len(_SCAN) - 1, best + 1)]
    minimum = scipy.optimize.minimize_scalar(
        bound, bounds=(low, high), method="bounded", options={"xatol": 1e-2 * high}
    )
    return min(1.0, min(values[best], float(minimum.fun)) * _UP)


def posterior(profile: Profile, *, prior: float, false_positive_rate: float) -> float:
    """The most that "member" can be worth: P[member | the attack says so], by Bayes' rule.

    Args:
        profile: see above.
        prior: probability of membership before the release was seen.
        false_positive_rate: of the attack, above 0.
    """
    before = check.fraction("posterior", "prior", prior)
    x = check.fraction("posterior", "false_positive_rate", false_positive_rate, one=True)

    # The quotient grows with the hit rate, so that of the best attack bounds every attack's.
    hits = hit_rate(profile, false_positive_rate=x)
    return before * hits / (before * hits + (1.0 - before) * x)


def _delta(profile: Profile, epsilon: float) -> float:
    delta = float(profile(epsilon))
    if not 0.0 <= delta <= 1.0:
        raise ParameterError(
            owner="profile",
            name="delta",
            expected="a number in [0, 1] for every epsilon",
            got=repr(delta),
        )

    return delta
