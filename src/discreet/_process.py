"""Which process this is, locks that no fork falls into, and things that are used in one place only.

A process number is no identity: it is used again, and in a container a fork may have its parent's.
But another number is another process: this tells forks that a C library made, past Python and its
hooks.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from discreet.errors import DiscreetError

__all__ = ["Misuse", "SingleUse", "current", "hold_over_forks"]

# Seconds; a fork waits for whoever holds a lock, but not for ever.
_LONGEST_WAIT = 60.0

# Who this process is: an object, because numbers are used again, and the number, because a fork
# past Python's hooks changes that alone.
_mark = object()
_number = os.getpid()

# Weak, so that a lock that was registered does not live for ever; and those of them that the fork
# that is under way has taken.
_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
_held: list[threading.RLock] = []


def current() -> object:
    """An object that is this process's own: a fork has another."""
    if os.getpid() != _number:
        _after_in_child()

    return _mark


def hold_over_forks(lock: threading.RLock) -> None:
    """Take this lock before every fork, so that what it protects is not under way, and release it
    afterwards on both sides.
    """
    _locks.add(lock)


@dataclass(frozen=True, slots=True)
class Misuse:
    """What is said when something is used a second time, or in a second place.

    Args:
        kind: class of the error.
        expected, got, do: its parts.
    """

    kind: type[DiscreetError]
    expected: str
    do: str
    got: str = "an attempt to copy or pickle it"

    def error(self) -> DiscreetError:
        """The error, made anew for each time that it is raised."""
        return self.kind(expected=self.expected, got=self.got, do=self.do)


class SingleUse:
    """A base for what must not exist twice: keys, charges, samples, noise.

    It cannot be copied or pickled, and it belongs to the process that made it. A class says what is
    wrong with each as it is defined, and calls `_refuse_fork` before every use that counts:

        class Lease(SingleUse, copied=Misuse(...), forked=Misuse(...)): ...

    Guarantee: `copy.copy`, `copy.deepcopy` and `pickle` raise the error `copied`. What a fork may
    still do is up to the class; in a fork, `_at_home` is false for good.
    """

    __slots__ = ("_home",)

    _copied: ClassVar[Misuse]
    _forked: ClassVar[Misuse | None] = None

    def __init_subclass__(
        cls, *, copied: Misuse | None = None, forked: Misuse | None = None
    ) -> None:
        super().__init_subclass__()

        # What is not said here is said by the class above it.
        if copied is not None:
            cls._copied = copied

        if forked is not None:
            cls._forked = forked

    def __init__(self) -> None:
        self._home = current()

    @property
    def _at_home(self) -> bool:
        """Whether this is the process that made it."""
        return self._home is current()

    def _refuse_fork(self) -> None:
        """Raise the error `forked`, if there is one, in any process but the one that made it."""
        if self._forked is not None and self._home is not current():
            raise self._forked.error()

    # `copy` and `pickle` both ask here, for every protocol.
    def __reduce_ex__(self, _: object) -> NoReturn:
        raise self._copied.error()


def _before() -> None:
    # A list first: another thread may register a lock while this one waits.
    _held.extend(lock for lock in list(_locks) if lock.acquire(timeout=_LONGEST_WAIT))


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    global _mark, _number  # the one state there is: who we are
    _mark, _number = object(), os.getpid()

    # What could not be taken is held by a thread that does not exist here.
    _locks.clear()

    # Released, else every thread of the child but this one would wait for ever.
    while _held:
        lock = _held.pop()
        lock.release()
        _locks.add(lock)


if os.name == "posix":  # elsewhere processes do not fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
