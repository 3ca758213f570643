"""Tuning: the privacy of training a random number of times and releasing the best
[PapernotSteinke2022].

The number of runs K is drawn once, from a distribution that does not look at the data; each run is
the same mechanism with its own random hyperparameters; only the best run is released. With D(a) the
Rényi divergence of one run:

Theorem 2, truncated negative binomial K, any second order b >= 1:

    D'(a) <= D(a) + (1 + eta) (1 - 1/b) D(b) + (1 + eta) ln(1/gamma) / b + ln E[K] / (a-1)

Theorem 6, Poisson K, if one run is (epsilon-hat, delta-hat)-private with e^(epsilon-hat) <= 1 +
1/(a-1):

    D'(a) <= D(a) + mean * delta-hat + ln(mean) / (a-1)

The order b and the delta-hat are free: any choice is valid, the best is searched for, and delta-hat
may come from the tight accountant. (The guide's appendix C prints 1 - 1/a for 1 - 1/b, and
epsilon-hat = 1 + 1/(a-1) without the exponential.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import scipy

from discreet import _validate as check
from discreet.accounting import rdp
from discreet.accounting.costs import Cost
from discreet.accounting.rdp._orders import best_order
from discreet.accounting.rdp.conversion import epsilon_from
from discreet.errors import AccountingError, ParameterError

__all__ = ["PoissonTrials", "Trials", "TruncatedNegativeBinomial", "selection_epsilon"]

# More than all rounding errors of one formula here.
_UP = 1.0 + 2.0**-44


@dataclass(frozen=True, slots=True)
class TruncatedNegativeBinomial:
    """K >= 1 with P[K = k] proportional to (1-gamma)^k C(k + eta - 1, k); eta = 0 is logarithmic,
    eta = 1 geometric.

    Args:
        shape: eta, above -1; larger concentrates K and costs more.
        gamma: in (0, 1); smaller means more runs.
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        shape = check.real("TruncatedNegativeBinomial", "shape", self.shape)
        if shape <= -1.0:
            raise ParameterError(
                owner="TruncatedNegativeBinomial",
                name="shape",
                expected="above -1",
                got=repr(shape),
            )

        check.fraction("TruncatedNegativeBinomial", "gamma", self.gamma)

    @classmethod
    def with_mean(cls, shape: float, mean: float) -> TruncatedNegativeBinomial:
        """The distribution with this expected number of runs, above 1.

        >>> round(TruncatedNegativeBinomial.with_mean(0, 100).gamma, 8)
        0.00154212
        """
        wanted = check.positive("TruncatedNegativeBinomial", "mean", mean)
        if wanted <= 1.0:
            raise ParameterError(
                owner="TruncatedNegativeBinomial", name="mean", expected="above 1", got=repr(wanted)
            )

        def missing(log_gamma: float) -> float:
            return math.log(cls(shape, math.exp(log_gamma)).mean / wanted)

        # The mean falls with gamma; in its logarithm the search has no scale to guess.
        return cls(
            shape, math.exp(float(scipy.optimize.brentq(missing, -300.0, -1e-9, xtol=1e-13)))
        )

    @property
    def mean(self) -> float:
        """E[K] = eta (1-gamma) / (gamma (1 - gamma^eta)), in the limit (1/gamma - 1) / ln(1/gamma)
        for eta = 0.
        """
        # Near eta = 0 the quotient is 0/0; its limit is closer than its rounding there.
        log = math.log(self.gamma)
        if abs(self.shape * log) < 1e-9:
            return (1.0 / self.gamma - 1.0) / -log

        return self.shape * (1.0 - self.gamma) / (self.gamma * -math.expm1(self.shape * log))

    def probability(self, runs: int) -> float:
        """The probability that K is exactly `runs`."""
        k = check.whole("TruncatedNegativeBinomial", "runs", runs, least=1)

        # The logarithmic distribution, the limit for eta = 0.
        if abs(self.shape) < 1e-12:
            return (1.0 - self.gamma) ** k / (k * -math.log(self.gamma))

        # The product of (l + eta)/(l + 1) over l < k, by logarithms of gamma functions; the first
        # factor eta, which may be negative, stays outside of them.
        ways = (
            math.exp(
                math.lgamma(k + self.shape) - math.lgamma(self.shape + 1.0) - math.lgamma(k + 1.0)
            )
            * self.shape
        )
        return (1.0 - self.gamma) ** k * ways / math.expm1(-self.shape * math.log(self.gamma))

    def divergence(self, run_divergence: Callable[[float], float], order: float) -> float:
        """The bound of Theorem 2 in the header, at the best second order."""

        def extra(second: float) -> float:
            return (1.0 + self.shape) * (
                (1.0 - 1.0 / second) * run_divergence(second) - math.log(self.gamma) / second
            )

        # Any second order is valid, so the search need not be exact.
        best = extra(best_order(extra))
        return (run_divergence(order) + best + math.log(self.mean) / (order - 1.0)) * _UP


@dataclass(frozen=True, slots=True)
class PoissonTrials:
    """K Poisson distributed; no run at all (probability e^-mean) releases a fixed default.

    Args:
        mean: expected number of runs, at least 1.
        delta_of: a valid delta of one run at any epsilon > 0; by default the Rényi accountant's.
            The tight one is far better.
    """

    mean: float
    delta_of: Callable[[float], float] | None = None

    def __post_init__(self) -> None:
        if check.positive("PoissonTrials", "mean", self.mean) < 1.0:
            raise ParameterError(
                owner="PoissonTrials", name="mean", expected="at least 1", got=repr(self.mean)
            )

    def divergence(
        self,
        run_divergence: Callable[[float], float],
        order: float,
        delta_of: Callable[[float], float],
    ) -> float:
        """The bound of Theorem 6 in the header, at one order."""
        # Rounded down, so that e^hat <= 1 + 1/(a-1) holds as the theorem asks.
        hat = math.log1p(1.0 / (order - 1.0)) * (1.0 - 2.0**-50)
        return (
            run_divergence(order) + self.mean * delta_of(hat) + math.log(self.mean) / (order - 1.0)
        ) * _UP


Trials: TypeAlias = TruncatedNegativeBinomial | PoissonTrials


def selection_epsilon(
    counted: Sequence[tuple[Cost, int]], trials: Trials, *, delta: float
) -> rdp.RenyiBound:
    """Epsilon of releasing the best of a random number of runs, each consisting of these costs.

    >>> from discreet.accounting.costs import PoissonGaussian
    >>> run = [(PoissonGaussian(0.005, 1.0), 200)]
    >>> trials = TruncatedNegativeBinomial.with_mean(0, 100)
    >>> round(selection_epsilon(run, trials, delta=1e-6).value, 3)
    2.411
    """
    target = check.fraction("selection_epsilon", "delta", delta)
    if not counted:
        raise AccountingError(
            expected="at least one cost in a run", got="none", do="Pass the costs of one run."
        )

    # At every order a run costs the sum of its steps, whichever run is selected in the end.
    def run_divergence(order: float) -> float:
        return rdp.composed(counted, order)

    def renyi_delta(epsilon: float) -> float:
        return rdp.delta(counted, epsilon=epsilon).value

    def bound(order: float) -> float:
        if isinstance(trials, PoissonTrials):
            whole = trials.divergence(run_divergence, order, trials.delta_of or renyi_delta)
        else:
            whole = trials.divergence(run_divergence, order)

        return epsilon_from(whole, order, target)

    # Every order gives a valid epsilon; the best one is searched for.
    order = best_order(bound)
    return rdp.RenyiBound(bound(order), order)
