"""From a user's loss to what each record contributes: all records of a pass at once, or one by one.

    loss(model, batch), proved and taped ──> one backward to the anchor ──> factors by leaf ──>
    Contributions

The model is not wrapped, renamed or changed. A pass of which it is not proved that records do not
touch each other, or which no rule covers, is computed record by record: slower, and exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.data.copies import Augmented, averaged
from discreet.training.data.trees import Portion, made_up, select
from discreet.training.factors.factors import Factor
from discreet.training.factors.forms import Choice, Chooser, choices_table
from discreet.training.passes.apart import one_by_one, refuse_shared
from discreet.training.passes.batch_norm import PrivateBatchNorm
from discreet.training.passes.contributions import (
    Contributions,
    Piece,
    alone,
    gathered,
    uses_by_leaf,
)
from discreet.training.passes.oracle import SelfTest
from discreet.training.passes.passes import Loss as _Loss
from discreet.training.passes.passes import Passes
from discreet.training.passes.precision_settings import refuse_kinds, without_autocast
from discreet.training.passes.sandbox import seeded_pass
from discreet.training.replay.recorder import Recorder, recorded
from discreet.training.replay.replays import Replays
from discreet.training.rules.call import Use
from discreet.training.rules.weights import ViewOf
from discreet.training.separation.states import OneByOne, Stumbled
from discreet.training.state.reach import modules_of, parameters_of
from discreet.training.tables.tables import RunTables

__all__ = ["USER_ERRORS", "Engine", "Loss", "trained"]

Loss: TypeAlias = _Loss
"""As of `Passes`."""

USER_ERRORS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a user's own code may raise where a model cannot bear made-up records, or so few."""

