"""Random numbers before the batch follow from a seed, and nobody else's numbers change."""
# ruff: noqa: NPY002  (transforms draw from NumPy's global generator)

import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import mtrand

from discreet.training.data.seeding import (
    SeedUse,
    derived,
    global_states,
    seeded,
    shared_numbers,
)


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def state() -> tuple[Any, ...]:
    of_numpy = np.random.get_state(legacy=True)
    return torch.get_rng_state().tolist(), of_numpy[1].tolist(), of_numpy[2], random.getstate()  # type: ignore[index]


def test_all_three_generators_follow_from_the_seed_and_go_on_as_before() -> None:
    before = state()
    numbers = []
    for seed in (5, 5, 6, 5 + 2**200):
        with seeded(seed) as begin:
            begin(SeedUse.FETCHING)
            numbers.append(drawn())
            begin(SeedUse.FETCHING)
            assert drawn() == numbers[-1]
        assert state() == before
    assert numbers[0] == numbers[1]
    for other in numbers[2:]:
        assert all(number != its for number, its in zip(numbers[0], other, strict=True))


def test_generators_and_uses_do_not_share_numbers() -> None:
    """NumPy's legacy generator and torch's are one algorithm: the same seed would give the same
    bits.
    """
    numbers: set[float] = set()
    for use in SeedUse:
        with seeded(5) as begin:
            begin(use)
            numbers.update(drawn())
    assert len(numbers) == 3 * len(SeedUse)
    assert len({tuple(derived(5, use).generate_state(4)) for use in SeedUse}) == len(SeedUse)


def test_generators_go_on_as_before_also_after_an_error() -> None:
    before = state()
    with pytest.raises(KeyError), seeded(5) as begin:
        begin(SeedUse.FETCHING)
        drawn()
        raise KeyError
    assert state() == before


def shared(begin: Any) -> tuple[float, float]:
    begin()
    return float(np.random.rand()), random.random()


def test_passes_of_a_step_share_numbers_and_generators_go_on_as_before() -> None:
    before = state()
    with shared_numbers(5) as begin:
        numbers = shared(begin)
        assert shared(begin) == numbers

        # A step within a step, which has numbers of its own, leaves the outer one where it was.
        begin()
        with shared_numbers(6) as inner:
            assert shared(inner) != numbers
        assert (float(np.random.rand()), random.random()) == numbers
    assert state() == before

    with pytest.raises(KeyError), shared_numbers(5) as begin:
        assert shared(begin) == numbers
        np.random.set_state(np.random.RandomState(3).get_state())
        raise KeyError
    assert state() == before


def test_a_generator_on_numpys_own_bits_follows_and_is_put_back() -> None:
    """A loss may hold one: to exchange NumPy's bits for others would leave it where it is."""
    own = np.random.Generator(mtrand.get_bit_generator())
    before = state()
    with shared_numbers(5) as begin:
        begin()
        numbers = own.random()
        begin()
        assert own.random() == numbers
    assert state() == before


def test_the_states_of_global_generators_tell_whether_somebody_has_drawn() -> None:
    before = global_states()
    assert global_states() == before
    random.random()
    after = global_states()
    assert after != before
    np.random.random()
    assert global_states() != after
