"""The document behind every format: tables that stay readable and hide nothing that alarms."""

from dataclasses import MISSING, fields

import pytest

from discreet.report.formats.document import Document, TableRow, capped

CALM = [TableRow((str(number),)) for number in range(10)]


def test_a_short_table_is_shown_whole() -> None:
    assert capped(CALM, 1, limit=10) == tuple(CALM)
    assert capped([], 1) == ()


@pytest.mark.parametrize("place", [0, 5, 9])
def test_what_alarms_is_never_left_out_for_what_does_not(place: int) -> None:
    rows = [*CALM]
    rows[place] = TableRow((str(place),), alarming=True)
    shown = capped(rows, 1, limit=3)
    assert rows[place] in shown
    assert len(shown) == 3 + 1
    assert [row.cells for row in shown[:-1]] == sorted(row.cells for row in shown[:-1])


def test_the_last_row_says_how_many_are_missing_and_is_as_wide_as_the_others() -> None:
    wide = [TableRow(("a", "b", "c"))] * 2005
    assert capped(wide, 3, limit=5)[-1].cells == ("and 2,000 more, in the ledger", "", "")


def test_a_document_has_no_part_that_may_be_forgotten() -> None:
    """Every format is written from it: a default would be a part that somebody leaves out."""
    assert {field.default for field in fields(Document)} == {MISSING}
    assert {field.default_factory for field in fields(Document)} == {MISSING}
