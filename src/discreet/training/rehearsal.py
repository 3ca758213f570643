"""A loss is tried on made-up records before the first sample is charged: what can be refused from
shapes alone is.

Made-up records have the shapes and types of real ones and none of their numbers, so what is found
out here is public: that the loss does not give one number for each record, that statistics of the
plan are missing or have another size, or that others are returned, that a loss is no floating-point
number, that it writes into parameters or calls backward(). A model that cannot bear such records is
not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor

from discreet.errors import ModelError, ParameterError
from discreet.training.data.loading import Loading
from discreet.training.data.trees import count_rows, leaves, made_up
from discreet.training.engine import USER_ERRORS, Engine, Loss
from discreet.training.passes.sandbox import seeded_pass

__all__ = ["check_statistics", "own_names", "rehearse"]

_RECORDS = 7  # few, and unlikely to be a size of the model


def own_names(statistics: Mapping[str, int]) -> Mapping[str, int]:
    """Refuse statistics that would take the place of a parameter, or of a layer."""
    for name in statistics:
        if name.startswith(("grad/", "bn/")):
            raise ParameterError(
                owner="PrivateRun",
                name="statistics",
                expected='names such as "metric/accuracy", none that begins with "grad/" or "bn/"',
                got=repr(name),
            )

    return statistics


def rehearse(engine: Engine, loss: Loss, loading: Loading, statistics: Mapping[str, int]) -> None:
    """Try the loss on made-up records of the shapes and types that the data set gives.

    Args:
        engine: of the run.
        loss: of the user.
        loading: where the shapes come from: its first two entries, collated.
        statistics: name and size of what the loss must return for each record besides its loss.

    Raises:
        ModelError: the loss cannot be served, whatever the records are. Nothing was released.
    """
    try:
        entries = np.arange(_RECORDS) % max(1, len(loading.dataset))
        batch = made_up(loading.fetch(entries))

        # For texts and other objects nothing can be made up.
        are_tensors = all(isinstance(leaf, Tensor | None) for leaf in leaves(batch))
        if count_rows(batch) != {_RECORDS} or not are_tensors:
            return
    except USER_ERRORS:
        # The data set or its collate function cannot bear it; what is wrong shows when a sample
        # comes.
        return

    try:
        with seeded_pass(0):
            losses, returned = engine.rehearse(loss, batch, _RECORDS)
    except USER_ERRORS:
        # Real records may be different; what is wrong with them shows when they come.
        _refuse_backward(engine, loss, batch)
        return

    _check_losses(losses)
    check_statistics(returned, statistics, engine)


def _refuse_backward(engine: Engine, loss: Loss, batch: Any) -> None:
    """Refuse a loss that calls backward(): without a graph, as it was tried, that is an error like
    any other.

    Raises:
        ModelError: in a plain pass it would add to gradients. Nothing was released.
    """
    with suppress(*USER_ERRORS), seeded_pass(0):
        engine.plain_pass(loss, batch, _RECORDS)


def _check_losses(losses: Tensor) -> None:
    if not losses.is_floating_point():
        raise ModelError(
            expected="losses that are floating-point numbers",
            got=str(losses.dtype),
            do="Return one float for each record. Nothing was released.",
        )


def check_statistics(
    returned: Mapping[str, Tensor], statistics: Mapping[str, int], engine: Engine
) -> None:
    """Refuse a loss whose statistics are not those that were declared.

    Args:
        returned: by the loss, those of private batch normalisation included; only names and shapes
            are looked at.
        statistics: name and size of what was declared.
        engine: of the run.

    Raises:
        ModelError: one is missing, has another size or was not declared. Nothing was released.
    """
    undeclared = sorted(returned.keys() - statistics.keys() - engine.batch_norm.leaves.keys())
    if undeclared:
        raise ModelError(
            expected=f"a loss that returns the statistics of the run alone: {sorted(statistics)}",
            got=f"others: {undeclared}",
            do="Give PrivateRun(..., statistics={name: size}) and the plan a group for them, or "
            "leave them out of what the loss returns. Nothing was released.",
        )

    for name, size in statistics.items():
        _check_statistic(name, size, returned.get(name))


def _check_statistic(name: str, size: int, values: Tensor | None) -> None:
    if values is None:
        raise ModelError(
            expected=f"a loss that returns (losses, statistics) with {name!r}, as the plan says",
            got="none of that name",
            do=(
                f"Return it for each record, or leave {name!r} out of plan and run. Nothing was "
                "charged."
            ),
        )

    # The numbers of one record; of what has no rows, none.
    entries = values[0].numel() if values.ndim else 0
    if entries != size:
        raise ModelError(
            expected=f"{size} number(s) of {name!r} for each record, as the plan says",
            got=f"{entries}",
            do="Return a tensor (B,) or (B, k). Nothing was released.",
        )
