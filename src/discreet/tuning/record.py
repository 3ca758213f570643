"""The record of one tuning: what was tuned, what was tried, what came out, and on what data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from itertools import chain
from pathlib import Path

from discreet import _strict_json
from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.errors import ParameterError
from discreet.mechanisms._frozen import Frozen, frozen

__all__ = ["TUNING_SCHEMA", "Method", "Trial", "Tuning", "TuningKind"]

TUNING_SCHEMA = 1
"""Version of the file. Another one is refused, never guessed at."""

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__


class TuningKind(Enum):
    """What data the trials were made on. PRIVATE: those of the ledger, and charged to it."""

    PUBLIC = "public"
    SYNTHETIC = "synthetic"
    PRIVATE = "private"


class Method(Enum):
    """How settings were chosen [Ponomareva2023, section 5.4.1].

    OTHER: by hand, or by a program of one's own.
    """

    CLIP_SEARCH = "ClipSearch, without noise"
    COMPUTE = "given computation and privacy"
    ACCURACY = "given accuracy and privacy"
    OTHER = "by other means"


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting that was tried, and how it scored.

    Args:
        values: what was tried: number by name.
        score: the higher, the better; None where there is none, because training diverged or the
            budget ended.
        runs: labels of the runs that the trial charged to the ledger; none for public and synthetic
            data.
    """

    values: Mapping[str, float]
    score: float | None
    runs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = "Trial"
        values = frozen(owner, "values", self.values)
        numbers = ((name, check.real(owner, f"values[{name!r}]", values[name])) for name in values)
        _set(self, "values", Frozen(tuple(numbers)))
        if self.score is not None:
            _set(self, "score", check.real(owner, "score", self.score))

        # A text is a sequence as well, and each of its letters a label.
        runs: object = self.runs
        if not isinstance(runs, tuple | list):
            raise ParameterError(
                owner=owner, name="runs", expected="a tuple of labels", got=type(runs).__name__
            )

        _set(self, "runs", tuple(check.label(owner, "runs", run) for run in runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a report says about tuning: made by the functions of `discreet.tuning`, or by hand for
    what was done elsewhere.

    Guarantee: none of its own. Of private data it names the runs, and the report refuses it unless
    the ledger has them; that data are public or synthetic is the word of whoever made the record.

    Args:
        method: how the choice was made.
        kind, name, about: on what data.
        trials: all of them, in their order, at least one.
        chosen: number of the trial that was chosen, from 0; None if none was.
        score_noise: standard deviation of the noise on every score; 0 where scores are not noised.
        ledger_head: `ledger.head()` after the last trial, for private data; None for others.
        made: date and time, ISO 8601 with its offset from UTC.

    >>> record = Tuning(
    ...     method=Method.OTHER,
    ...     kind=TuningKind.PUBLIC,
    ...     name="digits",
    ...     trials=(Trial({"learning_rate": 0.5}, 0.93),),
    ...     chosen=0,
    ...     made="2026-01-31T12:00:00+00:00",
    ... )
    >>> Tuning.from_json(record.to_json()) == record
    True
    """

    method: Method
    kind: TuningKind
    name: str
    about: str = ""
    trials: tuple[Trial, ...]
    chosen: int | None
    score_noise: float = 0.0
    ledger_head: str | None = None
    made: str

    def __post_init__(self) -> None:
        owner = "Tuning"
        check.instance(owner, "method", self.method, Method)
        check.instance(owner, "kind", self.kind, TuningKind)
        check.label(owner, "name", self.name)
        check.label(owner, "about", self.about, empty=True)
        _set(self, "score_noise", check.not_negative(owner, "score_noise", self.score_noise))
        _set(self, "made", check.timestamp(owner, "made", self.made))

        self._check_trials()
        if self.chosen is not None:
            self._check_chosen(self.chosen)

        # What cost privacy names its runs, and what cost none must not: a report compares the
        # names with the ledger.
        if self.kind is TuningKind.PRIVATE:
            self._check_charged()
        elif self.ledger_head is not None or self.runs:
            expected = f"None, and no runs, for {self.kind.value} data: nothing was charged"
            raise _wrong("ledger_head", expected, "a digest, or the names of runs")

    def _check_trials(self) -> None:
        """Require at least one trial, and the same names in all of them."""
        trials: object = self.trials
        if not isinstance(trials, tuple | list) or not trials:
            raise _wrong("trials", "a tuple of trials, at least one", type(trials).__name__)

        for trial in trials:
            check.member("Tuning", "trials", trial, (Trial,))

        _set(self, "trials", tuple(trials))

        # They are the columns of one table, in one order.
        if len({tuple(trial.values) for trial in self.trials}) > 1:
            raise _wrong("trials", "trials of the same names", "trials of several")

    def _check_chosen(self, chosen: int) -> None:
        """Require that a trial which has a score was chosen."""
        number = check.whole("Tuning", "chosen", chosen, least=0)
        if number >= len(self.trials) or self.trials[number].score is None:
            raise _wrong("chosen", "the number of a trial that has a score", repr(number))

        _set(self, "chosen", number)

    def _check_charged(self) -> None:
        """Require, for private data, that every trial was charged and every score is noised."""
        if self.method is Method.CLIP_SEARCH:
            raise _wrong("method", "one with noise, for private data", self.method.value)

        check.digest("Tuning", "ledger_head", self.ledger_head)

        # Trials that share a run, or have none, would be trials that nobody paid for (P39).
        if not all(trial.runs for trial in self.trials):
            raise _wrong(
                "trials",
                "the runs that each trial charged, for private data",
                "a trial without",
            )

        if len(set(self.runs)) < len(self.runs):
            raise _wrong(
                "trials",
                "runs of its own for each trial, for private data",
                "a run that is named twice",
            )

        # A score is a number of the private data like any other.
        has_scores = any(trial.score is not None for trial in self.trials)
        if has_scores and self.score_noise == 0.0:
            raise _wrong("score_noise", "above 0, for scores of private data", "0")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what was tuned."""
        return tuple(self.trials[0].values)

    def points(self, name: str) -> tuple[tuple[float, float], ...]:
        """The value of one name, and the score, of every trial that has a score, in their order."""
        return tuple(
            (trial.values[name], trial.score) for trial in self.trials if trial.score is not None
        )

    @property
    def runs(self) -> tuple[str, ...]:
        """Labels of all runs that were charged."""
        return tuple(chain.from_iterable(trial.runs for trial in self.trials))

    def to_json(self) -> str:
        """Write the record as JSON; `from_json` gives an equal one."""
        # Every field, by its own name; below, those that JSON has no word for are replaced.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        trials = [
            {"values": dict(trial.values), "score": trial.score, "runs": list(trial.runs)}
            for trial in self.trials
        ]

        texts = {"method": self.method.value, "kind": self.kind.value, "trials": trials}
        return _strict_json.to_text({"schema": TUNING_SCHEMA} | values | texts)

    @classmethod
    def from_json(cls, text: str) -> Tuning:
        """Read a record from what `to_json` wrote.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, a key twice, a
                value out of its range.
        """
        names = [field.name for field in fields(cls)]
        table = _strict_json.read_version(
            "Tuning", text, schema=TUNING_SCHEMA, names=names, writer="Tuning.save"
        )

        # Names of enumerations are those of the file, and all else is for the constructor to check.
        if not isinstance(table["trials"], list):
            raise _wrong("trials", "a list", type(table["trials"]).__name__)

        table["trials"] = tuple(_trial(trial) for trial in table["trials"])
        table["method"] = _strict_json.member_named("Tuning", "method", Method, table["method"])
        table["kind"] = _strict_json.member_named("Tuning", "kind", TuningKind, table["kind"])
        return cls(**table)

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all. What was tried is never overwritten."""
        write_new("Tuning.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Tuning:
        """Read a JSON file that `save` wrote."""
        return cls.from_json(read_file("Tuning.load", path))


def _trial(table: object) -> Trial:
    if not isinstance(table, dict):
        raise _wrong("trials", "objects", type(table).__name__)

    # Before the call: a field too many would be a TypeError about an argument.
    _strict_json.check_fields("Tuning", table, [field.name for field in fields(Trial)])
    return Trial(**table)


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Tuning", name=name, expected=expected, got=got)
