"""Random numbers before the batch follow from a seed, and nobody else's numbers change."""
# ruff: noqa: NPY002  (transforms draw from NumPy's global generator)

import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import mtrand

from discreet.training.data import seeding
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


@pytest.mark.parametrize("drawn", [0, 1, 2, 3])
@pytest.mark.parametrize("drawn_inside", [0, 1, 2])
def test_normal_numbers_in_store_are_put_back_too(drawn: int, drawn_inside: int) -> None:
    """NumPy makes them in pairs: one that was made of the secret seed must not come out later."""
    np.random.seed(3)
    np.random.standard_normal(drawn)
    expected = np.random.RandomState(3)
    expected.standard_normal(drawn)

    before = full_state()
    with shared_numbers(5) as begin:
        begin()
        numbers = np.random.standard_normal(4)
        begin()
        assert np.random.standard_normal(4).tolist() == numbers.tolist()
        np.random.standard_normal(drawn_inside)
    assert full_state() == before
    assert np.random.standard_normal(3).tolist() == expected.standard_normal(3).tolist()


def full_state() -> tuple[Any, ...]:
    name, key, position, has_spare, spare = np.random.get_state(legacy=True)
    return name, list(key), position, has_spare, spare if has_spare else None


def test_bits_of_another_kind_are_kept_in_numpys_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seeding._memory_of(np.random.PCG64(1)) is None

    monkeypatch.setattr(seeding, "_memory_of", lambda _: None)
    before = full_state()
    with shared_numbers(5) as begin:
        begin()
        np.random.standard_normal()
    assert full_state() == before


def test_bits_that_a_loss_exchanges_are_put_back() -> None:
    bits = mtrand.get_bit_generator()
    before = full_state()
    try:
        with shared_numbers(5) as begin:
            begin()
            np.random.standard_normal()
            mtrand.set_bit_generator(np.random.MT19937(9))
        assert full_state() == before
    finally:
        mtrand.set_bit_generator(bits)
    assert full_state() == before


def test_the_states_of_global_generators_tell_whether_somebody_has_drawn() -> None:
    before = global_states()
    assert global_states() == before
    random.random()
    after = global_states()
    assert after != before
    np.random.random()
    assert global_states() != after
