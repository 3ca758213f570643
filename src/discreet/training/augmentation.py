"""Several augmentations of each record, averaged within the record before anything is clipped. [De2022]

    record i ──> K copies, each changed at random ──> K losses ──> their average is the loss of record i ──> clipped once

The copies belong to their record: its gradient is the average of theirs, and the sensitivity is that of one record, whatever K
is. Clipped one by one and added up, K copies would move a sum by K clip norms.

An augmentation must make each row from the row in its place alone, with random numbers of torch's own generator, which a run
seeds from its secret source. That is tried out: half of the records become others, and the rest must keep its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from discreet import _validate as check
from discreet.errors import CoupledRecords, ModelError, ParameterError
from discreet.training.fetching import differ
from discreet.training.quiet import seeded
from discreet.training.rows import check_rows, count_rows, select

__all__ = ["Augmented", "augmented", "averaged", "mirrored", "shifted"]


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
        losses, *others = result if isinstance(result, tuple) and len(result) == 2 else (result,)
        if not isinstance(losses, Tensor) or losses.shape != (records * self.copies,):
            return result  # whoever asked refuses it
        mean = losses.view(records, self.copies).mean(1)
        return (mean, averaged(others[0], records)) if others else mean

    @torch.no_grad()
    def rows(self, batch: Any, records: int) -> Any:
        """The copies of each record one after the other, augmented, in new memory.

        Raises:
            ModelError: the augmentation changes the number of rows.
        """
        places = torch.arange(records).repeat_interleave(self.copies)
        out = self.augment(select(batch, places))
        check_rows(out, records * self.copies)
        return out

    def keeps_apart(self, batch: Any, records: int, attempt: int) -> bool:
        """Try out that a record's rows do not change with other records; False if these records are too alike to show it.

        Args:
            batch: with one row for each record; sensitive. No number of it appears in a message.
            records: at least 1.
            attempt: other records change in another attempt.

        Raises:
            CoupledRecords: they do.
            ModelError: it gives other rows from the same random numbers.
        """
        place = torch.arange(records)
        changed = torch.rand(records, generator=torch.Generator().manual_seed(attempt)) < 0.5
        others = select(batch, torch.where(changed, (place + 1) % records, place))
        plain, again, beside = (self._steadily(rows, records) for rows in (batch, batch, others))
        if differ(plain, again, torch.arange(records * self.copies)):
            raise ModelError(
                expected="an augmentation that draws random numbers with torch's own generators, and keeps no state",
                got="other rows from the same random numbers",
                do="Use torch.rand and the like: they follow from the secret source of the run.",
            )
        kept = (~changed).repeat_interleave(self.copies).nonzero()[:, 0]
        if differ(select(plain, kept), select(beside, kept), torch.arange(len(kept))):
            raise CoupledRecords(
                expected="an augmentation that makes each row from the row in its place alone",
                got="rows that change when other records do",
                do="Mix nothing between records: no mixup, no statistics of the batch. Copies of one record, which follow each "
                "other, may be mixed.",
            )
        return len(kept) > 0 and differ(batch, others, place)

    def _steadily(self, batch: Any, records: int) -> Any:
        with seeded(0):
            return self.rows(batch, records)


def augmented(loss: Callable[[Any, Any], Any], augment: Callable[[Any], Any], *, copies: int) -> Augmented:
    """A loss over several augmentations of each record, for `PrivateRun.backward`.

    The loss of record i is (1/K) sum_k loss(augmentation k of record i), K = `copies`. It is clipped once, as one record: the
    guarantee is that of the plan, for every K. A step takes about as long as one with K times the records.

    Guarantee: as of `PrivateRun`, if a row that `augment` makes depends on the row in its place and on torch's random numbers
    alone. Tried out at passes 1, 2, 4, 8, ...; what sleeps until a record is special is not seen.

    Args:
        loss: (model, rows) to one loss for each row, or to that and a mapping of statistics, which are averaged alike.
        augment: rows to rows of the same structure, each changed at random by itself; it may change them in place.
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
            expected = "a function that does not augment itself"
            raise ParameterError(owner="augmented", name=name, expected=expected, got=kind.__name__)
    return Augmented(loss, augment, check.whole("augmented", "copies", copies, least=1))


def averaged(statistics: Mapping[str, Tensor], records: int) -> dict[str, Tensor]:
    """Rows of statistics, averaged over the copies of each of so many records; as they are where there are no copies."""
    return {name: values if len(values) == records else _mean(values, records) for name, values in statistics.items()}


def _mean(values: Tensor, records: int) -> Tensor:
    rows = values if values.is_floating_point() else values.double()
    first, *others = rows.reshape(records, len(rows) // max(1, records), *rows.shape[1:]).unbind(1)
    total: Tensor = first.clone()
    for one in others:  # in this order for every record, whatever a library's reduction would do
        total += one
    return total / (1 + len(others))


def shifted(images: Tensor, most: int = 2, *, padding: Literal["zeros", "reflect"] = "zeros") -> Tensor:
    """Each image moved at random, by up to `most` pixels along both axes; whole pixels, uniformly.

    Args:
        images: (n, channels, height, width).
        most: pixels; less than height and width.
        padding: what comes in at the edges: zeros, or what is inside of the edge, mirrored.

    >>> image = torch.tensor([[[[0.0, 0.0, 0.0], [0.0, 7.0, 0.0], [0.0, 0.0, 0.0]]]])
    >>> float(shifted(image, most=1).max())  # the pixel in the middle is somewhere
    7.0
    """
    n, channels, height, width = _checked("shifted", images).shape
    pixels = check.whole("shifted", "most", most, least=0)
    if pixels >= min(height, width):
        expected = f"less than height and width, {height} and {width}"
        raise ParameterError(owner="shifted", name="most", expected=expected, got=str(pixels))
    if padding not in ("zeros", "reflect"):
        raise ParameterError(owner="shifted", name="padding", expected='"zeros" or "reflect"', got=repr(padding))
    moves = torch.randint(2 * pixels + 1, (n, 2), device=images.device)  # two numbers of each image follow each other
    down = moves[:, :1] + torch.arange(height, device=images.device)
    across = moves[:, 1:] + torch.arange(width, device=images.device)
    if padding == "zeros":
        images = pad(images, [pixels] * 4)
    else:
        down, across = _reflected(down - pixels, height), _reflected(across - pixels, width)
    places = (down.unsqueeze(2) * images.shape[3] + across.unsqueeze(1)).flatten(1)
    return images.flatten(2).gather(2, places.unsqueeze(1).expand(-1, channels, -1)).view(n, channels, height, width)


def _reflected(places: Tensor, size: int) -> Tensor:
    """Places beyond an edge as those inside of it, at the same distance."""
    return size - 1 - (size - 1 - places.abs()).abs()


def mirrored(images: Tensor) -> Tensor:
    """Each image as it is, or with left and right exchanged, by a fair coin.

    Args:
        images: (n, channels, height, width).

    >>> mirrored(torch.tensor([[[[1.0, 2.0]]]])).flatten().tolist() in ([1.0, 2.0], [2.0, 1.0])
    True
    """
    _checked("mirrored", images)
    coins = torch.randint(2, (len(images), 1, 1, 1), device=images.device, dtype=torch.bool)
    return torch.where(coins, images.flip(3), images)


def _checked(owner: str, images: Tensor) -> Tensor:
    if not isinstance(images, Tensor) or images.ndim != 4:
        got = f"a tensor of {images.ndim} axes" if isinstance(images, Tensor) else type(images).__name__
        raise ParameterError(owner=owner, name="images", expected="a tensor (n, channels, height, width)", got=got)
    return images
