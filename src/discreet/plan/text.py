"""Plain data (tables, lists, texts, numbers) to JSON and TOML and back; every number survives bit
for bit.

Nothing here knows what a plan is. A key given twice is an error in both formats; NaN and infinity
are never written and never read.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any, TypeAlias

from discreet import _strict_json
from discreet._files import checked_path, publish, read_file
from discreet.errors import LedgerExists, LedgerUnavailable, ParameterError

__all__ = ["Plain", "from_json", "from_toml", "load_plain", "save_plain", "to_json", "to_toml"]

Plain: TypeAlias = str | int | float | list[Any] | dict[str, Any]
"""What both formats can hold; the leaves of lists and tables are again plain."""


def to_json(table: dict[str, Plain]) -> str:
    """Write one JSON object, indented for people."""
    return _strict_json.to_text(table)


def to_toml(table: dict[str, Plain]) -> str:
    """Write a TOML document: plain values first, then one section for each table.

    Lists of lists take a line for each entry.

    >>> print(to_toml({"schema": 1, "sampler": {"records": 100, "policy": {"probability": 1e-05}}}))
    schema = 1
    <BLANKLINE>
    [sampler]
    records = 100
    policy = {probability = 1e-05}
    <BLANKLINE>
    """
    # A TOML section has no end but the next one: a plain value below it would belong to it.
    lines, sections = [], []
    for name, value in table.items():
        if isinstance(value, dict):
            sections += ["", f"[{_key(name)}]", *map(_line, value, value.values())]
        else:
            lines.append(_line(name, value))

    return "\n".join(lines + sections) + "\n"


def _line(name: str, value: Plain) -> str:
    # A list of lists or tables, as the groups of a mechanism are, would be a riddle on one line.
    if isinstance(value, list) and any(isinstance(entry, list | dict) for entry in value):
        entries = "".join(f"    {_value(entry)},\n" for entry in value)
        return f"{_key(name)} = [\n{entries}]"

    return f"{_key(name)} = {_value(value)}"


def _key(name: str) -> str:
    # TOML's bare keys may have dashes as well; what is no identifier is quoted, which is right for
    # any key.
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _value(value: Plain) -> str:
    match value:
        case str():
            return _quoted(value)

        case float():
            return _number(value)

        # A bool is an int to Python; TOML spells it in lower case, and digits have none.
        case int():
            return str(value).lower()

        case list():
            return f"[{', '.join(map(_value, value))}]"

        case dict():
            pairs = (f"{_key(name)} = {_value(entry)}" for name, entry in value.items())
            return f"{{{', '.join(pairs)}}}"


def _quoted(text: str) -> str:
    """Write a TOML basic string."""
    # Backslashes first: those of the escaped quotes must not be doubled.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')

    # A control character may not stand in a TOML text, and an invisible one deceives its reader.
    shown = [char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped]
    return f'"{"".join(shown)}"'


def _number(number: float) -> str:
    """Write the shortest text that reads back as the same float64; each of its forms is TOML."""
    if not math.isfinite(number):
        raise ValueError(f"{number} has no place in a plan")

    return repr(number)


def from_json(text: str) -> dict[str, Plain]:
    """Read the object that `to_json` wrote.

    Raises:
        ParameterError: if the text is no JSON object, or holds a key twice, NaN or infinity.
    """
    return _strict_json.read_object("Plan.from_json", text)


def from_toml(text: str) -> dict[str, Plain]:
    """Read the table that `to_toml` wrote.

    Raises:
        ParameterError: if the text is no TOML document, does not end in a line break (it may have
            been cut off inside a number), or holds NaN or infinity.
    """
    if not isinstance(text, str):
        raise _unreadable("a text", type(text).__name__)

    # Cut off after a digit, "steps = 1000" would still be TOML, and another plan. JSON needs no
    # such check, as it ends in a brace.
    if not text.endswith("\n"):
        raise _unreadable("whole: ending in a line break", repr(text[-40:]))

    # Python's own float() makes infinity of a number that is too large, without a word.
    try:
        return tomllib.loads(text, parse_float=_strict_json.finite_number)
    except (ValueError, RecursionError) as wrong:
        raise _unreadable("a TOML document", str(wrong)) from None


def _unreadable(expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Plan.from_toml", name="text", expected=expected, got=got[:200])


def load_plain(owner: str, path: str | Path) -> dict[str, Plain]:
    """Read a file, JSON or TOML by its suffix."""
    place = _place(owner, path)
    text = read_file(owner, place)

    # The suffix alone decides: a file that is not what its name says is an error, not a guess.
    return from_json(text) if place.suffix == ".json" else from_toml(text)


def save_plain(owner: str, path: str | Path, table: dict[str, Plain]) -> None:
    """Write a whole file or none, JSON or TOML by its suffix.

    Nothing is overwritten, unless it holds exactly this text.
    """
    place = _place(owner, path)
    text = to_json(table) if place.suffix == ".json" else to_toml(table)

    def write(draft: Path) -> None:
        draft.write_text(text, encoding="utf-8", newline="\n")

    try:
        publish(place, write)

    # A script that saves its plan may be run again; what another plan's file says is evidence.
    except LedgerExists:
        if read_file(owner, place) != text:
            raise _no_place(
                owner,
                "a file that does not exist, or holds this very plan",
                repr(str(path)),
            ) from None

    except LedgerUnavailable as wrong:
        raise _no_place(owner, "a path to write to", wrong.got) from None


def _place(owner: str, path: str | Path) -> Path:
    place = checked_path(owner, path)
    if place.suffix not in (".json", ".toml"):
        raise _no_place(owner, "one that ends in .toml or .json", repr(str(path)))

    return place


def _no_place(owner: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner=owner, name="path", expected=expected, got=got)
