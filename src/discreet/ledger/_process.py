"""Which process this is. A number is no identity: it is used again, and in a container a fork may have its parent's."""

from __future__ import annotations

import os

__all__ = ["current"]

_mark = object()


def current() -> object:
    """An object that is this process's own: a fork has another."""
    return _mark


def _renew() -> None:
    global _mark  # noqa: PLW0603  (the one state there is: who we are)
    _mark = object()


if os.name == "posix":  # elsewhere processes do not fork
    os.register_at_fork(after_in_child=_renew)
