"""Records one by one; a record whose numbers Python sees in a process of its own, which forgets
them.

As long as a pass over one record shows Python no numbers, nothing of the record can stay behind:
what tensors hold is told by their marks (`separation/kept.py`). A loss that looks at numbers
(`if x.max() > 1`, `.item()`, texts in a batch, a custom operator) may keep them anywhere: in
attributes, globals, caches, settings of Python and torch. Nobody can look everywhere. So such a
pass runs in a copy of the process (`state/processes.py`), which computes the record's gradient,
hands it over and ends. What it kept ends with it, and every record starts from the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from discreet.errors import ModelError
from discreet.training.data.seeding import generators_seeded
from discreet.training.separation.states import OneByOne
from discreet.training.state.processes import in_copies

__all__ = ["one_by_one", "refuse_shared"]

_T = TypeVar("_T")


def one_by_one(
    compute: Callable[[int, bool], _T], records: Sequence[int], places: int
) -> Iterator[_T]:
    """Results for single records, in their order, each from random numbers of its own.

    Args:
        compute: for a record, and whether it is in a process of its own. Raises `OneByOne` where it
            is not, and has to be.
        records: places of the records.
        places: how many there are, those without a record included; public.

    Raises:
        ModelError: a process is needed, and cannot be had.
    """
    # Numbers that no other record can have moved on or seeded; from the secret seed of the step.
    seeds = torch.randint(2**62, (places,)).tolist()

    with generators_seeded() as seed:

        def seeded(record: int, *, apart: bool) -> _T:
            seed(seeds[record])
            return compute(record, apart)

        # Up to where Python would see a number, public things alone have decided: that a pass stops
        # there tells nothing of its record, which is computed again in a process of its own.
        done = 0
        for record in records:
            try:
                result = seeded(record, apart=False)
            except OneByOne:
                break

            done += 1
            yield result

        yield from in_copies([partial(seeded, record, apart=True) for record in records[done:]])


def refuse_shared(model: nn.Module) -> None:
    """Refuse a model in memory that other processes share: what a record's process writes there
    outlives it.

    Raises:
        ModelError: a parameter or buffer is shared.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        # Of accelerators' memory torch says that it is shared, always; there is no copy there.
        if tensor.device.type == "cpu" and tensor.is_shared():  # type: ignore[no-untyped-call]
            raise ModelError(
                expected="parameters and buffers in memory of this process, to compute records "
                "one by one",
                got=f"{name!r}, which other processes share",
                do="Leave out share_memory(), or copy the model: copy.deepcopy(model).",
            )
