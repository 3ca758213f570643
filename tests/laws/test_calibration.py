"""Calibration is always on the safe side, and its monotonicities hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting.calibration.calibrate import Calibration, solve
from discreet.accounting.calibration.unknowns import (
    ExpectedBatchSize,
    GroupNoise,
    NoiseMultiplier,
    Probability,
    ProbabilityAtAverageNoise,
    Steps,
    Unknown,
)
from discreet.errors import AccountingError
from discreet.ledger.events import Everything, FixedSize, GaussianSum, Poisson, Step
from discreet.units import Adjacency

epsilons = st.floats(0.05, 20.0)
deltas = st.floats(-12.0, -3.0).map(lambda exponent: float(10.0**exponent))
probabilities = st.floats(1e-4, 1.0)
noises = st.floats(0.5, 20.0)
steps = st.integers(1, 100_000)
averages = st.floats(1e-5, 1e-2)
doubled = st.builds(
    lambda q, a, b: Step(Poisson(q), [GaussianSum("a", 1.0, a), GaussianSum("b", 2.0, b)]),
    probabilities,
    noises,
    noises,
)
unknowns = st.one_of(
    st.builds(NoiseMultiplier, probabilities.map(Poisson), steps),
    st.builds(NoiseMultiplier, st.just(Everything()), steps),
    st.builds(Probability, noises, steps),
    st.builds(ExpectedBatchSize, st.just(10_000), noises, steps),
    st.builds(ProbabilityAtAverageNoise, st.just(100_000), averages, steps),
    st.builds(Steps, doubled),
    st.builds(GroupNoise, doubled, st.just("b"), steps),
)


def solve_or_say(unknown: Unknown, epsilon: float, delta: float) -> Calibration | str:
    try:
        return solve(unknown, epsilon=epsilon, delta=delta, accountant="rdp", tolerance=5e-3)
    except AccountingError as error:
        return error.got


@settings(max_examples=60, deadline=None)
@given(unknown=unknowns, epsilon=epsilons, delta=deltas)
def test_safe_side_and_close(unknown: Unknown, epsilon: float, delta: float) -> None:
    found = solve_or_say(unknown, epsilon, delta)
    if isinstance(found, str):
        assert float(found.split("the floor is ")[1]) > epsilon * (1 - 1e-5)
        return
    assert found.guarantee.upper <= epsilon
    low, high = unknown.limits(delta)
    limit = high if unknown.costs_more else low
    assert found.guarantee.upper >= epsilon * (1 - 5e-3) or unknown.whole or found.value == limit


@settings(max_examples=15, deadline=None)
@given(epsilon=epsilons, delta=deltas, fraction=st.integers(1, 500))
def test_more_privacy_needs_more_noise(epsilon: float, delta: float, fraction: int) -> None:
    unknown = NoiseMultiplier(FixedSize(fraction, 10_000), 100)
    ask = {"delta": delta, "adjacency": Adjacency.REPLACE_ONE, "accountant": "rdp"}
    noise = solve(unknown, epsilon=epsilon, **ask).value  # type: ignore[arg-type]
    assert solve(unknown, epsilon=0.9 * epsilon, **ask).value > noise  # type: ignore[arg-type]
