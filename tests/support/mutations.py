"""Deliberate privacy bugs: what is broken, which test of the suite must notice, and a way to see
that it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from support.broken import Outcome, outcome_of


class Patches(Protocol):
    """The part of `pytest.MonkeyPatch` that bugs are made with."""

    def setattr(self, target: object, name: str, value: object) -> None: ...


Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A bug that is applied to the real code by patching, and the ordinary test that fails once it
    is there.

    name: what the bug is; it begins with the numbers of its pitfalls, if it is one of
        docs/pitfalls.md ("P33 ...", "T02 ...").
    patch: makes the bug.
    caught_by: the test as pytest names it, from the folder `tests`; without a case, one case that
        fails is enough.
    """

    name: str
    patch: Patch
    caught_by: str

    @property
    def pitfalls(self) -> tuple[str, ...]:
        """The numbers at the beginning of the name."""
        numbers = re.match(r"(?:[PT]\d\d )*", self.name)
        return tuple(numbers[0].split()) if numbers else ()

    @property
    def patched(self) -> tuple[str, ...]:
        """What is patched, by name: seen, not told."""
        noted = _Noted()
        self.patch(noted)  # type: ignore[arg-type]  # patches only call setattr
        return tuple(noted.names)


class _Noted:
    """Notes what would be patched."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def setattr(self, target: object, name: str, value: object) -> None:
        owner = getattr(target, "__qualname__", "")
        module = getattr(target, "__module__", None) or getattr(target, "__name__", "?")
        self.names.append(".".join(part for part in (str(module), owner, name) if part))


def replaced(owner: object, name: str, value: object) -> Patch:
    """The bug is another value of one name."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def by_name(mutations: Sequence[Mutation]) -> pytest.MarkDecorator:
    """One test for each mutation."""
    return pytest.mark.parametrize("mutation", mutations, ids=lambda mutation: mutation.name)


def broken(mutation: Mutation, folder: Path) -> Outcome:
    """What becomes of the test once the code is broken."""
    return outcome_of(mutation.caught_by, folder, mutation.patch)


def assert_caught(mutation: Mutation, folder: Path) -> None:
    """The suite's own test fails once the code is broken. That it passes without the bug, the suite
    shows by itself.
    """
    found = broken(mutation, folder)
    assert found.caught, f"{mutation.caught_by} does not notice: {found}\n{found.text}"
