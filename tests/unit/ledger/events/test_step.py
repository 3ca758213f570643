"""What events and steps refuse, and which of them are equal."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import discreet as dp

POSITIVES: list[Callable[[float], object]] = [
    lambda x: dp.ledger.GaussianSum("g", x, 1.0),
    lambda x: dp.ledger.GaussianSum("g", 1.0, x),
    lambda x: dp.ledger.LaplaceSum("g", x, 1.0),
    lambda x: dp.ledger.LaplaceSum("g", 1.0, x),
    lambda x: dp.ledger.ExponentialChoice("g", x, 1.0),
    lambda x: dp.ledger.ExponentialChoice("g", 1.0, x),
    lambda x: dp.ledger.CorrelatedGaussianSum("g", x, 1.0, 1.0, 1, 1, 1),
    lambda x: dp.ledger.CorrelatedGaussianSum("g", 1.0, x, 1.0, 1, 1, 1),
    lambda x: dp.ledger.CorrelatedGaussianSum("g", 1.0, 1.0, x, 1, 1, 1),
    dp.Poisson,
    lambda x: dp.ledger.TruncatedPoisson(x, 1, 1),
    lambda x: dp.ledger.RandomizedResponse("g", 2, x),
]


@pytest.mark.parametrize("make", POSITIVES)
@pytest.mark.parametrize(
    "value", [0.0, -1.0, math.nan, math.inf, -math.inf, np.float32(0), True, "1", None]
)
def test_zero_negative_and_non_finite_numbers_are_refused(
    make: Callable[[object], object], value: object
) -> None:
    with pytest.raises(dp.errors.ParameterError):
        make(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dp.Poisson(1.5),
        lambda: dp.ledger.TruncatedPoisson(0.5, 0, 10),
        lambda: dp.ledger.TruncatedPoisson(0.5, 10, 0),
        lambda: dp.FixedSize(11, 10),
        lambda: dp.FixedSize(0, 10),
        lambda: dp.FixedSize(1.0, 10),  # type: ignore[arg-type]
        lambda: dp.ledger.Shuffled(0),
        lambda: dp.ledger.BallsInBins(0),
        lambda: dp.ledger.RandomizedResponse("g", 1, 0.5),
        lambda: dp.ledger.RandomizedResponse("g", 3, 0.3),
        lambda: dp.ledger.RandomizedResponse("g", 3, 1.0),
        lambda: dp.ledger.CorrelatedGaussianSum(
            "g", 1, 1, 1, rounds=10, participations=3, separation=5
        ),
        lambda: dp.ledger.GaussianSum("", 1, 1),
        lambda: dp.ledger.GaussianSum("a\nb", 1, 1),
    ],
)
def test_impossible_parameters_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        make()


def test_a_step_refuses_what_is_no_event_no_query_and_two_queries_of_one_group() -> None:
    query = dp.ledger.GaussianSum("g", 1, 1)
    for sampling, queries in [
        ("poisson", [query]),
        (dp.Poisson(0.1), []),
        (dp.Poisson(0.1), [query, dp.ledger.LaplaceSum("g", 1, 1)]),
        (dp.Poisson(0.1), [dp.Poisson(0.1)]),
        (query, [query]),
        (dp.Poisson(0.1), "g"),
    ]:
        with pytest.raises(dp.errors.ParameterError, match="parameter of Step"):
            dp.ledger.Step(sampling, queries)  # type: ignore[arg-type]


def test_a_subclass_of_an_event_is_no_event() -> None:
    class Sneaky(dp.ledger.GaussianSum):
        pass

    with pytest.raises(dp.errors.ParameterError, match="Sneaky"):
        dp.ledger.Step(dp.Poisson(0.1), Sneaky("g", 1, 1))


def test_an_event_cannot_be_changed() -> None:
    event = dp.ledger.GaussianSum("g", 1, 1)
    with pytest.raises(FrozenInstanceError):
        event.noise_std = 1e-9  # type: ignore[misc]


def test_the_order_of_queries_makes_no_other_step() -> None:
    a, b = dp.ledger.GaussianSum("a", 1, 1), dp.ledger.GaussianSum("b", 1, 1)
    assert dp.ledger.Step(dp.Everything(), [a, b]) == dp.ledger.Step(dp.Everything(), iter([b, a]))
    assert dp.ledger.Step(dp.Everything(), [b, a]).groups == ("a", "b")


def test_p34_an_int_or_float32_multiplier_makes_the_same_event() -> None:
    ones: list[Any] = [1, 1.0, np.float32(1), np.uint8(1)]
    twos: list[Any] = [2, 2.0, np.float16(2), np.int64(2)]
    events = {dp.ledger.GaussianSum("g", one, two) for one in ones for two in twos}
    assert len(events) == 1
    assert {type(value) for event in events for value in (event.sensitivity, event.noise_std)} == {
        float
    }
