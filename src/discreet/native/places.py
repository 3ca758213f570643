"""Where compiled code may lie: what is loaded from there executes in this process.

    the package's folder     written by whoever installed it, as the sources are
    its __pycache__          where Python keeps the code that it compiled of the same sources
    the user's cache         ~/.cache/discreet, or below XDG_CACHE_HOME

Whoever writes into the first can change the sources, and into the second the bytecode, which Python
executes without a question: so these give nobody anything new. The third is taken only if nobody
but this user and root can write to it, or put another folder in its place. Nothing else is looked
at, and no folder for all, such as /tmp.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from discreet.native.compiling import SOURCES

__all__ = ["is_private", "places", "writable_place"]

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def places() -> tuple[Path, ...]:
    """The folders in which compiled code is looked for, those that can be trusted."""
    bytecode = SOURCES / "__pycache__"
    caches = (bytecode, _user_cache())
    return (SOURCES, *(folder for folder in caches if folder.is_dir() and is_private(folder)))


def writable_place() -> Path | None:
    """A folder to keep compiled code in, made if it is not there; None if there is none."""
    for folder, mode in ((SOURCES / "__pycache__", 0o755), (_user_cache(), 0o700)):
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError:
            continue

        if is_private(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder

    return None


def is_private(path: Path) -> bool:
    """Whether a file or folder exists, and only this user, root and the installer can change it.

    Root is also who owns "/": in a container it may have another number.

    Asked of everything above it, too: who may rename a folder can put another one in its place. A
    folder with the sticky bit, as /tmp has it, lets nobody rename what belongs to others.
    """
    try:
        trusted = {0, os.geteuid(), SOURCES.stat().st_uid, Path("/").stat().st_uid}
        real = path.resolve(strict=True)
        states = [real.stat(), *(parent.stat() for parent in real.parents)]
    except (OSError, RuntimeError, AttributeError):  # Windows has no geteuid
        return False

    return all(
        state.st_uid in trusted and (not state.st_mode & _OTHERS or (depth and _is_sticky(state)))
        for depth, state in enumerate(states)
    )


def _is_sticky(state: os.stat_result) -> bool:
    return bool(state.st_mode & stat.S_ISVTX)


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")

    # A relative path would depend on where the process was started.
    folder = Path(base) if base.startswith("/") else Path("~/.cache")
    try:
        return folder.expanduser() / "discreet"
    except RuntimeError:  # a user without a home
        return Path("/nonexistent")
