"""Markdown shows other people's texts as they are."""

import re

import pytest

from discreet.report.formats.markdown import escaped
from support.reports import evil_report


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("# title", r"\# title"),
        ("- point", r"\- point"),
        ("1. point", r"1\. point"),
        ("snake_case", "snake_case"),
        ("_em_", r"\_em\_"),
        ("a*b*", r"a\*b\*"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("[x](y)", r"\[x\](y)"),
        ("`c`", r"\`c\`"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_rows_of_a_markdown_table_have_as_many_cells_as_its_header() -> None:
    for block in re.findall(r"(?:^\|.*\n)+", evil_report("a | b || c").markdown(), re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
