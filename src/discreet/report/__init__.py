"""What a ledger says, for people: plan, ledger and audit side by side, as HTML, Markdown and JSON."""

from discreet.report.deviations import Deviation
from discreet.report.report import Report
from discreet.report.subject import Subject

__all__ = ["Deviation", "Report", "Subject"]
