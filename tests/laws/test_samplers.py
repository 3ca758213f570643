"""Laws of every sampler: positions, sizes, partitions, ranks, resuming."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.sampling import Owners, Sampler
from support.written_streams import source

PROBABILITIES = st.sampled_from([1.0, 0.5, 0.1, 1e-3, 5e-324])


@st.composite
def samplers(draw: st.DrawFn, most: int = 60) -> Sampler:
    records = draw(st.integers(1, most))
    owners = None
    if draw(st.booleans()):
        ids = draw(st.lists(st.integers(0, 20), min_size=1, max_size=most))
        owners = Owners.from_ids(ids)
        records = owners.units
    policies: list[st.SearchStrategy[Any]] = [
        st.just(Everything()),
        st.builds(Poisson, PROBABILITIES),
        st.builds(TruncatedPoisson, PROBABILITIES, st.integers(1, records + 2), st.just(records)),
        st.builds(FixedSize, st.integers(1, records), st.just(records)),
        st.builds(Shuffled, st.integers(1, 9)),
        st.builds(BallsInBins, st.integers(1, 9)),
    ]
    policy: Sampling = draw(st.one_of(policies))
    cap = None if owners is None else draw(st.one_of(st.none(), st.integers(1, 3)))
    return Sampler(
        policy, records=records, steps=draw(st.integers(1, 3)), owners=owners, rows_per_unit=cap
    )


@given(samplers(), st.integers(0, 99))
def test_p28_p30_p32_positions_are_those_of_the_data_set_and_every_batch_comes(
    sampler: Sampler, key: int
) -> None:
    drawn = list(sampler.draw(source(key)))
    assert len(drawn) == sampler.batches
    for sample in drawn:
        assert np.all((sample.units >= 0) & (sample.units < sampler.records))
        assert np.all(np.diff(sample.units) > 0)  # sorted, nobody twice
        assert np.unique(sample.rows).size == sample.rows.size


@given(samplers(), st.integers(0, 99))
def test_sizes_are_those_of_the_policy(sampler: Sampler, key: int) -> None:
    sizes = [len(sample) for sample in sampler.draw(source(key))]
    match sampler.policy:
        case Everything():
            assert set(sizes) == {sampler.records}
        case FixedSize(size):
            assert set(sizes) == {size}
        case TruncatedPoisson(limit=limit):
            assert max(sizes) <= limit
        case Shuffled(batches):
            assert {size - sampler.records // batches for size in sizes} <= {0, 1}
        case _:
            assert max(sizes) <= sampler.records


@given(samplers(), st.integers(0, 99))
def test_an_epoch_is_a_partition(sampler: Sampler, key: int) -> None:
    if not isinstance(sampler.policy, Shuffled | BallsInBins):
        return
    for step in range(sampler.steps):
        epoch = [sample.units for sample in sampler.draw(source(key)) if sample.step == step]
        assert sorted(np.concatenate(epoch).tolist()) == list(range(sampler.records))


@given(samplers(), st.integers(0, 99), st.integers(1, 5))
def test_p22_the_parts_of_the_ranks_are_the_sample_of_one(
    sampler: Sampler, key: int, ranks: int
) -> None:
    whole = list(sampler.draw(source(key)))
    parts = [list(sampler.draw(source(key), rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert {len(part) for part in parts} == {len(whole)}
    for number, sample in enumerate(whole):
        same_step = [part[number] for part in parts]
        assert {(part.step, part.batch) for part in same_step} == {(sample.step, sample.batch)}
        np.testing.assert_array_equal(
            np.concatenate([part.units for part in same_step]), sample.units
        )
        np.testing.assert_array_equal(
            np.concatenate([part.rows for part in same_step]), sample.rows
        )


@given(samplers(), st.integers(0, 99), st.data())
@settings(max_examples=50)
def test_p20_a_resumed_draw_is_the_rest(sampler: Sampler, key: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, sampler.steps))
    whole = [
        (one.step, one.batch, one.rows.tolist())
        for one in sampler.draw(source(key))
        if one.step >= start
    ]
    assert [
        (one.step, one.batch, one.rows.tolist()) for one in sampler.draw(source(key), start=start)
    ] == whole
