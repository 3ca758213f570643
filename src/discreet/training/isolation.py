"""One record must not change what another contributes: tried out on three records before anything is released (P09, P11).

    as it is    with another record in one place, for each place    in another order    each record alone
       |                         |                                       |                     |
       +------ the others: equal bits, no buffer moves ---------- equal bits, or close -- equal up to rounding

Every pass starts from the same random numbers and leaves none of its traces: buffers and generators are put back. Dropout keeps
everything meanwhile. What the check cannot see: a coupling that needs more than three records, or data unlike these; so it is
tried again when the structure is learned anew, and from time to time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.alone import agree, losses_of, true_gradients, within
from discreet.training.contributions import Contributions, gathered
from discreet.training.culprit import CANNOT_BEAR, Changes, coupled_by, coupled_place
from discreet.training.perturbation import another, differing, moved
from discreet.training.quiet import full_precision, plain_forward
from discreet.training.recording import Recorder, Use
from discreet.training.rows import select
from discreet.training.steady import Steady, random_state
from discreet.training.structure import Axis, Structure
from discreet.training.values import Computed
from discreet.training.watching import Unclear

if TYPE_CHECKING:
    from discreet.training.engine import Engine, Loss

__all__ = ["Difference", "Isolation", "isolated", "uncoupled"]

_FEW = 3
_SHIFTED = (2, 0, 1)


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the check found out.

    Args:
        own_bits: whether records had the same bits next to other records. Where not, they are the same up to rounding: with
            other records the model calls other functions or has other shapes, or the device does not repeat its bits. Then
            only numerics that idealise rounding may be claimed.
        place_independent: whether records had the same bits in other places; up to rounding they have. False also where it
            cannot be seen: a pass that draws random numbers.
        random: whether a pass draws random numbers, dropout aside.
        moved: of each tensor of the batch, whether the check could put in another record's values.
    """

    own_bits: bool
    place_independent: bool
    random: bool
    moved: tuple[bool, ...]

    def due(self, batch: Any) -> bool:
        """Whether this batch could show more: a tensor whose rows were all equal so far, and now are not."""
        if all(self.moved):
            return False
        return any(now and not before for now, before in zip(differing(batch), self.moved, strict=False))


@dataclass(frozen=True, slots=True)
class Difference:
    """What moved: an input, a gradient, the loss, a statistic or a buffer; of which leaves, and whether in its bits alone."""

    kind: str
    name: str
    reshaped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """What one pass left behind."""

    recorder: Recorder
    losses: Tensor
    statistics: dict[str, Tensor]
    buffers: dict[str, Tensor]
    random: bool

    def contributions(self, engine: Engine) -> Contributions:
        return Contributions(gathered(self.recorder.uses, engine.parameters, lambda _, factor: factor), _FEW, _FEW)


def isolated(engine: Engine, loss: Loss, batch: Any, records: int, structure: Structure) -> Isolation:
    """Try it out.

    Args:
        engine: with the model.
        loss: of the user.
        batch: with `records` rows; sensitive. No number of it appears in a message.
        records: at least 1.
        structure: of a pass.

    Raises:
        CoupledRecords: a record moves another's numbers, or its numbers depend on its place, or a buffer takes up records.
        Unclear: the engine's gradients are not those of torch's autograd; records must be computed one by one.
    """
    trial = _Trial(engine, loss, structure, batch, select(batch, torch.arange(_FEW) % records))
    own, every = trial.neighbours()
    placed = trial.places()
    trial.one_by_one(trial.plain, trial.few, range(_FEW))
    return Isolation(own, placed, trial.plain.random, every)


