"""Values of a sweep, checked."""

from __future__ import annotations

from collections.abc import Iterable

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["distinct"]


def distinct(owner: str, name: str, values: object, *, least: int = 1) -> list[float]:
    """Positive numbers in the order given, none of them twice.

    >>> distinct("f", "x", [3, 1.5])
    [3.0, 1.5]
    """
    expected = f"numbers above 0, {least} or more, none of them twice"
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ParameterError(owner=owner, name=name, expected=expected, got=type(values).__name__)
    found = [check.positive(owner, name, value) for value in values]
    if len(found) < least or len(set(found)) < len(found):
        raise ParameterError(owner=owner, name=name, expected=expected, got=f"{found!r:.80}")
    return found
