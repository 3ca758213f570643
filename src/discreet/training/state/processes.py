"""Copies of this process, in which nothing that is computed stays.

A copy computes something from the memory of this moment, hands it over and ends: what it changed
(attributes, tensors, iterators, caches, generators, settings) ends with it. So records that Python
looks at leave nothing behind (`passes/apart.py`), a data set is tried out from the same state in
two orders (`data/order.py`), and `training.check` leaves a model as it was.

Files, terminals and sockets that are open are closed to it, so that nothing is printed or logged
of a record; of files that are open for reading it has a place of its own. Not held back are files
that it opens itself, shared memory, time.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import io
import os
import select
import signal
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, NoReturn, TypeVar, final

import torch

from discreet.errors import CoupledRecords, ModelError

__all__ = ["can_copy", "in_a_copy", "in_copies"]

_T = TypeVar("_T")
_PATIENCE = 600  # seconds for one record
# The function itself: passes replace the attribute.
_fork: Callable[[], int] | None = getattr(os, "fork", None)


def in_a_copy(task: Callable[[], _T]) -> _T:
    """Compute something in a copy of this process, in which nothing that it does stays.

    Raises:
        ModelError: there can be no copy here, or it died.
    """
    return next(in_copies([task]))


def in_copies(tasks: Sequence[Callable[[], _T]], patience: float | None = None) -> Iterator[_T]:
    """Each result from a copy of its own, a few at a time.

    Args:
        tasks: what is computed: tensors, numbers and texts, in tuples, lists and dicts.
        patience: seconds for one of them.

    Raises:
        ModelError: there can be no copy here, or it died.
    """
    # Each result is a function of its task and of the memory before all of them.
    started: deque[_Process[_T]] = deque()
    try:
        for task in tasks:
            started.append(_Process(task, patience or _PATIENCE))
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
        patience: seconds after which it counts as dead.
    """

    __slots__ = ("_number", "_patience", "_pipe")

    def __init__(self, task: Callable[[], _T], patience: float) -> None:
        self._patience = patience
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
                if select.select([pipe], [], [], self._patience)[0]:
                    answer = pipe.read()
        finally:
            self._end(killed=not answer)  # it has died, or the user interrupts

        if not answer:
            raise ModelError(
                expected="a pass over one record that ends",
                got=f"its process, which died or took longer than {self._patience} s",
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

    A loss that prints or logs what it looks at would show numbers of its record (P42). What is read
    here is not taken away from the parent either: copies share places in files, and pipes.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for entry in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):  # the listing itself is closed by now
            number, (_, flags, *_) = int(entry.name), entry.read_text().splitlines()
            if number in (entrance, nowhere):
                continue

            is_written = int(flags.split()[1], 8) & (os.O_WRONLY | os.O_RDWR)
            mode = os.fstat(number).st_mode
            if is_written or stat.S_ISFIFO(mode):
                os.dup2(nowhere, number)
            elif stat.S_ISREG(mode):
                _open_again(number)


def _open_again(number: int) -> None:
    """Let a file that is open for reading have a place of this process's own."""
    place = os.lseek(number, 0, os.SEEK_CUR)
    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
    os.lseek(again, place, os.SEEK_SET)
    os.dup2(again, number)
    os.close(again)


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
