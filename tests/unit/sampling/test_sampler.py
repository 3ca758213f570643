"""What a sampler declares and yields, policy by policy."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from discreet.errors import ParameterError, RandomnessMisuse
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.randomness import SharedSecret, Source
from discreet.sampling import Sampler
from support.written_streams import source

POLICIES: list[
    tuple[Sampling, float, int]
] = [  # policy, expected batch size, batches in a step; for 40 records
    (Everything(), 40.0, 1),
    (Poisson(0.25), 10.0, 1),
    (TruncatedPoisson(0.25, 12, 40), 10.0, 1),
    (FixedSize(6, 40), 6.0, 1),
    (Shuffled(3), 40 / 3, 3),
    (BallsInBins(5), 8.0, 5),
]


@pytest.mark.parametrize(("policy", "expected", "batches"), POLICIES)
def test_p29_p32_what_is_public_is_fixed_in_advance(
    policy: Sampling, expected: float, batches: int
) -> None:
    sampler = Sampler(policy, records=40, steps=7)
    assert sampler.event is policy
    assert sampler.expected_batch_size == expected
    assert sampler.batches_per_step == batches
    assert sampler.batches == 7 * batches
    places = [(sample.step, sample.batch) for sample in sampler.draw(source())]
    assert places == [(step, batch) for step in range(7) for batch in range(batches)]


def check_empty_samples_are_samples() -> None:
    sizes = [len(sample) for sample in Sampler(Poisson(1e-3), records=10, steps=200).draw(source())]
    assert len(sizes) == 200
    assert 0 in sizes
    assert [
        len(sample) for sample in Sampler(Shuffled(5), records=2, steps=1).draw(source())
    ].count(0) == 3


def test_p28_an_empty_sample_is_a_sample() -> None:
    check_empty_samples_are_samples()


def check_every_sample_has_its_own_event(policy: Sampling) -> None:
    assert {sample.event for sample in Sampler(policy, records=40, steps=3).draw(source())} == {
        policy
    }


@pytest.mark.parametrize("policy", [policy for policy, _, _ in POLICIES])
def test_p26_what_is_drawn_is_what_is_charged(policy: Sampling) -> None:
    check_every_sample_has_its_own_event(policy)


def check_a_step_is_one_draw() -> None:
    """A step's randomness is asked for once, whatever the number of batches."""
    bits = source()
    draw = Sampler(Shuffled(4), records=40, steps=2).draw(bits)
    first = [next(draw) for _ in range(4)]
    assert sorted(np.concatenate([sample.indices for sample in first]).tolist()) == list(range(40))
    assert {sample.step for sample in first} == {0}


def test_p31_a_step_is_one_draw() -> None:
    check_a_step_is_one_draw()


def check_a_draw_is_not_repeated() -> None:
    bits = source()
    sampler = Sampler(Poisson(0.5), records=40, steps=4)
    first = sampler.draw(bits)
    next(first)
    next(first)
    with pytest.raises(RandomnessMisuse):
        next(sampler.draw(bits))
    resumed = list(sampler.draw(source(1), start=2))
    assert [sample.step for sample in resumed] == [2, 3]


def test_p20_a_draw_with_the_same_source_is_refused_and_a_resumed_one_goes_on() -> None:
    check_a_draw_is_not_repeated()


def test_p20_a_system_source_draws_other_samples_each_time() -> None:
    sampler = Sampler(Poisson(0.5), records=200, steps=1)
    seen = {tuple(next(sampler.draw(Source.system())).indices.tolist()) for _ in range(5)}
    assert len(seen) == 5


def test_a_resumed_draw_may_have_nothing_left() -> None:
    sampler = Sampler(Poisson(0.5), records=4, steps=3)
    assert list(sampler.draw(source(), start=3)) == []
    with pytest.raises(ParameterError, match="start"):
        sampler.draw(source(), start=4)


def test_samples_are_drawn_when_asked_for() -> None:
    bits = source()
    early = Sampler(Poisson(0.5), records=4, steps=2).draw(bits)
    next(Sampler(Poisson(0.5), records=4, steps=2).draw(bits))  # the first draw took nothing
    with pytest.raises(RandomnessMisuse, match="given out already"):
        next(early)


# --- several ranks ---


def test_p22_ranks_need_one_secret() -> None:
    sampler = Sampler(Poisson(0.5), records=40, steps=2)
    with pytest.raises(RandomnessMisuse, match="one secret in all ranks"):
        sampler.draw(Source.system(), rank=0, ranks=2)
    secret = SharedSecret.generate().to_bytes()
    sources = [Source.shared(SharedSecret.from_bytes(secret), context="head") for _ in range(3)]
    parts = [list(sampler.draw(bits, rank=rank, ranks=2)) for rank, bits in enumerate(sources[:2])]
    whole = list(sampler.draw(sources[2]))
    for step in range(2):
        joined = np.concatenate([part[step].indices for part in parts])
        np.testing.assert_array_equal(joined, whole[step].indices)


@pytest.mark.parametrize(("rank", "ranks"), [(2, 2), (-1, 2), (0, 0), (True, 2)])
def test_p22_a_wrong_rank_is_refused(rank: int, ranks: int) -> None:
    with pytest.raises(ParameterError):
        Sampler(Poisson(0.5), records=4, steps=1).draw(source(), rank=rank, ranks=ranks)


# --- what is refused ---


@pytest.mark.parametrize(
    ("policy", "records", "steps"),
    [
        (FixedSize(2, 10), 11, 1),
        (TruncatedPoisson(0.1, 3, 10), 9, 1),
        (Poisson(0.5), 0, 1),
        (Poisson(0.5), 10, 0),
        (Poisson(0.5), 10, 2.5),
        ("poisson", 10, 1),
        (Poisson, 10, 1),
    ],
)
def test_p30_p32_what_does_not_agree_is_refused(policy: Sampling, records: int, steps: int) -> None:
    with pytest.raises(ParameterError):
        Sampler(policy, records=records, steps=steps)


def test_a_seed_is_no_source() -> None:
    with pytest.raises(ParameterError, match="source"):
        Sampler(Poisson(0.5), records=4, steps=1).draw(42)  # type: ignore[arg-type]


def test_a_sampler_is_a_frozen_description() -> None:
    sampler = Sampler(Poisson(0.5), records=4, steps=1)
    assert sampler == Sampler(Poisson(0.5), records=4, steps=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.steps = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "policy",
    [Poisson(1e-6), TruncatedPoisson(1e-6, 90, 10**8), FixedSize(100, 10**8)],
    ids=lambda policy: type(policy).__name__,
)
def test_a_hundred_million_records_cost_the_memory_of_the_sample(policy: Sampling) -> None:
    """One coin per record as a byte alone would be 100 MB."""
    draw = Sampler(policy, records=10**8, steps=1).draw(source())
    tracemalloc.start()
    sample = next(draw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 20 < len(sample) < 200
    assert peak < 4e6
