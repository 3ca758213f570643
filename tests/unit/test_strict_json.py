"""The one reader of JSON: what could mean two things, or nothing, is refused."""

import json
import math
from enum import Enum
from typing import Any

import pytest

from discreet import _strict_json as strict
from discreet.errors import ParameterError


class Colour(Enum):
    RED = "red"
    ONE = 1


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": [{"b": 1, "b": 2}]}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1} {"a": 1}',
        "[1]",
        "null",
        "",
        "[" * 100_000,
    ],
)
def test_p45_what_python_would_read_and_nobody_meant_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="'text' parameter of Owner must be a JSON object"):
        strict.read_object("Owner", text)


@pytest.mark.parametrize("text", [None, b"{}", 3])
def test_only_texts_are_read(text: Any) -> None:
    with pytest.raises(ParameterError, match="must be a text"):
        strict.read_object("Owner", text)


def test_what_is_written_is_what_is_read() -> None:
    table = {"a": [0.1, 1e-300, -3, 2**70], "b": {"c": None, "d": True}, "e": "ü\n"}
    text = strict.to_text(table)
    assert text.isascii()
    assert text.endswith("}\n")
    assert strict.read_object("Owner", text) == table
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict.to_text({"a": math.nan})


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"schema": 2, "a": 1}, "schema"),
        ({"schema": True, "a": 1}, "schema"),
        ({"schema": 1.0, "a": 1}, "schema"),
        ({"a": 1}, "schema"),
        ({"schema": 1}, "fields"),
        ({"schema": 1, "a": 1, "b": 1}, "fields"),
    ],
)
def test_another_version_and_other_fields_are_refused(table: dict[str, Any], name: str) -> None:
    read: dict[str, Any] = {"schema": 1, "names": ["a"], "writer": "Owner.save"}
    assert strict.read_version("Owner", '{"schema": 1, "a": 7}', **read) == {"a": 7}
    with pytest.raises(ParameterError) as refused:
        strict.read_version("Owner", json.dumps(table), **read)
    assert refused.value.name == name


def test_members_are_found_by_their_text_only() -> None:
    assert strict.member_named("Owner", "colour", Colour, "red") is Colour.RED
    for value in ("RED", 1, True, None, ["red"]):
        with pytest.raises(ParameterError, match="one of red, 1"):
            strict.member_named("Owner", "colour", Colour, value)


def test_objects_are_read_from_the_innermost_out() -> None:
    decoder = strict.decoder(sorted)
    assert decoder.decode('{"b": {"x": 1}, "a": 2}') == ["a", "b"]
    with pytest.raises(ValueError, match="twice"):
        decoder.decode('{"b": 1, "b": 2}')
