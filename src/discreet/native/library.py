"""The compiled loops of this process: found where an installer or an earlier process put them, or
compiled once for this installation.

Nothing falls back in a way that changes a number: whoever uses a kernel compares it with NumPy or
torch before its first use, and does without where there is none. Which instructions are used
changes no bit; DISCREET_INSTRUCTIONS=avx2 (or baseline) allows no more than these.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from discreet.errors import ParameterError
from discreet.native.compiling import (
    SETS,
    SOURCES,
    compile_into,
    file_name,
    likely_set,
    sets_of_instructions,
)
from discreet.native.places import is_private, places, writable_place

__all__ = ["Kernels", "kernels"]

_VARIABLE = "DISCREET_INSTRUCTIONS"


@dataclass(frozen=True, eq=False)
class Kernels:
    """A shared library that this processor can execute.

    Attributes:
        instructions: the set of instructions that it uses.
        library: its functions by name, without types.
    """

    instructions: str
    library: ctypes.CDLL

    def function(self, name: str, arguments: str, *, counts: bool = False) -> Callable[..., Any]:
        """One function of it. While it executes, other threads of Python do, too.

        Args:
            name: as in the sources.
            arguments: a letter each: p for an address, n for a whole number, d for a float64.
            counts: whether it returns a whole number; otherwise nothing.
        """
        kinds: dict[str, Any] = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "d": ctypes.c_double}

        # By index: by attribute, one object would be shared by all who ask for it.
        function = self.library[name]
        function.argtypes = [kinds[letter] for letter in arguments]
        function.restype = ctypes.c_int64 if counts else None
        return function


def kernels(*, may_compile: bool) -> Kernels | None:
    """The compiled loops; None where there are none.

    Args:
        may_compile: whether about a second may be spent on compiling them, where nobody has so far.
    """
    ready = _ready()
    return _compiled() if ready is None and may_compile else ready


@cache
def _ready() -> Kernels | None:
    """What was compiled before: for this processor first, then for less."""
    folders = places()
    for instructions in _allowed():
        for folder in folders:
            path = folder / file_name(instructions)
            is_ours = path.is_file() and (folder == SOURCES or is_private(path))
            library = _load(path, instructions) if is_ours else None
            if library is not None:
                return library

    return None


@cache
def _compiled() -> Kernels | None:
    """What is compiled now, for the next processes too where there is a place for it."""
    for instructions in _allowed():
        folder = writable_place()
        if folder is None:
            # Whoever may write nowhere compiles for one process. The folder is this user's alone.
            with tempfile.TemporaryDirectory(prefix="discreet-") as scratch:
                compiled = compile_into(Path(scratch), instructions)
                library = None if compiled is None else _load(compiled, instructions)
        else:
            compiled = compile_into(folder, instructions)
            library = None if compiled is None else _load(compiled, instructions)

        if compiled is None or library is not None:
            return library

    return None


def _allowed() -> tuple[str, ...]:
    """The sets of instructions that may be used, widest first."""
    asked = os.environ.get(_VARIABLE, "")
    if asked not in {"", *SETS}:
        raise ParameterError(
            owner="discreet", name=_VARIABLE, expected=f"one of {', '.join(SETS)}", got=repr(asked)
        )

    widest = max(SETS.index(likely_set()), SETS.index(asked) if asked else 0)
    return tuple(name for name in sets_of_instructions() if SETS.index(name) >= widest)


def _load(path: Path, instructions: str) -> Kernels | None:
    """Load one file; None if it is none, or if this processor lacks what it needs."""
    try:
        library = ctypes.CDLL(str(path))
        is_supported = bool(library["is_supported"]())
    except (OSError, AttributeError):
        return None

    return Kernels(instructions, library) if is_supported else None
