"""Several augmentations of each record, averaged within the record before anything is clipped.
[De2022]

    record i ──> K copies, each changed at random ──> K losses ──> their average ──> clipped once

The copies belong to their record: its gradient is the average of theirs, and the sensitivity is
that of one record, whatever K is. Clipped one by one and added up, K copies would move a sum by K
clip norms.

An augmentation must make the rows of a record from that record alone, with random numbers of
torch's own generator, which a run seeds from its secret source. That is proved in every pass, as of
the loss; what is not proved is computed record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.training.data.trees import check_rows, count_rows, select

__all__ = ["Augmented", "augmented", "averaged"]


@final
@dataclass(frozen=True, slots=True)
class Augmented:
    """A loss over several augmentations of each record; made by `augmented`.

    Args:
        loss: of rows.
        augment: of rows.
        copies: rows of each record.
    """

    loss: Callable[[Any, Any], Any]
    augment: Callable[[Any], Any]
    copies: int

    def __call__(self, model: Any, batch: Any) -> Any:
        """One loss for each record, the average over its copies; statistics likewise."""
        records = max(count_rows(batch), default=0)
        result = self.loss(model, self.rows(batch, records))
        has_statistics = isinstance(result, tuple) and len(result) == 2
        losses, *statistics = result if has_statistics else (result,)

        # Whoever asked refuses what does not have a loss for each copy.
        if not isinstance(losses, Tensor) or losses.shape != (records * self.copies,):
            return result

        mean = losses.view(records, self.copies).mean(1)
        return (mean, averaged(statistics[0], records)) if statistics else mean

    @torch.no_grad()
    def rows(self, batch: Any, records: int) -> Any:
        """The copies of each record one after the other, augmented, in new memory.

        Raises:
            ModelError: the augmentation changes the number of rows.
        """
        # Copies of a record lie side by side, as `view(records, copies)` above takes them.
        places = torch.arange(records).repeat_interleave(self.copies)
        out = self.augment(select(batch, places))
        check_rows(out, records * self.copies)
        return out


def augmented(
    loss: Callable[[Any, Any], Any], augment: Callable[[Any], Any], *, copies: int
) -> Augmented:
    """A loss over several augmentations of each record, for `PrivateRun.backward`.

    The loss of record i is (1/K) sum_k loss(augmentation k of record i), K = `copies`. It is
    clipped once, as one record: the guarantee is that of the plan, for every K. A step takes about
    as long as one with K times the records.

    Guarantee: as of `PrivateRun`, if the rows that `augment` makes of a record depend on that
    record and on torch's random numbers alone. That is proved in every pass
    (docs/proofs/separation.md), or `augment` is given one record at a time.

    Args:
        loss: (model, rows) to one loss for each row, or to that and a mapping of statistics, which
            are averaged alike.
        augment: rows to rows of the same structure, each changed at random by itself; it may change
            them in place.
        copies: K.

    Raises:
        ParameterError: something is not a function, or augments already.

    >>> def loss(model, x):
    ...     return model(x)[:, 0]
    >>> several = augmented(loss, lambda x: x + torch.randint(0, 2, x.shape), copies=4)
    >>> several(torch.nn.Linear(3, 1), torch.eye(3)).shape
    torch.Size([3])
    """
    for name, function in (("loss", loss), ("augment", augment)):
        kind = type(function)
        if not callable(function) or kind is Augmented:
            raise ParameterError(
                owner="augmented",
                name=name,
                expected="a function that does not augment itself",
                got=kind.__name__,
            )

    return Augmented(loss, augment, check.whole("augmented", "copies", copies, least=1))


def averaged(statistics: Mapping[str, Tensor], records: int) -> dict[str, Tensor]:
    """Rows of statistics, averaged over the copies of each of so many records; as they are where
    there are no copies.
    """
    return {
        name: values if len(values) == records else _mean(values, records)
        for name, values in statistics.items()
    }


def _mean(values: Tensor, records: int) -> Tensor:
    rows = values if values.is_floating_point() else values.double()
    by_record = rows.reshape(records, len(rows) // max(1, records), *rows.shape[1:])
    first, *later_copies = by_record.unbind(1)

    # In this order for every record, whatever a library's reduction would do.
    total: Tensor = first.clone()
    for copy in later_copies:
        total += copy

    return total / (1 + len(later_copies))
