"""Positions, policy by policy: sorted, inside the part, and the same whatever the parts."""

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.ledger.events import (
    SAMPLINGS,
    BallsInBins,
    Everything,
    FixedSize,
    GaussianSum,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.sampling._policies import _DRAWS, drawn_positions, within_batch
from support.written_streams import stream

POLICIES: list[Sampling] = [
    Everything(),
    Poisson(0.3),
    TruncatedPoisson(0.3, 5, 31),
    FixedSize(7, 31),
    Shuffled(4),
    BallsInBins(4),
]


def test_every_policy_of_the_vocabulary_can_be_drawn() -> None:
    assert set(_DRAWS) == set(SAMPLINGS) == {type(policy) for policy in POLICIES}


def test_a_policy_without_an_entry_names_the_place_to_add_it() -> None:
    with pytest.raises(ParameterError, match="sampling/_policies.py"):
        drawn_positions(GaussianSum("g", 1.0, 1.0), 10, stream(), range(10))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_batches_are_sorted_distinct_and_as_many_as_stated(policy: Sampling) -> None:
    for number in range(20):
        batches = list(drawn_positions(policy, 31, stream(number), range(31)))
        assert len(batches) == policy.batches_per_step
        for batch in batches:
            assert batch.dtype == np.int64
            assert (np.diff(batch) > 0).all()
            assert not batch.size or (batch[0] >= 0 and batch[-1] < 31)
            assert policy.smallest_batch(31) <= batch.size <= policy.largest_batch(31)
        if policy.batches_per_step > 1:
            assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(31))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("cut", [0, 1, 10, 31])
def test_p22_parts_join_to_the_whole(policy: Sampling, cut: int) -> None:
    whole = list(drawn_positions(policy, 31, stream(), range(31)))
    first = list(drawn_positions(policy, 31, stream(), range(cut)))
    second = list(drawn_positions(policy, 31, stream(), range(cut, 31)))
    for batch, left, right in zip(whole, first, second, strict=True):
        assert np.array_equal(np.concatenate([left, right]), batch)


def test_within_cuts_at_both_ends() -> None:
    assert within_batch(np.array([1, 4, 6, 9]), range(4, 9)).tolist() == [4, 6]
    assert within_batch(np.array([1, 4]), range(5, 9)).tolist() == []
