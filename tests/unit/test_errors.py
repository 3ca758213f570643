"""Every error says what was expected, what came and what to do, also in another process."""

import inspect
import pickle
import re

import pytest

from discreet import errors

KINDS = [getattr(errors, name) for name in errors.__all__]


def made(kind: type[errors.DiscreetError]) -> errors.DiscreetError:
    if kind is errors.ParameterError:
        return errors.ParameterError(owner="Owner", name="x", expected="a", got="b", do="Do c.")
    return kind(expected="a", got="b", do="Do c.")


@pytest.mark.parametrize("kind", KINDS, ids=errors.__all__)
def test_the_three_parts_are_attributes_and_survive_a_worker_process(
    kind: type[errors.DiscreetError],
) -> None:
    error = pickle.loads(pickle.dumps(made(kind)))
    assert type(error) is kind
    assert (error.expected, error.got, error.do) == ("a", "b", "Do c.")
    assert str(error) == str(made(kind))
    for part in ("a.", "b.", "Do c."):
        assert part in str(error)


def test_the_tree_that_is_drawn_is_the_tree_there_is() -> None:
    """Each line of the header names a class; how far it is indented says below which."""
    drawn = re.findall(r"^(.*?)([A-Z]\w+)(?: {2,}.*)?$", inspect.getdoc(errors) or "", re.MULTILINE)
    stack: list[tuple[int, type]] = []
    seen = set()
    for indent, name in drawn:
        kind = getattr(errors, name, None)
        if kind is None:
            continue
        while stack and stack[-1][0] >= len(indent):
            stack.pop()
        assert not stack or kind.__bases__[0] is stack[-1][1], name
        stack.append((len(indent), kind))
        seen.add(name)
    assert seen == set(errors.__all__)


def test_a_wrong_row_is_named() -> None:
    error = errors.LedgerCorrupt(expected="a", got="b", do="Do c.", row=7)
    assert str(error).startswith("Row 7 of the ledger is wrong. ")
    assert pickle.loads(pickle.dumps(error)).row == 7


def test_a_parameter_error_is_a_value_error_and_ends_without_a_blank() -> None:
    error = errors.ParameterError(owner="Owner", name="x", expected="above 0", got="-1")
    assert isinstance(error, ValueError)
    assert str(error) == "The 'x' parameter of Owner must be above 0. Got -1."
