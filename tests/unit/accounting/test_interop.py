from __future__ import annotations

import importlib
import math
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from discreet.accounting import interop
from discreet.accounting.costs import Cost, FixedSizeGaussian, Gaussian, PoissonGaussian
from discreet.accounting.normalise import normalise
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    ExponentialChoice,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    RandomizedResponse,
    Sampling,
    Step,
    TruncatedPoisson,
)
from discreet.units import Adjacency

ADD, ZERO, REPLACE = Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def gaussian(sampling: Sampling, noise: float = 3.0) -> Step:
    return Step(sampling, [GaussianSum("grad", 1.0, noise)])


STORED: list[tuple[Step, Adjacency, str, dict[str, Any], str]] = [
    (
        gaussian(Poisson(0.01)),
        ADD,
        "pld",
        {
            "class": "PoissonSampledDpEvent",
            "sampling_probability": 0.01,
            "event": {"class": "GaussianDpEvent", "noise_multiplier": 3.0},
        },
        "ADD_OR_REMOVE_ONE",
    ),
    (
        gaussian(Everything()),
        ZERO,
        "rdp",
        {"class": "GaussianDpEvent", "noise_multiplier": 3.0},
        "ADD_OR_REMOVE_ONE",
    ),
    # The trap: one event, one relation, two meanings.
    (
        gaussian(Everything()),
        REPLACE,
        "rdp",
        {"class": "GaussianDpEvent", "noise_multiplier": 1.5},
        "REPLACE_ONE",
    ),
    (
        gaussian(Everything()),
        REPLACE,
        "pld",
        {"class": "GaussianDpEvent", "noise_multiplier": 3.0},
        "REPLACE_ONE",
    ),
    (
        gaussian(FixedSize(10, 100)),
        REPLACE,
        "rdp",
        {
            "class": "SampledWithoutReplacementDpEvent",
            "source_dataset_size": 100,
            "sample_size": 10,
            "event": {"class": "GaussianDpEvent", "noise_multiplier": 1.5},
        },
        "REPLACE_ONE",
    ),
    (
        gaussian(TruncatedPoisson(0.1, 20, 100)),
        ADD,
        "pld",
        {
            "class": "TruncatedSubsampledGaussianDpEvent",
            "dataset_size": 100,
            "sampling_probability": 0.1,
            "truncated_batch_size": 20,
            "noise_multiplier": 3.0,
        },
        "ADD_OR_REMOVE_ONE",
    ),
    (
        Step(Everything(), [LaplaceSum("a", 2.0, 3.0)]),
        ADD,
        "pld",
        {"class": "LaplaceDpEvent", "noise_multiplier": 1.5},
        "ADD_OR_REMOVE_ONE",
    ),
]


@pytest.mark.parametrize(
    ("step", "adjacency", "accountant", "stored", "relation"), STORED, ids=repr
)
def test_descriptions_are_the_stored_ones(
    step: Step, adjacency: Adjacency, accountant: str, stored: dict[str, Any], relation: str
) -> None:
    exported = interop.describe([(step, 7)], adjacency=adjacency, accountant=accountant)
    assert exported.relation == relation
    assert exported.event == {
        "class": "ComposedDpEvent",
        "events": [{"class": "SelfComposedDpEvent", "event": stored, "count": 7}],
    }


@pytest.mark.parametrize(
    ("step", "adjacency", "accountant", "stored", "relation"), STORED, ids=repr
)
def test_there_and_back_is_the_same_cost(
    step: Step, adjacency: Adjacency, accountant: str, stored: dict[str, Any], relation: str
) -> None:
    exported = interop.describe([(step, 7)], adjacency=adjacency, accountant=accountant)
    back = interop.described_steps(exported.event, adjacency=adjacency, accountant=accountant)
    assert normalise(back, adjacency) == normalise([(step, 7)], adjacency)


def test_several_groups_of_one_sample_fold_into_one_event_and_are_read_as_one_step() -> None:
    both = Step(Poisson(0.01), [GaussianSum("a", 3.0, 12.0), GaussianSum("b", 4.0, 16.0)])
    event = interop.describe([(both, 1)], adjacency=ADD, accountant="pld").event["events"][0][
        "event"
    ]
    assert event["event"]["noise_multiplier"] == pytest.approx(4.0 / math.sqrt(2))
    nested = {
        "class": "PoissonSampledDpEvent",
        "sampling_probability": 0.01,
        "event": {
            "class": "ComposedDpEvent",
            "events": [
                {"class": "GaussianDpEvent", "noise_multiplier": 4.0},
                {
                    "class": "SelfComposedDpEvent",
                    "event": {"class": "GaussianDpEvent", "noise_multiplier": 4.0},
                    "count": 1,
                },
            ],
        },
    }
    counted = normalise(interop.described_steps(nested, adjacency=ADD, accountant="rdp"), ADD)
    cost: Cost = counted[0][0]
    assert isinstance(cost, PoissonGaussian)
    assert cost.noise_multiplier == pytest.approx(4.0 / math.sqrt(2))


