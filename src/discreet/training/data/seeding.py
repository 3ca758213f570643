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
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

__all__ = ["Begin", "RandomState", "Use", "derived", "seeded"]


class Use(IntEnum):
    """What numbers are for that follow from one seed; those of different uses are independent."""

    FETCHING = 0
    COLLATING = 1
    TRIALS = 2
    WORKERS = 3


Begin: TypeAlias = Callable[[Use], None]
"""Lets the global generators begin with the numbers of one use, also a second time."""


def derived(seed: int, use: Use) -> np.random.SeedSequence:
    """The seeds of one use."""
    return np.random.SeedSequence(seed, spawn_key=(use,))


@contextmanager
def seeded(seed: int) -> Iterator[Begin]:
    """For the time of a block, global generators follow from a seed; afterwards they go on.

    Args:
        seed: secret.
    """
    of_random = random.getstate()
    of_numpy = np.random.get_state()  # noqa: NPY002  (what transforms draw from)
    try:
        with _torch_kept() as seed_torch:

            def begin(use: Use) -> None:
                # One algorithm serves both NumPy and torch: words of their own for each of them.
                words = derived(seed, use).generate_state(18)
                random.seed(int.from_bytes(words[:8].tobytes()))
                np.random.seed(words[8:16])  # noqa: NPY002
                seed_torch(int(words[16:].view(np.uint64)[0]))

            yield begin
    finally:
        random.setstate(of_random)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextmanager
def _torch_kept() -> Iterator[Callable[[int], object]]:
    """Of the processor; in the main process, whose data set may use it, also of an accelerator."""
    if get_worker_info() is None and torch.accelerator.is_available():
        with torch.random.fork_rng():
            yield torch.manual_seed
        return
    before = torch.default_generator.get_state()
    try:
        yield torch.default_generator.manual_seed
    finally:
        torch.default_generator.set_state(before)


@final
@dataclass(frozen=True, slots=True)
class RandomState:
    """Of torch's, NumPy's and Python's own generators at some time; of the processor."""

    of_torch: Tensor
    of_numpy: Any
    of_python: Any

    @classmethod
    def now(cls) -> RandomState:
        """As they are."""
        return cls(torch.get_rng_state(), np.random.get_state(), random.getstate())  # noqa: NPY002

    @contextmanager
    def again(self) -> Iterator[None]:
        """For the time of a pass, generators are as they were then; afterwards they go on."""
        now = RandomState.now()
        self.restore()
        try:
            yield
        finally:
            now.restore()

    def restore(self) -> None:
        """Generators are as they were then."""
        torch.set_rng_state(self.of_torch)
        np.random.set_state(self.of_numpy)  # noqa: NPY002
        random.setstate(self.of_python)