class _Trial:
    """Passes over the same few records."""

    def __init__(self, engine: Engine, loss: Loss, structure: Structure, batch: Any, few: Any) -> None:
        self.engine, self.loss, self.structure, self.batch, self.few = engine, loss, structure, batch, few
        self.plain = self.look(few)

    def look(self, rows: Any) -> _Pass:
        results: list[Any] = []

        def noting(model: Any, data: Any) -> Any:
            results.append(self.loss(model, data))
            return results[-1]

        model = self.engine.model
        with plain_forward(model), Steady():
            before = random_state()
            recorder, statistics = self.engine.record(noting, rows, _FEW, _FEW, self.structure, trial=True)
            drew = not all(map(torch.equal, before, random_state()))
            buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        return _Pass(recorder, losses_of(results[0]).detach(), statistics, buffers, drew)

    def neighbours(self) -> tuple[bool, tuple[bool, ...]]:
        """Whether all bits stay when a neighbour is another; which tensors could be changed. Raises if numbers move."""
        own, changed = True, []
        for row in range(_FEW):
            seen, rows = self._other_look(row)
            if seen is None and self.plain.random:
                raise Unclear("which functions are called depends on the records, and on chance")
            changed.append(moved(self.few, rows))
            others = [place for place in range(_FEW) if place != row]
            found = list(_differences(self.plain, seen, others, others)) if seen is not None else []
            own = own and seen is not None and not found
            if seen is not None and found and not self._forgiven(found, seen, rows, others):
                raise coupled_by(found, self.engine, self.loss, self.structure, _changes(self.few, self.batch))
        return own, tuple(map(any, zip(*changed, strict=True)))

    def _other_look(self, row: int) -> tuple[_Pass | None, Any]:
        """The pass with another record. One that the model cannot bear is replaced by a record of the batch."""
        try:
            changed = another(self.few, self.batch, row)
            return self.look(changed), changed
        except (*CANNOT_BEAR, Unclear):
            real = _next_instead(self.few, row)
        try:
            return self.look(real), real
        except Unclear:  # which functions are called depends on this record: what is left is to compare each record alone
            return None, self.few

    def _forgiven(self, found: Sequence[Difference], seen: _Pass, rows: Any, others: Sequence[int]) -> bool:
        """Whether the difference is one of rounding, and may be: shapes moved, or this device does not repeat its bits."""
        if any(difference.kind == "buffer" for difference in found):
            return False
        again = list(_differences(self.plain, self.look(self.few), range(_FEW), range(_FEW)))
        on_cpu = all(parameter.device.type == "cpu" for parameter in self.engine.parameters.values())
        if not again and on_cpu and not all(difference.reshaped for difference in found):
            return False
        try:
            self.one_by_one(seen, rows, others)
        except Unclear:
            if again:
                raise ModelError(
                    expected="a model that computes the same when its random numbers are the same",
                    got="numbers that differ from pass to pass",
                    do="Draw random numbers with torch's own generators, and keep no state between passes.",
                ) from None
            return False
        return not self.plain.random

    def places(self) -> bool:
        """Whether records have the same bits in another order. Raises if they have other numbers."""
        if self.plain.random:
            return False
        order = list(_SHIFTED)
        rows = select(self.few, torch.tensor(order))
        try:
            seen = self.look(rows)
        except Unclear:
            return False
        if not any(_differences(self.plain, seen, order, range(_FEW))):
            return True
        if not _near(self.plain.losses[order], seen.losses):
            raise coupled_place()
        self.one_by_one(seen, rows, range(_FEW))
        return False

    def one_by_one(self, seen: _Pass, rows: Any, which: Sequence[int]) -> None:
        """Compare with torch's own gradients of each record alone; `Unclear` if they are others."""
        if seen.random:
            return self._one_alone()
        tolerance = self._tolerance(seen)
        with full_precision(self.engine.device):
            found = seen.contributions(self.engine)
        for row in which:
            truth = self._truth(select(rows, torch.tensor([row])))  # of one record at a time: it is as large as the model
            with full_precision(self.engine.device):
                if not agree(found, row, truth, tolerance):
                    raise _untrusted()
        return None

    def _one_alone(self) -> None:
        """The first record in a pass of its own: only so are the random numbers of both computations the same."""
        one = select(self.few, torch.tensor([0]))
        with plain_forward(self.engine.model), Steady():
            recorder, _ = self.engine.record(self.loss, one, 1, 1, self.structure, trial=True)
        truth = self._truth(one)
        with full_precision(self.engine.device):
            found = Contributions(gathered(recorder.uses, self.engine.parameters, lambda _, factor: factor), 1, 1)
            if not agree(found, 0, truth, self._tolerance(self.plain)):
                raise _untrusted()

    def _truth(self, one: Any) -> dict[str, Tensor]:
        model, parameters = self.engine.model, self.engine.parameters
        with self.engine.batch_norm.noting() as noting, Steady(noting):
            try:
                return true_gradients(model, self.loss, one, parameters)
            except CANNOT_BEAR:  # such as a squeeze() too many: two copies of the record instead of one
                both = true_gradients(model, self.loss, select(one, torch.tensor([0, 0])), parameters)
                return {leaf: gradient / 2 for leaf, gradient in both.items()}

    def _tolerance(self, seen: _Pass) -> float:
        inputs = (tensor for use in seen.recorder.uses for tensor, _ in use.inputs)
        return within([seen.losses, *self.engine.parameters.values(), *inputs])


def _changes(few: Any, batch: Any) -> Changes:
    return few, [another(few, batch, row) for row in range(_FEW)]


def _next_instead(few: Any, row: int) -> Any:
    order = torch.arange(_FEW)
    order[row] = (row + 1) % _FEW
    return select(few, order)


def _untrusted() -> Unclear:
    return Unclear("the recorded gradients are not those of a record alone")


