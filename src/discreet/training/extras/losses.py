"""One loss per record of a finished model: what attacks on membership look at. Sensitive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import default_collate

from discreet import _validate as check
from discreet.errors import ModelError, ParameterError
from discreet.training.data.collating import Collate, NumberedRows, fetched
from discreet.training.engine import Loss

__all__ = ["losses"]

_OWNER = "losses"


def losses(
    model: nn.Module,
    loss: Loss,
    dataset: NumberedRows,
    *,
    batch_size: int = 256,
    collate: Collate | None = None,
) -> NDArray[np.float64]:
    """The loss of every record of a data set, in its order; the model stays as it is.

    The model computes in eval mode, without gradients.

    Guarantee: none. The numbers come from the records themselves, without noise: they are for
    whoever audits, and never to be published.

    Args:
        model: any.
        loss: as for `PrivateRun.backward`; statistics are ignored.
        dataset: with len() and entries found by number; sensitive.
        batch_size: records of one pass.
        collate: makes a batch of a list of entries, as for `PrivateRun.batches`.

    Raises:
        ModelError: the loss does not give one number for each record.

    >>> from torch.utils.data import TensorDataset
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 2.0)
    >>> rows = TensorDataset(torch.tensor([[1.0], [3.0]]))
    >>> losses(model, lambda model, batch: model(batch[0])[:, 0], rows).tolist()
    [2.0, 6.0]
    """
    # Checked before anything is computed, which may take long.
    check.instance(_OWNER, "model", model, nn.Module)
    size = check.whole(_OWNER, "batch_size", batch_size, least=1)
    count = len(dataset)
    if not count:
        raise ParameterError(
            owner=_OWNER, name="dataset", expected="at least one record", got="none"
        )

    values = np.empty(count)
    function = default_collate if collate is None else collate

    with _evaluating(model), torch.no_grad():
        for start in range(0, count, size):
            # In the order of the data set: losses are found again by their number.
            chosen = np.arange(start, min(start + size, count))
            batch = fetched(dataset, chosen, function)
            values[chosen] = _rows(loss(model, batch), chosen.size)

    return values


def _rows(result: Any, records: int) -> NDArray[np.float64]:
    has_statistics = isinstance(result, tuple) and len(result) == 2
    values = result[0] if has_statistics else result
    if not isinstance(values, Tensor) or values.shape != (records,):
        raise ModelError(
            expected="one loss for each record, of shape (B,)",
            got="something else",
            do=(
                'Use reduction="none", and average over the positions of each record, not over '
                "records."
            ),
        )

    rows: NDArray[np.float64] = values.detach().double().cpu().numpy()

    return rows


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode; afterwards every module is in the mode that it was in."""
    # model.train() would set all modules alike, also those that the user has frozen in eval mode.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
