"""The seven kinds of row that a ledger consists of.

    Opened      row 0: which ledger this is
    Held        what the ledger is held to from here on: its budget and the rule that admits charges
    Began       a run: what it protects, how it is executed, and the commitment: what it will take
                at most; its row number is the run's number
    Reserved    a run may take `count` steps: the charge, durable before the first of them is taken
    Settled     a reservation ended, and only `taken` of its steps were taken
    Ended       a run is over; for a public reason, if it names one
    Marked      something unsafe happened to a run; its guarantee is void

A reservation without a settlement counts in full. All values are public. Files of schema 1 have no
rows `Held` and `Ended`, and no commitments: they are read, and no longer written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import Step
from discreet.ledger.terms import Planned, Terms, planned_steps
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = [
    "LONGEST_PLAN",
    "Began",
    "Charge",
    "Ended",
    "Held",
    "Marked",
    "Opened",
    "Reserved",
    "Row",
    "RunInfo",
    "Settled",
]

LONGEST_PLAN = 2**20
"""Characters of the text of a plan that a row may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What one run declares before its first step.

    Args:
        unit, adjacency: what is protected, against which change of the data.
        groups: every group of vectors that the run may release; a step that asks for another is
            refused.
        numerics: level of the arithmetic.
        randomness: where noise and samples come from.
        parameters: whether the steps were fixed before the first release.
        label: the run's name, for people.
    """

    unit: Unit
    adjacency: Adjacency
    groups: tuple[str, ...]
    numerics: Numerics
    randomness: Randomness
    parameters: Parameters
    label: str = ""

    def __post_init__(self) -> None:
        owner = "RunInfo"
        check.member(owner, "unit", self.unit, (Unit,))
        check.instance(owner, "adjacency", self.adjacency, Adjacency)
        check.instance(owner, "numerics", self.numerics, Numerics)
        check.instance(owner, "randomness", self.randomness, Randomness)
        check.instance(owner, "parameters", self.parameters, Parameters)
        check.label(owner, "label", self.label, empty=True)

        # One string would pass for a sequence of letters.
        declared: object = self.groups
        if not isinstance(declared, tuple) or not declared:
            raise ParameterError(
                owner=owner,
                name="groups",
                expected="a tuple of group names, at least one",
                got=repr(declared),
            )

        # Sorted, so that equal declarations are equal bytes.
        groups = tuple(sorted({check.label(owner, "groups", group) for group in self.groups}))
        object.__setattr__(self, "groups", groups)

    def check_groups(self, owner: str, step: Step) -> None:
        """Refuse a step on groups that the run did not declare."""
        # A report names the groups that a run declared; nothing else may be released.
        check.member(owner, "step", step, (Step,))
        strangers = sorted(set(step.groups).difference(self.groups))
        if strangers:
            raise ParameterError(
                owner=owner,
                name="step",
                expected=f"a step on groups that the run declared, {list(self.groups)}",
                got=f"groups {strangers}",
            )


@dataclass(frozen=True, slots=True)
class Opened:
    """Row 0, which says which ledger this is.

    Args:
        ledger: random identity; a copy of the ledger keeps it.
        opened: date and time in UTC.
    """

    ledger: str
    opened: str

    def __post_init__(self) -> None:
        check.label("Opened", "ledger", self.ledger)
        check.label("Opened", "opened", self.opened)


@dataclass(frozen=True, slots=True)
class Held:
    """What the ledger is held to from here on.

    Args:
        terms: all of them, also those that stay as they were.
        reason: why they changed, in the words of whoever changed them; empty for the first.
        since: date and time in UTC.
    """

    terms: Terms
    reason: str
    since: str

    def __post_init__(self) -> None:
        check.instance("Held", "terms", self.terms, Terms)
        check.label("Held", "reason", self.reason, empty=True)
        check.label("Held", "since", self.since)


@dataclass(frozen=True, slots=True)
class Began:
    """The row that begins a run.

    Args:
        info: what it declares.
        software: versions of what executes it.
        began: date and time in UTC.
        planned: the commitment: what the run will take at most. Empty in files of schema 1.
        continues: number of the run whose place it takes, such as one that was killed.
        plan: text of the whole plan, for `discreet plan show`; empty where there is none.
        identity: random. It tells the run from an equal one that began on a copy of the ledger:
            their heads differ. Empty in files of schema 1.
    """

    info: RunInfo
    software: tuple[tuple[str, str], ...]
    began: str
    planned: Planned = ()
    continues: int | None = None
    plan: str = ""
    identity: str = ""

    def __post_init__(self) -> None:
        check.instance("Began", "info", self.info, RunInfo)

        for package, version in self.software:
            check.label("Began", "software", package)
            check.label("Began", "software", version)

        check.label("Began", "began", self.began)
        check.label("Began", "identity", self.identity, empty=True)
        object.__setattr__(self, "planned", planned_steps("Began", self.planned))

        # Row 0 opens the ledger and is no run.
        if self.continues is not None:
            object.__setattr__(
                self, "continues", check.whole("Began", "continues", self.continues, least=1)
            )

        # Longer than a label may be: it is a file of its own, with line breaks.
        if not isinstance(self.plan, str) or len(self.plan) > LONGEST_PLAN:
            raise ParameterError(
                owner="Began",
                name="plan",
                expected=f"the text of a plan, of at most {LONGEST_PLAN} characters",
                got=type(self.plan).__name__,
            )


@dataclass(frozen=True, slots=True)
class Reserved:
    """The charge: run number `run` may take `count` times `step`.

    `step` is the step itself, or the number of the earlier `Reserved` row that spells it out.
    """

    run: int
    step: Step | int
    count: int

    def __post_init__(self) -> None:
        check.whole("Reserved", "run", self.run, least=1)

        # The row that spells a step out follows the one that opens the ledger and one that begins.
        if not isinstance(self.step, Step):
            check.whole("Reserved", "step", self.step, least=2)

        object.__setattr__(self, "count", check.whole("Reserved", "count", self.count, least=1))


@dataclass(frozen=True, slots=True)
class Settled:
    """The reservation in row `lease` ended: `taken` of its steps were taken, and no more ever will
    be.
    """

    lease: int
    taken: int

    def __post_init__(self) -> None:
        # None taken is a settlement like any other: the whole charge is given back.
        check.whole("Settled", "lease", self.lease, least=2)
        check.whole("Settled", "taken", self.taken, least=0)


@dataclass(frozen=True, slots=True)
class Ended:
    """Run number `run` takes no more steps.

    `reason` is a public reason for taking fewer than it planned, in the words of whoever declares
    it. Without one, what was planned counts in full, where it is a list that was fixed in advance.
    """

    run: int
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", check.whole("Ended", "run", self.run, least=1))
        check.label("Ended", "reason", self.reason, empty=True)


@dataclass(frozen=True, slots=True)
class Marked:
    """Something that voids run number `run`: `mark` is the `unsafe_...` name of it."""

    run: int
    mark: str

    def __post_init__(self) -> None:
        check.whole("Marked", "run", self.run, least=1)

        # A reader of the file must see at once that the mark is no remark.
        if not check.label("Marked", "mark", self.mark).startswith("unsafe_"):
            raise ParameterError(
                owner="Marked",
                name="mark",
                expected="a name that begins with unsafe_",
                got=repr(self.mark),
            )


Row: TypeAlias = Opened | Held | Began | Reserved | Settled | Ended | Marked


@dataclass(frozen=True, slots=True)
class Charge:
    """What was charged: in run `run`, `step` counts `count` times.

    `unsettled` of them are reserved but not (yet) known to have been taken: a run still going, or
    one that was killed. `number` is that of the run in its ledger, 0 for a plan.
    """

    run: RunInfo
    step: Step
    count: int
    unsettled: int = 0
    number: int = 0
