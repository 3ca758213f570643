"""The five queries: what was asked of a sample, and everything a query knows about itself.

The rules of the package's header hold here, rule 5 on sensitivity above all.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events.event import Event

__all__ = [
    "QUERIES",
    "CorrelatedGaussianSum",
    "ExponentialChoice",
    "GaussianSum",
    "LaplaceSum",
    "Query",
    "RandomizedResponse",
]

# Writes the normalised fields (rule 4) of a frozen event while it is constructed.
_set = object.__setattr__


class Query(Event):
    """One question asked of a sample. Closed: nobody outside this file derives from it.

    A query says itself what other rooms want to know of it. Only what it costs lives elsewhere: one
    entry of the table in `accounting/normalise.py`, and the analyses behind that cost.
    """

    __slots__ = ()

    group: str

    @property
    @abstractmethod
    def phrase(self) -> str:
        """What is asked, in words, for reports."""

    @property
    @abstractmethod
    def sensitivity_and_noise(self) -> tuple[float, float] | None:
        """Sensitivity and noise in the unit of the group; None for a query without such numbers."""

    @property
    def gaussian_cost(self) -> Fraction | None:
        """The term (sensitivity/noise_std)^2 that a query with Gaussian noise adds to the sum of
        Eq. 1, exactly. None for any other noise, which does not fold.
        """
        # None and not 0: what does not fold must be composed, and never be left out of a sum.
        return None

    def with_noise_times(self, factor: float) -> Query:
        """Ask it with all its noise multiplied.

        Raises:
            ParameterError: it has no noise that could be multiplied.
        """
        # Refused, not ignored: a calibration would take the query for one that costs less.
        expected = f"left out: a {type(self).__name__} has no noise to multiply"
        raise ParameterError(
            owner=type(self).__name__, name="factor", expected=expected, got=repr(factor)
        )


@dataclass(frozen=True, slots=True)
class GaussianSum(Query):
    """A sum of vectors plus spherical Gaussian noise: the paper's privacy tuple (S_g,
    sigma-tilde_g).

    Args:
        group: name of the group of vectors that shares clipping and noise.
        sensitivity: L2, see rule 5 above, in the sum's unit (or in the scaled unit of joint
            clipping).
        noise_std: standard deviation of the noise on the sum, in the same unit as the sensitivity.
    """

    group: str
    sensitivity: float
    noise_std: float

    kind: ClassVar[str] = "gaussian-sum"

    def __post_init__(self) -> None:
        # Noise of 0 is refused: what is released without noise is no query, but voids the ledger.
        _set(self, "group", check.label("GaussianSum", "group", self.group))
        _set(self, "sensitivity", check.positive("GaussianSum", "sensitivity", self.sensitivity))
        _set(self, "noise_std", check.positive("GaussianSum", "noise_std", self.noise_std))

    @property
    def phrase(self) -> str:
        """The words of a report."""
        return "sum with Gaussian noise"

    @property
    def sensitivity_and_noise(self) -> tuple[float, float]:
        """The privacy tuple of the paper, (S_g, sigma-tilde_g)."""
        return self.sensitivity, self.noise_std

    @property
    def gaussian_cost(self) -> Fraction:
        """The term (S_g/sigma_g)^2 of Eq. 1."""
        # A float64 is a fraction, so nothing is rounded before all groups are added up (P34).
        return (Fraction(self.sensitivity) / Fraction(self.noise_std)) ** 2

    def with_noise_times(self, factor: float) -> GaussianSum:
        """Ask for the sum with `factor` times the noise."""
        return replace(self, noise_std=self.noise_std * factor)


@dataclass(frozen=True, slots=True)
class LaplaceSum(Query):
    """A sum of vectors plus independent Laplace noise on every coordinate.

    Args:
        group: name of the group.
        sensitivity: L1, see rule 5 above.
        scale: the b of the density exp(-|x|/b)/(2b); its standard deviation is b*sqrt(2).
    """

    group: str
    sensitivity: float
    scale: float

    kind: ClassVar[str] = "laplace-sum"

    def __post_init__(self) -> None:
        _set(self, "group", check.label("LaplaceSum", "group", self.group))
        _set(self, "sensitivity", check.positive("LaplaceSum", "sensitivity", self.sensitivity))
        _set(self, "scale", check.positive("LaplaceSum", "scale", self.scale))

    @property
    def phrase(self) -> str:
        """The words of a report."""
        return "sum with Laplace noise"

    @property
    def sensitivity_and_noise(self) -> tuple[float, float]:
        """The L1 sensitivity and the scale b."""
        # L1, as the losses of Laplace noise add up over the coordinates.
        return self.sensitivity, self.scale

    def with_noise_times(self, factor: float) -> LaplaceSum:
        """Ask for the sum with `factor` times the scale."""
        return replace(self, scale=self.scale * factor)


@dataclass(frozen=True, slots=True)
class ExponentialChoice(Query):
    """One candidate, chosen with probability proportional to exp(score/scale) (the exponential
    mechanism).

    Args:
        group: name of the choice.
        sensitivity: largest change of any one score, see rule 5 above.
        scale: temperature, in the unit of the scores.
    """

    group: str
    sensitivity: float
    scale: float

    kind: ClassVar[str] = "exponential-choice"

    def __post_init__(self) -> None:
        _set(self, "group", check.label("ExponentialChoice", "group", self.group))
        _set(
            self,
            "sensitivity",
            check.positive("ExponentialChoice", "sensitivity", self.sensitivity),
        )
        _set(self, "scale", check.positive("ExponentialChoice", "scale", self.scale))

    @property
    def phrase(self) -> str:
        """The words of a report."""
        return "choice of one candidate by the exponential mechanism"

    @property
    def sensitivity_and_noise(self) -> tuple[float, float]:
        """The largest change of a score, and the temperature."""
        # That the normaliser moves as well, which doubles the loss, is left to the accountant.
        return self.sensitivity, self.scale

    def with_noise_times(self, factor: float) -> ExponentialChoice:
        """Choose at `factor` times the temperature."""
        return replace(self, scale=self.scale * factor)


@dataclass(frozen=True, slots=True)
class RandomizedResponse(Query):
    """Every record reports one of `categories` values: its own with `truth_probability`, else one
    of the others, uniformly.

    Args:
        group: name of the answer.
        categories: number of possible values, at least 2.
        truth_probability: in [1/categories, 1).
    """

    group: str
    categories: int
    truth_probability: float

    kind: ClassVar[str] = "randomized-response"

    def __post_init__(self) -> None:
        owner = "RandomizedResponse"
        categories = check.whole(owner, "categories", self.categories, least=2)
        truth = check.fraction(owner, "truth_probability", self.truth_probability)

        # Below, the true answer would be the rarest one, and its loss not the largest.
        if truth < 1.0 / categories:
            expected = f"at least 1/categories = {1.0 / categories:.6g}"
            raise ParameterError(
                owner=owner, name="truth_probability", expected=expected, got=repr(truth)
            )

        _set(self, "group", check.label(owner, "group", self.group))
        _set(self, "categories", categories)
        _set(self, "truth_probability", truth)

    @property
    def phrase(self) -> str:
        """The words of a report."""
        return (
            f"randomised response: one of {self.categories} answers, the true one with "
            f"probability {self.truth_probability!r}"
        )

    @property
    def sensitivity_and_noise(self) -> None:
        """None: an answer is drawn, and nothing is added to it."""
        return


@dataclass(frozen=True, slots=True)
class CorrelatedGaussianSum(Query):
    """A series of `rounds` sums with correlated noise (matrix factorisation, DP-FTRL), charged
    once, before its first round.

    With strategy matrix C the release is a function of C x + z, z spherical Gaussian; it is one
    Gaussian query with L2 sensitivity `sensitivity * strategy_sensitivity`.

    Args:
        group: name of the group.
        sensitivity: L2 bound on one unit's contribution to one round's sum, see rule 5 above.
        noise_std: standard deviation of z, in the sum's unit.
        strategy_sensitivity: max over participation patterns u of ||C u||_2, for the pattern stated
            below.
        rounds: number of rounds in the series.
        participations: most rounds that one unit takes part in.
        separation: fewest rounds from one participation of a unit to its next; 1 allows consecutive
            rounds.
    """

    group: str
    sensitivity: float
    noise_std: float
    strategy_sensitivity: float
    rounds: int
    participations: int
    separation: int

    kind: ClassVar[str] = "correlated-gaussian-sum"

    def __post_init__(self) -> None:
        owner = "CorrelatedGaussianSum"
        rounds = check.whole(owner, "rounds", self.rounds, least=1)
        participations = check.whole(owner, "participations", self.participations, least=1)
        separation = check.whole(owner, "separation", self.separation, least=1)

        # At the earliest possible round, the last participation must still be in the series.
        if (participations - 1) * separation >= rounds:
            expected = f"few enough to fit: (participations - 1) * separation < rounds={rounds}"
            got = f"{participations} with separation {separation}"
            raise ParameterError(owner=owner, name="participations", expected=expected, got=got)

        # That `strategy_sensitivity` belongs to this pattern is on the word of whoever made C.
        _set(self, "group", check.label(owner, "group", self.group))
        _set(self, "sensitivity", check.positive(owner, "sensitivity", self.sensitivity))
        _set(self, "noise_std", check.positive(owner, "noise_std", self.noise_std))
        _set(
            self,
            "strategy_sensitivity",
            check.positive(owner, "strategy_sensitivity", self.strategy_sensitivity),
        )
        _set(self, "rounds", rounds)
        _set(self, "participations", participations)
        _set(self, "separation", separation)

    @property
    def phrase(self) -> str:
        """The words of a report."""
        # Whole numbers without a point, as long as float64 tells them from their neighbours.
        strategy = self.strategy_sensitivity
        size = f"{strategy:.0f}" if strategy.is_integer() and strategy < 1e15 else repr(strategy)
        rounds = "1 round" if self.participations == 1 else f"{self.participations:,} rounds"
        pattern = f"each unit in at most {rounds}, at least {self.separation} apart"
        return (
            f"{self.rounds} sums with correlated Gaussian noise (strategy sensitivity {size}; "
            f"{pattern})"
        )

    @property
    def sensitivity_and_noise(self) -> tuple[float, float]:
        """One round's sensitivity, and the noise before it is correlated."""
        # In the unit of one round, for people; what counts is the series, in `gaussian_cost`.
        return self.sensitivity, self.noise_std

    @property
    def gaussian_cost(self) -> Fraction:
        """The whole series as one query of Eq. 1: ||C u|| sensitivities against z."""
        # Valid also where later rounds depend on earlier releases [DenisovEtAl2022].
        total = Fraction(self.sensitivity) * Fraction(self.strategy_sensitivity)
        return (total / Fraction(self.noise_std)) ** 2

    def with_noise_times(self, factor: float) -> CorrelatedGaussianSum:
        """Ask for the series with `factor` times the noise."""
        return replace(self, noise_std=self.noise_std * factor)


# Closed like `SAMPLINGS`: a ledger of today must mean the same for every later version.
QUERIES: tuple[type[Query], ...] = (
    GaussianSum,
    LaplaceSum,
    ExponentialChoice,
    RandomizedResponse,
    CorrelatedGaussianSum,
)
"""The closed list of queries."""
