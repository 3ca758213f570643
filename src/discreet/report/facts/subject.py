"""What a report is about besides the ledger: the names that nobody but its author knows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from discreet import _validate as check

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The names on a report that is to be signed; all public, and on the word of whoever gives
    them.

    Args:
        data_set: which data the ledger belongs to.
        model: what was trained.
        purpose: what it is for.
        who: who ran it.

    >>> Subject(data_set="admissions 2025", who="A. Mustermann").model
    ''
    """

    data_set: str = ""
    model: str = ""
    purpose: str = ""
    who: str = ""

    def __post_init__(self) -> None:
        # They are printed on a page that is signed: one line each, and nothing that is not printed.
        for field in fields(self):
            check.label("Subject", field.name, getattr(self, field.name), empty=True)