def test_randomized_response_is_copied_for_the_accountant_that_forgets_its_count() -> None:
    step = Step(Everything(), [RandomizedResponse("a", 4, 0.7)])
    one = {
        "class": "RandomizedResponseDpEvent",
        "noise_parameter": pytest.approx(0.4),
        "num_buckets": 4,
    }
    pld = interop.describe([(step, 3)], adjacency=REPLACE, accountant="pld").event["events"][0]
    assert pld == {"class": "ComposedDpEvent", "events": [one, one, one]}
    rdp = interop.describe([(step, 3)], adjacency=REPLACE, accountant="rdp").event["events"][0]
    assert rdp == {"class": "SelfComposedDpEvent", "event": one, "count": 3}
    with pytest.raises(AccountingError, match="ignores"):
        interop.describe([(step, 5000)], adjacency=REPLACE, accountant="pld")
    back = interop.described_steps(pld, adjacency=REPLACE, accountant="pld")
    asked = back[0][0].queries[0]
    assert isinstance(asked, RandomizedResponse)
    assert (len(back), asked.categories) == (3, 4)
    assert asked.truth_probability == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("step", "adjacency", "accountant"),
    [
        (gaussian(Poisson(0.01)), REPLACE, "rdp"),
        (gaussian(FixedSize(10, 100)), REPLACE, "pld"),
        (gaussian(TruncatedPoisson(0.1, 20, 100)), ADD, "rdp"),
        (gaussian(TruncatedPoisson(0.1, 20, 100)), ZERO, "pld"),
        (gaussian(BallsInBins(10)), ADD, "pld"),
        (Step(Everything(), [ExponentialChoice("c", 1.0, 1.0)]), ADD, "rdp"),
        (Step(Everything(), [LaplaceSum("a", 2.0, 3.0)]), REPLACE, "pld"),
    ],
    ids=repr,
)
def test_what_they_have_no_valid_event_for_is_refused(
    step: Step, adjacency: Adjacency, accountant: str
) -> None:
    with pytest.raises(AccountingError):
        interop.describe([(step, 1)], adjacency=adjacency, accountant=accountant)


def test_zero_out_of_a_fixed_size_is_their_replace_one() -> None:
    exported = interop.describe(
        [(gaussian(FixedSize(10, 100)), 1)], adjacency=ZERO, accountant="rdp"
    )
    assert exported.relation == "REPLACE_ONE"
    with pytest.raises(AccountingError, match="mixture"):
        interop.describe(
            [(gaussian(FixedSize(10, 100)), 1), (gaussian(Everything()), 1)],
            adjacency=ZERO,
            accountant="rdp",
        )


@dataclass
class GaussianDpEvent:
    noise_multiplier: float


@dataclass
class SelfComposedDpEvent:
    event: object
    count: int


@dataclass
class SurpriseDpEvent:
    noise_multiplier: float


def test_objects_are_read_by_name_and_unknown_ones_refused() -> None:
    steps = interop.from_dp_event(
        SelfComposedDpEvent(GaussianDpEvent(2.0), 9), adjacency=ADD, accountant="pld"
    )
    assert normalise(steps, ADD) == ((Gaussian(2.0), 9),)
    assert normalise(
        interop.from_dp_event(GaussianDpEvent(2.0), adjacency=REPLACE, accountant="rdp"), REPLACE
    ) == ((Gaussian(2.0), 1),)
    assert normalise(
        interop.from_dp_event(GaussianDpEvent(2.0), adjacency=REPLACE, accountant="pld"), REPLACE
    ) == ((Gaussian(1.0), 1),)
    with pytest.raises(AccountingError, match="SurpriseDpEvent"):
        interop.from_dp_event(SurpriseDpEvent(1.0), adjacency=ADD, accountant="pld")
    with pytest.raises(AccountingError, match="SurpriseDpEvent"):
        interop.from_dp_event(
            SelfComposedDpEvent(SurpriseDpEvent(1.0), 2), adjacency=ADD, accountant="pld"
        )
    with pytest.raises(ParameterError):
        interop.from_dp_event(GaussianDpEvent(1.0), adjacency=ADD, accountant="gdp")


def test_fixed_size_read_under_the_wrong_adjacency_is_refused() -> None:
    event = interop.describe(
        [(gaussian(FixedSize(10, 100)), 1)], adjacency=REPLACE, accountant="rdp"
    ).event
    assert isinstance(
        normalise(interop.described_steps(event, adjacency=REPLACE, accountant="rdp"), REPLACE)[0][
            0
        ],
        FixedSizeGaussian,
    )
    with pytest.raises(AccountingError):
        interop.described_steps(event, adjacency=ADD, accountant="rdp")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(AccountingError, match="pip install dp-accounting"):
        interop.to_dp_event([(gaussian(Poisson(0.1)), 1)], adjacency=ADD, accountant="pld")
    importlib.invalidate_caches()