_BUDGET = 2**28
_TRIED = 7  # rows of a trial: few, and unlikely to be a size of the model
_PASS = 1.5  # memory of a pass, in units of plain training's


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that are trained, by leaf; a shared one once."""
    return {
        f"grad/{name}": parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


@final
@dataclass(frozen=True, slots=True)
class _Understanding:
    """What is known of a loss: under which circumstances, and why its records are computed one by
    one, if they are. Public.

    Args:
        circumstances: the code of the loss, rows of a record, and which layers are in train mode.
        one_by_one: the reason; None if all records of a pass are computed at once.
    """

    circumstances: tuple[object, ...]
    one_by_one: str | None = None


class Engine:
    """Per-record gradients of a model, whatever it computes.

    Args:
        model: with at least one parameter that requires a gradient.
        batch_norm: private statistics of batch normalisation; without, such layers are refused in
            train mode.
        memory_budget: bytes that the gradients of single records may take in one pass; more are
            never formed.
        form: fixed form of factors ("ghost", "direct"), instead of what is fastest.
        tables: of the run.
        static: whether losses have no state outside of tensors: passes are recorded once, and
            executed from the recording (`replay/`).
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        batch_norm: PrivateBatchNorm | None = None,
        memory_budget: int = _BUDGET,
        form: str | None = None,
        tables: RunTables | None = None,
        static: bool = False,
    ) -> None:
        self.model = model
        self.tables = RunTables() if tables is None else tables
        self.batch_norm = PrivateBatchNorm(nn.Module()) if batch_norm is None else batch_norm
        self.parameters = trained(model)
        self._trained = {id(parameter) for parameter in self.parameters.values()}
        refuse_kinds(self.parameters)

        self._passes = Passes(model, self.parameters, self.batch_norm, self.tables)
        self._replays = Replays(model, self._passes, enabled=static)

        self._chooser = Chooser(memory_budget, form)
        self._always_alone = False
        self._understanding: _Understanding | None = None
        self._stand_in: tuple[Any, int] | None = None  # a made-up record, and the rows of a pass
        self._uses: dict[str, int] = {}  # how often each leaf was used in the last pass

    @property
    def leaves(self) -> dict[str, int]:
        """Dimension of every leaf, those of private statistics included."""
        return {
            leaf: parameter.numel() for leaf, parameter in self.parameters.items()
        } | self.batch_norm.leaves

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Form of every use, with what was measured."""
        return tuple(self._chooser.choices.values())

    @property
    def one_by_one(self) -> str | None:
        """Why records are computed one by one; None if they are not, or if nothing was computed
        yet. Public.
        """
        if self._always_alone:
            return "asked for"

        return None if self._understanding is None else self._understanding.one_by_one

    @property
    def error_may_tell(self) -> bool:
        """Whether the error with which the last step failed may tell of a record; public, as it
        follows from whether there was one, and from the loss.
        """
        return self._passes.traces.may_tell

    @property
    def device(self) -> torch.device:
        """The device on which sums are kept."""
        return self._passes.device

    @property
    def single(self) -> bool:
        """Whether no parameter needs more than single precision."""
        return all(parameter.dtype != torch.float64 for parameter in self.parameters.values())

    def explain(self) -> str:
        """A table: form, seconds by form and megabytes of every leaf, as chosen in the first step.
        Public.
        """
        if self.one_by_one is not None:
            return f"Records are computed one by one: {self.one_by_one}."
        if not self.choices:
            return "Nothing is chosen before the first step."

        remarks = [choices_table(self.choices)]
        if self.tables:
            remarks.append(self.tables.explain())
        if self._replays.reason is not None:
            remarks.append(f"Passes are not replayed: {self._replays.reason}.")
        return "\n".join(remarks)

    def compute_one_by_one(self) -> None:
        """From now on, compute records one by one, whatever could be proved."""
        self._always_alone = True

    # --- in earnest ---

    def passes(
        self, loss: Loss, batch: Any, records: int, present: int | Tensor
    ) -> Iterator[tuple[Contributions, dict[str, Tensor]]]:
        """What rows contribute, and their statistics: all at once, or one by one.

        Args:
            loss: of the user; if it is `Augmented`, a row becomes several, which contribute as one.
            batch: structure with `records` rows, or a `Portion` of another; sensitive. A loss may
                write into it: it is copied.
            records: rows of the pass, the padding included; public.
            present: which rows are records: how many of the first, or one bool for each; sensitive.
        """
        with self._passes.traces.one_step():
            yield from self._contributed(loss, batch, records, present)

    def one_step(self, seed: int) -> AbstractContextManager[None]:
        """For the time of a step: public state of the model and the loss, such as buffers that
        passes change, moves once, however many passes there are.

        Args:
            seed: secret; of what Python and NumPy draw.
        """
        self._replays.begin_step()
        return self._passes.traces.one_step(seed)

    def rest(self, loss: Loss, records: int) -> None:
        """A step without records: public state moves as in any other, by a pass over made-up
        records, if it is known to move. Nor does it show in when a pass is recorded.

        Args:
            loss: of the user.
            records: rows of a pass, as many as any other has: state may follow from how many there
                are. What they contribute is dropped.
        """
        if not (self._passes.traces.stateful or self._replays.enabled) or self._stand_in is None:
            return

        row, _ = self._stand_in
        rows = select(row, torch.zeros(records, dtype=torch.long))

        try:
            for _ in self.passes(loss, rows, records, 1):
                pass
        except USER_ERRORS as error:
            raise _cannot_stand_in() from error

    def _contributed(
        self, loss: Loss, batch: Any, records: int, present: int | Tensor
    ) -> Iterator[tuple[Contributions, dict[str, Tensor]]]:
        self._check_parameters()
        mask = Contributions({}, records, present).mask
        portion = Portion.of(batch)

        # An augmentation that is not proved is given one record at a time, with the loss.
        try:
            row_loss, rows, copies = self._rows_of(loss, portion, records)
        except OneByOne as failure:
            reason: str | None = str(failure)
            self._understand(loss, 1, str(failure))
            row_loss, rows, copies = loss, portion, 1
        else:
            reason = self._reason(row_loss, rows, records * copies, copies)
        self._remember(loss, portion, records)

        # What was contributed is the caller's until it asks for more, and is erased then.
        try:
            contributed = self._together(row_loss, rows, mask, copies) if reason is None else None
            if contributed is None:
                self._refuse_tables(reason or self.one_by_one)
                yield from self._one_by_one(row_loss, rows, mask, copies)
            else:
                yield contributed
        finally:
            contributed = None
            self._passes.traces.erase()

    def _refuse_tables(self, reason: str | None) -> None:
        """Records one by one would have a gradient of the size of a table each."""
        if self.tables:
            raise ModelError(
                expected="passes over all records at once, for a run with tables",
                got=f"records that are computed one by one: {reason}",
                do="Change what is named, or leave out tables=: then every step has noise on all "
                "rows. Nothing was released.",
            )

    def _remember(self, loss: Loss, portion: Portion, records: int) -> None:
        """What passes look like, for a step without records. Public.

        Raises:
            ModelError: the loss has state, and fails on made-up records.
        """
        is_known = self._stand_in is not None and self._stand_in[1] == records
        if is_known or not (self._passes.traces.stateful or self._replays.enabled):
            return

        # Tried now, where all steps are alike: an error in the step that has no records would show
        # that it has none.
        row = made_up(portion.take(torch.arange(1)))
        rows = select(row, torch.zeros(records, dtype=torch.long))
        self.tables.settle()
        try:
            self._passes.plain(loss, rows, records)
        except USER_ERRORS as error:
            if self._passes.traces.stateful:
                raise _cannot_stand_in() from error
            self._replays.give_up("the loss fails on made-up records")
            return
        self._stand_in = (row, records)

    def _rows_of(self, loss: Loss, portion: Portion, records: int) -> tuple[Loss, Portion, int]:
        """The loss of rows, the rows, and how many there are of each record.

        Raises:
            OneByOne: of an augmentation it is not proved that it keeps records apart.
        """
        if not isinstance(loss, Augmented):
            return loss, portion, 1

        rows = self._passes.augmented(
            loss.augment, portion.take(torch.arange(records)), records, loss.copies
        )
        return loss.loss, Portion(rows), loss.copies

    def _reason(self, loss: Loss, rows: Portion, count: int, copies: int) -> str | None:
        """Why the records of this pass are computed one by one; None if they are not."""
        if count == 1:
            return "a pass over one row"
        if self._always_alone:
            return "asked for"

        # A loss of another kind, or a model in another mode, may call other functions.
        circumstances = self.circumstances(loss, copies)
        if self._understanding is None or self._understanding.circumstances != circumstances:
            self._understanding = _Understanding(circumstances)
            tried = min(count, _TRIED)

            # Records must not decide how they are computed: the rules are tested on numbers that
            # are made up.
            self._try(loss, made_up(rows.take(torch.arange(tried))), tried, copies)

        return self._understanding.one_by_one

    def circumstances(self, loss: Loss, copies: int = 1) -> tuple[object, ...]:
        """What decides which functions a loss calls, besides its numbers. Public."""
        # The code, not the function: a loss that is defined in the loop is a new one in each step.
        code = getattr(loss, "__code__", type(loss))
        return code, copies, *[module.training for module in modules_of(self.model)]

    def _together(
        self, loss: Loss, rows: Portion, mask: Tensor, copies: int
    ) -> tuple[Contributions, dict[str, Tensor]] | None:
        """What records contribute, all at once; None where that is not proved."""

        # Copies of a record are one contribution before anything is measured: clipped each by
        # itself, they could add up to as many clip norms (docs/proofs/engine.md, section 8).
        def finish(use: Use, factor: Factor) -> Factor:
            joined = factor if copies == 1 else factor.joined(copies)
            value = use.value

            # What is used several times is merged first (P08), and finished by `_finish_leaf`.
            if not isinstance(value, ViewOf) or self._uses.get(value.leaf) != 1:
                return joined

            return self._chooser.finished(value.leaf, joined, use.number)

        def compute(
            rows: Portion, present: Tensor, recorder: Recorder | None
        ) -> tuple[dict[str, tuple[Piece, ...]], dict[str, Tensor]]:
            with self._passes.recorded_by(recorder):
                taped = self._passes.together(loss, rows, present, copies, finish)
            self._uses = uses_by_leaf(taped.uses, self.parameters)

            # No code of the user's runs from here to the sums, which read all settings of
            # precision.
            with without_autocast(self.device), recorded(recorder):
                pieces = gathered(taped.uses, self.parameters, self._finish_leaf)
                return pieces, averaged(taped.statistics, len(present) // copies)

        # Before the pass: it must find parameters as it leaves them.
        self.tables.conceal()
        present = mask if copies == 1 else mask.repeat_interleave(copies)
        try:
            circumstances = self.circumstances(loss, copies)
            pieces, statistics = self._replays.contributed(
                circumstances, loss, compute, rows, present, copies
            )
        except OneByOne as failure:
            self._understand(loss, copies, str(failure))
            return None

        return Contributions(pieces, mask.shape[0], mask), statistics

    def _one_by_one(
        self, loss: Loss, rows: Portion, mask: Tensor, copies: int
    ) -> Iterator[tuple[Contributions, dict[str, Tensor]]]:
        """What records contribute, each by itself."""
        refuse_shared(self.model)
        self._passes.traces.may_tell = True

        # As `one_by_one` asks.
        def compute(
            record: int,
            apart: bool,  # noqa: FBT001
        ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            record_rows = rows.take(record * copies + torch.arange(copies))
            row_loss, row_copies = loss, copies

            # Where the loss is computed, too: what an augmentation makes of a record, sizes and
            # names included, must not come back to where others are computed.
            if isinstance(loss, Augmented):
                row_loss, row_copies = loss.loss, loss.copies
                record_rows = self._passes.augmented(
                    loss.augment, record_rows, 1, row_copies, apart=apart
                )

            gradients, statistics = self._passes.alone(
                row_loss, record_rows, row_copies, apart=apart
            )
            return gradients, averaged(statistics, 1)

        for gradients, statistics in one_by_one(compute, mask.nonzero()[:, 0].tolist(), len(mask)):
            yield alone(gradients), statistics
            del gradients, statistics
            self._passes.traces.erase()  # before the next record is computed

    def _compared(self) -> dict[str, Tensor]:
        """What a self-test looks at. Numbers of whole tables would take the memory of several."""
        return {
            leaf: parameter
            for leaf, parameter in self.parameters.items()
            if leaf not in self.tables
        }

    def _finish_leaf(self, leaf: str, factor: Factor) -> Factor:
        # What is used once was finished when its gradient arrived.
        return factor if self._uses.get(leaf) == 1 else self._chooser.finished(leaf, factor, 0)

    def _check_parameters(self) -> None:
        # By identity, in every pass (P06): what is unfrozen later is no leaf of the plan.
        trained_now = {
            id(parameter)
            for module in modules_of(self.model)
            for parameter in parameters_of(module)
            if parameter is not None and parameter.requires_grad
        }

        if trained_now != self._trained:
            changed = sorted(set(trained(self.model)) ^ set(self.parameters)) or [
                "others of the same names"
            ]
            raise ModelError(
                expected="the parameters that the run began with",
                got=f"changed: {', '.join(changed)}",
                do=(
                    "Freeze and unfreeze before the run begins: every trained parameter belongs "
                    "to the plan's leaves."
                ),
            )

    # --- before ---

    def fitting(self, loss: Loss, batch: Any, records: int, budget: int, largest: int) -> int:
        """How many records one pass may have, by an estimate of the memory that each takes; at most
        `largest`. Public.
        """
        if self._understanding is None and records:
            # As many rows of these shapes, however many records the first sample happens to have.
            trial_batch = made_up(Portion.of(batch).take(torch.arange(_TRIED) % records))
            with seeded_pass(0), suppress(OneByOne):  # for the shapes alone
                row_loss, rows, copies = self._rows_of(loss, Portion(trial_batch), _TRIED)
                self._reason(row_loss, rows, _TRIED * copies, copies)

        # Where a trial could measure nothing, the estimate is zero, and `largest` decides.
        return max(1, min(largest, budget // max(1, int(_PASS * self._chooser.activations.peak))))

    def plain_pass(self, loss: Loss, batch: Any, records: int) -> None:
        """A forward and a backward pass as torch does them, without a trace: to see how long they
        take.
        """
        self.tables.settle()
        self._passes.plain(loss, batch, records)

    def rehearse(self, loss: Loss, batch: Any, records: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses and statistics of one pass that leaves no trace, checked as in earnest; for
        made-up records.

        Raises:
            ModelError: there is not one loss for each record, or one row of each statistic.
        """
        try:
            row_loss, portion, copies = self._rows_of(loss, Portion(batch), records)
        except OneByOne:  # of the augmentation
            return self._passes.rehearsed(loss, batch, records)

        # Tried anew, whatever is known: a rehearsal says what is so now.
        rows = portion.batch
        self._understanding = _Understanding(self.circumstances(row_loss, copies))
        trial = self._try(row_loss, rows, records * copies, copies)
        self._remember(loss, Portion(batch), records)

        if trial is None:
            return self._passes.rehearsed(row_loss, rows, records * copies)
        return trial

    def _understand(self, loss: Loss, copies: int, reason: str) -> None:
        """From now on records are computed one by one, for this reason."""
        self._understanding = _Understanding(self.circumstances(loss, copies), reason)

    def _try(
        self, loss: Loss, rows: Any, count: int, copies: int
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Losses and statistics of a trial on made-up records; memory, and whether the rules
        compute torch's own gradients, are learned from it.

        A few rows decide nothing about separation: the pass in earnest proves it, or is computed
        one by one. A model that fails on made-up records, and only while they are followed, is
        computed one by one; if it fails otherwise, too, a mistake of the user's shows in earnest.
        """
        if count == 1:
            return None

        # Torch's own gradients need the numbers of tables in their parameters.
        self.tables.settle()
        try:
            trial = self._passes.trial(loss, rows, count)
        except Stumbled as failure:  # the rules, not the records: in earnest it would be the same
            self._understand(loss, copies, str(failure))
            return None
        except OneByOne:  # which the pass in earnest finds by itself
            return None
        except USER_ERRORS:
            # If it fails in a plain pass, too, the mistake is the user's, and shows in earnest.
            with suppress(*USER_ERRORS):
                self._passes.rehearsed(loss, rows, count)
                self._understand(loss, copies, "the loss fails where records are followed")
            return None

        self._chooser.activations = trial.activations.times(copies)
        self._uses = uses_by_leaf(trial.taped.uses, self.parameters)

        # A model that cannot bear a single row cannot be compared with it.
        agrees = True
        try:
            agrees = SelfTest(self._compared(), self._passes.alone).passes(loss, rows, trial)
        except USER_ERRORS:
            pass
        finally:
            trial.release()

        if not agrees:
            self._understand(loss, copies, "the rules do not compute torch's own gradients")

        return trial.taped.losses, trial.taped.statistics


def _cannot_stand_in() -> ModelError:
    return ModelError(
        expected="a loss with counters, buffers or other state of its own that also works on "
        "made-up records",
        got="one that fails on them",
        do="Its state moves in a step without records, too, or it would show that there were none; "
        "made-up records stand in for them. Keep counters in the training loop, and hand their "
        "values to the loss, or let it accept any numbers of the batch's shapes and kinds.",
    )
