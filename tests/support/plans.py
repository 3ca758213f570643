"""Hypothesis strategies for plans: every mechanism, every sampler."""

from typing import Any

from hypothesis import strategies as st

import discreet as dp
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    NotPrivate,
    Split,
)
from discreet.plan import Schedule, Target
from discreet.sampling import Sampler
from support.strategies import probabilities

names = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12
)
numbers = st.floats(min_value=1e-3, max_value=1e3)
shares = st.floats(min_value=1e-2, max_value=1e2)
wholes = st.integers(1, 10**12)


@st.composite
def splits(draw: st.DrawFn) -> Split:
    parts: dict[str, str] | str = "each leaf"
    clips, noises = (
        st.sampled_from(["equal", "by dimension"]),
        st.sampled_from(["proportional", "by dimension"]),
    )
    if draw(st.booleans()):
        patterns = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        parts = dict(zip(patterns, patterns, strict=True))
        by_share = st.fixed_dictionaries(dict.fromkeys(patterns, shares))
        return Split(
            draw(numbers),
            draw(numbers),
            parts=parts,
            clip=draw(clips | by_share),
            noise=draw(noises | by_share),
        )
    return Split(draw(numbers), draw(numbers), parts=parts, clip=draw(clips), noise=draw(noises))


@st.composite
def adaptives(draw: st.DrawFn) -> AdaptiveClip:
    inner = draw(gaussians)
    count = inner.noise_multiplier * draw(st.floats(min_value=0.6, max_value=1e3))
    return AdaptiveClip(inner, draw(st.floats(0.1, 0.9)), count, draw(shares))


gaussians = st.builds(Gaussian, numbers, numbers)
joints = st.builds(
    Joint, st.floats(1e-3, 1.0), numbers, st.dictionaries(names, numbers, min_size=1, max_size=4)
)
normalised = st.builds(Normalised, numbers, numbers, numbers)
singles: st.SearchStrategy[Any] = gaussians | joints | normalised | splits() | adaptives()
microbatches = st.builds(Microbatches, singles, st.integers(1, 10**6))
members = singles | microbatches | st.builds(NotPrivate)
groups = st.builds(Groups, st.dictionaries(names, members, min_size=1, max_size=3))
mechanisms = members | groups


@st.composite
def samplers(draw: st.DrawFn) -> Sampler | Schedule:
    records, steps = draw(wholes), draw(wholes)
    open_policies: list[st.SearchStrategy[dp.ledger.Sampling]] = [
        st.builds(dp.Everything),
        st.builds(dp.Poisson, probabilities),
        st.builds(dp.ledger.Shuffled, wholes),
        st.builds(dp.ledger.BallsInBins, wholes),
    ]
    if draw(st.booleans()):
        return Schedule(draw(st.one_of(open_policies)), steps=steps)
    sized = [
        st.builds(dp.ledger.TruncatedPoisson, probabilities, wholes, st.just(records)),
        st.builds(dp.FixedSize, st.integers(1, records), st.just(records)),
    ]
    return Sampler(draw(st.one_of(*open_policies, *sized)), records=records, steps=steps)


targets = st.builds(Target, numbers, st.floats(1e-12, 0.5))
plans = st.builds(
    dp.Plan,
    sampler=samplers(),
    mechanism=mechanisms,
    unit=st.builds(dp.Unit, names),
    adjacency=st.sampled_from(dp.Adjacency),
    numerics=st.sampled_from(dp.Numerics),
    target=st.none() | targets,
)
