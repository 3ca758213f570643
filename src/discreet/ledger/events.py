"""The vocabulary of what can happen to data: how a sample was drawn, and what was asked of it.

Constitution of this file:

1.  An event is never removed, renamed or given another meaning. A new meaning is a new name.
2.  The vocabulary is closed. Whoever reads an event it does not know refuses; nobody subclasses.
3.  An event holds public values only: what was planned and executed, never what was seen in the
    data (no realised batch size, no norm, no loss, no key).
4.  An event is frozen, hashable and equal by value. Numbers are normalised to float64 or int on
    construction, so 1, 1.0, np.float32(1) and np.int64(1) make one event.
5.  **One convention for sensitivity, for every adjacency**: it is the largest change of the sum (L2
    for Gaussian, L1 for Laplace, of any score for a choice) when one unit of the sample is *added,
    removed or zeroed out*. Replace-one is one removal and one addition; the accountant, and nobody
    else, derives it from this number.
6.  A `Step` is one draw of a sampling policy with every query asked of that draw. A count of k
    means that the step was executed k times with independent draws and independent noise;
    composition of k equal steps is therefore always k-fold composition. Where a policy draws once
    per epoch (`Shuffled`, `BallsInBins`), the step is the epoch.

References: [McMahan2018, sections 3, 5 and 6] resolved in docs/references.bib.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = [
    "BallsInBins",
    "CorrelatedGaussianSum",
    "Everything",
    "ExponentialChoice",
    "FixedSize",
    "GaussianSum",
    "LaplaceSum",
    "Poisson",
    "Query",
    "RandomizedResponse",
    "Sampling",
    "Shuffled",
    "Step",
    "TruncatedPoisson",
]


_set = object.__setattr__  # writes the normalised fields of a frozen event during its construction

# --- how the sample was drawn
# ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everything:
    """Every record, in every step: full batch, no amplification."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each record enters independently with the same probability; the sample may be empty.

    Args:
        probability: in (0, 1]; 1 draws the same sample as `Everything`.
    """

    probability: float

    def __post_init__(self) -> None:
        _set(
            self,
            "probability",
            check.fraction("Poisson", "probability", self.probability, one=True),
        )


@dataclass(frozen=True, slots=True)
class TruncatedPoisson:
    """A Poisson sample; if it exceeds `limit`, a uniformly random subset of `limit` records is
    kept.

    Args:
        probability: of each record, before truncation, in (0, 1].
        limit: largest sample, in records.
        records: size of the data set, declared public.
    """

    probability: float
    limit: int
    records: int

    def __post_init__(self) -> None:
        owner = "TruncatedPoisson"
        _set(self, "probability", check.fraction(owner, "probability", self.probability, one=True))
        _set(self, "limit", check.whole(owner, "limit", self.limit, least=1))
        _set(self, "records", check.whole(owner, "records", self.records, least=1))


@dataclass(frozen=True, slots=True)
class FixedSize:
    """A uniformly random subset of exactly `size` of the `records` records, without replacement,
    anew in each step.
    """

    size: int
    records: int

    def __post_init__(self) -> None:
        records = check.whole("FixedSize", "records", self.records, least=1)
        size = check.whole("FixedSize", "size", self.size, least=1)
        if size > records:
            raise ParameterError(
                owner="FixedSize", name="size", expected=f"at most records={records}", got=str(size)
            )
        _set(self, "size", size)
        _set(self, "records", records)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """One epoch: a random permutation cut into `batches` disjoint batches; every query is asked of
    every batch.

    The step is the whole epoch, because the permutation is drawn once. A run of one and a half
    epochs is two steps.

    Args:
        batches: number of batches in one epoch.
    """

    batches: int

    def __post_init__(self) -> None:
        _set(self, "batches", check.whole("Shuffled", "batches", self.batches, least=1))


@dataclass(frozen=True, slots=True)
class BallsInBins:
    """One epoch: each record is put, independently and uniformly, into one of `batches` batches;
    queries as in `Shuffled`.

    Args:
        batches: number of batches in one epoch.
    """

    batches: int

    def __post_init__(self) -> None:
        _set(self, "batches", check.whole("BallsInBins", "batches", self.batches, least=1))


Sampling: TypeAlias = Everything | Poisson | TruncatedPoisson | FixedSize | Shuffled | BallsInBins


# --- what was asked of the sample
# --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GaussianSum:
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

    def __post_init__(self) -> None:
        _set(self, "group", check.label("GaussianSum", "group", self.group))
        _set(self, "sensitivity", check.positive("GaussianSum", "sensitivity", self.sensitivity))
        _set(self, "noise_std", check.positive("GaussianSum", "noise_std", self.noise_std))


@dataclass(frozen=True, slots=True)
class LaplaceSum:
    """A sum of vectors plus independent Laplace noise on every coordinate.

    Args:
        group: name of the group.
        sensitivity: L1, see rule 5 above.
        scale: the b of the density exp(-|x|/b)/(2b); its standard deviation is b*sqrt(2).
    """

    group: str
    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        _set(self, "group", check.label("LaplaceSum", "group", self.group))
        _set(self, "sensitivity", check.positive("LaplaceSum", "sensitivity", self.sensitivity))
        _set(self, "scale", check.positive("LaplaceSum", "scale", self.scale))


@dataclass(frozen=True, slots=True)
class ExponentialChoice:
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

    def __post_init__(self) -> None:
        _set(self, "group", check.label("ExponentialChoice", "group", self.group))
        _set(
            self,
            "sensitivity",
            check.positive("ExponentialChoice", "sensitivity", self.sensitivity),
        )
        _set(self, "scale", check.positive("ExponentialChoice", "scale", self.scale))


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
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

    def __post_init__(self) -> None:
        owner = "RandomizedResponse"
        categories = check.whole(owner, "categories", self.categories, least=2)
        truth = check.fraction(owner, "truth_probability", self.truth_probability)
        if truth < 1.0 / categories:
            expected = f"at least 1/categories = {1.0 / categories:.6g}"
            raise ParameterError(
                owner=owner, name="truth_probability", expected=expected, got=repr(truth)
            )
        _set(self, "group", check.label(owner, "group", self.group))
        _set(self, "categories", categories)
        _set(self, "truth_probability", truth)


@dataclass(frozen=True, slots=True)
class CorrelatedGaussianSum:
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

    def __post_init__(self) -> None:
        owner = "CorrelatedGaussianSum"
        rounds = check.whole(owner, "rounds", self.rounds, least=1)
        participations = check.whole(owner, "participations", self.participations, least=1)
        separation = check.whole(owner, "separation", self.separation, least=1)
        if (participations - 1) * separation >= rounds:
            expected = f"few enough to fit: (participations - 1) * separation < rounds={rounds}"
            got = f"{participations} with separation {separation}"
            raise ParameterError(owner=owner, name="participations", expected=expected, got=got)
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


Query: TypeAlias = (
    GaussianSum | LaplaceSum | ExponentialChoice | RandomizedResponse | CorrelatedGaussianSum
)


# --- one draw with all its queries
# -------------------------------------------------------------------------------

_SAMPLINGS: tuple[type, ...] = (
    Everything,
    Poisson,
    TruncatedPoisson,
    FixedSize,
    Shuffled,
    BallsInBins,
)
_group = attrgetter("group")
_QUERIES: tuple[type, ...] = (
    GaussianSum,
    LaplaceSum,
    ExponentialChoice,
    RandomizedResponse,
    CorrelatedGaussianSum,
)


@dataclass(frozen=True, slots=True, init=False)
class Step:
    """One draw of a sample, and every query asked of it.

    Queries are kept in the order of their group names, so the order in which they were asked does
    not make another step.

    Args:
        sampling: how the sample was drawn.
        queries: one or several, each with a group of its own.

    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1, noise_std=2)])
    >>> step == Step(Poisson(0.01), (GaussianSum("grad", 1.0, 2.0),))
    True
    """

    sampling: Sampling
    queries: tuple[Query, ...]

    def __init__(self, sampling: Sampling, queries: Iterable[Query] | Query) -> None:
        check.member("Step", "sampling", sampling, _SAMPLINGS)
        asked = list(queries) if isinstance(queries, Iterable) else [queries]
        for query in asked:
            check.member("Step", "queries", query, _QUERIES)
        asked.sort(key=_group)
        if not asked or any(one.group == two.group for one, two in pairwise(asked)):
            expected = "one query or more, each with a group name of its own"
            got = f"groups {[query.group for query in asked]}"
            raise ParameterError(owner="Step", name="queries", expected=expected, got=got)
        _set(self, "sampling", sampling)
        _set(self, "queries", tuple(asked))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups asked for, in order."""
        return tuple(query.group for query in self.queries)
