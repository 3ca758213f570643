"""The six sampling policies: how the sample of a step is drawn, and everything a policy knows about
itself.

The rules of the package's header hold here: the list is closed, no meaning ever changes, and every
field is public. A policy answers the questions of all other rooms (how many batches, how large, in
which words, does it amplify), so that none of them asks which policy it is. Only three things about
a policy live elsewhere, each as one entry of one table: how positions are drawn
(`sampling/_policies.py`), what a Gaussian sum over it costs (`accounting/normalise.py`), and the
analyses behind that cost (`accounting/tight`, `accounting/rdp`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events.event import Event
from discreet.units import Adjacency

__all__ = [
    "SAMPLINGS",
    "BallsInBins",
    "Everything",
    "FixedSize",
    "Poisson",
    "Sampling",
    "Shuffled",
    "TruncatedPoisson",
]

_set = object.__setattr__  # writes the normalised fields of a frozen event during its construction


class Sampling(Event):
    """One way to draw the sample of a step. Closed: nobody outside this file derives from it.

    Attributes:
        how_drawn: one sentence that says what happens to each record, for people.
        records_are_independent: whether each record is drawn for itself, whoever else is drawn.
        worst_shift: how far one unit can move the mean of a sum, in units of its sensitivity: 2
            where another record takes the place of one that is not drawn.
    """

    __slots__ = ()

    how_drawn: ClassVar[str]
    records_are_independent: ClassVar[bool] = False
    worst_shift: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def phrase(self) -> str:
        """The policy with its numbers, as guarantees and reports name it."""

    @property
    @abstractmethod
    def inclusion_probability(self) -> float:
        """How likely one record is in one batch, before anything is cut; the largest, if records
        differ.
        """

    @property
    def is_full_batch(self) -> bool:
        """Whether every record is in every sample, for any number of records."""
        return False

    @property
    def batches_per_step(self) -> int:
        """How many batches one step has: 1, unless a whole epoch is drawn at once. Every record is
        then in exactly one of them.
        """
        return 1

    @property
    def stated_records(self) -> int | None:
        """The number of records that the policy itself names; None if it holds for any number."""
        return None

    def expected_batch_size(self, records: int, /) -> float:
        """The public divisor of sums: expected records in one batch, before anything is cut."""
        return self.inclusion_probability * records

    def largest_batch(self, records: int, /) -> int:
        """The most records that one batch can hold."""
        return records

    def smallest_batch(self, records: int, /) -> int:
        """The fewest records that one batch can hold."""
        return records if self.is_full_batch else 0

    @abstractmethod
    def amplifies(self, adjacency: Adjacency, /) -> bool:
        """Whether the analysis counts on an attacker not knowing who was in a sample."""

    def displaces(self, _: Adjacency, /) -> bool:
        """Whether one record more can push another out of a sample: two contributions change."""
        return False


@dataclass(frozen=True, slots=True)
class Everything(Sampling):
    """Every record, in every step: full batch, no amplification."""

    kind: ClassVar[str] = "everything"
    how_drawn: ClassVar[str] = "Every record is in every sample, so no amplification is claimed."
    records_are_independent: ClassVar[bool] = True

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        return "full batch"

    @property
    def is_full_batch(self) -> bool:
        """Always: that is what it says."""
        return True

    @property
    def inclusion_probability(self) -> float:
        """Always 1: every record is in."""
        return 1.0

    def amplifies(self, _: Adjacency, /) -> bool:
        """Never: everybody knows who is in."""
        return False


@dataclass(frozen=True, slots=True)
class Poisson(Sampling):
    """Each record enters independently with the same probability; the sample may be empty.

    Args:
        probability: in (0, 1]; 1 draws the same sample as `Everything`.
    """

    probability: float

    kind: ClassVar[str] = "poisson"
    how_drawn: ClassVar[str] = "Each record enters each sample by a coin of its own."
    records_are_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _set(
            self,
            "probability",
            check.fraction("Poisson", "probability", self.probability, one=True),
        )

    @property
    def is_full_batch(self) -> bool:
        """Whether the coin has no tails."""
        return self.probability == 1.0

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        return f"Poisson with probability {self.probability!r}"

    @property
    def inclusion_probability(self) -> float:
        """The probability of every coin."""
        return self.probability

    def amplifies(self, _: Adjacency, /) -> bool:
        """Whenever the coin has two sides."""
        return self.probability < 1.0


@dataclass(frozen=True, slots=True)
class TruncatedPoisson(Sampling):
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

    kind: ClassVar[str] = "truncated-poisson"
    how_drawn: ClassVar[str] = (
        "Each record enters by a coin of its own, and a sample above the limit keeps a "
        "random subset."
    )

    def __post_init__(self) -> None:
        owner = "TruncatedPoisson"
        _set(self, "probability", check.fraction(owner, "probability", self.probability, one=True))
        _set(self, "limit", check.whole(owner, "limit", self.limit, least=1))
        _set(self, "records", check.whole(owner, "records", self.records, least=1))

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        cut = f"cut at {self.limit} of {self.records} records"
        return f"Poisson with probability {self.probability!r} {cut}"

    @property
    def inclusion_probability(self) -> float:
        """The probability of every coin, before a sample is cut."""
        return self.probability

    @property
    def stated_records(self) -> int:
        """The number of records that the event names."""
        return self.records

    def largest_batch(self, _: int, /) -> int:
        """The limit, whatever the number of records: margins must not depend on it."""
        return self.limit

    def smallest_batch(self, records: int, /) -> int:
        """No record, unless every coin shows heads."""
        return min(self.limit, records) if self.probability == 1.0 else 0

    def amplifies(self, _: Adjacency, /) -> bool:
        """Whenever a record can be left out, by its coin or by the cut."""
        return self.probability < 1.0 or self.limit < self.records

    def displaces(self, adjacency: Adjacency, /) -> bool:
        """A full sample loses a record when one more comes in; a zeroed one keeps its place."""
        return adjacency is Adjacency.ADD_OR_REMOVE and self.limit <= self.records


@dataclass(frozen=True, slots=True)
class FixedSize(Sampling):
    """A uniformly random subset of exactly `size` of the `records` records, without replacement,
    anew in each step.
    """

    size: int
    records: int

    kind: ClassVar[str] = "fixed-size"
    how_drawn: ClassVar[str] = "Each sample is a random subset of fixed size, drawn anew."
    worst_shift: ClassVar[float] = 2.0  # a record that is not drawn gives its place to another

    def __post_init__(self) -> None:
        records = check.whole("FixedSize", "records", self.records, least=1)
        size = check.whole("FixedSize", "size", self.size, least=1)
        if size > records:
            raise ParameterError(
                owner="FixedSize", name="size", expected=f"at most records={records}", got=str(size)
            )
        _set(self, "size", size)
        _set(self, "records", records)

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        return f"{self.size} of {self.records} records without replacement"

    @property
    def inclusion_probability(self) -> float:
        """The share of the records that is drawn."""
        return self.size / self.records

    @property
    def stated_records(self) -> int:
        """The number of records that the event names."""
        return self.records

    def expected_batch_size(self, _: int, /) -> float:
        """The size itself, exactly: every sample has it."""
        return float(self.size)

    def largest_batch(self, _: int, /) -> int:
        """The size: every sample has it."""
        return self.size

    def smallest_batch(self, _: int, /) -> int:
        """The size: every sample has it."""
        return self.size

    def amplifies(self, _: Adjacency, /) -> bool:
        """Whenever some records are left out."""
        return self.size < self.records


class _Epoch(Sampling):
    """What policies share whose step is an epoch: every record is in one of its batches."""

    __slots__ = ()

    batches: int

    @property
    def inclusion_probability(self) -> float:
        """One batch of the epoch, each as likely as the others."""
        return 1.0 / self.batches

    @property
    def batches_per_step(self) -> int:
        """All batches of the epoch."""
        return self.batches

    def expected_batch_size(self, records: int, /) -> float:
        """The records of an epoch, shared out."""
        return records / self.batches


@dataclass(frozen=True, slots=True)
class Shuffled(_Epoch):
    """One epoch: a random permutation cut into `batches` disjoint batches; every query is asked of
    every batch.

    The step is the whole epoch, because the permutation is drawn once. A run of one and a half
    epochs is two steps.

    Args:
        batches: number of batches in one epoch.
    """

    batches: int

    kind: ClassVar[str] = "shuffled"
    how_drawn: ClassVar[str] = (
        "Each epoch is one random permutation, cut into batches; no amplification is "
        "claimed for it."
    )

    def __post_init__(self) -> None:
        _set(self, "batches", check.whole("Shuffled", "batches", self.batches, least=1))

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        return f"shuffled epochs of {self.batches} batches (no amplification)"

    def smallest_batch(self, records: int, /) -> int:
        """The records shared out, rounded down."""
        return records // self.batches

    def amplifies(self, _: Adjacency, /) -> bool:
        """Never: no analysis that is used here claims it."""
        return False


@dataclass(frozen=True, slots=True)
class BallsInBins(_Epoch):
    """One epoch: each record is put, independently and uniformly, into one of `batches` batches;
    queries as in `Shuffled`.

    Args:
        batches: number of batches in one epoch.
    """

    batches: int

    kind: ClassVar[str] = "balls-in-bins"
    how_drawn: ClassVar[str] = "In each epoch every record goes into one batch, chosen by itself."
    records_are_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _set(self, "batches", check.whole("BallsInBins", "batches", self.batches, least=1))

    @property
    def phrase(self) -> str:
        """The words of a guarantee."""
        return f"balls in bins, epochs of {self.batches} batches"

    def amplifies(self, adjacency: Adjacency, /) -> bool:
        """With several batches, and not where a record is exchanged for another."""
        return self.batches > 1 and adjacency is not Adjacency.REPLACE_ONE


SAMPLINGS: tuple[type[Sampling], ...] = (
    Everything,
    Poisson,
    TruncatedPoisson,
    FixedSize,
    Shuffled,
    BallsInBins,
)
"""The closed list of policies."""
