"""Private training: the user's own model, loss and optimizer; batches and gradients from here.

for batch in run.batches(dataset):     a sample, charged before it is drawn
run.backward(loss, batch)          clipped, summed, noised: the noised average is the gradient
optimizer.step()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, Self

from torch import nn
from torch.utils.data import DataLoader

from discreet import _validate as check
from discreet.aggregation.ledgers import opened_ledger
from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.canaries import Canaries
from discreet.errors import (
    CheckpointError,
    ModelError,
    ParameterError,
    SampleMisuse,
)
from discreet.ledger import Ledger
from discreet.ledger.rules import HasTerms
from discreet.mechanisms import State
from discreet.plan import Plan
from discreet.randomness import Source
from discreet.sampling import Sample
from discreet.training.canaries import GradientCanaries
from discreet.training.checkpoint import Checkpoint, Stateful, named, restore
from discreet.training.clipping import refuse_slots
from discreet.training.data.batch import Batch
from discreet.training.data.collating import Collate, NumberedRows
from discreet.training.data.loading import Loading
from discreet.training.engine import Engine, Loss, trained
from discreet.training.gradients import GradientWatch, refuse_parallel
from discreet.training.passes.batch_norm import PrivateBatchNorm
from discreet.training.passes.hooks import refuse_hooks
from discreet.training.passes.sandbox import prepared
from discreet.training.planted import Planted
from discreet.training.rehearsal import own_names, rehearse
from discreet.training.shown.logs import Log
from discreet.training.shown.monitor import Monitor
from discreet.training.step import Attempts, Stepping
from discreet.training.tables.declared import SparseTable
from discreet.training.tables.tables import RunTables
from discreet.units import Guarantee, Numerics, Parameters

__all__ = ["PrivateRun"]


class PrivateRun:
    """Executes a plan on a PyTorch model.

    Guarantee: what `backward` writes into the parameters' gradients, and returns, is
    post-processing of the Gaussian queries that the ledger was charged with before the sample was
    drawn. Clipped sums are floating-point numbers whose rounding is part
    of the sensitivity, noise is exact: numerics `certified`. That no record touches another is
    proved in every pass, or its records are computed one by one (docs/proofs/separation.md).
    Whatever else is made of losses and outputs is not covered.

    Args:
        model: every parameter that requires a gradient is trained: leaf "grad/<name>". Batch
            normalisation in train mode needs
            a group of the plan for its statistics: leaf "bn/<name>" (see `PrivateBatchNorm`).
        plan: with a number of records; its leaves are filled in here.
        ledger: of the data set: a path, or a ledger that is open to append.
        budget: for a ledger given as a path: what it is held to from its first charge on, a
            `Budget`, a `Filter` or an `Odometer`. A ledger that exists has its own. Without any, it
            is for the steps of this plan and for nothing else.
        statistics: further leaves that the loss returns for each record, name to size, such as
            {"metric/accuracy": 1}.
        canaries: records to look for in what is released, some of them left out by a coin:
            `Canaries` are entries of the data set, `GradientCanaries` further records of the plan
            that the engine makes up. Such a run has no checkpoints.
        tables: parameters of which a step touches few rows, by name: the run updates them itself,
            and a step costs what it touches (see `SparseTable`). They hold NaN between steps, until
            `settle`, `state_dict`, `save` or the end of the loop. Not with canaries.
        logs: called after every release with released values, such as `CsvLog`.
        microbatch: records of one pass; by default as many as memory allows.
        memory_budget: bytes that a pass may take, by estimate.
        static: that the loss has no state outside of tensors, so that its passes are recorded once
            and executed from there: faster for small models. The guarantee is the same; see
            docs/training.md, "Static losses".
        source, label, parameters: as for `Aggregator`.
    """

    def __init__(  # noqa: PLR0913  (model, plan and ledger; everything else has a default)
        self,
        model: nn.Module,
        plan: Plan,
        *,
        ledger: Ledger | str | os.PathLike[str],
        budget: HasTerms | None = None,
        statistics: Mapping[str, int] | None = None,
        canaries: Canaries | GradientCanaries | None = None,
        tables: Mapping[str, SparseTable] | None = None,
        logs: Sequence[Log] = (),
        microbatch: int | None = None,
        memory_budget: int = 2**31,
        static: bool = False,
        source: Source | None = None,
        label: str | None = None,
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
    ) -> None:
        # What can be refused without a ledger is, before one is opened.
        owner = "PrivateRun"
        memory = check.whole(owner, "memory_budget", memory_budget, least=1)
        rows = None if microbatch is None else check.whole(owner, "microbatch", microbatch, least=1)
        self._model = check.instance(owner, "model", model, nn.Module)
        norms = PrivateBatchNorm.in_plan(model, check.instance(owner, "plan", plan, Plan))
        refuse_parallel(model)
        if static and tables:
            raise ParameterError(
                owner=owner,
                name="static",
                expected="False in a run with tables",
                got="True",
                do="Leave one of them out: rows of tables are looked up anew in every pass.",
            )

        # An eighth of the memory is for gradients of single records.
        self._tables = RunTables(tables, model, trained(model))
        self._engine = Engine(
            model,
            batch_norm=norms,
            memory_budget=memory // 8,
            tables=self._tables,
            static=static,
        )
        self._gradients = GradientWatch(self._engine.parameters)

        if not self._engine.parameters:
            raise ModelError(
                expected="a model with a parameter to train",
                got="none that requires a gradient",
                do="Call requires_grad_(True) on what is to be trained.",
            )

        # Leaves of the model and of the loss, by which the plan knows what it clips and noises.
        shown = own_names(statistics or {})
        bound = plan.for_leaves({**self._engine.leaves, **shown})
        refuse_slots(bound.bound.start)
        level = Numerics.IDEALISED if plan.numerics is Numerics.IDEALISED else Numerics.CERTIFIED

        # From here on a failure has to close what was opened.
        self._own_ledger, book = opened_ledger(ledger, budget)
        try:
            self._session = Session(
                bound,
                ledger=book,
                numerics=level,
                source=source,
                label=label,
                parameters=parameters,
            )
            self._watch = Monitor(self._session, statistics=shown, logs=logs)
            self._planted = Planted(canaries, self._session)
            if self._tables:
                self._planted.refuse_tables()

            self._tables.bind(self._session)
            self._stepping = Stepping(
                self._engine,
                self._session,
                self._planted,
                numerics=level,
                microbatch=rows,
                memory_budget=memory,
            )
        except BaseException:
            self._close(book)
            raise

        self._order = threading.Lock()
        self._waiting: Batch | None = None
        self._attempts = Attempts(self._stepping, self._engine)  # at the waiting batch
        self._loading: Loading | None = None  # until the loss was tried
        self._statistics, self._start, self._lost = shown, 0, ""
        self._first_state: State = bound.bound.initial_state
        # Batches of all steps that were released, those of the run that is continued included.
        self._done = 0
        self._began = False

    # --- what is executed ---

    @property
    def plan(self) -> Plan:
        """The plan that is executed, bound to the model's leaves."""
        return self._session.plan

    @property
    def ledger(self) -> Ledger:
        """The ledger to which every step is charged."""
        return self._session.ledger

    @property
    def engine(self) -> Engine:
        """How per-record gradients are computed."""
        return self._engine

    @property
    def state(self) -> State:
        """Thresholds of adaptive groups after the last release; public."""
        return self._session.state if self._began else self._first_state

    @property
    def step(self) -> int:
        """Steps that were released in full, those before a resumed run included; public."""
        return self._done // self._session.sampler.batches_per_step

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """What can be stated of everything that the ledger holds, this run and all others.

        Args:
            delta: of the statement; by default that of the budget, of the plan's target, or
                `default_delta(records)`.

        Raises:
            AccountingError: nothing was charged, or no one statement covers it.
        """
        return self._watch.guarantee(delta)

    # --- batches ---

    def batches(
        self,
        dataset: NumberedRows | DataLoader[Any],
        collate: Collate | None = None,
        *,
        workers: int | None = None,
        progress: bool | None = None,
        until_budget: bool = False,
    ) -> Iterator[Batch]:
        """The plan's batches. Each must go through `backward` before the next is taken. Once for
        each run.

        Args:
            dataset: as many entries as the plan has records, less gradient canaries; sensitive. Or
                a `DataLoader` of it: its data set, collate function and workers are used; how
                samples are drawn is the plan's business. That an entry is made from its own record
                alone is assumed (docs/training.md, "What the library cannot see").
            collate: makes rows of a list of entries, of a fixed shape; it is given one entry at a
                time.
            workers: processes that fetch ahead. What they fetched when a loop is broken off was
                charged.
            progress: whether to show a bar on standard error; None: if that is a terminal.
            until_budget: end with the last step that the ledger's budget admits.

        Raises:
            BudgetExceeded: not all steps fit the budget; nothing was charged.
        """
        size = self.plan.expected_batch_size
        loading = Loading.of(dataset, collate=collate, workers=workers, expected_batch_size=size)
        self._planted.refuse_other_size(len(loading.dataset))

        # Steps are admitted or refused here, before the first batch is asked for.
        samples = self._session.samples(  # or refuses a second pass
            self._start, self._first_state, until_budget=until_budget, lost=self._lost
        )

        self._began, self._loading = True, loading
        self._stepping.announce(self._session.planned)
        self._watch.begin(self._start, progress)

        # A loop that nobody has a name for would be collected after its first batch, and end it.
        kept_alive: list[object] = []
        kept_alive.append(issued := self._issued(loading, samples, kept_alive))
        return issued

    def _issued(
        self, loading: Loading, samples: Generator[Sample], kept_alive: list[object]
    ) -> Iterator[Batch]:
        showing = self._watch.showing(self._session.sampler.batches, self._done)

        # Left in the opposite order, however the loop ends: workers first, the session last, which
        # settles what was charged.
        with (
            closing(self._session),
            closing(samples),
            showing,
            self._gradients.watching(),
            self._tables.settling(),
            prepared(),
            closing(self._loaded(loading, samples)) as batches,
        ):
            batch = (
                Batch.first_of(batches, kept_alive)
                if self._session.planned
                else next(batches, None)
            )
            while batch is not None:
                self._attempts, self._waiting = Attempts(self._stepping, self._engine), batch
                yield batch
                self._refuse_waiting()
                batch = next(batches, None)

    def _loaded(self, loading: Loading, samples: Generator[Sample]) -> Generator[Batch]:
        trained = self._engine.parameters.values()
        return loading.batches(samples, self._planted.chosen, self._session.entries_seed, trained)

    def _refuse_waiting(self) -> None:
        # A loop that leaves some out is another mechanism, and shows which these were (P28).
        if self._waiting is not None:
            raise SampleMisuse(
                expected="a backward for every batch, also an empty one",
                got="the next batch asked for before the last was used",
                do="Call run.backward(loss, batch) for each batch.",
            )

    # --- steps ---

    def backward(self, loss: Loss, batch: Batch) -> Release:
        """Clip, sum, add noise; every trained parameter's gradient grows by the noised average, as
        with torch's backward.

        Args:
            loss: (model, data) to one loss for each record; or to (losses, statistics).
            batch: from `batches`; once.

        Returns:
            The noised sums of the statistics. Gradients are in the parameters.

        Raises:
            ModelError: the model or the loss cannot be served; nothing was released, the batch can
                be tried again.
            SampleMisuse: a batch of another run, or used before; one on which a loss failed,
                perhaps because of a record; or another loss on a batch on which the first one
                failed with an error of its own.
        """
        function: object = loss
        if not callable(function):
            raise ParameterError(
                owner="PrivateRun.backward",
                name="loss",
                expected="a function of (model, data) that gives one loss for each record",
                got=type(loss).__name__,
            )

        Batch.checked(batch)

        with self._order:
            # In every step: hooks may be put there, and gradients added, at any time (T10, T15).
            refuse_hooks(self._model, self._engine.parameters)
            self._gradients.check()

            # The first sample is charged and drawn when it is asked for, after the rehearsal.
            self._rehearse(loss, batch)
            sample = batch.sample
            self._session.check_issued(sample)
            if self._waiting is not batch:
                raise SampleMisuse(
                    expected="the batch that was drawn last, once",
                    got="one that was used before",
                    do="Call backward once for each batch; draw the next for more.",
                )

            self._engine.batch_norm.check_untouched()
            sums = self._attempts.sums(loss, batch)

            # Spent before the release, also if what follows is interrupted: its noise may be out,
            # and the same sum with other noise would be a second release (P16).
            self._session.spend(sample)
            self._waiting = None
            self._done = self._session.number(sample) + 1

            released = self._stepping.release(sample, sums)
            self._gradients.note_written()

        self._watch.note(released, self.state)
        return released

    def settle(self) -> None:
        """Bring all rows of tables up to date, so that the model can be used between steps; it
        costs about what a step with noise on all rows does. Without tables it does nothing.
        """
        self._tables.settle()

    def public_gradients(self) -> AbstractContextManager[None]:
        """For the time of a block, gradients of public data may be added to those of the run;
        nothing checks that.
        """
        return self._gradients.public()

    def _rehearse(self, loss: Loss, batch: Batch) -> None:
        # Before the first sample is charged, or, where the loop has looked at it already, before it
        # is used: what is learned from made-up records must not come from a sample.
        if self._loading is not None and batch is self._waiting:
            rehearse(self._engine, loss, self._loading, self._statistics)

        self._loading = None

    # --- checkpoints ---

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        optimizer: Stateful | None = None,
        scheduler: Stateful | None = None,
        others: Mapping[str, Stateful] | None = None,
    ) -> None:
        """Write a checkpoint, whole or not at all, over an earlier one. Call it after
        `optimizer.step()`.

        It holds the state of the model and of what is named here, plan, step, adaptive state and
        head of the ledger; no key and nothing that was not released. A batch that did not go
        through `backward` is not part of it.

        Args:
            path: of the file.
            optimizer: of the user.
            scheduler: of the user.
            others: further objects with a state_dict, by name.

        Raises:
            SampleMisuse: in the middle of a step that has several batches.
            CheckpointError: canaries, a state that holds something else than tensors and plain
                values, a path where there is something else than a checkpoint, or the disk refuses.
        """
        self._planted.refuse_checkpoint()
        if self._done % self._session.sampler.batches_per_step:
            raise SampleMisuse(
                expected="a checkpoint between two steps",
                got=f"one within step {self.step}, whose samples could not be drawn again",
                do=f"Save after backward, every {self._session.sampler.batches_per_step} batches.",
            )

        things = named(self._model, optimizer, scheduler, others)
        Checkpoint(
            plan=self.plan.to_json(),
            step=self.step,
            state=dict(self.state),
            head=self.ledger.head(),
            objects={name: thing.state_dict() for name, thing in things.items()},
        ).write(path)

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        optimizer: Stateful | None = None,
        scheduler: Stateful | None = None,
        others: Mapping[str, Stateful] | None = None,
        lost: str = "",
    ) -> int:
        """Go on from a checkpoint, before `batches`: at its step, on the same ledger, with fresh
        samples and noise.

        All steps from there on are charged. Steps that were charged after the checkpoint are lost
        on a ledger that is held to a
        list, because going back may be a choice from outputs: `batches(until_budget=True)` takes
        what is left. For a public reason, or under a filter or an odometer, they are taken again at
        their price.

        Args:
            path: of the file.
            optimizer: the same that was saved.
            scheduler: likewise.
            others: by the same names.
            lost: the public reason for which steps were lost and may be taken again, such as "power
                failure".

        Returns:
            The step at which the run goes on.

        Raises:
            CheckpointError: canaries, or damaged, of another plan or ledger, or of other objects;
                everything is as before.
            NumericsError: thresholds out of range; likewise.
            SampleMisuse: the run began already.
        """
        self._planted.refuse_checkpoint()
        if self._began:
            raise SampleMisuse(
                expected="a checkpoint loaded before the first batch",
                got="a run that began",
                do="Make another PrivateRun, and load into that.",
            )

        saved = Checkpoint.read(path)
        try:
            saved.refuse_another(self.plan, self.ledger)
        except CheckpointError:
            if self._own_ledger:
                # If it was made just now, where the checkpoint's ledger should have been.
                self.ledger.withdraw()

            raise

        # Thresholds out of range leave the model as it is, and the run where it was.
        self._stepping.check(self._session.bound.groups(saved.state))
        restore(
            named(self._model, optimizer, scheduler, others),
            saved.objects,
            self._engine.batch_norm.take_over,
        )

        self._start, self._first_state = saved.step, saved.state
        self._lost = check.label("PrivateRun.load", "lost", lost, empty=True)
        self._done = saved.step * self._session.sampler.batches_per_step
        self._tables.start(self._done)
        return saved.step

    # --- the end ---

    def stop(self, reason: str) -> None:
        """Declare that the loop ends early for a public reason, such as "the machine was needed":
        what was taken counts.

        Without it all planned steps count, however the loop ends. So it may end because of a
        validation score.

        Args:
            reason: one that owes nothing to what was released; it stands in the guarantee.
        """
        self._session.stop(reason)

    def close(self) -> None:
        """Close a ledger that was given as a path; bring tables up to date."""
        self._gradients.close()
        self._tables.close()
        self._close(self.ledger)

    def _close(self, ledger: Ledger) -> None:
        if self._own_ledger:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
