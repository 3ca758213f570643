"""On what data parameters are tuned: it decides what a trial costs, and what the report says."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger import Ledger, Rule
from discreet.units import Parameters

__all__ = ["Data", "Private", "Public", "Synthetic"]


@dataclass(frozen=True, slots=True)
class Public:
    """Data that anybody may see. A trial costs nothing; that the data are public is the word of
    whoever says so.

    Args:
        name: of the data set.
        about: where it comes from, and why it is like the private data.

    >>> Public("Fashion-MNIST", "images of the same size and number of classes").name
    'Fashion-MNIST'
    """

    name: str
    about: str = ""

    def __post_init__(self) -> None:
        _check_texts("Public", self.name, self.about)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Data that were made up. A trial costs nothing if they owe nothing to the private data.

    Data that were generated from the private ones are private, unless the generator itself was
    charged to their ledger.

    Args:
        name: of the data set.
        about: how it was made.
    """

    name: str
    about: str = ""

    def __post_init__(self) -> None:
        _check_texts("Synthetic", self.name, self.about)


@dataclass(frozen=True, slots=True, eq=False)
class Private:
    """The data that are to be protected. Every trial and every score is charged to their ledger,
    within its budget.

    Args:
        ledger: of the data set, open to append. What is tried next may depend on what came out, so
            it is held to a `Filter` or an `Odometer`; or, where all trials are fixed in advance, to
            a `Budget` whose plans are `planned_trials`.
        name: of the data set; public.
        about: anything worth knowing; public.
        records: number of validation records [public]. As everywhere, a record holds everything of
            one unit.
        noise_std: of the noise on the number of right answers; the noise on the score is noise_std
            / records.

    >>> from discreet.budget import Filter
    >>> ledger = Ledger.in_memory(budget=Filter(epsilon=3.0, delta=1e-6))
    >>> Private(ledger, "patients", records=2_000, noise_std=20.0).score_noise
    0.01
    """

    ledger: Ledger
    name: str
    about: str = ""
    _: KW_ONLY
    records: int
    noise_std: float

    def __post_init__(self) -> None:
        owner = "Private"
        _check_texts(owner, self.name, self.about)
        object.__setattr__(self, "records", check.whole(owner, "records", self.records, least=1))
        object.__setattr__(self, "noise_std", check.positive(owner, "noise_std", self.noise_std))
        terms = check.instance(owner, "ledger", self.ledger, Ledger).terms

        # A list that the first run settles would hold the first trial and nothing else, not even
        # its score.
        if terms is None or (terms.rule is Rule.LIST and not terms.complete):
            raise ParameterError(
                owner=owner,
                name="ledger",
                expected=(
                    "one that is held to a filter, an odometer, or a list of all trials and their "
                    "scores"
                ),
                got="a ledger that is for the steps of its first run",
                do=(
                    "Open it with budget=dp.Filter(epsilon=..., delta=...), as what is tried next "
                    "may depend on what came out; or with "
                    "budget=dp.Budget(plans=planned_trials(...)), if all of it is fixed now."
                ),
            )

    @property
    def parameters(self) -> Parameters:
        """What the runs of trials and scores declare: that they were fixed in advance, where the
        ledger holds them to it.
        """
        # A list refuses whatever is not on it, so that what it admits was fixed. A filter or an
        # odometer holds whatever was chosen, and nothing less may be declared under it (P39).
        terms = self.ledger.terms
        listed = terms is not None and terms.rule is Rule.LIST
        return Parameters.FIXED_IN_ADVANCE if listed else Parameters.CHOSEN_FROM_OUTPUTS

    @property
    def score_noise(self) -> float:
        """Standard deviation of the noise on a score."""
        return self.noise_std / self.records


Data: TypeAlias = Public | Synthetic | Private


def _check_texts(owner: str, name: object, about: object) -> None:
    check.label(owner, "name", name)
    check.label(owner, "about", about, empty=True)