def _differences(before: _Pass, after: _Pass, rows: Sequence[int], places: Sequence[int]) -> Iterator[Difference]:
    """What has other bits in `rows` of one pass than in `places` of the other: inputs in the order of calls, then the rest."""
    if len(before.recorder.uses) != len(after.recorder.uses):
        raise Unclear("how often a parameter is used depends on the records")
    pairs = list(zip(before.recorder.uses, after.recorder.uses, strict=True))
    for one, other in pairs:
        for (x, axis), (y, _) in zip(one.inputs, other.inputs, strict=True):
            # Whole numbers may be places in memory, such as where a bag begins; the factors show whether they matter.
            comparable = x.is_floating_point() and x.shape == y.shape
            if comparable and not _same(_rows(before, x, axis, rows), _rows(after, y, axis, places)):
                yield Difference("input", _named(one))
    if not _same(before.losses[rows], after.losses[places]):
        yield Difference("loss", "")
    for one, other in pairs:
        mine, its = list(_numbers(one.factor, rows)), list(_numbers(other.factor, places))
        reshaped = [part.shape for part in mine] != [part.shape for part in its]
        if reshaped or not all(map(_same, mine, its)):
            yield Difference("gradient", _named(one), reshaped)
    for name, values in before.statistics.items():
        if not _same(values[rows], after.statistics[name][places]):
            yield Difference("statistic", name)
    yield from _moved_buffers(before.buffers, after.buffers)


def _moved_buffers(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[Difference]:
    return (Difference("buffer", name) for name, values in before.items() if not _same(values, after[name]))


def _named(use: Use) -> str:
    value = use.value
    leaves = [value.leaf] if not isinstance(value, Computed) else [leaf for leaf, _ in value.sources]
    return ", ".join(leaf.removeprefix("grad/") for leaf in leaves)


def _rows(seen: _Pass, tensor: Tensor, axis: Axis | None, rows: Sequence[int]) -> Tensor:
    """What belongs to some records; all of what has no records; nothing where it is not known what belongs to whom."""
    if axis is None:
        return tensor
    outer = seen.recorder.in_order(tensor) if axis.fold > 1 else 1
    if axis.dim < 0 or outer is None or (axis.fold > 1 and axis.dim):
        return tensor.new_zeros(0)
    if axis.fold > 1:
        inner = tensor.shape[0] // (outer * _FEW)
        return tensor.reshape(outer, _FEW, inner, *tensor.shape[1:])[:, list(rows)]
    return tensor.movedim(axis.dim, 0)[list(rows)]


def _numbers(factor: Any, rows: Sequence[int]) -> Iterator[Tensor]:
    """All tensors of a factor, for some records."""
    for field in fields(factor) if is_dataclass(factor) else ():
        part = getattr(factor, field.name)
        if isinstance(part, Tensor):
            yield part[list(rows)] if part.shape[:1] == (_FEW,) else part
        else:
            yield from _numbers(part, rows)


def _same(x: Tensor, y: Tensor) -> bool:
    x, y = x.detach(), y.detach()
    if x.shape != y.shape:
        return False
    if x.is_floating_point() or x.is_complex():
        return torch.allclose(x, y, rtol=0.0, atol=0.0, equal_nan=True)
    return torch.equal(x, y)


def uncoupled(engine: Engine, loss: Loss, batch: Any, records: int) -> None:
    """For records that are computed one by one: refuse a model whose losses or buffers depend on the other records.

    Each record alone is isolated by construction; but a coupled loss would silently become another one, and a buffer that
    takes up records is released without noise.

    Raises:
        CoupledRecords: as for `isolated`.
    """
    few = select(batch, torch.arange(_FEW) % records)
    structure: Structure | None = None
    with contextlib.suppress(Unclear):
        structure = engine.learn(loss, batch, records)
    plain, buffers, random = _forward(engine, loss, few)
    for row in range(_FEW):
        others = [place for place in range(_FEW) if place != row]
        try:
            changed = another(few, batch, row)
            losses, after, _ = _forward(engine, loss, changed)
        except CANNOT_BEAR:
            changed = _next_instead(few, row)
            losses, after, _ = _forward(engine, loss, changed)
        found = list(_moved_buffers(buffers, after))
        if found or not _near(plain[others], losses[others]):
            raise coupled_by(found or [Difference("loss", "")], engine, loss, structure, _changes(few, batch))
    if not random:
        for row in range(_FEW):
            losses, _, drew = _forward(engine, loss, select(few, torch.tensor([row])))
            if not drew and not _near(plain[[row]], losses):
                raise coupled_by([Difference("loss", "")], engine, loss, structure, _changes(few, batch))


def _forward(engine: Engine, loss: Loss, rows: Any) -> tuple[Tensor, dict[str, Tensor], bool]:
    # With gradients on: a model may differentiate within its forward pass, or take another path without them.
    with engine.batch_norm.noting() as noting, torch.enable_grad(), plain_forward(engine.model), Steady(noting):
        before = random_state()
        losses = losses_of(loss(engine.model, rows)).detach()
        drew = not all(map(torch.equal, before, random_state()))
        return losses, {name: buffer.clone() for name, buffer in engine.model.named_buffers()}, drew


def _near(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, rtol=within([x, y]), atol=within([x, y]), equal_nan=True)
