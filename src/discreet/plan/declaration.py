"""What a plan and a programme of several plans have in common, for everyone who reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar

from discreet import _validate as check
from discreet.accounting import account
from discreet.errors import AccountingError
from discreet.ledger.snapshot import Snapshot
from discreet.ledger.storage.rows import Charge
from discreet.plan import text
from discreet.plan.calibrated import Target

__all__ = ["Declaration"]

_P = TypeVar("_P")


class Declaration(ABC, Generic[_P]):
    """Plans that are declared before their first step, by name. One plan is a programme of one."""

    __slots__ = ()

    target: Target | None

    @property
    @abstractmethod
    def plans(self) -> Mapping[str, _P]:
        """The plans by name, in the order in which they run."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """What a ledger would hold if everything were executed as declared: what accountants and
        reports read.
        """

    @abstractmethod
    def _plain(self) -> dict[str, text.Plain]:
        """What a file of the declaration holds."""

    @classmethod
    @abstractmethod
    def _read(cls, data: Mapping[str, text.Plain]) -> Self:
        """What `_plain` wrote; anything else is a ParameterError."""

    def charges(self) -> tuple[Charge, ...]:
        """What all runs together will be charged.

        Nothing for a plan in which no group has noise; then there is no guarantee either.
        """
        return self.snapshot().charges

    def marks(self) -> tuple[str, ...]:
        """Names of what voids the guarantee.

        A run must be marked with those of its plan before its first step.
        """
        return self.snapshot().marks

    def check_target(self, target: Target) -> Target:
        """Require that the accountant's upper bound meets a target.

        Raises:
            AccountingError: it does not.
        """
        owner = f"{type(self).__name__}.certified"
        delta = check.instance(owner, "target", target, Target).delta

        # As it stands, whatever a search concluded before: an accountant reads this declaration.
        guarantee = account(self, delta=delta)

        # The upper bound: only the certified end of the interval may be compared with a wish. And
        # "not at most" in the place of "above", so that NaN would fail as well.
        if guarantee.voided_by or not guarantee.upper <= target.epsilon:
            marks = "".join(f", void: {mark}" for mark in guarantee.voided_by)
            raise AccountingError(
                expected=f"a plan that meets epsilon {target.epsilon!r} at delta {target.delta!r}",
                got=f"a certified upper bound of {guarantee.upper!r}{marks}",
                do="Ask for a larger epsilon, or change the plan.",
            )

        return target

    def to_json(self) -> str:
        """Write the declaration as JSON; `from_json` gives an equal one."""
        return text.to_json(self._plain())

    def to_toml(self) -> str:
        """Write the declaration as TOML; `from_toml` gives an equal one."""
        return text.to_toml(self._plain())

    @classmethod
    def from_json(cls, source: str) -> Self:
        """Read a declaration from what `to_json` wrote.

        Raises:
            ParameterError: unknown names, fields too many or too few, another schema.
        """
        return cls._read(text.from_json(source))

    @classmethod
    def from_toml(cls, source: str) -> Self:
        """Read a declaration from what `to_toml` wrote.

        Raises:
            ParameterError: unknown names, fields too many or too few, another schema.
        """
        return cls._read(text.from_toml(source))

    def save(self, path: str | Path) -> None:
        """Write a new file, TOML or JSON by its suffix.

        A file that holds something else is never overwritten.
        """
        text.save_plain(f"{type(self).__name__}.save", path, self._plain())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote, TOML or JSON by its suffix."""
        return cls._read(text.load_plain(f"{cls.__name__}.load", path))
