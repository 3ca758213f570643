"""Another record in the place of one: what the isolation check puts in, to see whether the others notice.

Numbers with a fraction become 0.3 - 0.7 x. Whole numbers (tokens, labels, masks) become those of the row of the batch that
differs most; if all rows are equal, the same numbers in another order; a mask of equal entries loses its last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from discreet.training.structure import tensors_in

__all__ = ["another", "differing", "moved", "shortest_first"]

_IGNORED = -100  # torch's sign for a position that does not count
_PLAIN = (str, bytes, int, float, bool)


def another(few: Any, batch: Any, row: int) -> Any:
    """The same rows with another record in the place of one.

    Args:
        few: some rows of the batch; sensitive.
        batch: where other records are found; sensitive.
        row: of `few`, whose place another takes.
    """
    if isinstance(few, Tensor):
        return _another_tensor(few.detach(), batch.detach(), row) if few.ndim else few
    if isinstance(few, Mapping):
        parts = {name: another(part, batch[name], row) for name, part in few.items()}
        return parts if type(few) is dict else type(few)(parts)  # type: ignore[call-arg]
    if isinstance(few, (list, tuple)):
        if isinstance(few, list) and few and not any(isinstance(part, (Tensor, Mapping, list, tuple)) for part in few):
            return _another_item(few, batch, row)
        found = [another(part, whole, row) for part, whole in zip(few, batch, strict=True)]
        if isinstance(few, list):
            return found
        return tuple(found) if type(few) is tuple else type(few)(*found)
    return few


def moved(few: Any, changed: Any) -> tuple[bool, ...]:
    """Of each tensor with rows, whether it is another now."""
    pairs = zip(tensors_in(few), tensors_in(changed), strict=True)
    return tuple(not torch.equal(one, other) for one, other in pairs if one.ndim)


def differing(batch: Any) -> tuple[bool, ...]:
    """Of each tensor with rows, whether they differ."""
    return tuple(bool((one != one[:1]).any()) for one in tensors_in(batch) if one.ndim)


def shortest_first(batch: Any, records: int) -> Tensor:
    """An order of the rows, by how much their masks leave. Models may call other functions where a batch has short records.

    >>> shortest_first((torch.ones(3, 2), torch.tensor([[1, 1], [1, 0], [1, 1]])), 3).tolist()
    [1, 0, 2]
    """
    left = torch.zeros(records)
    for one in tensors_in(batch):
        whole = not one.is_floating_point() and not one.is_complex()
        if whole and one.ndim > 1 and len(one) == records and bool(((one == 0) | (one == 1)).all()):
            left += one.reshape(records, -1).float().sum(1).cpu()
    return left.argsort(stable=True)


def _another_tensor(few: Tensor, batch: Tensor, row: int) -> Tensor:
    other = _other(few, batch, row)
    if other is None:
        return few
    out = few.clone()
    out[row] = other
    return out


def _another_item(few: list[Any], batch: list[Any], row: int) -> list[Any]:
    """For lists of texts and plain numbers. Anything else is left alone."""
    others = [item for item in batch if isinstance(item, _PLAIN) and isinstance(few[row], _PLAIN) and item != few[row]]
    return [others[0] if others and place == row else item for place, item in enumerate(few)]


def _other(few: Tensor, batch: Tensor, row: int) -> Tensor | None:
    one = few[row]
    if not one.numel():
        return None
    if one.is_floating_point() or one.is_complex():
        return 0.3 - 0.7 * one
    rows = batch.reshape(batch.shape[0], -1)
    different = (rows != one.reshape(1, -1)).any(1)
    if bool(different.any()):
        distance = (rows.double().sum(1) - one.double().sum()).abs() + different
        found = batch[int(torch.where(different, distance, -1.0).argmax())].clone()
    else:
        found = one.reshape(-1).roll(1).reshape(one.shape)
    flat = found.reshape(-1)
    if flat.numel() > 1 and bool((rows == _IGNORED).any()):
        flat[(flat.numel() + 1) // 2 :] = _IGNORED
    if torch.equal(found, one) and flat.numel() > 1 and bool(((flat == 0) | (flat == 1)).all()):
        flat[-1] = ~flat[-1] if one.dtype == torch.bool else 1 - flat[-1]
    return None if torch.equal(found, one) else flat.reshape(one.shape)
