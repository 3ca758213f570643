"""Records one by one; a record whose numbers Python sees in a process of its own, which forgets them.

As long as a pass over one record shows Python no numbers, nothing of the record can stay behind:
what tensors hold is told by their marks (`separation/kept.py`). A loss that looks at numbers
(`if x.max() > 1`, `.item()`, texts in a batch, a custom operator) may keep them anywhere: in
attributes, globals, caches, settings of Python and torch. Nobody can look everywhere. So such a
pass runs in a copy of the process, which computes the record's gradient, hands it over and ends.
What it kept ends with it, and every record starts from the same memory.

Not held back are traces outside of memory: files, other machines, time.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os import fork  # the function itself: passes replace the attribute
from typing import Generic, NoReturn, TypeVar, final

import torch

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.seeding import generators_seeded
from discreet.training.separation.states import OneByOne

__all__ = ["one_by_one"]

_T = TypeVar("_T")


def one_by_one(compute: Callable[[int, bool], _T], records: Sequence[int], places: int) -> Iterator[_T]:
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

        done = 0
        for record in records:
            try:
                result = seeded(record, apart=False)
            except OneByOne:
                break
            done += 1
            yield result
        yield from _apart([partial(seeded, record, apart=True) for record in records[done:]])


def _apart(tasks: Sequence[Callable[[], _T]]) -> Iterator[_T]:
    """Each result from a process of its own, a few at a time."""
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
        task: what it computes; the result goes through `pickle`.
    """

    __slots__ = ("_number", "_pipe")

    def __init__(self, task: Callable[[], _T]) -> None:
        _refuse_other_systems()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or it would be written twice
        self._pipe, entrance = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about threads: none is needed there
            self._number = fork()
        if not self._number:
            _answer(task, entrance)
        os.close(entrance)

    def result(self) -> _T:
        """Wait for the result.

        Raises:
            Exception: what the task raised.
            ModelError: the process ended without an answer.
        """
        with os.fdopen(self._pipe, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(self._number, 0)
        if not answer:
            raise ModelError(
                expected="a pass over one record that ends",
                got="its process, which died",
                do="Run loss(model, batch) by itself: it may use too much memory, or crash.",
            )
        result, error = pickle.loads(answer)  # noqa: S301  (from a copy of this process)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Stop it: its result is not needed."""
        os.close(self._pipe)
        os.kill(self._number, signal.SIGKILL)
        os.waitpid(self._number, 0)


def _answer(task: Callable[[], object], entrance: int) -> NoReturn:
    """Compute, write what came out into a pipe, and end, whatever happens."""
    try:
        gc.disable()  # looking through all objects would copy their memory
        torch.set_num_threads(1)  # the threads of OpenMP have stayed behind
        try:
            answer = pickle.dumps((task(), None))
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised again on the other side)
            answer = pickle.dumps((None, _sendable(error)))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with os.fdopen(entrance, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _sendable(error: BaseException) -> BaseException:
    """The error, or its class and text where it cannot be sent."""
    if isinstance(error, CoupledRecords):  # what it names may have been chosen by the record
        return CoupledRecords(
            expected="a loss that keeps nothing of a record for the next one",
            got="one that keeps what it computed from it, on the model or in memory from before the pass",
            do="This loss looks at numbers of records: keep no outputs, banks, flags or running values.",
        )
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (our own)
    except Exception:  # noqa: BLE001  (classes of users may raise anything)
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _refuse_other_systems() -> None:
    if sys.platform != "linux" or torch.accelerator.is_available():
        raise ModelError(
            expected="a loss that looks at no numbers of records, on this system",
            got="one that does (training.check says where)",
            do="Write it with torch.where and other operations of tensors. Losses that look at numbers are "
            "computed in a process for each record, on Linux and without an accelerator.",
        )
