"""Passes over a model: the only code that calls a user's loss.

    together    all records at once, proved and taped: one pass forward, one back, and no gradients
                of weights
    alone       one record by itself, with torch's own gradients (`apart.py`)
    rehearsed   as together, without a trace: for made-up records, and to see what a pass takes

Every pass is watched: what was computed from records is kept nowhere (`separation/kept.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.data.trees import (
    Portion,
    begun,
    check_rows,
    leaves,
    mapped,
    select,
    tensors_in,
)
from discreet.training.factors.factors import Factor, wide
from discreet.training.passes.batch_norm import Alone, Noting, PrivateBatchNorm
from discreet.training.passes.contributions import Taped, losses_and_statistics, plain_result
from discreet.training.passes.precision_settings import full_precision
from discreet.training.passes.sandbox import Traces, plain_forward
from discreet.training.passes.tape import Tape
from discreet.training.passes.trials import SavedBytes, TrialPass
from discreet.training.replay.recorder import Recorder
from discreet.training.rules import RULES
from discreet.training.rules.call import Use, Uses, WrongGuess
from discreet.training.separation.doors import Doors, opened
from discreet.training.separation.kept import refuse_kept
from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.operation import require_tested_version
from discreet.training.separation.own import proving
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows, SharedDraws, Stumbled
from discreet.training.state.moved import Moved
from discreet.training.tables.tables import RunTables

__all__ = ["Finish", "Loss", "Passes"]

Loss: TypeAlias = Callable[[Any, Any], Any]
"""(model, batch) to one loss for each record, (B,); or to that and a mapping of per-record
statistics, (B, ...) each.
"""

Finish: TypeAlias = Callable[[Use, Factor], Factor]
"""Turns what a use of a weight caught into the form that is kept."""

_OF_LOSSES = 1 << 31
"""More than the draws of a loss; those of an augmentation have the numbers after them."""

_gradients: Any = opened(torch.autograd.grad)


class Passes:
    """Runs a user's loss over a model.

    Args:
        model: of the user; it is left as it is.
        parameters: what is trained, by leaf.
        batch_norm: private statistics of batch normalisation.
        tables: whose rows are computed where they are looked up.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, Tensor],
        batch_norm: PrivateBatchNorm,
        tables: RunTables | None = None,
    ) -> None:
        self._model = model
        self._tables = RunTables() if tables is None else tables
        self._parameters = dict(parameters)
        self._batch_norm = batch_norm
        self._no_guess: set[int] = set()
        self._recorder: Recorder | None = None
        self.traces = Traces()
        self._names = {id(module): name for name, module in model.named_modules()}

    @property
    def device(self) -> torch.device:
        """The device on which the parameters are."""
        return next(iter(self._parameters.values())).device

    @contextmanager
    def executing(self) -> Iterator[None]:
        """The circumstances in which a recording is executed: those of the pass it replaces."""
        self.traces.hold_finalizers()
        with full_precision(self.device):
            yield

    @contextmanager
    def recorded_by(self, recorder: Recorder | None) -> Iterator[None]:
        """For the time of a pass over all records, what it runs is recorded, if by somebody."""
        self._recorder = recorder
        try:
            yield
        finally:
            self._recorder = None

    def together(
        self,
        loss: Loss,
        portion: Portion,
        present: Tensor,
        copies: int,
        finish: Finish,
        saved: SavedBytes | None = None,
    ) -> Taped:
        """One forward and one backward pass over all rows, proved.

        Args:
            loss: of rows.
            portion: the rows of the pass; sensitive.
            present: which rows are records, one bool for each; the others are padding. Sensitive.
            copies: rows of each record, which follow each other.
            finish: for every factor.
            saved: counts what autograd keeps; then the pass leaves no trace.

        Raises:
            OneByOne: the pass is not proved, or no rule covers it.
            CoupledRecords, ModelError: the pass keeps something of its records.
        """
        # What a pass has shown about its random numbers and repeated weights is public and holds
        # for all later ones: it is computed again, knowing that.
        while True:
            try:
                return self._taped(loss, portion, present, copies, finish, saved)
            except SharedDraws:
                self.traces.shares_draws.add(len(present))
            except WrongGuess as guess:
                if guess.number in self._no_guess:
                    raise

                self._no_guess.add(guess.number)

    def _taped(
        self,
        loss: Loss,
        portion: Portion,
        present: Tensor,
        copies: int,
        finish: Finish,
        saved: SavedBytes | None,
    ) -> Taped:
        """`together`, once: as far as is known until now."""
        require_tested_version()
        count, recorder = present.shape[0], self._recorder
        shared_draw = self.traces.shared_draw
        proof = Proof(
            count,
            self._names,
            self._describe,
            shared_draw=shared_draw if recorder is None else recorder.not_shared(shared_draw),
            shares_draws=count in self.traces.shares_draws,
        )
        uses = Uses(
            proof,
            self.device,
            finish,
            None if saved is None else saved.hold,
            tables=self._tables,
            unjudged=out_of_sight if recorder is None else recorder.unjudged,
        )
        rows = begun(portion.batch, lambda tensor: proof.begin(tensor, Rows(0), portion.places))
        trial = saved is not None
        self.traces.begin_numbers()
        if recorder is not None:
            recorder.begin(proof, tensors_in(rows))

        with recorder or nullcontext(), self._watched(proof, loss, restore=trial) as noting:
            tape = Tape(self._parameters, uses, RULES, noting, self._no_guess, steady=trial)
            with nullcontext() if saved is None else saved.watching(lambda: tape.calls - 1):
                with tape, nullcontext() if saved is None else saved.noting_draws():
                    result = plain_result(loss(self._model, rows))

                losses, statistics = self._proved(proof, result, noting)

                # Zero for padding. Who is padding is secret, so these are records' numbers too.
                with out_of_sight():
                    shares = proof.begin(present.to(losses) / copies, Rows(0))

                if recorder is not None:
                    recorder.enter(shares)

                proof.going_back = True
                with full_precision(self.device), Doors(proof):
                    self._backward(losses, shares, uses.anchor, trial=trial)
                    # Hooks and finalizers of the user run until here, and none runs later.
                    uses.end()
                    tape.end()
                    losses = losses.detach()
                    del result

            self._require_unchanged(proof, uses, statistics, noting)

        return Taped(uses.uses, losses, statistics, tape.calls)

    def _require_unchanged(
        self, proof: Proof, uses: Uses, statistics: Mapping[str, Tensor], noting: Noting
    ) -> None:
        """At the end of a pass: what enters the sums is still what was proved."""
        # Errors first, also those of the backward pass: caught, they must not become "one by one".
        proof.end_draws()
        proof.refuse_caught_errors()
        proof.check()
        uses.require_untouched()
        proof.require_unmoved(statistics.values())

        # Moments of batch normalisation were computed out of sight, each from its own record.
        for name, values in statistics.items():
            if name not in noting.leaves:
                proof.require_rows(values, Rows(0), f"the statistic {name!r}")

    def _proved(
        self, proof: Proof, result: Any, noting: Noting
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses, of which each depends on its own record; statistics, of which that is proved when
        the pass ends.
        """
        proof.refuse_caught_errors()
        proof.check()

        losses, statistics = losses_and_statistics(result, proof.count, noting.statistics())
        proof.require_rows(losses, Rows(0), "the loss")

        return losses, statistics

    @contextmanager
    def _watched(
        self,
        proof: Proof,
        function: Callable[..., Any],
        *,
        restore: bool = False,
        augmenting: bool = False,
    ) -> Iterator[Noting]:
        """For the time of a pass: nothing of its records stays in the model or in memory that was
        there before.

        Args:
            proof: of the pass.
            function: of the user, which runs.
            restore: whether this is a trial on made-up records, which leaves no trace.
            augmenting: whether an augmentation runs, and no loss.
        """
        # Before anything is computed: also what a pass made that fails is erased (T09).
        if not restore:
            self.traces.unerased.append(proof)

        numbers = torch.default_generator.get_state()

        try:
            with self._circumstances(proof, function, restore=restore) as (noting, moved):
                yield noting
        except BaseException:
            if proof.error:
                self.traces.may_tell = True

            # Now, not with the sums: processes of records begin with what there is.
            if not restore:
                self.traces.erase()

            # A seed of the user's must not decide what single records draw afterwards.
            torch.default_generator.set_state(numbers)
            raise
        finally:
            memory = proof.put_back()

        moved.memory, moved.generators = memory.memory, memory.generators
        self.traces.note(moved, augmenting=augmenting, trial=restore)

    @contextmanager
    def _circumstances(
        self, proof: Proof, function: Callable[..., Any], *, restore: bool
    ) -> Iterator[tuple[Noting, Moved]]:
        """A pass and its proof; errors of the proof come before all others."""
        with (
            self._batch_norm.noting(self._names) as noting,
            torch.enable_grad(),
            plain_forward(
                self._model,
                restore=restore,
                trained=self._parameters,
                several=proof.count > 1,
                function=function,
            ) as moved,
        ):
            try:
                with proving(proof), proof:
                    # From the beginning: the modes are off while they judge an operation.
                    if not restore:
                        self.traces.hold_finalizers()

                    yield noting, moved
            except WrongGuess:  # the pass is tried again without the guess
                refuse_kept(self._model)
                raise
            except OneByOne:
                refuse_kept(self._model)  # one by one it would be kept, too
                proof.check()  # what failed first: the reason that users are told
                raise
            except Exception as error:
                # What C++ code has wrapped: a failed proof comes before any other error.
                proof.check()
                if isinstance(error, NotImplementedError) and "mode" in str(error):
                    raise _unseen(error) from error

                # As it is: a record may have caused it, and decides nothing for others (T14).
                raise

            refuse_kept(self._model)

    def _describe(self, tensor: Tensor) -> str:
        """The parameter or buffer in whose memory a tensor lies."""
        with no_functions(), out_of_sight():
            memory = tensor.untyped_storage().data_ptr()
            named = (*self._model.named_parameters(), *self._model.named_buffers())

            for name, candidate in named:
                has_storage = candidate.layout is torch.strided  # sparse ones have several
                if has_storage and candidate.untyped_storage().data_ptr() == memory:
                    return f"{name!r}"

        return "memory that was there before the pass"

    def _backward(self, losses: Tensor, shares: Tensor, anchor: Tensor, *, trial: bool) -> None:
        """Run the backward pass of the losses times their shares, towards the anchor."""
        if not losses.requires_grad:
            raise ModelError(
                expected="a loss that depends on a parameter",
                got="one that depends on none",
                do="Check that the loss uses the model, and that it is not detached.",
            )

        # The anchor is behind every tap. Parameters themselves must be behind nothing: else there
        # was a use that no rule has seen, and that the contributions do not have (P03).
        targets = [anchor, *self._parameters.values()]
        try:
            _, *missed = _gradients(losses, targets, shares, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if trial:  # on made-up records, which may decide
                raise Stumbled("the backward pass cannot be followed") from error

            raise

        for leaf, gradient in zip(self._parameters, missed, strict=True):
            if gradient is not None:
                raise OneByOne(f"{leaf} is used in a function that cannot be seen")

    def alone(
        self, loss: Loss, batch: Any, copies: int, *, trial: bool = False, apart: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradients of one record by itself, all of its rows, as torch computes them, by leaf;
        and its statistics.

        Args:
            loss: of rows.
            batch: the rows of one record; sensitive.
            copies: how many these are.
            trial: whether the record is made up; it leaves no trace, and dropout keeps everything.
            apart: whether this is a process of the record's own, so that Python may see its
                numbers.

        Raises:
            OneByOne: Python would see numbers of the record, and must not.
        """
        proof = Proof(1, self._names, self._describe, shown=trial or apart)
        rows = begun(batch, lambda tensor: proof.begin(tensor, Rows(0)), strict=False)
        _refuse_objects(proof, batch)

        with self._watched(proof, loss, restore=trial) as noting:
            mode = Alone(proof, noting, steady=trial)
            with mode:  # also when graphs are let go of: finalizers run then
                gradients, statistics = self._computed(loss, rows, copies, noting)

            # All of it is the record's own, unless it depends on what an earlier pass kept (T09).
            for name, values in {**gradients, **statistics}.items():
                proof.require_rows(values, Rows(0), name)

            proof.check()

        return {leaf: wide(_full(gradient)) for leaf, gradient in gradients.items()}, statistics

    def _computed(
        self, loss: Loss, rows: Any, copies: int, noting: Noting
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients and statistics of one record, by torch."""
        result = plain_result(loss(self._model, rows))
        losses, statistics = losses_and_statistics(result, copies, noting.statistics())

        # Whether it does may depend on the record, which Python has seen: no error, but zeros.
        if not losses.requires_grad:
            return {}, statistics

        parameters = list(self._parameters.values())
        gradients = _gradients(losses.mean(), parameters, allow_unused=True)
        pairs = zip(self._parameters, gradients, strict=True)
        return {leaf: gradient for leaf, gradient in pairs if gradient is not None}, statistics

    def trial(self, loss: Loss, batch: Any, rows: int) -> TrialPass:
        """Run a pass like `together` over a few rows, without a trace; every factor stays as it is.

        Raises:
            OneByOne: as there.
        """
        saved = SavedBytes()
        present = torch.ones(rows, dtype=torch.bool)
        taped = self.together(loss, Portion(batch), present, 1, lambda _, factor: factor, saved)
        return TrialPass(taped, saved.activations(rows, taped.calls), saved.draws, saved.release)

    def plain(self, loss: Loss, batch: Any, rows: int) -> None:
        """Run a pass as torch does, forward and back, without a trace: to see how long it takes."""
        with torch.enable_grad(), self._unproved(loss, several=True) as noting:
            result = plain_result(loss(self._model, batch))
            losses, _ = losses_and_statistics(result, rows, noting.statistics())
            if losses.requires_grad:
                parameters = list(self._parameters.values())
                torch.autograd.grad(losses.sum(), parameters, allow_unused=True)

    def rehearsed(self, loss: Loss, batch: Any, rows: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses and statistics of one pass that leaves no trace; for made-up records.

        Raises:
            ModelError: there is not one loss for each row, or one row of each statistic.
        """
        with torch.no_grad(), self._unproved(loss, several=False) as noting:
            result = plain_result(loss(self._model, batch))
            return losses_and_statistics(result, rows, noting.statistics())

    @contextmanager
    def _unproved(self, loss: Loss, *, several: bool) -> Iterator[Noting]:
        """The circumstances of a pass that contributes nothing, and is not proved."""
        with (
            self._batch_norm.noting(self._names) as noting,
            plain_forward(self._model, several=several, function=loss),
            Alone(Proof(1, shown=True), noting),
        ):
            yield noting

    def augmented(
        self,
        augment: Callable[[Any], Any],
        batch: Any,
        records: int,
        copies: int,
        *,
        apart: bool = False,
    ) -> Any:
        """The copies of each record one after the other, augmented, in new memory; proved.

        Args:
            augment: of the user; rows to rows.
            batch: with one row for each record; sensitive.
            records: how many.
            copies: rows of each record.
            apart: whether this is a process of the one record's own, so that Python may see its
                numbers.

        Raises:
            OneByOne: it is not proved that records are kept apart; or Python would see numbers of
                the one record, and must not.
        """
        while True:
            try:
                return self._augmented(augment, batch, records, copies, apart=apart)
            except SharedDraws:
                self.traces.shares_draws.add(records)

    def _augmented(
        self, augment: Callable[[Any], Any], batch: Any, records: int, copies: int, *, apart: bool
    ) -> Any:
        rows = select(batch, torch.arange(records).repeat_interleave(copies))
        proof = Proof(
            records,
            self._names,
            shown=apart,
            shared_draw=lambda number: self.traces.shared_draw(number + _OF_LOSSES),
            shares_draws=records in self.traces.shares_draws,
        )
        placement = Rows(0, copies)
        entries = begun(rows, lambda tensor: proof.begin(tensor, placement), strict=records > 1)
        _refuse_objects(proof, rows)

        # What is drawn for one record by itself is its own, and shared with nobody.
        if records > 1:
            self.traces.begin_numbers()

        with self._watched(proof, augment, augmenting=True), torch.no_grad():
            with Doors(proof):
                # In the pass: a mapping of the user's own may look at numbers.
                out = mapped(augment(entries), lambda leaf: leaf)

            proof.end_draws()
            proof.refuse_caught_errors()
            proof.check()
            check_rows(out, records * copies)
            proof.require_unmoved(tensors_in(out))
            for tensor in tensors_in(out):
                proof.require_rows(tensor, placement, "the augmentation")

        # What the augmentation itself holds is erased; its rows are needed until all passes end.
        return mapped(out, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _unseen(error: NotImplementedError) -> ModelError:
    return ModelError(
        expected="a loss of functions that can be followed",
        got=f"one whose operation torch cannot show ({str(error).splitlines()[0][:80]})",
        do=(
            "Write torch.cond, while_loop, map and flex_attention with torch.where, loops and "
            "scaled_dot_product_attention."
        ),
    )


def _full(gradient: Tensor) -> Tensor:
    # Embeddings may have sparse gradients; noise is on all rows (P25).
    return gradient.to_dense() if gradient.is_sparse else gradient


def _refuse_objects(proof: Proof, batch: Any) -> None:
    """Texts, numbers and other objects of a record are seen by Python without a door."""
    if not all(isinstance(leaf, Tensor | None) for leaf in leaves(batch)):
        proof.fail("Python sees entries of the batch")
