"""Names on a report that is to be signed."""

import json

import pytest

import discreet as dp
from discreet.report import Subject
from support.reports import DELTA, STEP, ledger_of


def test_names_are_shown_and_what_nobody_named_has_room() -> None:
    ledger = ledger_of((STEP, 20))
    subject = Subject(data_set="admissions", model="triage net", purpose="who is seen first")
    report = dp.Report.of(ledger, delta=DELTA, subject=subject)
    page, text, document = report.html(), report.markdown(), json.loads(report.json())
    for name in (
        "admissions",
        "triage net",
        "who is seen first",
        ledger.head(),
        ledger.snapshot().ledger,
    ):
        assert name in page.split('id="signature"')[1]
        assert name in text.split("## Signature")[1]
    assert (
        page.split('id="signature"')[1].count('class="room"') == 1 + 2 * 3
    )  # who ran it; name, date and signature of two
    assert document["signature"]["subject"][3] == ["run by", ""]
    with pytest.raises(dp.errors.ParameterError, match="'model'"):
        Subject(model="x" * 201)


@pytest.mark.parametrize("name", ["data_set", "model", "purpose", "who"])
def test_a_name_is_one_short_line(name: str) -> None:
    """More would break the page that is signed."""
    for text in ("two\nlines", "x" * 201, 5):
        with pytest.raises(dp.errors.ParameterError, match=name):
            Subject(**{name: text})  # type: ignore[arg-type]
    assert getattr(Subject(**{name: "x" * 200}), name) == "x" * 200
