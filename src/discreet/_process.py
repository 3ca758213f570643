"""Which process this is, and locks that no fork falls into.

A process number is no identity: it is used again, and in a container a fork may have its parent's.
    But another number is
another process: this tells forks that a C library made, past Python and its hooks.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["current", "hold_over_forks"]

_LONGEST_WAIT = 60.0  # seconds; a fork waits for whoever holds a lock, but not for ever

_mark = object()
_number = os.getpid()
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


def _before() -> None:
    _held.extend(lock for lock in list(_locks) if lock.acquire(timeout=_LONGEST_WAIT))


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    global _mark, _number  # the one state there is: who we are
    _mark, _number = object(), os.getpid()
    _locks.clear()  # what could not be taken is held by a thread that does not exist here
    while _held:  # else every thread of the child but this one would wait for ever
        lock = _held.pop()
        lock.release()
        _locks.add(lock)


if os.name == "posix":  # elsewhere processes do not fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
