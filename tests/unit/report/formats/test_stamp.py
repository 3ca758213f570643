"""The stamp of a report: which rows it is about, what it claims; an edit contradicts it."""

import pytest

import discreet as dp
from discreet._digits import upward
from discreet.report.formats.stamp import read_stamp
from support.reports import DELTA, STEP, ledger_of


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
def test_the_stamp_says_which_rows_and_what_is_claimed_and_an_edited_page_contradicts_it(
    form: str,
) -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA)
    page = getattr(report, form)()
    stamp = read_stamp(page)
    assert (stamp.head, stamp.ledger) == (ledger.head(), ledger.snapshot().ledger)
    assert (stamp.epsilon, stamp.delta, stamp.unit) == (report.guarantee.upper, DELTA, "example")
    assert stamp.contradictions(page) == ()
    claim = f"({upward(report.guarantee.upper)}, {DELTA!r})-"
    assert "in its sentences" in stamp.contradictions(page.replace(claim, "(0.1, 1e-05)-", 1))[0]
    other = page.replace(ledger.head(), "ab" * 32)
    assert stamp.contradictions(other) == (
        "The report names another head in its text than in its stamp.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a page",
        "[]",
        "{}",
        '{"stamp": 3}',
        '{"stamp": {"head": "x"}}',
        '{"stamp": 1, "head": 3}',
    ],
    ids=repr,
)
def test_what_is_no_report_has_no_stamp(text: str) -> None:
    with pytest.raises(dp.errors.DiscreetError, match="report"):
        read_stamp(text)
