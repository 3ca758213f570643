"""Hypothesis strategies for every event of the vocabulary."""

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

import discreet as dp

groups = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)
positives = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False)
probabilities = st.floats(min_value=0.0, max_value=1.0, exclude_min=True)
wholes = st.integers(min_value=1, max_value=2**63 - 1)


@st.composite
def fixed_sizes(draw: st.DrawFn) -> dp.FixedSize:
    records = draw(wholes)
    return dp.FixedSize(draw(st.integers(1, records)), records)


@st.composite
def responses(draw: st.DrawFn) -> dp.ledger.RandomizedResponse:
    categories = draw(st.integers(2, 10**6))
    truth = draw(st.floats(min_value=1.0 / categories, max_value=1.0, exclude_max=True))
    return dp.ledger.RandomizedResponse(draw(groups), categories, truth)


@st.composite
def correlated_sums(draw: st.DrawFn) -> dp.ledger.CorrelatedGaussianSum:
    participations, separation = draw(st.integers(1, 1000)), draw(st.integers(1, 1000))
    rounds = (participations - 1) * separation + draw(st.integers(1, 1000))
    return dp.ledger.CorrelatedGaussianSum(
        draw(groups),
        draw(positives),
        draw(positives),
        draw(positives),
        rounds,
        participations,
        separation,
    )


samplings: st.SearchStrategy[dp.ledger.Sampling] = st.one_of(
    st.builds(dp.Everything),
    st.builds(dp.Poisson, probabilities),
    st.builds(dp.ledger.TruncatedPoisson, probabilities, wholes, wholes),
    fixed_sizes(),
    st.builds(dp.ledger.Shuffled, wholes),
    st.builds(dp.ledger.BallsInBins, wholes),
)
queries: st.SearchStrategy[dp.ledger.Query] = st.one_of(
    st.builds(dp.ledger.GaussianSum, groups, positives, positives),
    st.builds(dp.ledger.LaplaceSum, groups, positives, positives),
    st.builds(dp.ledger.ExponentialChoice, groups, positives, positives),
    responses(),
    correlated_sums(),
)
steps = st.builds(
    dp.ledger.Step,
    samplings,
    st.lists(queries, min_size=1, max_size=5, unique_by=lambda query: query.group),
)
infos = st.builds(
    dp.ledger.RunInfo,
    unit=st.builds(dp.Unit, groups),
    adjacency=st.sampled_from(dp.Adjacency),
    groups=st.lists(groups, min_size=1, max_size=4).map(tuple),
    numerics=st.sampled_from(dp.Numerics),
    randomness=st.sampled_from(dp.units.Randomness),
    parameters=st.sampled_from(dp.units.Parameters),
    label=groups,
)


def event_arguments(event: Any) -> tuple[Any, ...]:
    """The arguments that make an equal event, in order."""
    return tuple(getattr(event, field.name) for field in fields(event))
