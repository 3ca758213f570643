"""Which layer or loss couples records: the first function whose result moved for records that did not.

Looked for only after the check has failed, so it may take its time.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords, DiscreetError
from discreet.training.quiet import plain_forward
from discreet.training.steady import Steady
from discreet.training.structure import Axis, Structure, tensors_in
from discreet.training.watching import Tracer

if TYPE_CHECKING:
    from discreet.training.engine import Engine, Loss
    from discreet.training.isolation import Difference

__all__ = [
    "CANNOT_BEAR",
    "Changes",
    "coupled_by",
    "coupled_layer",
    "coupled_place",
    "keeping_statistics",
    "named",
    "over_the_batch",
    "replacement",
]

CANNOT_BEAR = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a user's model may raise when a record is unlike any real one."""

_OF_LOSS = (
    "Average over the positions of each record, not over those of the batch, and compare a record with nothing from others "
    "(no contrast within the batch, no weights from batch totals)."
)
_OF_LAYER = "Let the layer compute each record by itself: statistics over the batch become those of a record, as in GroupNorm."
_OF_BUFFER = "Use track_running_stats=False, or eval mode, or private batch statistics: a buffer leaves without noise."

Changes: TypeAlias = tuple[Any, Sequence[Any]]
"""Some records; the same with another in the first place, in the second, and so on."""


class _Called(NamedTuple):
    """A function, the layer it was called in, and what it gave."""

    function: str
    layer: str
    out: list[Tensor]


def over_the_batch(model: nn.Module) -> dict[str, nn.Module]:
    """Batch normalisation that uses the batch at hand, by name: in train mode, or without running statistics."""
    kind = nn.modules.batchnorm._BatchNorm  # noqa: SLF001  (there is no other name for all of them)
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, kind) and (layer.training or layer.running_mean is None)
    }


def keeping_statistics(model: nn.Module) -> dict[str, nn.Module]:
    """Instance normalisation that writes records into its buffers, by name."""
    kind = nn.modules.instancenorm._InstanceNorm  # noqa: SLF001
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, kind) and layer.training and layer.track_running_stats
    }


def replacement(name: str, channels: int) -> str:
    """Code that puts group normalisation in the place of a layer.

    >>> replacement("blocks.0.norm", 48)
    'model.set_submodule("blocks.0.norm", torch.nn.GroupNorm(12, 48))'
    """
    groups = max(count for count in range(1, 33) if channels % count == 0 and (count == 1 or 4 * count <= channels))
    return f'model.set_submodule("{name}", torch.nn.GroupNorm({groups}, {channels}))'


def named(error: CoupledRecords, model: nn.Module) -> CoupledRecords:
    """The same error, with the names of the layers that normalise over the batch, or keep statistics."""
    layers = keeping_statistics(model) if "instance normalisation" in error.got else over_the_batch(model)
    if not layers:
        return error
    return CoupledRecords(expected=error.expected, got=f"{error.got}: {', '.join(map(repr, layers))}", do=error.do)


def coupled_place() -> CoupledRecords:
    """A record's numbers depend on its row."""
    return CoupledRecords(
        expected="a record that contributes the same in every row of the batch",
        got="numbers that change with the order of the records",
        do="Use no row numbers of the batch, and no parameter that has a row for each place in it.",
    )


def coupled_by(
    found: Sequence[Difference], engine: Engine, loss: Loss, structure: Structure | None, changes: Changes
) -> CoupledRecords:
    """The error for what was found.

    Args:
        found: in the order of calls; at least one.
        engine: with the model.
        loss: of the user.
        structure: of a pass, if it is known.
        changes: the records, and the same with another in each place; sensitive. A record that moves another's gradient may
            leave its numbers alone on the way forward, and the other way round: so all of them are looked at.
    """
    first = next((one for one in found if one.kind == "buffer"), found[0])
    if first.kind == "buffer":
        owner = engine.model.get_submodule(first.name.rpartition(".")[0])
        got = f"a buffer that takes up records without noise: {first.name!r} of {type(owner).__name__}"
        return CoupledRecords(expected="buffers that do not depend on the records", got=got, do=_OF_BUFFER)
    if first.kind == "statistic":
        return CoupledRecords(
            expected="statistics of each record by itself",
            got=f"rows of {first.name!r} that change with other records",
            do="Return for each record what it alone gives.",
        )
    place, layer = ("", False) if structure is None else _place(engine, loss, structure, changes)
    if not place:
        place = f"what comes before {first.name}" if first.kind == "input" else "the loss, or what follows the last layer"
        layer = first.kind == "input"
    return _coupled(place, layer=layer)


def coupled_layer(engine: Engine, loss: Loss, structure: Structure, changes: Changes) -> CoupledRecords | None:
    """The error for the first layer whose results move; None if no layer's do. Arguments as above."""
    place, layer = _place(engine, loss, structure, changes)
    return _coupled(place, layer=layer) if layer else None


def _coupled(place: str, *, layer: bool) -> CoupledRecords:
    return CoupledRecords(
        expected="a model and a loss that treat every record by itself",
        got=f"one record that changes the numbers of others, in {place}",
        do=_OF_LAYER if layer else _OF_LOSS,
    )


def _place(engine: Engine, loss: Loss, structure: Structure, changes: Changes) -> tuple[str, bool]:
    """In words, and whether it is within a layer; nothing if it cannot be told."""
    few, others = changes
    names = {id(module): name for name, module in engine.model.named_modules()}
    for row, changed in enumerate(others):
        try:
            before, after = (_calls(engine, loss, batch, names) for batch in (few, changed))
        except (DiscreetError, *CANNOT_BEAR):
            continue
        for one, other, axes in zip(before, after, structure.calls, strict=False):
            if _moved(one.out, other.out, axes.outputs, row):
                return (f"`{one.function}` of {one.layer}", True) if one.layer else (f"`{one.function}` of the loss", False)
    return "", False


def _moved(before: Sequence[Tensor], after: Sequence[Tensor], axes: Sequence[Axis | None], row: int) -> bool:
    """Whether results of other records than the one in this row differ."""
    for one, other, axis in zip(before, after, axes, strict=False):
        if axis is None or not axis.clear or one.shape != other.shape:
            continue
        mine, its = (
            torch.cat([part.movedim(axis.dim, 0)[:row], part.movedim(axis.dim, 0)[row + 1 :]]) for part in (one, other)
        )
        if not torch.allclose(mine.double(), its.double(), rtol=0.0, atol=0.0, equal_nan=True):
            return True
    return False


def _calls(engine: Engine, loss: Loss, batch: Any, names: Mapping[int, str]) -> list[_Called]:
    """Every call of a pass."""
    found: list[_Called] = []

    def look(_number: int, name: str, out: Any) -> None:
        found.append(_Called(name, _layer(names), [tensor.detach().clone() for tensor in tensors_in(out)]))

    with engine.batch_norm.noting() as noting, torch.enable_grad(), plain_forward(engine.model), Steady(), Tracer(noting, look):
        loss(engine.model, batch)
    return found


def _layer(names: Mapping[int, str]) -> str:
    """The innermost layer whose code is running; empty outside the model."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            return f"{names[id(owner)] or 'the model'!r} ({type(owner).__name__})"
        frame = frame.f_back
    return ""
