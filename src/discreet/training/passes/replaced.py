"""Attributes of torch and Python that are other ones during a pass."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any, TypeAlias, final

__all__ = ["Replaced"]

_Replacement: TypeAlias = tuple[Any, str, Any]
"""An object or module, the name of one of its attributes, and what that is during a pass."""


@final
class Replaced:
    """Attributes of torch and Python that are other ones while a thread is in a pass.

    Several threads may be in passes at once, and a pass may be within another: the first that
    enters replaces, the last that leaves puts back. Python forgets what it has learned about a
    class whenever an attribute of it changes, so a run replaces once (`installed`), and not in
    every pass.

    A module that has imported a built-in function by its name (`from torch.utils.dlpack import
    to_dlpack`) has an attribute of its own for it. A run finds these in all modules that there are.

    Args:
        replacements: those of attributes that this version of torch or Python does not have are
            left out.
    """

    __slots__ = ("_depths", "_elsewhere", "_lock", "_originals", "_replacements", "_users")

    def __init__(self, replacements: Sequence[_Replacement]) -> None:
        self._replacements = [
            entry for entry in replacements if getattr(entry[0], entry[1], None) is not None
        ]

        self._originals: list[Any] = [None] * len(self._replacements)
        self._depths: dict[int, int] = {}  # of passes, by thread
        self._elsewhere: list[
            tuple[dict[str, Any], str, Any, Any]
        ] = []  # of other modules: name, new, original

        self._users = 0  # passes and runs
        # A loop that is collected meanwhile ends its run, in this thread and in the middle of this.
        self._lock = _thread.RLock()

    def __enter__(self) -> None:
        # First the functions, then that this thread is in a pass: they ask for it.
        self._install()
        thread = _thread.get_ident()
        self._depths[thread] = self._depths.get(thread, 0) + 1

    def __exit__(self, *_: object) -> None:
        thread = _thread.get_ident()
        self._depths[thread] -= 1

        # Numbers of threads are given out again: a later thread must not find itself in a pass.
        if not self._depths[thread]:
            del self._depths[thread]

        self._remove()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """For the time of a run, replacements are in place, and do what they stand for outside of
        passes.
        """
        # Looking through all modules takes its time: once for a run, not in every pass.
        self._install()
        self._replace_elsewhere()
        try:
            yield
        finally:
            self._remove()

    def _install(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return

            for place, (owner, name, new) in enumerate(self._replacements):
                now = getattr(owner, name)
                # Somebody may have put a function of ours there, believing it the original.
                if now is not new or not callable(new):
                    self._originals[place] = now
                    setattr(owner, name, new)

    def _replace_elsewhere(self) -> None:
        """Replace built-in functions also where modules have imported them by name."""
        with self._lock:
            replacements = {
                id(original): new
                for original, (_, _, new) in zip(self._originals, self._replacements, strict=True)
                if type(original) is BuiltinFunctionType
            }

            # Copies: looking at a lazy module may import others, and so may other threads.
            for module in list(sys.modules.values()):
                attributes = getattr(module, "__dict__", {})
                for name, value in list(attributes.items()):
                    if type(value) is BuiltinFunctionType and id(value) in replacements:
                        new = attributes[name] = replacements[id(value)]
                        self._elsewhere.append((attributes, name, new, value))

    def _remove(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return

            for original, (owner, name, new) in zip(
                self._originals, self._replacements, strict=True
            ):
                if getattr(owner, name) is new:  # or somebody else has replaced it for good
                    setattr(owner, name, original)

            for attributes, name, new, original in self._elsewhere:
                if attributes.get(name) is new:
                    attributes[name] = original

            self._elsewhere.clear()

    @property
    def here(self) -> bool:
        """Whether this thread is in a pass."""
        return _thread.get_ident() in self._depths

    def original(self, new: Any) -> Any:
        """Return the function for which `new` stands in."""
        for original, (_, _, replacement) in zip(self._originals, self._replacements, strict=True):
            if replacement is new:
                return original

        raise LookupError("not a replacement")
