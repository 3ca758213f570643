"""To and from the events of dp-accounting, so that a result can be checked by another library.

Their conventions differ from ours, and from each other (P35). With s the noise multiplier of our
event vocabulary (noise over the change when one unit is added or removed):

| adjacency | sampling | for their RDP accountant | for their PLD accountant |
|---|---|---|---|
| add-or-remove, zero-out | none, Poisson | s | s |
| replace-one | none | s/2 (it takes the number as it is) | s (it doubles the sensitivity itself) |
| replace-one | Poisson | refuses | s (it doubles the sensitivity itself) |
| zero-out, replace-one | fixed size | s/2, REPLACE_ONE only | refuses |

So an export names the accountant that it is for. Their PLD accountant ignores the count of
randomized response (P33); it is exported as that many separate events. What they have no event for
is refused, not approximated.

Events travel as plain descriptions, `{"class": ..., field: ...}`; only `to_dp_event` needs
dp-accounting itself.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from discreet import _validate as check
from discreet.accounting.costs import (
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.accounting.normalise import normalise
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import (
    Everything,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Query,
    RandomizedResponse,
    Step,
    TruncatedPoisson,
)
from discreet.units import Adjacency

__all__ = ["Description", "Exported", "describe", "described_steps", "from_dp_event", "to_dp_event"]

Description: TypeAlias = Mapping[str, Any]

# Randomized responses that are written out one by one; a list of millions helps nobody.
_MOST_COPIES = 1000


@dataclass(frozen=True, slots=True)
class Exported:
    """A description with the neighbouring relation under which the other accountant must be asked.

    Args:
        event: description of a DpEvent.
        relation: name in their `NeighborRel`.
    """

    event: Description
    relation: str


def describe(
    steps: Iterable[tuple[Step, int]], *, adjacency: Adjacency, accountant: str
) -> Exported:
    """The steps as one event for their accountant "pld" or "rdp".

    >>> from discreet.ledger.events import GaussianSum, Poisson, Step
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", 2.0, 3.0)])
    >>> exported = describe([(step, 5)], adjacency=Adjacency.ADD_OR_REMOVE, accountant="pld")
    >>> exported.event["events"][0]["count"]
    5
    """
    _check_accountant("describe", accountant)

    # Their samples of fixed size exist under replace-one alone. Our cost of such a step is the
    # same under zero-out, so it may be asked there; beside other steps it would be wrong for them.
    counted = normalise(steps, adjacency)
    fixed_size = any(isinstance(cost, FixedSizeGaussian) for cost, _ in counted)
    replace = adjacency is Adjacency.REPLACE_ONE or fixed_size
    if fixed_size and adjacency is not Adjacency.REPLACE_ONE and len(counted) > 1:
        raise _no_event("a mixture of fixed-size and other steps under zero-out")

    events = [
        _described(cost, count, replace=replace, accountant=accountant) for cost, count in counted
    ]
    return Exported(
        {"class": "ComposedDpEvent", "events": events},
        # They have no zero-out: where its pairs are those of add-or-remove, that is asked for.
        "REPLACE_ONE" if replace else "ADD_OR_REMOVE_ONE",
    )


def to_dp_event(
    steps: Iterable[tuple[Step, int]], *, adjacency: Adjacency, accountant: str
) -> tuple[Any, Any]:
    """A real DpEvent and NeighborRel; needs the package dp-accounting."""
    exported = describe(steps, adjacency=adjacency, accountant=accountant)

    try:
        library = importlib.import_module("dp_accounting")
    except ImportError as error:
        raise AccountingError(
            expected="the package dp-accounting",
            got=f"{error}",
            do="Install it: pip install dp-accounting.",
        ) from error

    return _built(exported.event, library), library.NeighboringRelation[exported.relation]


def from_dp_event(
    event: object, *, adjacency: Adjacency, accountant: str
) -> tuple[tuple[Step, int], ...]:
    """Our steps for one of their events, read as `accountant` ("pld" or "rdp") would read it under
    `adjacency`.

    Needs no import: the event's class is read by name, its fields by attribute, and anything
        unknown is refused.
    """
    return described_steps(_read(event), adjacency=adjacency, accountant=accountant)


def described_steps(
    description: Description, *, adjacency: Adjacency, accountant: str
) -> tuple[tuple[Step, int], ...]:
    """Our steps for a description; see `from_dp_event`."""
    _check_accountant("steps_of", accountant)

    # Their number times this is ours: RDP under replace-one takes noise over the doubled
    # sensitivity.
    scale = 2.0 if adjacency is Adjacency.REPLACE_ONE and accountant == "rdp" else 1.0
    return tuple(_steps(description, scale, adjacency))


def _check_accountant(owner: str, accountant: str) -> None:
    if accountant not in ("pld", "rdp"):
        raise ParameterError(
            owner=owner, name="accountant", expected="'pld' or 'rdp'", got=repr(accountant)
        )


def _described(cost: Cost, count: int, *, replace: bool, accountant: str) -> Description:
    pld = accountant == "pld"
    event = _single_event(cost, replace=replace, pld=pld)
    if event is None:
        relation = "replace-one" if replace else "add-or-remove"
        raise _no_event(f"{cost!r} under {relation} for the {accountant.upper()} accountant")

    # Their PLD accountant ignores the count of a randomized response: it is spelled out.
    if pld and isinstance(cost, Response):
        if count > _MOST_COPIES:
            raise _no_event(
                f"{count} randomized responses, whose count their PLD accountant ignores"
            )

        return {"class": "ComposedDpEvent", "events": [event] * count}

    return {"class": "SelfComposedDpEvent", "event": event, "count": count}


def _single_event(  # noqa: PLR0911  (one for each kind of cost)
    cost: Cost, *, replace: bool, pld: bool
) -> Description | None:
    """The event that one of their accountants reads as this cost; None where there is none."""
    match cost:
        case Gaussian(noise_multiplier=noise):
            # Our cost has the doubled sensitivity of replace-one inside, as their RDP expects it.
            # Their PLD doubles by itself, so it is given the noise of the undoubled sum.
            return _gaussian(noise * 2.0 if replace and pld else noise)
        case PoissonGaussian(probability=probability, noise_multiplier=noise) if pld or not replace:
            # Our noise is that of the undoubled sum under every adjacency: nothing is converted.
            return {
                "class": "PoissonSampledDpEvent",
                "sampling_probability": probability,
                "event": _gaussian(noise),
            }
        case TruncatedPoissonGaussian(zero_out=False) if pld:
            # Not under zero-out: a zeroed record keeps its place in a full sample, a removed one
            # does not, and they know only the second.
            return {
                "class": "TruncatedSubsampledGaussianDpEvent",
                "dataset_size": cost.records,
                "sampling_probability": cost.probability,
                "truncated_batch_size": cost.limit,
                "noise_multiplier": cost.noise_multiplier,
            }
        case FixedSizeGaussian(size=size, records=records, noise_multiplier=noise) if not pld:
            # They take the noise over the change by a replacement, which is twice the sensitivity
            # that our multiplier refers to.
            return {
                "class": "SampledWithoutReplacementDpEvent",
                "source_dataset_size": records,
                "sample_size": size,
                "event": _gaussian(noise / 2.0),
            }
        case Laplace(noise_multiplier=noise) if not (replace and pld):
            return {"class": "LaplaceDpEvent", "noise_multiplier": noise}

        case Response(categories=categories, truth_probability=truth):
            # With probability `noise` they answer uniformly, which may again be the truth.
            noise = (1.0 - truth) * categories / (categories - 1)
            return {
                "class": "RandomizedResponseDpEvent",
                "noise_parameter": noise,
                "num_buckets": categories,
            }

        case _:
            return None


def _gaussian(noise: float) -> Description:
    return {"class": "GaussianDpEvent", "noise_multiplier": noise}


def _no_event(what: str) -> AccountingError:
    return AccountingError(
        expected="steps that dp-accounting has a valid event for",
        got=what,
        do="Export the other steps alone, or ask its other accountant.",
    )


def _built(description: Description, library: Any) -> Any:
    fields = {
        name: _value(value, library) for name, value in description.items() if name != "class"
    }
    return getattr(library, description["class"])(**fields)


def _value(value: Any, library: Any) -> Any:
    if isinstance(value, Mapping):
        return _built(value, library)

    if isinstance(value, list):
        return [_value(item, library) for item in value]

    return value


# Every event of theirs that has an equal in our vocabulary, with the fields that are read of it.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "NoOpDpEvent": (),
    "GaussianDpEvent": ("noise_multiplier",),
    "LaplaceDpEvent": ("noise_multiplier",),
    "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "TruncatedSubsampledGaussianDpEvent": (
        "dataset_size",
        "sampling_probability",
        "truncated_batch_size",
        "noise_multiplier",
    ),
    "SelfComposedDpEvent": ("event", "count"),
    "ComposedDpEvent": ("events",),
}


def _read(event: object) -> Description:
    name = type(event).__name__
    if name not in _FIELDS:
        raise _not_ours(name)

    description: dict[str, Any] = {"class": name}

    for field in _FIELDS[name]:
        value = getattr(event, field)
        if field == "event":
            value = _read(value)
        elif field == "events":
            value = [_read(item) for item in value]

        description[field] = value

    return description


def _not_ours(name: str) -> AccountingError:
    return AccountingError(
        expected=f"one of {', '.join(sorted(_FIELDS))}",
        got=name,
        do="Only events with an equal in our vocabulary are read.",
    )


def _leaves(
    description: Description, times: int, *, least: int
) -> Iterator[tuple[Description, int]]:
    """The events inside all compositions, in order, and how often each is to be taken.

    Args:
        description: of an event, composed or not.
        times: how often the whole is taken.
        least: the smallest count that a composition may have.
    """
    name = description["class"]
    if name == "SelfComposedDpEvent":
        count = check.whole(name, "count", description["count"], least=least)
        yield from _leaves(description["event"], times * count, least=least)
    elif name == "ComposedDpEvent":
        for event in description["events"]:
            yield from _leaves(event, times, least=least)
    else:
        yield description, times


def _steps(
    description: Description, scale: float, adjacency: Adjacency
) -> Iterator[tuple[Step, int]]:
    # A count of 0 is no error here: the step is named, and never taken.
    for event, times in _leaves(description, 1, least=0):
        name = event["class"]
        if name not in _FIELDS:
            raise _not_ours(str(name))

        if name != "NoOpDpEvent":
            yield _one_step(event, scale, adjacency), times


def _one_step(description: Description, scale: float, adjacency: Adjacency) -> Step:
    match description["class"]:
        case "PoissonSampledDpEvent":
            return Step(
                Poisson(description["sampling_probability"]),
                _gaussians(description["event"], scale),
            )

        case "SampledWithoutReplacementDpEvent":
            # Read under another relation, the same event would mean something else.
            if adjacency is not Adjacency.REPLACE_ONE:
                raise _no_event(
                    "sampling without replacement, which dp-accounting has under replace-one only"
                )

            return Step(
                FixedSize(description["sample_size"], description["source_dataset_size"]),
                _gaussians(description["event"], scale),
            )

        case "TruncatedSubsampledGaussianDpEvent":
            return Step(
                TruncatedPoisson(
                    description["sampling_probability"],
                    description["truncated_batch_size"],
                    description["dataset_size"],
                ),
                GaussianSum("sum", 1.0, scale * description["noise_multiplier"]),
            )

        case "LaplaceDpEvent":
            return Step(
                Everything(), LaplaceSum("sum", 1.0, scale * description["noise_multiplier"])
            )

        case "RandomizedResponseDpEvent":
            # The truth is told when no uniform answer is drawn, or when it is the answer drawn.
            buckets = description["num_buckets"]
            noise = description["noise_parameter"]
            truth = 1.0 - noise + noise / buckets
            return Step(Everything(), RandomizedResponse("answer", buckets, truth))

        case _:
            return Step(Everything(), _gaussians(description, scale))


def _gaussians(description: Description, scale: float) -> list[Query]:
    """The Gaussian queries of one sample, however they are nested; each gets a name of its own."""
    queries: list[Query] = []

    # A sample on which nothing is asked is no event of ours, hence counts of 1 at least.
    for event, times in _leaves(description, 1, least=1):
        name = event["class"]
        if name != "GaussianDpEvent":
            raise _no_event(f"{name} inside a sample; only Gaussian sums can share one")

        # `times` equal Gaussians on one sample fold into one with sqrt(times) times the
        # sensitivity.
        noise = check.positive(name, "noise_multiplier", event["noise_multiplier"])
        noise_std = scale * (noise / math.sqrt(times))
        queries.append(GaussianSum(f"sum {len(queries)}", 1.0, noise_std))

    return queries
