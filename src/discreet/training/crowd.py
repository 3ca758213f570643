"""The check of isolation at full size: half of the records of a real batch become others, and the rest must not notice.

Three records do not show a coupling that needs more: neighbours at a distance, the hardest of many, a table with a row for each
place. So a pass as large as the real one is repeated with other real records in half of its rows; losses, and the norm of
whatever the contributions of the other half are made of, must have the same bits. Only two numbers for each record and tensor
are kept, so this takes the memory of one pass. Legend: m records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from discreet.errors import CoupledRecords
from discreet.training.alone import losses_of, within
from discreet.training.quiet import plain_forward
from discreet.training.rows import select
from discreet.training.structure import Structure
from discreet.training.watching import Unclear

if TYPE_CHECKING:
    from discreet.training.engine import Engine, Loss

__all__ = ["undisturbed"]


def undisturbed(engine: Engine, loss: Loss, batch: Any, records: int, structure: Structure) -> bool:
    """Whether half of the records have the same bits next to others; False: up to rounding, or it cannot be seen.

    Args:
        engine: with the model.
        loss: of the user.
        batch: with `records` rows; sensitive.
        records: m.
        structure: of a pass.

    Raises:
        CoupledRecords: they have other numbers.
        Unclear: the pass cannot be recorded.
    """
    place = torch.arange(records)
    changed = torch.rand(records, generator=torch.Generator().manual_seed(engine.checks)) < 0.5  # others next time
    other = (place + engine.copies) % records  # not a copy of the same record
    before = _seen(engine, loss, batch, records, structure)
    try:
        after = _seen(engine, loss, select(batch, torch.where(changed, other, place)), records, structure)
    except Unclear:  # which functions are called depends on the records
        return False
    if len(before) != len(after):
        return False
    pairs = [(one[~changed], other[~changed]) for one, other in zip(before, after, strict=True)]
    if all(torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True) for one, other in pairs):
        return True
    tolerance = within(engine.parameters.values())
    if not all(torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True) for one, other in pairs):
        raise CoupledRecords(
            expected="a model and a loss that treat every record by itself",
            got="records that change the numbers of others, in a batch as large as this one",
            do="Let every layer and the loss compute each record by itself, however many there are: no shifts along the "
            "records, no thresholds or totals of the batch.",
        )
    return False


def _seen(engine: Engine, loss: Loss, batch: Any, records: int, structure: Structure) -> list[Tensor]:
    """Numbers of each record, (m,) float64: its loss, the lengths of its factors and of its statistics."""
    results: list[Any] = []

    def noting(model: Any, data: Any) -> Any:
        results.append(loss(model, data))
        return results[-1]

    with plain_forward(engine.model):
        recorder, statistics = engine.record(noting, batch, records, records, structure, trial=True)
    parts = [part for use in recorder.uses for part in _tensors(use.factor)] + list(statistics.values())
    return [
        losses_of(results[0]).detach().double().expand(records),
        *(_lengths(part, records) for part in parts if len(part) == records),
    ]


def _lengths(part: Tensor, records: int) -> Tensor:
    rows = part.detach().reshape(records, -1)
    found: Tensor = torch.linalg.vector_norm(rows if rows.is_floating_point() or rows.is_complex() else rows.double(), dim=1)
    return found.double()


def _tensors(factor: Any) -> Iterator[Tensor]:
    for field in fields(factor) if is_dataclass(factor) else ():
        part = getattr(factor, field.name)
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors(part)
