"""The report on a ledger: plan, ledger and audit side by side, as HTML, Markdown and JSON."""

from discreet.report.facts.subject import Subject
from discreet.report.formats.document import Deviation
from discreet.report.report import Report

__all__ = ["Deviation", "Report", "Subject"]
