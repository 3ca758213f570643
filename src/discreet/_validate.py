"""Checks on parameters, each with one form of error.

Numbers are normalised here and nowhere else: whatever a caller passes (int, float, NumPy scalar of
any width), what is stored is a Python float (float64) or int, so that equal numbers make equal
events. Booleans are not numbers, strings are not numbers, arrays are not numbers.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Sized
from datetime import datetime
from typing import TypeVar

from discreet.errors import ParameterError

__all__ = [
    "digest",
    "fraction",
    "instance",
    "label",
    "member",
    "not_negative",
    "positive",
    "real",
    "timestamp",
    "whole",
]

_T = TypeVar("_T")

# A label is shown in tables and in errors: a line or two of it.
_LONGEST_LABEL = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")


def real(owner: str, name: str, value: object, *, expected: str = "a finite number") -> float:
    """A finite float64, whatever numeric type came."""
    # The exact type first: it is the usual one, and asking an abstract class takes far longer.
    if type(value) is not float and (
        isinstance(value, bool) or not isinstance(value, numbers.Real)
    ):
        raise _wrong_kind(owner, name, expected, value)

    # An int of a thousand digits is a number that no float64 is near.
    try:
        number = float(value)
    except OverflowError:
        number = math.inf

    if not math.isfinite(number):
        raise ParameterError(owner=owner, name=name, expected=expected, got=_show(value))

    # -0.0 and 0.0 are equal but would be written differently.
    return number + 0.0


def positive(owner: str, name: str, value: object) -> float:
    """A finite float64 above zero."""
    expected = "a finite number above 0"
    number = real(owner, name, value, expected=expected)
    if number <= 0.0:
        raise ParameterError(owner=owner, name=name, expected=expected, got=_show(value))

    return number


def not_negative(owner: str, name: str, value: object) -> float:
    """A finite float64, at least zero."""
    number = real(owner, name, value)
    if number < 0.0:
        raise ParameterError(owner=owner, name=name, expected="at least 0", got=_show(value))

    return number


def fraction(
    owner: str, name: str, value: object, *, zero: bool = False, one: bool = False
) -> float:
    """A float64 between 0 and 1; each end is excluded unless asked for."""
    number = real(owner, name, value)

    # A probability of 1 is a policy, a delta of 1 claims nothing: so each end is a choice.
    ends = {0.0: zero, 1.0: one}
    if 0.0 < number < 1.0 or ends.get(number):
        return number

    # As mathematics writes an interval: a square bracket where the end belongs to it.
    expected = f"a number in {'[' if zero else '('}0, 1{']' if one else ')'}"
    raise ParameterError(owner=owner, name=name, expected=expected, got=_show(value))


def whole(owner: str, name: str, value: object, *, least: int) -> int:
    """A whole number, at least `least` and below 2^63 (what the ledger's store holds)."""
    # True is an int to Python; here it is most often an argument in the wrong place.
    if type(value) is not int and (
        isinstance(value, bool) or not isinstance(value, numbers.Integral)
    ):
        raise _wrong_kind(owner, name, _a_whole_number(least), value)

    number = int(value)
    if not least <= number < 2**63:
        raise ParameterError(
            owner=owner, name=name, expected=_a_whole_number(least), got=_show(value)
        )

    return number


def _a_whole_number(least: int) -> str:
    return f"a whole number, at least {least} and below 2^63"


def label(owner: str, name: str, value: object, *, empty: bool = False) -> str:
    """A short text in which every character can be printed."""
    # Printable, so that no name can hide a line break or reverse the reading of a report.
    if (
        isinstance(value, str)
        and len(value) <= _LONGEST_LABEL
        and value.isprintable()
        and (value or empty)
    ):
        # Not str(value): a subclass may say something else.
        return str.__str__(value)

    expected = f"a printable text of at most {_LONGEST_LABEL} characters"
    if not empty:
        expected += ", not empty"

    raise _wrong_kind(owner, name, expected, value)


def digest(owner: str, name: str, value: object) -> str:
    """The digest of a ledger's last row, as `ledger.head()` gives it."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        expected = "the digest that ledger.head() gives: 64 digits of 0-9a-f"
        raise _wrong_kind(owner, name, expected, value)

    return value


def timestamp(owner: str, name: str, value: object) -> str:
    """A date and time of day, ISO 8601, that says how far it is from UTC."""
    text = label(owner, name, value)

    # Without an offset it would be another moment on each machine that reads it.
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_offset = False

    if not has_offset:
        expected = "a date and time such as 2026-01-31T12:00:00+00:00"
        raise ParameterError(owner=owner, name=name, expected=expected, got=_show(text))

    return text


def instance(owner: str, name: str, value: object, kind: type[_T]) -> _T:
    """A value of one class."""
    if not isinstance(value, kind):
        raise _wrong_kind(owner, name, f"of type {kind.__name__}", value)

    return value


def member(owner: str, name: str, value: object, kinds: tuple[type, ...]) -> None:
    """A value whose class is exactly one of a closed list; subclasses are not (they could mean
    anything).
    """
    if type(value) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise _wrong_kind(owner, name, f"one of {names}", value)


def _wrong_kind(owner: str, name: str, expected: str, value: object) -> ParameterError:
    return ParameterError(
        owner=owner, name=name, expected=expected, got=f"{_show(value)} ({type(value).__name__})"
    )


def _show(value: object) -> str:
    """Short; never the entries of anything, which may be records that came to the wrong place
    (P42).
    """
    if isinstance(value, Sized) and not isinstance(value, str | bytes):
        return "entries that are not shown"

    # An error message must not fail: an int may be too long to print, a repr may raise.
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001
        return f"a value of type {type(value).__name__}"

    return text if len(text) <= 80 else text[:77] + "..."
