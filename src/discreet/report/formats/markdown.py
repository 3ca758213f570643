"""The document as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from discreet.report.formats.document import (
    Bars,
    Document,
    Item,
    LineChart,
    Section,
    SignatureBlock,
    Table,
)

__all__ = ["escaped", "markdown"]

# An underscore inside a word is shown as it is; at the edge of one it could begin emphasis.
_SPECIAL = re.compile(r"([\\`*\[\]|~$])|(?<![^\W_])(_)|(_)(?![^\W_])")
# What opens a heading or a list, or underlines a heading, at the start of a text.
_OPENING = re.compile(r"^(\s*\d*)((?<=\d)[.)]|(?<!\d)[#+=-])(?=\s|#)")
# A line of dots to write on, for names that nobody gave.
_ROOM = "." * 40
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escaped(text: str) -> str:
    r"""A text that Markdown shows as it is: no markup, no HTML, no cell of a table ends.

    >>> escaped("<b> a|b *c* noise_std _d_")
    '&lt;b&gt; a\\|b \\*c\\* noise_std \\_d\\_'
    """
    text_without_markup = _SPECIAL.sub(lambda match: "\\" + match.group(0), text).translate(_HTML)
    return _OPENING.sub(r"\1\\\2", text_without_markup)


def markdown(document: Document) -> str:
    """The document as one page of Markdown, with the words and numbers of the other formats."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    # First what is claimed, last how to check it.
    yield from _headline(document)
    yield from ("## The statement", "")

    for item in document.checklist:
        yield from _part(f"### {item.number} {escaped(item.title)}", item)

    yield from (
        "## Plan, ledger, audit",
        "",
        *_table(document.comparison),
        "",
        *_paragraphs(document.comparison_notes),
    )

    yield from ("## Curves", "", *_paragraphs(document.chart_notes))

    for line in filter(None, (document.tradeoff, document.spending)):
        yield from _chart(line)

    for bars in document.groups:
        yield from _bars(bars)

    yield from _part(f"## {escaped(document.held_to.title)}", document.held_to)
    yield from ("## Runs", "", *_table(document.runs), "", *_table(document.executions), "")
    yield from ("## What was charged", "", *_table(document.charges), "")
    yield from _signature(document.signature)
    yield from ("## Verify it yourself", "", "LEDGER stands for the path of the ledger's file.", "")
    yield from (f"* {escaped(words)} `{command}`" for command, words in document.commands)
    yield from ("", f"`{document.stamp.line()}`", "")
    yield f"Written by discreet {escaped(document.version)} at {escaped(document.made)}."


def _headline(document: Document) -> Iterator[str]:
    yield from ("# Privacy statement", "")
    yield from (f"**{escaped(document.status.badge)}.** {escaped(document.status.text)}", "")
    yield from (f"> {escaped(document.sentence)}", "", *_paragraphs(document.meaning))

    for figure in document.figures:
        yield f"* {escaped(figure.name)}: **{escaped(figure.value)}** ({escaped(figure.note)})"

    yield from ("", "## Deviations", "")
    for deviation in document.deviations:
        severity = "WRONG" if deviation.severity == "wrong" else "Note"
        yield f"* **{severity}:** {escaped(deviation.text)}"

    # That there are none is said: silence could be read as "not looked for".
    nothing = "" if document.deviations else "None found."
    yield from (nothing, "", escaped(document.compared), "")


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (escaped(text), "")


def _part(heading: str, part: Item | Section) -> Iterator[str]:
    yield from (heading, "")
    yield from _paragraphs(part.paragraphs)

    # Points are one list: blank lines stand around it, not between them.
    for point in part.points:
        yield f"* {escaped(point)}"

    if part.points:
        yield ""

    if part.table is not None:
        yield from (*_table(part.table), "")


def _signature(signature: SignatureBlock) -> Iterator[str]:
    yield from ("## Signature", "")

    for name, value in (*signature.subject, *signature.identity):
        yield f"* {escaped(name)}: {escaped(value or _ROOM)}"

    yield from ("", escaped(signature.words), "")
    yield from ("| role | name | date | signature |", "|---|---|---|---|")
    yield from (f"| {escaped(role)} | | | |" for role in signature.roles)
    yield ""


def _chart(line: LineChart) -> Iterator[str]:
    yield from (f"### {escaped(line.title)}", "", escaped(line.words), "", *_table(line.table), "")


def _bars(chart: Bars) -> Iterator[str]:
    yield from (f"### {escaped(chart.title)}", "", escaped(chart.words), "")

    # Each note says the share in words, so that nothing is lost without the bars.
    for bar in chart.bars:
        yield f"* {escaped(bar.name)}: {escaped(bar.note)}"

    yield ""


def _table(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(map(escaped, table.header)) + " |"

    # A colon at the end of a rule sets its column to the right.
    columns = range(len(table.header))
    rules = ["--:" if column in table.numbers else "---" for column in columns]
    yield f"|{'|'.join(rules)}|"

    # Markdown has no colour: an alarming row is bold and bears a sign.
    for row in table.rows:
        first, *more = map(escaped, row.cells)
        cells = [f"**{first} (!)**" if row.alarming else first, *more]
        yield f"| {' | '.join(cells)} |"
