"""Records one by one; a record whose numbers Python sees in a process of its own, which forgets
them.

As long as a pass over one record shows Python no numbers, nothing of the record can stay behind:
what tensors hold is told by their marks (`separation/kept.py`). A loss that looks at numbers
(`if x.max() > 1`, `.item()`, texts in a batch, a custom operator) may keep them anywhere: in
attributes, globals, caches, settings of Python and torch. Nobody can look everywhere. So such a
pass runs in a copy of the process, which computes the record's gradient, hands it over and ends.
What it kept ends with it, and every record starts from the same memory.

Files, terminals and sockets that are open are closed to it, so that nothing is printed or logged
of a record. Not held back are files that it opens itself, shared memory, time.

`training.check` looks at a model in such a copy, too: so it leaves everything as it was.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import io
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, NoReturn, TypeVar, final

import torch
from torch import nn

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.seeding import generators_seeded
from discreet.training.separation.states import OneByOne

__all__ = ["can_copy", "in_a_copy", "one_by_one", "refuse_shared"]

_T = TypeVar("_T")
_PATIENCE = 600  # seconds for one record
# The function itself: passes replace the attribute.
_fork: Callable[[], int] | None = getattr(os, "fork", None)


def one_by_one(
    compute: Callable[[int, bool], _T], records: Sequence[int], places: int
) -> Iterator[_T]:
    """Results for single records, in their order, each from random numbers of its own.

    Args:
        compute: for a record, and whether it is in a process of its own. Raises `OneByOne` where it
            is not, and has to be.
        records: places of the records.
        places: how many there are, those without a record included; public.

    Raises:
        ModelError: a process is needed, and cannot be had.
    """
    # Numbers that no other record can have moved on or seeded; from the secret seed of the step.
    seeds = torch.randint(2**62, (places,)).tolist()

    with generators_seeded() as seed:

        def seeded(record: int, *, apart: bool) -> _T:
            seed(seeds[record])
            return compute(record, apart)

        # Up to where Python would see a number, public things alone have decided: that a pass stops
        # there tells nothing of its record, which is computed again in a process of its own.
        done = 0
        for record in records:
            try:
                result = seeded(record, apart=False)
            except OneByOne:
                break
            done += 1
            yield result

        yield from _apart([partial(seeded, record, apart=True) for record in records[done:]])


def refuse_shared(model: nn.Module) -> None:
    """Refuse a model in memory that other processes share: what a record's process writes there
    outlives it.

    Raises:
        ModelError: a parameter or buffer is shared.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        # Of accelerators' memory torch says that it is shared, always; there is no copy there.
        if tensor.device.type == "cpu" and tensor.is_shared():  # type: ignore[no-untyped-call]
            raise ModelError(
                expected="parameters and buffers in memory of this process, to compute records "
                "one by one",
                got=f"{name!r}, which other processes share",
                do="Leave out share_memory(), or copy the model: copy.deepcopy(model).",
            )


def in_a_copy(task: Callable[[], _T]) -> _T:
    """Compute something in a copy of this process, in which nothing that it does stays.

    Raises:
        ModelError: there can be no copy here, or it died.
    """
    return next(_apart([task]))


def _apart(tasks: Sequence[Callable[[], _T]]) -> Iterator[_T]:
    """Each result from a process of its own, a few at a time."""
    # Copies of a process in which Python has seen nothing of any record: each result is a function
    # of its record and of the memory before it.
    started: deque[_Process[_T]] = deque()
    try:
        for task in tasks:
            started.append(_Process(task))
            if len(started) >= torch.get_num_threads():
                yield started.popleft().result()

        while started:
            yield started.popleft().result()
    finally:
        for process in started:
            process.end()


