"""The one reader of JSON behind every file format: a text means one thing, or it is refused.

Python's own reader lets the last of two equal keys win, and takes NaN, Infinity and numbers that
float64 cannot hold. Here each of them is an error, as is a field too many or too few and another
version of the format. Nothing is imported or guessed at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NoReturn, TypeVar

from discreet.errors import ParameterError

__all__ = [
    "check_fields",
    "decoder",
    "finite_number",
    "member_named",
    "read_object",
    "read_version",
    "to_text",
]

_E = TypeVar("_E", bound=Enum)
# Characters of what came in that an error repeats: enough to find the place, not the whole file.
_SHOWN = 80
_SHOWN_OF_A_LIST = 200


def to_text(table: dict[str, Any]) -> str:
    """Write one JSON object in ASCII, indented for people; NaN and infinity are refused."""
    return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def decoder(read: Callable[[dict[str, Any]], Any] = dict) -> json.JSONDecoder:
    """Build a decoder that raises ValueError for a key given twice, NaN and infinity.

    Args:
        read: turns every object, innermost first, into the value that stands for it.
    """

    # The hook gets the pairs before a dictionary swallows the first of two equal keys.
    def checked(pairs: list[tuple[str, Any]]) -> Any:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a key stands twice")

        return read(table)

    return json.JSONDecoder(
        object_pairs_hook=checked, parse_constant=_refuse_constant, parse_float=finite_number
    )


def finite_number(text: str) -> float:
    """Read a number that float64 can hold.

    Raises:
        ValueError: for NaN, infinity and everything that would be rounded to infinity.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_SHOWN]} is not a finite number")

    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


_DECODER = decoder()


def read_object(owner: str, text: object) -> dict[str, Any]:
    """Read a text that holds one JSON object and nothing else.

    Args:
        owner: who reads, for error messages.
        text: what was in the file.

    Raises:
        ParameterError: the text is no JSON object, or holds a key twice, NaN or infinity.

    >>> read_object("Scores", '{"schema": 1, "values": [0.5]}')
    {'schema': 1, 'values': [0.5]}
    """
    if not isinstance(text, str):
        raise _wrong(owner, "text", "a text", type(text).__name__)

    # Ten thousand opening brackets are a short file and a deep recursion.
    try:
        table = _DECODER.decode(text)
    except (ValueError, RecursionError) as wrong:
        raise _wrong(owner, "text", "a JSON object", str(wrong)[:_SHOWN_OF_A_LIST]) from None

    if not isinstance(table, dict):
        raise _wrong(owner, "text", "a JSON object", type(table).__name__)

    return table


def read_version(
    owner: str, text: object, *, schema: int, names: Collection[str], writer: str
) -> dict[str, Any]:
    """Read the fields of a file of one version of one format.

    Args:
        owner: who reads, for error messages.
        text: what was in the file.
        schema: the version; any other is refused.
        names: all fields beside the version, none of which may be missing.
        writer: what writes such files, for error messages.

    Raises:
        ParameterError: as `read_object`, or another version, or a field too many or too few.
    """
    table = read_object(owner, text)

    # Before the fields, which another version may name otherwise. By type too: true is equal to 1.
    version = table.pop("schema", None)
    if type(version) is not int or version != schema:
        expected = f"{schema}, in a file that {writer} wrote"
        raise _wrong(owner, "schema", expected, repr(version)[:_SHOWN])

    check_fields(owner, table, names)
    return table


def check_fields(owner: str, table: dict[str, Any], names: Collection[str]) -> None:
    """Require that an object has exactly these fields."""
    expected = set(names)
    if table.keys() != expected:
        unknown, missing = sorted(table.keys() - expected), sorted(expected - table.keys())
        got = f"unknown {unknown}, missing {missing}"[:_SHOWN_OF_A_LIST]
        raise _wrong(owner, "fields", ", ".join(sorted(expected)), got)


def member_named(owner: str, name: str, kind: type[_E], value: object) -> _E:
    """Find the member of an enumeration that a file writes as this text."""
    # Compared in a list, as a file may hold what cannot be a key: a list, or a table.
    values = [str(member.value) for member in kind]
    if value not in values:
        raise _wrong(owner, name, f"one of {', '.join(values)}", repr(value)[:_SHOWN])

    return kind(value)


def _wrong(owner: str, name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner=owner, name=name, expected=expected, got=got)
