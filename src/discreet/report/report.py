"""The report: plan, ledger and audit side by side, for whoever has to sign."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from discreet._files import checked_path, write_over
from discreet._strict_json import to_text
from discreet.auditing import Audit
from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.plan import Declaration, Plan
from discreet.report.facts.gathered import gather
from discreet.report.facts.subject import Subject
from discreet.report.formats.document import Deviation, Document
from discreet.report.formats.markdown import markdown
from discreet.report.formats.page import page
from discreet.report.formats.words import plain_json
from discreet.report.layout import compose_document
from discreet.report.sections.deviations import deviations
from discreet.tuning import Tuning
from discreet.units import Guarantee

__all__ = ["Report"]


class Report:
    """What a ledger says, with everything that a guarantee must say [Ponomareva2023, section
    5.3.3]; final.

    Made by `Report.of`; a report is about the ledger as it was then. All formats say the same.

    >>> plan = Plan.dpsgd(records=1000, sampling_probability=0.01, steps=10, noise_multiplier=2.0)
    >>> ledger = Ledger.in_memory()
    >>> run = ledger.begin(plan.run_info("example"), [(plan.step, plan.steps)])
    >>> for _ in run.steps(plan.step, plan.steps):
    ...     pass
    >>> report = Report.of(ledger, delta=1e-6, plan=plan)
    >>> report.deviations, report.guarantee.epsilon < 0.4
    ((), True)
    """

    __slots__ = ("_deviations", "_document", "_guarantee")

    def __init__(
        self, document: Document, guarantee: Guarantee, deviations: tuple[Deviation, ...]
    ) -> None:
        self._document = document
        self._guarantee = guarantee
        self._deviations = deviations

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        *,
        delta: float | None = None,
        plan: Declaration[Plan] | None = None,
        audit: Audit | None = None,
        tuning: Tuning | Sequence[Tuning] = (),
        subject: Subject | None = None,
    ) -> Report:
        """The report on a ledger, which is read from its first row and checked.

        Args:
            ledger: of the data set.
            delta: of the claim; left out: that of the plan's target, of the ledger's budget, or of
                the target of the plans in its rows. Under a filter or an odometer only the ledger's
                own is possible.
            plan: what was declared, one plan or a programme of several; compared with what was
                charged. Take the plan of the run, which knows its leaves.
            audit: what was measured.
            tuning: how parameters were chosen, and on what data. Left out, the report says that it
                is not stated.
            subject: names for whoever signs: data set, model, purpose, who ran it. Left out, there
                is room to write them.

        Raises:
            AccountingError: nothing can be stated: nothing was charged, or runs protect different
                things.
            LedgerCorrupt: a row is wrong.
            ParameterError: no delta is known; or tuning on private data whose runs are not in this
                ledger.
        """
        facts = gather(ledger, delta=delta, plan=plan, audit=audit, tuning=tuning, subject=subject)

        # The headline says whether the claim holds, so that deviations come before the document.
        disagreements = deviations(facts)
        return cls(compose_document(facts, disagreements), facts.guarantee, disagreements)

    @property
    def guarantee(self) -> Guarantee:
        """The claim. Void if the ledger is marked; see `deviations` for what speaks against it."""
        return self._guarantee

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Where ledger, plan, budget and audit disagree, the wrong ones first."""
        return self._deviations

    def markdown(self) -> str:
        """The report as a page of Markdown."""
        return markdown(self._document)

    def html(self) -> str:
        """The report as one self-contained page."""
        return page(self._document)

    def json(self) -> str:
        """The report for programs: the same words, and numbers that are not rounded."""
        return to_text(plain_json(asdict(self._document)))

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write .html, .md or .json, by the suffix of the path: whole or not at all, over an
        earlier report.

        Returns:
            The path.
        """
        place = checked_path("Report.write", path)

        # Methods, not texts: only the format that is asked for is composed.
        formats = {".html": self.html, ".md": self.markdown, ".json": self.json}

        if place.suffix not in formats:
            raise ParameterError(
                owner="Report.write",
                name="path",
                expected=f"one that ends in {', '.join(formats)}",
                got=repr(str(place)),
            )

        write_over("Report.write", place, formats[place.suffix]().encode())
        return place
