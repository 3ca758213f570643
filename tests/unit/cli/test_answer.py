"""What goes to stdout."""

import json

import pytest

from discreet.cli.answer import Answer, answer_table, sheet
from discreet.report.formats.words import plain_json


def test_json_is_one_object_with_unrounded_numbers_and_infinity_in_words() -> None:
    text = Answer(
        data={"epsilon": 0.1 + 0.2, "upper": float("inf"), "sampling": ("Poisson",)}, as_json=True
    ).text()
    assert json.loads(text) == {
        "epsilon": 0.30000000000000004,
        "upper": "infinity",
        "sampling": ["Poisson"],
    }


def test_nan_is_never_printed_as_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Answer(data={"epsilon": float("nan")}, as_json=True).text()


def test_texts_are_shown_as_they_are_without_markup_and_uncut() -> None:
    made = answer_table("name", "value")
    made.add_row("[red]label[/red] :smile:", "x" * 500)
    text = Answer(shown=["[bold]one[/bold]", made, sheet({"head": "ab" * 200}), "y " * 300]).text()
    for part in (
        "[bold]one[/bold]",
        "[red]label[/red] :smile:",
        "x" * 500,
        "ab" * 200,
        ("y " * 300).strip(),
    ):
        assert part in text
    assert "\n\n\n" not in text


def test_a_document_goes_out_verbatim() -> None:
    assert Answer(verbatim="# [red]\n\n\n\tx  \n").text() == "# [red]\n\n\n\tx  \n"


def test_nested_values_become_plain() -> None:
    assert plain_json({"a": [(1, float("-inf"))], 2: None}) == {"a": [[1, "-infinity"]], "2": None}
