"""Labels of runs and names of groups are other people's texts: no format lets them act."""

import json
import re
from html.parser import HTMLParser

import pytest

import discreet as dp
from discreet.report.formats.stamp import read_stamp
from support.reports import DELTA, evil_report, ledger_of

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg><b>",
    "{{ 7*7 }} {% raw %}",
    "](http://example.org) | **bold** `code` _em_",
    "' onmouseover='alert(1)",
    "&lt;b&gt;",
)


class Seen(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("text", EVIL)
def test_no_text_of_the_ledger_becomes_markup(text: str) -> None:
    report = evil_report(text)
    seen = Seen()
    seen.feed(report.html())
    assert not seen.tags & {"script", "img", "b1", "iframe", "object", "a"}
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert "src" not in seen.attributes
    assert any(text in found for found in seen.texts)  # shown, as it is
    assert json.loads(report.json())["runs"]["rows"][0]["cells"][1] == text
    stamp = read_stamp(report.html())
    assert stamp == read_stamp(report.markdown()) == read_stamp(report.json())
    assert (stamp.unit, stamp.voided_by) == (text, f"unsafe_{text}")
    written = re.sub(r"`discreet [^`]*`", "", report.markdown())
    assert "<" not in written
    assert not re.search(r"(?<!\\)\]\(", written)
    assert "**bold**" not in written


def test_the_page_is_self_contained() -> None:
    page = evil_report("plain").html()
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    assert "<script" not in page
    assert re.findall(r"url\(|@import|https?://", page) == []
    assert len(page) < 2_000_000


def test_every_chart_is_labelled_for_who_cannot_see_it() -> None:
    page = dp.Report.of(
        ledger_of((dp.ledger.Step(dp.Poisson(0.05), [dp.ledger.GaussianSum("grad", 1.0, 5.0)]), 3)),
        delta=DELTA,
    ).html()
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == 3
    for chart in charts:
        assert 'role="img"' in chart
        assert re.search(r"<title id=[^>]*>[^<]+</title>", chart)
        assert re.search(r"<desc id=[^>]*>[^<]+</desc>", chart)
    assert page.count("<details>") == 2


# --- geometry ---
