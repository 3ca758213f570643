"""docs/pitfalls.md has every pitfall once, with tests that exist and carry its number."""

import ast
import re
from functools import cache

import pytest

from support.catalogue import PITFALLS
from support.source import ROOT

# Lines that go on in the next one are put together again.
PAGE = re.sub(r"\n +(?=\S)", " ", (ROOT / "docs" / "pitfalls.md").read_text())
ENTRIES = re.findall(r"^### ([PT]\d\d) .+\n((?:(?!^#).*\n)*)", PAGE, flags=re.MULTILINE)


@cache
def cases_of(file: str) -> dict[str, str]:
    """Name of each test of a file, to its name and docstring."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {node.name: f"{node.name} {ast.get_docstring(node) or ''}" for node in functions}


@cache
def texts_in(file: str) -> frozenset[str]:
    """All texts in a file, among them the names of its mutations."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def named(text: str) -> list[tuple[str, str, str]]:
    """File, test and case."""
    return re.findall(r"`([\w/]+\.py)::(\w+)(?:\[([^\]`]+)\])?`", text)


def carries(number: str, text: str) -> bool:
    return re.search(rf"(?:\b|_){number}(?:\b|_)", text, flags=re.IGNORECASE) is not None


def test_every_pitfall_is_there_once() -> None:
    assert tuple(number for number, _ in ENTRIES) == PITFALLS


@pytest.mark.parametrize(("number", "text"), ENTRIES, ids=[number for number, _ in ENTRIES])
def test_an_entry_says_what_goes_wrong_what_is_done_and_who_would_notice(
    number: str, text: str
) -> None:
    parts = re.findall(r"^- \*(Elsewhere|Here|Caught by)\*: \S", text, flags=re.MULTILINE)
    assert parts == ["Elsewhere", "Here", "Caught by"]
    found = named(text)
    assert text.split("*Caught by*")[1].count("::") == len(found)  # none is misspelt
    for file, test, case in found:
        assert test in cases_of(file), f"{file} has no {test}"
        assert not case or case in texts_in(file), f"{file} has no case {case!r}"
    assert any(carries(number, cases_of(file)[test] + case) for file, test, case in found)
    assert "not built yet" not in text


def test_the_same_check_notices_a_test_that_is_gone() -> None:
    (found,) = named("`unit/test_units.py::test_that_never_was`")
    assert found[1] not in cases_of(found[0])
    assert carries("P09", "test_p09_something")
    assert carries("P09", "P09 the bug")
    assert not carries("P09", "test_p10_something")
