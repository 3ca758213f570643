"""A loss is tried on made-up records before the first sample is charged: what can be refused from shapes alone is.

Made-up records have the shapes and types of real ones and none of their numbers, so what is found out
here is public: that the loss does not give one number for each record, that statistics of the plan are
missing or have another size, that a loss is no floating-point number, that it writes into parameters. A
model that cannot bear such records is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discreet.errors import ModelError, ParameterError
from discreet.training.culprit import CANNOT_BEAR
from discreet.training.engine import Engine, Loss
from discreet.training.loading import Loading
from discreet.training.quiet import seeded
from discreet.training.rows import count_rows

__all__ = ["own_names", "rehearse"]

_RECORDS = 2


def own_names(statistics: Mapping[str, int]) -> Mapping[str, int]:
    """Refuse statistics that would take the place of a parameter, or of a layer."""
    for name in statistics:
        if name.startswith(("grad/", "bn/")):
            expected = 'names such as "metric/accuracy", none that begins with "grad/" or "bn/"'
            raise ParameterError(owner="PrivateRun", name="statistics", expected=expected, got=repr(name))
    return statistics


class _NotMadeUp(Exception):
    """A batch holds something that no numbers can be made up for."""


def rehearse(engine: Engine, loss: Loss, loading: Loading, statistics: Mapping[str, int]) -> None:
    """Try the loss on made-up records of the shapes and types that the data set gives.

    Args:
        engine: of the run.
        loss: of the user.
        loading: where the shapes come from: its first two entries, collated.
        statistics: name and size of what the loss must return for each record besides its loss.

    Raises:
        ModelError: the loss cannot be served, whatever the records are. Nothing was charged.
    """
    try:
        entries = np.arange(_RECORDS) % max(1, len(loading.dataset))
        batch = _made_up(loading.fetch(entries))
        if count_rows(batch) != {_RECORDS}:
            return
        with seeded(0):
            losses, returned = engine.rehearse(loss, batch, _RECORDS)
    except (*CANNOT_BEAR, _NotMadeUp):
        return  # real records may be different; what is wrong with them shows when they come
    _check_losses(losses)
    for name, size in statistics.items():
        _check_statistic(name, size, returned.get(name))


def _check_losses(losses: Tensor) -> None:
    if not losses.is_floating_point():
        raise ModelError(
            expected="losses that are floating-point numbers",
            got=str(losses.dtype),
            do="Return one float for each record. Nothing was charged.",
        )


def _check_statistic(name: str, size: int, values: Tensor | None) -> None:
    if values is None:
        raise ModelError(
            expected=f"a loss that returns (losses, statistics) with {name!r}, as the plan says",
            got="none of that name",
            do=f"Return it for each record, or leave {name!r} out of plan and run. Nothing was charged.",
        )
    entries = values[0].numel() if values.ndim else 0
    if entries != size:
        raise ModelError(
            expected=f"{size} number(s) of {name!r} for each record, as the plan says",
            got=f"{entries}",
            do="Return a tensor (B,) or (B, k). Nothing was charged.",
        )


def _made_up(batch: Any) -> Any:
    """The same structure, shapes and types with other numbers: floats between -1 and 1, whole numbers 1, truth values true."""
    if isinstance(batch, Tensor):
        if batch.is_floating_point() or batch.is_complex():
            values = torch.linspace(-1.0, 1.0, max(1, batch.numel())).reshape(batch.shape)
            return values.to(batch.device, batch.dtype)
        return torch.ones_like(batch)
    if isinstance(batch, Mapping):
        parts = {name: _made_up(part) for name, part in batch.items()}
        return parts if type(batch) is dict else type(batch)(parts)  # type: ignore[call-arg]
    if isinstance(batch, list):
        return [_made_up(part) for part in batch]
    if isinstance(batch, tuple):
        made = [_made_up(part) for part in batch]
        return tuple(made) if type(batch) is tuple else type(batch)(*made)
    raise _NotMadeUp
