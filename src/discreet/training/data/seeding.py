"""Random numbers of data sets, transforms and collate functions: from the run's secret source.

For whoever knows them, random numbers of a row are a function of the row and not of the record, and
a record that moves to another row contributes something else (docs/proofs/sums.md, section 3). So
torch's generator, NumPy's global one and Python's `random` follow from a secret seed while entries
are fetched and collated. Generators that a data set makes for itself are its own business: they
must not be seeded with a number that others know.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
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
    of_numpy = np.random.get_state()  # noqa: NPY002  (what losses draw from)
    try:
        yield
    finally:
        random.setstate(of_random)
        np.random.set_state(of_numpy)  # noqa: NPY002


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