@final
class _Process(Generic[_T]):
    """A copy of this process, as it is now, which computes one thing.

    Args:
        task: what it computes: tensors, numbers and texts, in tuples, lists and dicts.
    """

    __slots__ = ("_number", "_pipe")

    def __init__(self, task: Callable[[], _T]) -> None:
        fork = _safe_fork()

        _write_out()  # or it would be written twice
        self._pipe, entrance = os.pipe()
        self._number = fork()
        if not self._number:  # in the copy, which ends there
            _answer(task, entrance)
        os.close(entrance)

    def result(self) -> _T:
        """Wait until the process ends, and return its result.

        Raises:
            Exception: what the task raised.
            ModelError: the process ended without an answer.
        """
        answer = b""
        try:
            with os.fdopen(self._pipe, "rb") as pipe:
                # Only a process that waits for something that it does not have is silent so long:
                # a lock or a thread of the process that it is a copy of.
                if select.select([pipe], [], [], _PATIENCE)[0]:
                    answer = pipe.read()
        finally:
            self._end(killed=not answer)  # it has died, or the user interrupts

        if not answer:
            raise ModelError(
                expected="a pass over one record that ends",
                got=f"its process, which died or took longer than {_PATIENCE} s",
                do="Run loss(model, batch) by itself: it may use too much memory, or crash. A pool "
                "of threads does not exist in a copy of the process: a loss that looks at numbers "
                "of records must not wait for one.",
            )

        # Tensors and plain values alone: code that a record has chosen does not come back.
        result, error = torch.load(io.BytesIO(answer), weights_only=True)
        if error is not None:
            raise _raised_again(*error)
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Stop it: its result is not needed."""
        os.close(self._pipe)
        self._end(killed=True)

    def _end(self, *, killed: bool) -> None:
        # Somebody else may have waited for it already: then there is nothing left to do.
        with suppress(ChildProcessError, ProcessLookupError):
            if killed:
                os.kill(self._number, signal.SIGKILL)
            os.waitpid(self._number, 0)


def _answer(task: Callable[[], object], entrance: int) -> NoReturn:
    """Compute, write what came out into a pipe, and end, whatever happens."""
    try:
        _end_with_parent()
        _leave_files_alone(entrance)
        gc.disable()  # looking through all objects would copy their memory
        torch.set_num_threads(1)  # the threads of OpenMP have stayed behind

        try:
            answer = _written((task(), None))
        # Whatever it is, it is raised again on the other side.
        except BaseException as error:  # noqa: BLE001
            answer = _written((None, _told(error)))

        _write_out()
        with os.fdopen(entrance, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)  # past finalizers and exit handlers, which belong to the parent


def _leave_files_alone(entrance: int) -> None:
    """Let whatever this process writes to files, terminals and sockets that were open before go
    nowhere.

    A loss that prints or logs what it looks at would show numbers of its record (P42).
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for entry in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):  # the listing itself is closed by now
            number, (_, flags, *_) = int(entry.name), entry.read_text().splitlines()
            is_written = int(flags.split()[1], 8) & (os.O_WRONLY | os.O_RDWR)
            if is_written and number not in (entrance, nowhere):
                os.dup2(nowhere, number)


def _end_with_parent() -> None:
    """Let the system end this process when its parent ends, however that happens."""
    prctl, parent_death_signal = ctypes.CDLL(None).prctl, 1
    prctl(parent_death_signal, int(signal.SIGKILL), 0, 0, 0)


def _write_out() -> None:
    """Write what was printed so far."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()


def _written(answer: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(answer, buffer)

    # Tried here, where an error is the record's: or it could not be read on the other side.
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    return buffer.getvalue()


def _told(error: BaseException) -> tuple[str, list[str]]:
    """The class of an error, and its words."""
    # Fixed words for our own errors: what they name may have been chosen by the record (T14).
    if isinstance(error, CoupledRecords):
        return "CoupledRecords", [
            "a loss that keeps nothing of a record for the next one",
            (
                "one that keeps what it computed from it, on the model or in memory from before "
                "the pass"
            ),
            (
                "This loss looks at numbers of records: keep no outputs, banks, flags or running "
                "values."
            ),
        ]
    if isinstance(error, ModelError):
        return "ModelError", [
            "a loss that gives the same for every record: one value, and the plan's statistics",
            "something else for a record",
            (
                "training.check says more, for records that you make up. This loss looks at "
                "numbers of records: what it returns must not depend on them in kind."
            ),
        ]

    name = type(error).__name__
    if type(error).__module__ == "builtins":
        return name, [str(error)]

    return "RuntimeError", [f"{name}: {error}"]  # classes of users stay on their side


def _raised_again(name: str, words: list[str]) -> BaseException:
    kinds: dict[str, type[ModelError | CoupledRecords]] = {
        "CoupledRecords": CoupledRecords,
        "ModelError": ModelError,
    }
    if name in kinds:
        return kinds[name](**dict(zip(("expected", "got", "do"), words, strict=True)))

    kind: type[BaseException] = getattr(builtins, name)
    try:
        return kind(*words)
    except TypeError:  # such as UnicodeDecodeError, which takes more
        return RuntimeError(f"{name}: {words[0]}")


def can_copy() -> bool:
    """Whether this process can be copied: not while an accelerator is in use, which does not
    survive it, and on Linux only.
    """
    in_use = (
        torch.cuda.is_initialized() or torch.xpu.is_initialized()  # type: ignore[no-untyped-call]
    )
    return _fork is not None and sys.platform == "linux" and not in_use


def _safe_fork() -> Callable[[], int]:
    """Return the function that copies this process.

    Raises:
        ModelError: this process cannot be copied.
    """
    if _fork is None or not can_copy():
        raise ModelError(
            expected="a loss that looks at no numbers of records, on this system",
            got="one that does (training.check says where)",
            do=(
                "Write it with torch.where and other operations of tensors. Losses that look at "
                "numbers are computed in a process for each record, on Linux and while no "
                "accelerator is in use."
            ),
        )
    return _fork
