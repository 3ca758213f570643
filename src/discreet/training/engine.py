"""From a user's loss to what each record contributes: one forward pass, one backward pass, no weight gradients.

    loss(model, batch) under a Recorder ──> one backward to the anchor ──> factors by leaf ──> Contributions

The model is not wrapped, renamed or changed. What no rule covers is computed record by record: slower, and exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords, ModelError
from discreet.training.augmentation import Augmented, averaged
from discreet.training.batch_norm import Alone, PrivateBatchNorm
from discreet.training.choice import Choice, Chooser, table
from discreet.training.contributions import Contributions, Piece, gathered
from discreet.training.crowd import undisturbed
from discreet.training.culprit import named
from discreet.training.factors import Dense, Factor, wide
from discreet.training.guards import refuse_kinds
from discreet.training.isolation import Isolation, isolated, uncoupled
from discreet.training.memory import Activations, Kept, Watching
from discreet.training.mixing import Flow, mixing_of
from discreet.training.perturbation import shortest_first
from discreet.training.quiet import full_precision, plain_forward, seeded
from discreet.training.recording import Recorder, Use
from discreet.training.rows import select
from discreet.training.rules import RULES
from discreet.training.structure import CallShapes, Structure
from discreet.training.values import Computed, Part, whole
from discreet.training.watching import Tracer, Unclear

__all__ = ["Engine", "Loss", "trained"]

Loss: TypeAlias = Callable[[Any, Any], Any]
"""(model, batch) to one loss for each record, (B,); or to that and a mapping of per-record statistics, (B, ...) each."""

_BUDGET = 2**28
_EARLY = 16  # passes
_FEW = 3  # records that show the structure
_PASS = 1.5  # memory of a pass, in units of plain training's
_NO_ROWS = "the loss gives no single value for each record"


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that are trained, by leaf; a shared one once."""
    return {f"grad/{name}": parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


class Engine:
    """Per-record gradients of a model, whatever it computes.

    Args:
        model: with at least one parameter that requires a gradient.
        batch_norm: private statistics of batch normalisation; without, such layers are refused in train mode.
        memory_budget: bytes that the gradients of single records may take in one pass; more are never formed.
        form: fixed form of factors ("ghost", "direct"), instead of what is fastest.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        batch_norm: PrivateBatchNorm | None = None,
        memory_budget: int = _BUDGET,
        form: str | None = None,
    ) -> None:
        self.model = model
        self.batch_norm = PrivateBatchNorm(nn.Module()) if batch_norm is None else batch_norm
        self.parameters = trained(model)
        refuse_kinds(self.parameters)
        self._chooser = Chooser(memory_budget, form)
        self._structure: Structure | None = None
        self._flows: Sequence[Flow] = ()  # of the last pass that was traced
        self._mixing: str | None = None
        self._uses: dict[str, int] = {}
        self._count = 0
        self._checked: tuple[object, ...] = ()
        self._augmented_by: object = None  # code that was seen to keep records apart
        self.copies = 1  # rows of a record in a pass
        self.checks = 0  # of isolation, so far
        self.isolation: Isolation | None = None  # what the last check of isolation found
        self.loop_because: str | None = None  # why records are computed one by one; None if they are not
        self.varies: str | None = None  # what has changed from pass to pass, and so may depend on records; None if nothing has
        self._lengths: dict[tuple[object, ...], int] = {}  # positions of every use

    @property
    def leaves(self) -> dict[str, int]:
        """Dimension of every leaf, those of private statistics included."""
        return {leaf: parameter.numel() for leaf, parameter in self.parameters.items()} | self.batch_norm.leaves

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Form of every use, with what was measured."""
        return tuple(self._chooser.choices.values())

    def explain(self) -> str:
        """A table: form, seconds by form and megabytes of every leaf, as chosen in the first step. Public."""
        if self.loop_because is not None:
            return f"Records are computed one by one: {self.loop_because}."
        return table(self.choices) if self.choices else "Nothing is chosen before the first step."

    def passes(
        self, loss: Loss, batch: Any, records: int, present: int | Tensor
    ) -> Iterator[tuple[Contributions, dict[str, Tensor]]]:
        """What rows contribute, and their statistics: all at once, or one by one.

        Args:
            loss: of the user; if it is `Augmented`, a row becomes several, which contribute as one.
            batch: structure with `records` rows; sensitive.
            records: rows of the pass, the padding included.
            present: which rows are records: how many of the first, or one bool for each; sensitive.
        """
        self._check_parameters()
        self._count += 1
        self._refuse_mixing(loss, batch, records)
        loss, batch = self._opened(loss, batch, records)
        if self.loop_because is None:
            try:
                yield self._recorded(loss, batch, records, present)
            except Unclear as reason:
                self.loop_because = str(reason)
                if self.isolation is not None:  # a few records could be followed, so it is for the others that these cannot
                    self.varies = str(reason)
            else:
                return
        if self.isolation is not None or self._check_due(loss, batch):
            self.isolation, self._checked = None, self._circumstances(loss)
            uncoupled(self, loss, batch, records * self.copies)
        for row in Contributions({}, records, present).mask.nonzero():
            yield self._alone(loss, select(batch, row * self.copies + torch.arange(self.copies)))

    def _refuse_mixing(self, loss: Loss, batch: Any, records: int) -> None:
        """Try out an augmentation at passes 1, 2, 4, 8, ... and whenever it is another one."""
        if isinstance(loss, Augmented):
            code = getattr(loss.augment, "__code__", type(loss.augment))
            due = not self._count & (self._count - 1) or self._augmented_by != code
            if due and loss.keeps_apart(batch, records, self._count):
                self._augmented_by = code

    def _opened(self, loss: Loss, batch: Any, records: int) -> tuple[Loss, Any]:
        """The loss of rows, and rows: as many of each record as there are copies."""
        self.copies = loss.copies if isinstance(loss, Augmented) else 1
        return (loss.loss, loss.rows(batch, records)) if isinstance(loss, Augmented) else (loss, batch)

    @property
    def device(self) -> torch.device:
        """Where sums are kept."""
        return next(iter(self.parameters.values())).device

    @property
    def single(self) -> bool:
        """Whether no parameter needs more than single precision."""
        return all(parameter.dtype != torch.float64 for parameter in self.parameters.values())

    def fitting(self, loss: Loss, batch: Any, records: int, budget: int, most: int) -> int:
        """How many records one pass may have, by an estimate of the memory that each takes; at most `most`. Public."""
        if self._structure is None:
            few = min(_FEW, records)
            with contextlib.suppress(Unclear):
                with seeded(0):  # for the shapes alone
                    row_loss, rows = self._opened(loss, select(batch, torch.arange(few)), few)
                self._structure = self.learn(row_loss, rows, few * self.copies)
        return max(1, min(most, budget // max(1, int(_PASS * self._chooser.activations.peak))))

    def rehearse(self, loss: Loss, batch: Any, records: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses and statistics of one pass that leaves no trace, checked as in earnest; for made-up records.

        Raises:
            ModelError: there is not one loss for each record, or one row of each statistic.
        """
        row_loss, rows = self._opened(loss, batch, records)
        with self.batch_norm.noting() as noting, torch.no_grad(), plain_forward(self.model):
            result = row_loss(self.model, rows)
            return _parts(result, records * self.copies, noting.statistics())

    def _recorded(self, loss: Loss, batch: Any, records: int, present: int | Tensor) -> tuple[Contributions, dict[str, Tensor]]:
        rows, here = records * self.copies, present
        if self.copies > 1:
            here = Contributions({}, records, present).mask.repeat_interleave(self.copies)
        if self._structure is None or self._check_due(loss, batch):
            self._structure = self._understood(loss, batch, rows)
        try:
            recorder, statistics = self.record(loss, batch, rows, here, self._structure)
        except Unclear:
            self._structure = self._understood(loss, batch, rows)
            recorder, statistics = self.record(loss, batch, rows, here, self._structure)
        with full_precision(self.device):
            pieces = gathered(recorder.uses, self.parameters, self._finish_leaf)
        return Contributions(pieces, records, present), averaged(statistics, records)

    def _check_due(self, loss: Loss, batch: Any) -> bool:
        """At passes 1, 64, 4096, ...; with another loss or in another mode; in the first ones, if a batch could show more."""
        if _power_of_64(self._count) or self._checked != self._circumstances(loss):
            return True
        return self._count < _EARLY and self.isolation is not None and self.isolation.due(batch)

    def _circumstances(self, loss: Loss) -> tuple[object, ...]:
        """What makes it another computation: the code of the loss, rows of a record, and which layers are in train mode."""
        return getattr(loss, "__code__", type(loss)), self.copies, *(module.training for module in self.model.modules())

    def _understood(self, loss: Loss, batch: Any, records: int) -> Structure:
        before = self.isolation
        order = shortest_first(batch, records).view(-1, self.copies).T.reshape(-1)  # copies of a record apart
        few = select(batch, order)  # a few records must stand for all
        structure = self.learn(loss, few, records)
        self.isolation = isolated(self, loss, few, records, structure)
        if not undisturbed(self, loss, batch, records, structure):
            self.isolation = replace(self.isolation, own_bits=False)
        self.checks += 1
        self._checked = self._circumstances(loss)
        if self._mixing is not None:
            self.isolation = before
            raise Unclear(self._mixing)
        return structure

    def learn(self, loss: Loss, batch: Any, records: int) -> Structure:
        """The structure of a pass over this batch."""
        (two, less), (three, more) = (self._traced(loss, select(batch, torch.arange(count) % records)) for count in (2, 3))
        self._chooser.activations = Activations.between(less, more, len(three)).times(self.copies)
        found = Structure.between(two, three)
        if found is None:
            raise Unclear("the model does not call the same functions for another number of records")
        self._mixing = mixing_of(found, self._flows)
        return found

    def _traced(self, loss: Loss, few: Any) -> tuple[list[CallShapes], Kept]:
        """The calls of a pass that leaves no trace, and what autograd keeps of it."""
        kept = Kept()
        try:
            return self._trace(loss, few, kept.watching), kept
        except RuntimeError:  # torch.func does not bear that what autograd keeps is watched; any other error comes again
            return self._trace(loss, few, lambda _: contextlib.nullcontext()), Kept()

    def _trace(self, loss: Loss, few: Any, watching: Watching) -> list[CallShapes]:
        try:
            with (
                self.batch_norm.noting() as noting,
                torch.enable_grad(),
                plain_forward(self.model),
                Tracer(noting, parameters=self.parameters) as tracer,
                watching(lambda: tracer.calls - 1),
            ):
                loss(self.model, few)
        except CoupledRecords as error:
            raise named(error, self.model) from None
        self._flows = tracer.flows.calls
        shapes: list[CallShapes] = tracer.shapes
        return shapes

    def record(
        self, loss: Loss, batch: Any, records: int, present: int | Tensor, structure: Structure, *, trial: bool = False
    ) -> tuple[Recorder, dict[str, Tensor]]:
        """One forward and one backward pass over rows. A trial keeps what was met, and every factor as it is, of each row."""
        copies = 1 if trial else self.copies

        def finish(use: Use, factor: Factor) -> Factor:
            value = use.value
            place = (use.number, getattr(value, "leaf", ""), factor.shape)
            if not trial and self._lengths.setdefault(place, factor.positions) != factor.positions:
                self.varies = "sequences have other lengths than before"
            factor = factor if copies == 1 else factor.joined(copies)
            if trial or not isinstance(value, Part) or self._uses.get(value.leaf) != 1:
                return factor
            return self._chooser.finished(value.leaf, factor, use.number)

        with self.batch_norm.noting() as noting, torch.enable_grad(), self._quietly():
            with Recorder(self.parameters, structure, records, RULES, finish, noting, keep_inputs=trial) as recorder:
                result = loss(self.model, batch)
            losses, statistics = _parts(result, records, noting.statistics())
            with full_precision(self.device):
                self._backward(losses, _share_of(losses, present) / copies, recorder)
        self._uses = _counted(recorder.uses)
        return recorder, statistics

    def _quietly(self) -> AbstractContextManager[None]:
        return plain_forward(self.model, restore=False, trained=self.parameters)

    def _backward(self, losses: Tensor, shares: Tensor, recorder: Recorder) -> None:
        """Of the losses times their shares."""
        if not losses.requires_grad:
            raise ModelError(
                expected="a loss that depends on a parameter",
                got="one that depends on none",
                do="Check that the loss uses the model, and that it is not detached.",
            )
        targets = [recorder.anchor, *self.parameters.values()]
        try:
            _, *missed = torch.autograd.grad(losses, targets, shares, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as reason:  # if it is the user's own mistake, it shows again when records are computed one by one
            raise Unclear("the backward pass cannot be followed") from reason
        for leaf, gradient in zip(self.parameters, missed, strict=True):
            if gradient is not None:
                raise Unclear(f"{leaf} is used in a function that cannot be seen")

    def _finish_leaf(self, leaf: str, factor: Factor) -> Factor:
        return factor if self._uses.get(leaf) == 1 else self._chooser.finished(leaf, factor, 0)

    def _alone(self, loss: Loss, batch: Any) -> tuple[Contributions, dict[str, Tensor]]:
        """One record by itself, all of its rows, with torch's own gradients."""
        with self.batch_norm.noting() as noting, torch.enable_grad(), self._quietly():
            with Alone(noting):
                result = loss(self.model, batch)
            losses, rows = _parts(result, self.copies, noting.statistics())
            statistics = averaged(rows, 1)
            if not losses.requires_grad:
                return Contributions({}, 1, 1), statistics
            found = torch.autograd.grad(losses.mean(), list(self.parameters.values()), allow_unused=True)
        pieces = {
            leaf: (Piece(whole(parameter), Dense(wide(_full(gradient)).unsqueeze(0))),)
            for (leaf, parameter), gradient in zip(self.parameters.items(), found, strict=True)
            if gradient is not None
        }
        return Contributions(pieces, 1, 1), statistics

    def _check_parameters(self) -> None:
        now = trained(self.model)
        if {leaf: id(p) for leaf, p in now.items()} != {leaf: id(p) for leaf, p in self.parameters.items()}:
            changed = sorted(set(now) ^ set(self.parameters)) or ["others of the same names"]
            raise ModelError(
                expected="the parameters that the run began with",
                got=f"changed: {', '.join(changed)}",
                do="Freeze and unfreeze before the run begins: every trained parameter belongs to the plan's leaves.",
            )


def _full(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _share_of(losses: Tensor, present: int | Tensor) -> Tensor:
    """Of each row in the sum of all losses: 1, or 0 where it is padding."""
    mask = torch.arange(len(losses)) < present if isinstance(present, int) else present
    return mask.to(losses)


def _power_of_64(count: int) -> bool:
    return not count & (count - 1) and count.bit_length() % 6 == 1


def _counted(uses: Iterable[Use]) -> dict[str, int]:
    """How often each leaf was used; one that was used otherwise than as it is, or in part, counts as used several times."""
    count: dict[str, int] = {}
    for use in uses:
        leaves = [leaf for leaf, _ in use.value.sources] if isinstance(use.value, Computed) else [use.value.leaf]
        for leaf in leaves:
            count[leaf] = count.get(leaf, 0) + (1 if isinstance(use.value, Part) else 2)
    return count


def _parts(result: Any, records: int, noted: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and the statistics, one row for each record."""
    losses, statistics = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(losses, Tensor) or losses.shape != (records,):
        got = f"a tensor of {losses.ndim} axes" if isinstance(losses, Tensor) else type(losses).__name__
        raise ModelError(
            expected="one loss for each record, of shape (B,)",
            got=f"{got}, or another number of values",
            do='Use reduction="none", and average over the positions of each record, not over records.',
        )
    rows = dict(noted)
    for name, values in dict(statistics).items():
        if not isinstance(values, Tensor) or values.ndim < 1 or values.shape[0] != records or name in noted:
            raise ModelError(
                expected=f"one row of {name!r} for each record",
                got="a name of private batch-norm statistics" if name in noted else "something else",
                do="Return statistics as tensors (B,) or (B, k).",
            )
        rows[name] = values.detach()
    return losses, rows
