"""Random numbers of data sets, transforms and collate functions: from the run's secret source.

For whoever knows them, random numbers of a row are a function of the row and not of the record, and
a record that moves to another row contributes something else (docs/proofs/sums.md, section 3). So
torch's generator, NumPy's global one and Python's `random` follow from a secret seed while entries
are fetched and collated. Generators that a data set makes for itself are its own business: they
must not be seeded with a number that others know.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.random import mtrand
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

__all__ = [
    "Begin",
    "SeedUse",
    "derived",
    "generators_seeded",
    "global_states",
    "seeded",
    "shared_numbers",
    "shared_seed",
]


class SeedUse(IntEnum):
    """What numbers are for that follow from one seed; those of different uses are independent."""

    FETCHING = 0
    COLLATING = 1
    TRIALS = 2
    WORKERS = 3
    PASSES = 4
    SHARED = 5


_WORDS = 625  # 624 words of a Mersenne Twister, and the place of the next one

Begin: TypeAlias = Callable[[SeedUse], None]
"""Lets the global generators begin with the numbers of one use, also a second time."""


def derived(seed: int, use: SeedUse) -> np.random.SeedSequence:
    """The seeds of one use."""
    return np.random.SeedSequence(seed, spawn_key=(use,))


@contextmanager
def seeded(seed: int) -> Iterator[Begin]:
    """For the time of a block, global generators follow from a seed; afterwards they go on.

    Args:
        seed: secret.
    """
    with generators_seeded() as seed_all:
        yield lambda use: seed_all(seed, use)


@contextmanager
def _torch_kept() -> Iterator[Callable[[int], object]]:
    """Keep the state of torch's generator of the processor; in the main process, whose data set may
    use it, also that of an accelerator.
    """
    if get_worker_info() is None and torch.accelerator.is_available():
        with torch.random.fork_rng():
            yield torch.manual_seed

        return

    # A worker is a copy of the process, in which an accelerator must not be asked for anything.
    before = torch.default_generator.get_state()
    try:
        yield torch.default_generator.manual_seed
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def _others_kept() -> Iterator[None]:
    """Keep the states of Python's and NumPy's global generators."""
    of_random = random.getstate()
    memory = _memory_of(mtrand.get_bit_generator())
    of_numpy = _numpy_kept() if memory is None else _numpy_copied(memory)

    with of_numpy:
        try:
            yield
        finally:
            random.setstate(of_random)


@contextmanager
def _numpy_kept() -> Iterator[None]:
    """Keep the state of NumPy's global generator, in NumPy's own way."""
    before = np.random.get_state()  # noqa: NPY002  (what losses draw from)
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _numpy_copied(memory: NDArray[np.uint32]) -> Iterator[None]:
    """Keep it as a copy of its memory: NumPy makes objects of 624 words, which takes as long as the
    pass of a small model.

    Args:
        memory: of its bits.
    """
    bits = mtrand.get_bit_generator()
    before = memory.copy()
    spare = _take_spare(memory)

    try:
        yield
    finally:
        _take_spare(memory)
        memory[:] = before

        # Seldom: somebody has drawn an odd number of normal numbers, or exchanged the bits.
        if spare is not None or mtrand.get_bit_generator() is not bits:
            normal = (0, 0.0) if spare is None else (1, spare)
            np.random.set_state(("MT19937", before[:-1], int(before[-1]), *normal))  # noqa: NPY002


@lru_cache(1)
def _memory_of(bits: Any) -> NDArray[np.uint32] | None:
    """Where the state of a Mersenne Twister lies: its words, and which comes next; None of other
    bits, or if another version of NumPy has it in another form.
    """
    if type(bits) is not np.random.MT19937:
        return None

    # The bits are held by the cache, and own this memory.
    words = ctypes.c_uint32 * _WORDS
    memory = np.ctypeslib.as_array(words.from_address(bits.ctypes.state_address))
    known: Any = bits.state["state"]
    is_known = np.array_equal(memory, [*known["key"], known["pos"]])
    return memory if is_known else None


def _take_spare(memory: NDArray[np.uint32]) -> float | None:
    """Take out the normal number that NumPy's global generator has in store, as these are made in
    pairs; None if there is none. Its bits are where they were.
    """
    before = memory.copy()
    number = np.random.standard_normal()  # noqa: NPY002
    if np.array_equal(memory, before):  # nothing was drawn for it
        return number

    # It was made now, and the other one of its pair is in store.
    np.random.standard_normal()  # noqa: NPY002
    memory[:] = before
    return None


@contextmanager
def generators_seeded() -> Iterator[Callable[..., None]]:
    """For the time of a block, a function that seeds all global generators; afterwards they go on
    as before.
    """
    # Put back in any case: else numbers that follow from the secret seed would go on in public.
    with _others_kept(), _torch_kept() as seed_torch:
        yield partial(_seed_all, seed_torch=seed_torch)


def global_states() -> tuple[Any, ...]:
    """Where the global generators of Python and NumPy stand."""
    kind, keys, *places = np.random.get_state()  # noqa: NPY002  (what losses draw from)
    return random.getstate(), kind, bytes(keys), *places  # type: ignore[arg-type]


def shared_seed(seed: int, number: int) -> int:
    """The seed of one draw of torch's whose numbers all records of a step share.

    Args:
        seed: of the step; secret.
        number: which draw of a pass it is; public.
    """
    # A key of two words: no seed of another use, which has one, is among these.
    sequence = np.random.SeedSequence(seed, spawn_key=(SeedUse.SHARED, number))
    return int(sequence.generate_state(1, np.uint64)[0])


@contextmanager
def shared_numbers(seed: int) -> Iterator[Callable[[], None]]:
    """For the time of a step, a function that lets Python's and NumPy's global generators begin
    with the numbers of the step: to be called before each pass. Afterwards they go on as before.

    What a loss draws there is the same for all records of a pass. So it has to be the same in all
    passes of a step: a record that moves to another one contributes what it did.

    Args:
        seed: secret.
    """
    words = derived(seed, SeedUse.PASSES).generate_state(16)
    number = int.from_bytes(words[:8].tobytes())

    # Torch's numbers go on from pass to pass: those are for single records, each with its own. What
    # torch draws for all of them has seeds of its own (`shared_seed`).
    def begin() -> None:
        random.seed(number)
        np.random.seed(words[8:])  # noqa: NPY002

    with _others_kept():
        yield begin


def _seed_all(
    seed: int, use: SeedUse = SeedUse.PASSES, *, seed_torch: Callable[[int], object]
) -> None:
    # One algorithm serves both NumPy and torch: words of their own for each of them.
    words = derived(seed, use).generate_state(18)
    random.seed(int.from_bytes(words[:8].tobytes()))
    np.random.seed(words[8:16])  # noqa: NPY002
    seed_torch(int(words[16:].view(np.uint64)[0]))
