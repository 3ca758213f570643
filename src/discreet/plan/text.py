"""Plain data (tables, lists, texts, numbers) to JSON and TOML and back; every number survives bit
for bit.

Nothing here knows what a plan is. A key given twice is an error in both formats; NaN and infinity
are never written and never read.
"""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any, TypeAlias

from discreet._files import checked_path, publish
from discreet.errors import LedgerExists, LedgerUnavailable, ParameterError

__all__ = [
    "Plain",
    "from_json",
    "from_toml",
    "place",
    "read_text",
    "to_json",
    "to_toml",
    "write_new",
]

Plain: TypeAlias = str | int | float | list[Any] | dict[str, Any]
"""What both formats can hold; the leaves of lists and tables are again plain."""


def to_json(table: dict[str, Plain]) -> str:
    """One JSON object, indented for people."""
    return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def to_toml(table: dict[str, Plain]) -> str:
    """A TOML document: plain values first, then one section for each table; lists of lists take a
    line for each entry.

    >>> print(to_toml({"schema": 1, "sampler": {"records": 100, "policy": {"probability": 1e-05}}}))
    schema = 1
    <BLANKLINE>
    [sampler]
    records = 100
    policy = {probability = 1e-05}
    <BLANKLINE>
    """
    lines = [
        f"{_key(name)} = {_value(value, lines=True)}"
        for name, value in table.items()
        if not isinstance(value, dict)
    ]
    for name, section in table.items():
        if isinstance(section, dict):
            lines += ["", f"[{_key(name)}]"]
            lines += [
                f"{_key(inner)} = {_value(value, lines=True)}" for inner, value in section.items()
            ]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _text(name)


def _value(value: Plain, *, lines: bool = False) -> str:
    match value:
        case str():
            text = _text(value)
        case bool():
            text = "true" if value else "false"
        case int():
            text = str(value)
        case float():
            text = repr(
                _finite(value)
            )  # the shortest text that reads back as the same float64; each of its forms is TOML
        case list():
            inner = [_value(entry) for entry in value]
            long = lines and any(isinstance(entry, list | dict) for entry in value)
            text = (
                "[\n" + "".join(f"    {entry},\n" for entry in inner) + "]"
                if long
                else f"[{', '.join(inner)}]"
            )
        case dict():
            text = (
                "{"
                + ", ".join(f"{_key(name)} = {_value(entry)}" for name, entry in value.items())
                + "}"
            )
    return text


def _text(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"'
        + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped)
        + '"'
    )


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} has no place in a plan")
    return number


def from_json(text: str) -> dict[str, Plain]:
    """The object behind `to_json`.

    Raises:
        ParameterError: if the text is no JSON object, or holds a key twice, NaN or infinity.
    """
    _check_text("Plan.from_json", text)
    try:
        table = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_parse_float
        )
    except (ValueError, RecursionError) as wrong:
        raise _unreadable("Plan.from_json", "a JSON object", wrong) from None
    if not isinstance(table, dict):
        raise _unreadable("Plan.from_json", "a JSON object", type(table).__name__)
    return table


def from_toml(text: str) -> dict[str, Plain]:
    """The table behind `to_toml`.

    Raises:
        ParameterError: if the text is no TOML document, does not end in a line break (it may have
            been cut off inside a number), or holds NaN or infinity.
    """
    if not _check_text("Plan.from_toml", text).endswith("\n"):
        raise _unreadable("Plan.from_toml", "whole: ending in a line break", repr(text[-40:]))
    try:
        return tomllib.loads(text, parse_float=_parse_float)
    except (ValueError, RecursionError) as wrong:
        raise _unreadable("Plan.from_toml", "a TOML document", wrong) from None


def _check_text(owner: str, text: object) -> str:
    if not isinstance(text, str):
        raise _unreadable(owner, "a text", type(text).__name__)
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _parse_float(text: str) -> float:
    return _finite(float(text.replace("_", "")))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} has no place in a plan")


def _unreadable(owner: str, expected: str, got: object) -> ParameterError:
    return ParameterError(owner=owner, name="text", expected=expected, got=str(got)[:200])


def place(owner: str, path: str | Path) -> tuple[Path, bool]:
    """The path, and whether it is JSON (else TOML), by its suffix."""
    found = checked_path(owner, path)
    if found.suffix not in (".json", ".toml"):
        raise ParameterError(
            owner=owner,
            name="path",
            expected="one that ends in .toml or .json",
            got=repr(str(path)),
        )
    return found, found.suffix == ".json"


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as wrong:
        raise ParameterError(
            owner="Plan.load", name="path", expected="a readable UTF-8 file", got=str(wrong)
        ) from None


def write_new(path: Path, content: str) -> None:
    """A whole file or none; nothing is overwritten, unless it holds exactly this text."""

    def draft(place: Path) -> None:
        place.write_text(content, encoding="utf-8", newline="\n")

    try:
        publish(path, draft)
    except LedgerExists:
        if read_text(path) != content:
            expected = "a file that does not exist, or holds this very plan"
            raise ParameterError(
                owner="Plan.save", name="path", expected=expected, got=repr(str(path))
            ) from None
    except LedgerUnavailable as wrong:
        raise ParameterError(
            owner="Plan.save", name="path", expected="a path to write to", got=wrong.got
        ) from None
