"""What a ledger says, for people."""

from discreet.report.statement import statement

__all__ = ["statement"]
