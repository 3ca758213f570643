"""Which passes are executed from a recording, and which as the user wrote them.

    second step     a pass over made-up records is recorded; over other made-up records the program
                    and the user's own pass must give the same bits
    later           guards ──> program
    now and then    compared again; a difference is an error, for all alike

Everything that is decided here is decided by public things, at public times: records are never
recorded, and never compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.data.trees import Portion, branches, made_up, mapped, tensors_in
from discreet.training.replay.guards import Guards
from discreet.training.replay.program import Program, Stale, same_bits
from discreet.training.replay.recorder import Recorder
from discreet.training.replay.steps import slots_in
from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.states import OneByOne

__all__ = ["Compute", "PassTraces", "Replays", "Runner"]

_FIRST = 2
"""The step in which a pass is recorded: in the first one, forms of factors are chosen."""

_PERIOD = 1000
"""Steps from one comparison with the user's own pass to the next."""

_ATTEMPTS = 3
"""How often a pass is recorded, before it is left at that."""

_KINDS = 8
"""How many kinds of passes are recorded, by sizes of rows, modes and losses: each takes time."""

_MADE_UP_ERRORS = (
    ArithmeticError,
    AssertionError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Compute(Protocol):
    """Computes a pass as the user wrote it."""

    def __call__(self, rows: Portion, present: Tensor, recorder: Recorder | None) -> Any:
        """What the rows contribute; recorded, if there is a recorder."""


class PassTraces(Protocol):
    """What passes leave behind, as the room above keeps it.

    Attributes:
        stateful: whether a pass has changed public state. Public.
        may_tell: whether an error of this step may tell of a record.
        unerased: what is to be erased.
    """

    stateful: bool
    may_tell: bool
    unerased: list[Any]

    def erase(self) -> None:
        """Overwrite what passes made of records, and somebody still holds."""


class Runner(Protocol):
    """What runs passes, in the room above."""

    @property
    def traces(self) -> PassTraces:
        """Of its passes."""

    @property
    def device(self) -> torch.device:
        """On which losses are."""

    def executing(self) -> AbstractContextManager[None]:
        """The circumstances in which a program runs."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of passes of one kind.

    Args:
        program: if they can be executed from one.
        guards: of the program.
        compared: the step in which the program was compared last.
        attempts: how often a pass was recorded.
        tried: the step in which that was, or in which the program was given up.
    """

    program: Program | None = None
    guards: Guards | None = None
    compared: int = 0
    attempts: int = 0
    tried: int = 0


@final
class Replays:
    """Programs of the passes of a model.

    Args:
        model: of the user.
        runner: of its passes.
        enabled: whether passes are recorded at all.

    Attributes:
        enabled: as it was given, until a reason was found.
        reason: why passes are not executed from a program; None if they are, or are going to be.
            Public.
    """

    def __init__(self, model: nn.Module, runner: Runner, *, enabled: bool) -> None:
        self._model = model
        self._runner = runner
        self._traces = runner.traces
        self.enabled = enabled
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._step = 0
        self.reason: str | None = None

    def begin_step(self) -> None:
        """One more step begins. What is decided is decided by their number, not by that of passes,
        which follows from the size of a sample.
        """
        self._step += 1

    def give_up(self, reason: str) -> None:
        """From now on nothing is recorded, for this reason. Public."""
        self.enabled, self.reason = False, reason

    def contributed(
        self,
        circumstances: tuple[object, ...],
        loss: Callable[..., Any],
        compute: Compute,
        rows: Portion,
        present: Tensor,
        copies: int,
    ) -> Any:
        """What the rows of a pass contribute: by a program, if there is one that may be used, or as
        the user wrote it.

        Args:
            circumstances: what decides which functions the loss calls; public.
            loss: of rows.
            compute: the pass as the user wrote it.
            rows: of the pass; sensitive.
            present: which rows are records; sensitive.
            copies: rows of each record.
        """
        known = self._of_kind(circumstances, rows, present, copies)
        if known is None:
            return compute(rows, present, None)

        if known.program is None and self._is_due(known):
            self._record(known, loss, compute, rows, copies, len(present))

        if known.program is None or known.guards is None:
            return compute(rows, present, None)

        moved = known.guards.moved(loss)
        if moved is not None:
            return self._given_up(known, moved, compute, rows, present)

        if self._step - known.compared >= _PERIOD:
            self._compare_again(known, known.program, compute, rows, copies, len(present))

        try:
            result = self._executed(known.program, rows, present, copies)
        except Stale as stale:
            return self._given_up(known, str(stale), compute, rows, present)

        return compute(rows, present, None) if result is None else result

    def _executed(self, program: Program, rows: Portion, present: Tensor, copies: int) -> Any:
        """The result of a program; None if the batch has other sizes than the recorded one."""
        with no_functions(), out_of_sight():
            entries = [_entry(leaf, rows.places) for leaf in tensors_in(rows.batch)]
            entries.append(present.to(self._runner.device, program.kind) / copies)

        if not program.fits(entries):
            return None

        # An operation that fails here has failed on records, until it is known that none did.
        self._traces.may_tell, could_tell = True, self._traces.may_tell
        try:
            with self._runner.executing():
                result, remains = program.run(entries)
        except Stale:
            self._traces.may_tell = could_tell
            raise

        self._traces.may_tell = could_tell

        # As of a pass: when its contributions were added to the sums, or that has failed.
        self._traces.unerased.append(remains)
        return result

    def _of_kind(
        self, circumstances: tuple[object, ...], rows: Portion, present: Tensor, copies: int
    ) -> _Known | None:
        """What is known of passes like this one; None where nothing is recorded."""
        if not self.enabled:
            return None

        device = self._runner.device.type
        autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
        key = (circumstances, autocast, copies, len(present), _outline(rows.batch))
        if key not in self._known and len(self._known) >= _KINDS:
            self.reason = f"there are more than {_KINDS} kinds of them, by sizes, modes and losses"
            return None

        return self._known.setdefault(key, _Known())

    def _is_due(self, known: _Known) -> bool:
        is_early = self._step < _FIRST or known.tried == self._step
        return not is_early and known.attempts < _ATTEMPTS

    def _given_up(
        self, known: _Known, reason: str, compute: Compute, rows: Portion, present: Tensor
    ) -> Any:
        """The program is not used any more; another one may be recorded in the next step."""
        known.program = known.guards = None
        known.tried = self._step
        if known.attempts >= _ATTEMPTS:
            self.reason = reason

        return compute(rows, present, None)

    def _record(
        self,
        known: _Known,
        loss: Callable[..., Any],
        compute: Compute,
        rows: Portion,
        copies: int,
        count: int,
    ) -> None:
        """Record a pass over made-up records, and compare it over others."""
        known.tried, known.attempts = self._step, known.attempts + 1
        first = made_up(rows.take(torch.arange(count)))
        present = torch.ones(count, dtype=torch.bool)

        recorder = Recorder()
        generator = torch.default_generator.get_state()
        try:
            result = compute(Portion(first), present, recorder)
            slots = recorder.slots_of(result)
            del result
            self._traces.erase()

            if self._traces.stateful:
                recorder.refuse("its passes change state: buffers, attributes or variables")

            if recorder.reason is None:
                program = Program(recorder, slots)
                guards = Guards(self._model, loss, recorder.before.values())
                if self._agree(program, compute, first, present, copies):
                    known.program, known.guards, known.compared = program, guards, self._step
                    self.reason = None
                    return

                recorder.refuse("a program of it computes other bits")
        except OneByOne as failure:
            recorder.refuse(str(failure))
        except _MADE_UP_ERRORS as error:
            # In earnest it may work; what is wrong with it shows there.
            recorder.refuse(f"it fails on made-up records ({type(error).__name__})")
        finally:
            torch.default_generator.set_state(generator)

        # What was found is so in every step: once is enough.
        known.attempts = _ATTEMPTS
        self.reason = recorder.reason

    def _agree(
        self, program: Program, compute: Compute, rows: Any, present: Tensor, copies: int
    ) -> bool:
        """Whether a program and the user's own pass give the same bits over made-up records."""
        varied = mapped(rows, _varied)
        generator = torch.default_generator.get_state()
        expected = compute(Portion(varied), present, None)

        torch.default_generator.set_state(generator)
        with self._runner.executing(), no_functions(), out_of_sight():
            entries = [_entry(leaf, None) for leaf in tensors_in(varied)]
            entries.append(present.to(self._runner.device, program.kind) / copies)
            replayed, _ = program.run(entries)
            agree = same_bits(slots_in(replayed, Tensor), slots_in(expected, Tensor))

        torch.default_generator.set_state(generator)
        del expected
        self._traces.erase()
        return agree

    def _compare_again(
        self,
        known: _Known,
        program: Program,
        compute: Compute,
        rows: Portion,
        copies: int,
        count: int,
    ) -> None:
        """Compare over made-up records, in all runs in the same steps.

        Raises:
            ModelError: the user's own pass computes something else by now.
        """
        known.compared = self._step
        records = made_up(rows.take(torch.arange(count)))
        present = torch.ones(count, dtype=torch.bool)

        try:
            agree = self._agree(program, compute, records, present, copies)
        except (OneByOne, *_MADE_UP_ERRORS):
            agree = False

        if not agree:
            known.program = known.guards = None
            known.tried = self._step
            raise ModelError(
                expected="a loss without state outside of tensors, as static=True says",
                got="one that computes something else now than when its pass was recorded",
                do="Leave static=True out. What changes from step to step (a temperature, a "
                "schedule) can be a tensor that is changed in place.",
            )


def _outline(part: Any) -> Any:
    """The form of a batch: keys, kinds, and sizes of rows."""
    if isinstance(part, Tensor):
        return part.shape[1:], part.dtype

    entries = branches(part)
    if entries is None:
        return type(part)

    return type(part), tuple([(key, _outline(entry)) for key, entry in entries])


def _entry(leaf: Tensor, places: Tensor | None) -> Tensor:
    """A tensor of the batch in memory of its own, as `Proof.begin` makes it."""
    if places is None:
        return leaf.detach().clone(memory_format=torch.contiguous_format)

    return leaf.detach().index_select(0, places.to(leaf.device))


def _varied(leaf: Any) -> Any:
    """Other made-up numbers of the same shape and type: what was frozen shows."""
    if not isinstance(leaf, Tensor):
        return leaf

    if leaf.is_floating_point() or leaf.is_complex():
        return leaf.flip(0) * 0.75

    # Labels, tokens and truth values: zero and one by turns.
    turns = torch.arange(leaf.numel(), device=leaf.device) % 2
    return turns.reshape(leaf.shape).to(leaf.dtype)
