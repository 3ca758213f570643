"""Labels of runs and names of groups are other people's texts: no format lets them act."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import discreet as dp
from discreet.report import Subject
from discreet.report.formats.charts import draw_bars, draw_line
from discreet.report.formats.document import Bars, LineChart, ShareBar, Table
from discreet.report.formats.markdown import escaped
from discreet.report.formats.stamp import read_stamp
from support.reports import DELTA, INFO, audit_of, extend, ledger_of, listed

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg><b>",
    "{{ 7*7 }} {% raw %}",
    "](http://example.org) | **bold** `code` _em_",
    "' onmouseover='alert(1)",
    "&lt;b&gt;",
)


def evil_report(text: str) -> dp.Report:
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum(text, 1.0, 5.0), dp.ledger.GaussianSum("z", 1.0, 5.0)],
    )
    ledger = ledger_of(
        (step, 3), info=replace(INFO, label=text, unit=dp.Unit(text)), budget=listed((step, 9))
    )
    extend(ledger, (step, 1), info=replace(INFO, label=text + "2", unit=dp.Unit(text)))
    ledger.change_budget(50.0, delta=DELTA, reason=text)
    stopped = ledger.begin(
        replace(INFO, label=text, unit=dp.Unit(text), groups=step.groups), [(step, 2)]
    )
    stopped.end(text)
    audit = replace(audit_of(ledger), method=text, unit=dp.Unit(text))
    stopped.mark(f"unsafe_{text}")
    subject = Subject(data_set=text, model=text, purpose=text, who=text)
    return dp.Report.of(ledger, delta=DELTA, audit=audit, subject=subject)


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


# --- geometry ---


def test_points_lie_on_the_canvas_and_grow_upwards() -> None:
    line = LineChart(
        "spending",
        "t",
        "w",
        ("x", "y"),
        ((0.0, 0.0), (10.0, 2.0), (40.0, 3.0)),
        Table((), ()),
        limit=(5.0, "target 5"),
    )
    drawing = draw_line(line)
    assert [x for x, _ in drawing.dots] == sorted(x for x, _ in drawing.dots)
    assert [y for _, y in drawing.dots] == sorted((y for _, y in drawing.dots), reverse=True)
    assert all(
        drawing.left <= x <= drawing.right and drawing.top <= y <= drawing.bottom
        for x, y in drawing.dots
    )
    assert drawing.limit is not None
    assert drawing.top <= drawing.limit.at < drawing.dots[-1][1]


def test_a_line_of_zeros_is_drawn() -> None:
    drawing = draw_line(
        LineChart("spending", "t", "w", ("x", "y"), ((0.0, 0.0), (1.0, 0.0)), Table((), ()))
    )
    assert {y for _, y in drawing.dots} == {drawing.bottom}


def test_bars_are_as_long_as_their_shares_and_long_names_are_cut() -> None:
    drawing = draw_bars(
        Bars(
            "g",
            "t",
            "w",
            (ShareBar("a", 0.25, ""), ShareBar("b" * 200, 0.75, ""), ShareBar("c", None, "")),
        )
    )
    assert [bar.width / drawing.width for bar in drawing.bars] == [0.25, 0.75, 0.0]
    assert len(drawing.bars[1].name) < 50
    assert drawing.bars[1].full_name == "b" * 200
