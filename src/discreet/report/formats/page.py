"""The document as one self-contained HTML page: no script, no request, every text escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.report.formats.charts import draw_bars, draw_line
from discreet.report.formats.document import Document

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["page"]

_TEMPLATES = Path(__file__).parent / "templates"


def page(document: Document) -> str:
    """The page. Labels of runs and names of groups are other people's texts: the templates escape
    everything.
    """
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(document=document, draw_line=draw_line, draw_bars=draw_bars)
    )


@cache
def _environment() -> Environment:
    # Imported here, so that `import discreet` stays cheap.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    # A name that a template misspells is an error, and not an empty place on a page that is signed.
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
