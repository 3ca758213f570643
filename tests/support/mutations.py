"""Deliberate privacy bugs: what is broken, and which check must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

import discreet as dp

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], None]

CAUGHT = (AssertionError, pytest.fail.Exception, dp.DiscreetError)  # the last: another guard may be faster


@dataclass(frozen=True)
class Mutation:
    """A bug, applied to the real code by patching, and a check that passes on the right code only."""

    name: str
    patch: Patch
    check: Check


def replaced(owner: object, name: str, value: object) -> Patch:
    """The bug is another value of one name."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def by_name(mutations: Sequence[Mutation]) -> pytest.MarkDecorator:
    """One test for each mutation."""
    return pytest.mark.parametrize("mutation", mutations, ids=lambda mutation: mutation.name)


def assert_caught(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch, caught: tuple[type[BaseException], ...] = CAUGHT
) -> None:
    """The check passes on the code as it is, and fails once it is broken."""
    mutation.check()
    mutation.patch(monkeypatch)
    with pytest.raises(caught):
        mutation.check()
