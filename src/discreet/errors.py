"""Every error of the library, in one tree.

    DiscreetError
    ├── ParameterError              a parameter is not of its stated kind or range; a ValueError
    ├── AccountingError             no valid analysis exists, or the numerics did not converge
    ├── BudgetExceeded              would cost more than the budget allows; nothing was charged
    ├── RandomnessError             where noise and samples come from; nothing was drawn
    │   ├── RandomnessUnavailable   no entropy, or no cipher that passes its known-answer test
    │   └── RandomnessMisuse        the same bits asked for twice, a copy, a fork
    ├── SampleMisuse                a sample used twice, or one that this run did not draw
    ├── ModelError                  a model or a loss that per-record clipping cannot serve
    │   └── CoupledRecords          one record changes what another contributes
    ├── CheckpointError             cannot be written, read or used here; all is as before
    ├── NumericsError               a number that the proof of exactness does not cover
    └── LedgerError                 something about the record of what happened
        ├── LedgerNotFound          no ledger at this path
        ├── LedgerExists            the path is already taken
        ├── LedgerCorrupt           a row is wrong; `row` says which
        │   └── UnknownEvent        a name outside the closed vocabulary of this schema version
        ├── LedgerUnavailable       busy, read-only, disk full: sound, but not to be used now
        └── LedgerMisuse            a lease or a handle used in a way that could under-count

Every message says what was expected, what came and what to do; the three parts are also attributes.
A call on a ledger that raises has charged nothing, with one exception: if the disk fails during the
commit itself, the charge may stand. It never counts less than what may be released.
"""

from __future__ import annotations

__all__ = [
    "AccountingError",
    "BudgetExceeded",
    "CheckpointError",
    "CoupledRecords",
    "DiscreetError",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerExists",
    "LedgerMisuse",
    "LedgerNotFound",
    "LedgerUnavailable",
    "ModelError",
    "NumericsError",
    "ParameterError",
    "RandomnessError",
    "RandomnessMisuse",
    "RandomnessUnavailable",
    "SampleMisuse",
    "UnknownEvent",
]


class DiscreetError(Exception):
    """Base of all errors: expected this, got that, do this.

    >>> print(DiscreetError(expected="a ledger", got="a folder", do="Pass the path of a file."))
    Expected a ledger. Got a folder. Pass the path of a file.
    """

    def __init__(self, *, expected: str, got: str, do: str) -> None:
        self.expected = expected
        self.got = got
        self.do = do
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        return f"Expected {self.expected}. Got {self.got}. {self.do}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only constructors do not survive Exception's own pickling; worker processes need
        # them to.
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(kind: type[DiscreetError], attributes: dict[str, object]) -> DiscreetError:
    # Past the constructor, whose parameters differ from class to class; the attributes are all
    # that it would have set.
    error = kind.__new__(kind)
    error.__dict__.update(attributes)
    Exception.__init__(error, error._sentence())  # noqa: SLF001  (the constructor's other half)
    return error


class ParameterError(DiscreetError, ValueError):
    """A parameter is not what it must be; the one form in which this is said.

    >>> range_ = "a number in (0, 1]"
    >>> print(ParameterError(owner="Poisson", name="probability", expected=range_, got="-1"))
    The 'probability' parameter of Poisson must be a number in (0, 1]. Got -1.
    """

    def __init__(self, *, owner: str, name: str, expected: str, got: str, do: str = "") -> None:
        self.owner = owner
        self.name = name
        super().__init__(expected=expected, got=got, do=do)

    def _sentence(self) -> str:
        # Without advice the sentence must not end in a space.
        must = f"The '{self.name}' parameter of {self.owner} must be {self.expected}."
        return f"{must} Got {self.got}. {self.do}".rstrip()


class AccountingError(DiscreetError):
    """No valid analysis exists for what was asked, or the numerics did not converge."""


class BudgetExceeded(DiscreetError):
    """The reservation would cost more than the budget allows. Nothing was charged, nothing may be
    released.
    """


class RandomnessError(DiscreetError):
    """Something about where noise and samples come from. Nothing was drawn."""


class RandomnessUnavailable(RandomnessError):
    """No entropy from the operating system, or no cipher that passes its known-answer test. There
    is no substitute.
    """


class RandomnessMisuse(RandomnessError):
    """Bits that were asked for twice, a copy of a key, a key carried over a fork."""


class SampleMisuse(DiscreetError):
    """A sample used twice, or one that this run did not draw."""


class ModelError(DiscreetError):
    """A model or a loss that per-record clipping cannot serve; nothing was released."""


class CoupledRecords(ModelError):
    """One record changes what another contributes, so that clipping each bounds nothing."""


class CheckpointError(DiscreetError):
    """A checkpoint that cannot be written, is damaged, or belongs to another plan or ledger.
    Everything is as before.
    """


class NumericsError(DiscreetError):
    """A number that the proof of exactness does not cover. Nothing was released."""


class LedgerError(DiscreetError):
    """Something about the record of what happened."""


class LedgerNotFound(LedgerError):
    """No ledger at this path."""


class LedgerExists(LedgerError):
    """The path is already taken."""


class LedgerCorrupt(LedgerError):
    """A row of the ledger is wrong.

    Attributes:
        row: number of the first wrong row, counted from 0, or None when no single row is to blame.
    """

    def __init__(self, *, expected: str, got: str, do: str, row: int | None = None) -> None:
        self.row = row
        super().__init__(expected=expected, got=got, do=do)

    def _sentence(self) -> str:
        # The row first: whoever looks after a ledger begins there.
        where = "" if self.row is None else f"Row {self.row} of the ledger is wrong. "
        return where + super()._sentence()


class UnknownEvent(LedgerCorrupt):
    """A name outside the closed vocabulary of this schema version; it is never skipped or guessed
    at.
    """


class LedgerUnavailable(LedgerError):
    """Busy, read-only or disk full: the ledger is whole, and this call may be tried again."""


class LedgerMisuse(LedgerError):
    """A lease or a handle used in a way that could under-count."""
