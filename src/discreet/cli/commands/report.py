"""`discreet report`: the privacy statement as a page."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.answer import NO, YES, Answer
from discreet.cli.files import (
    check_outputs,
    read_audit,
    read_declared,
    read_ledger,
    read_optional,
    read_tuning,
    write_all,
)
from discreet.cli.options import (
    AsJson,
    BudgetDelta,
    BudgetEpsilon,
    Delta,
    Force,
    LedgerFile,
    PlanFile,
    refuse_budget,
)
from discreet.cli.views.words import deviation_words, report_data
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.report import Report

__all__ = ["REPORT_EXAMPLES", "Format", "report"]

REPORT_EXAMPLES = """Examples

  discreet report train.ledger --delta 1e-6 --out report.html
  discreet report train.ledger --plan plan.toml --out report.html --out report.json
  discreet report train.ledger --out signed.html --data-set "admissions 2025" \\
    --model "triage 3" --purpose "who is seen first" --by "A. Mustermann"
  discreet report train.ledger --delta 1e-6 --format json
"""
_SUFFIXES = (".html", ".md", ".json")
_STDOUT = Path("-")
_SIGNED = "Names on the report, for whoever signs"


class Format(Enum):
    """In which format a report is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


def report(
    path: LedgerFile,
    delta: Delta = None,
    plan: PlanFile = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The audit (JSON) of this ledger.")
    ] = None,
    tuning: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A record (JSON) of how parameters were tuned; may be repeated."
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Ends in .html, .md or .json; may be repeated. Left out: stdout."
        ),
    ] = None,
    kind: Annotated[Format | None, typer.Option("--format", help="Of what goes to stdout.")] = None,
    data_set: Annotated[
        str, typer.Option(metavar="TEXT", help="Which data.", rich_help_panel=_SIGNED)
    ] = "",
    model: Annotated[
        str, typer.Option(metavar="TEXT", help="What was trained.", rich_help_panel=_SIGNED)
    ] = "",
    purpose: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is for.", rich_help_panel=_SIGNED)
    ] = "",
    by: Annotated[
        str, typer.Option(metavar="TEXT", help="Who ran it.", rich_help_panel=_SIGNED)
    ] = "",
    force: Force = False,
    as_json: AsJson = False,
    budget_epsilon: BudgetEpsilon = None,
    budget_delta: BudgetDelta = None,
) -> Answer:
    """Write the privacy statement: claim, assumptions, and plan against ledger against audit.

    Exits with 1, after writing, if the report names a deviation that is wrong: it is shown in red
    there. The page has room for signatures, and `discreet verify LEDGER --report FILE` checks it
    against the ledger later.
    """
    refuse_budget(budget_epsilon, budget_delta)

    # Everything that can be refused is refused here, before anything is read or computed.
    places = out or [_STDOUT]
    files = [place for place in places if place != _STDOUT]
    records = tuning or []
    _check_stdout(places, kind, as_json=as_json)
    check_outputs(files, suffixes=_SUFFIXES, force=force, inputs=[path, plan, audit, *records])

    # Small files first: a mistake in one of them shows before a long ledger is read.
    declared = read_optional(read_declared, plan)
    measured = read_optional(read_audit, audit)
    tuned = list(map(read_tuning, records))
    with read_ledger(path) as ledger:
        from discreet.report import Report, Subject

        subject = Subject(data_set=data_set, model=model, purpose=purpose, who=by)
        page = Report.of(
            ledger, delta=delta, plan=declared, audit=measured, tuning=tuned, subject=subject
        )

    # A report that names something wrong is written all the same: it is there to be read.
    contents = {file: _content(page, Format(file.suffix[1:])).encode() for file in files}
    write_all(contents, force=force)
    written = list(map(str, files))
    facts = report_data(page)

    # Without files the report itself is the output, unless a summary was asked for.
    return Answer(
        data=facts | {"written": written},
        shown=[
            str(page.guarantee),
            *map(deviation_words, page.deviations),
            *map("Written: {}".format, written),
        ],
        code=NO if facts["deviates"] else YES,
        as_json=as_json,
        verbatim=None if files or as_json else _content(page, kind or Format.MARKDOWN),
    )


def _check_stdout(places: list[Path], kind: Format | None, *, as_json: bool) -> None:
    """Refuse a command line by which two things would go to standard output."""
    piped = _STDOUT in places

    # Files name their format by their suffix, and a summary has none: --format is for neither.
    crowded = piped and len(places) > 1
    without_format = as_json or not piped
    if crowded or (kind is not None and without_format):
        named_twice = "--format together with --out, whose suffix says the format"
        raise DiscreetError(
            expected="the report in files (--out), or on stdout (--format), or a summary (--json)",
            got="several of them for stdout" if piped else named_twice,
            do="Leave one out. Nothing was written.",
        )


def _content(page: Report, kind: Format) -> str:
    # Methods, not texts: only the format that is asked for is composed.
    formats = {Format.HTML: page.html, Format.MARKDOWN: page.markdown, Format.JSON: page.json}
    return formats[kind]()
