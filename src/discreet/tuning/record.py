"""The record of one tuning: what was tuned, what was tried, what came out, and on what data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.errors import ParameterError
from discreet.mechanisms._frozen import Frozen, frozen

__all__ = ["SCHEMA", "Kind", "Method", "Trial", "Tuning"]

SCHEMA = 1
"""Version of the file. Another one is refused, never guessed at."""

_HEAD = re.compile(r"[0-9a-f]{64}")
_set = object.__setattr__  # writes the normalised fields of a frozen value during its construction


class Kind(Enum):
    """What data trials were made on. PRIVATE: those of the ledger, and charged to it."""

    PUBLIC = "public"
    SYNTHETIC = "synthetic"
    PRIVATE = "private"


class Method(Enum):
    """How settings were chosen [Ponomareva2023, section 5.4.1]. OTHER: by hand, or by a program of
    one's own.
    """

    CLIP_SEARCH = "ClipSearch, without noise"
    COMPUTE = "given computation and privacy"
    ACCURACY = "given accuracy and privacy"
    OTHER = "by other means"


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

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
        pairs = frozen(owner, "values", self.values).pairs
        _set(
            self,
            "values",
            Frozen(
                tuple(
                    (name, check.real(owner, f"values[{name!r}]", value)) for name, value in pairs
                )
            ),
        )
        _set(self, "score", None if self.score is None else check.real(owner, "score", self.score))
        given: object = self.runs
        if not isinstance(given, tuple | list):
            raise ParameterError(
                owner=owner, name="runs", expected="a tuple of labels", got=type(given).__name__
            )
        _set(self, "runs", tuple(check.label(owner, "runs", run) for run in given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a report says about tuning. Made by the functions of `discreet.tuning`, or by hand for
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

    >>> record = Tuning(method=Method.OTHER, kind=Kind.PUBLIC, name="digits", trials=(Trial({"learning_rate": 0.5}, 0.93),),
    ...     chosen=0, made="2026-01-31T12:00:00+00:00")
    >>> Tuning.from_json(record.to_json()) == record
    True
    """

    method: Method
    kind: Kind
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
        check.instance(owner, "kind", self.kind, Kind)
        check.label(owner, "name", self.name)
        check.label(owner, "about", self.about, empty=True)
        given: object = self.trials
        if not isinstance(given, tuple | list) or not given:
            raise _wrong("trials", "a tuple of trials, at least one", type(given).__name__)
        for trial in given:
            check.member(owner, "trials", trial, (Trial,))
        _set(self, "trials", tuple(given))
        if len({tuple(trial.values) for trial in self.trials}) > 1:
            raise _wrong("trials", "trials of the same names", "others")
        if self.chosen is not None:
            _set(self, "chosen", check.whole(owner, "chosen", self.chosen, least=0))
            if self.chosen >= len(self.trials) or self.trials[self.chosen].score is None:
                raise _wrong("chosen", "the number of a trial that has a score", repr(self.chosen))
        noise = check.real(owner, "score_noise", self.score_noise)
        if noise < 0.0:
            raise _wrong("score_noise", "at least 0", repr(noise))
        _set(self, "score_noise", noise)
        _set(self, "made", _date(self.made))
        self._check_charged()

    def _check_charged(self) -> None:
        """What is private was charged, and what is not names no ledger."""
        if self.kind is not Kind.PRIVATE:
            if self.ledger_head is not None or any(trial.runs for trial in self.trials):
                raise _wrong(
                    "ledger_head",
                    f"None, and no runs, for {self.kind.value} data: nothing was charged",
                    "others",
                )
            return
        if self.method is Method.CLIP_SEARCH:
            raise _wrong("method", "one with noise, for private data", self.method.value)
        if not isinstance(self.ledger_head, str) or not _HEAD.fullmatch(self.ledger_head):
            raise _wrong(
                "ledger_head",
                "the digest that ledger.head() gives, for private data",
                repr(self.ledger_head)[:80],
            )
        if not all(trial.runs for trial in self.trials):
            raise _wrong(
                "trials", "the runs that each trial charged, for private data", "a trial without"
            )
        if len(set(self.runs)) < len(self.runs):
            raise _wrong(
                "trials",
                "runs of its own for each trial, for private data",
                "a run that is named twice",
            )
        if self.score_noise == 0.0 and any(trial.score is not None for trial in self.trials):
            raise _wrong("score_noise", "above 0, for scores of private data", "0")

    @property
    def names(self) -> tuple[str, ...]:
        """What was tuned."""
        return tuple(self.trials[0].values)

    @property
    def runs(self) -> tuple[str, ...]:
        """Labels of all runs that were charged."""
        return tuple(run for trial in self.trials for run in trial.runs)

    def to_json(self) -> str:
        """The record as JSON; `from_json` gives an equal one."""
        table: dict[str, Any] = {"schema": SCHEMA} | {
            field.name: getattr(self, field.name) for field in fields(self)
        }
        table |= {"method": self.method.value, "kind": self.kind.value}
        table["trials"] = [
            {"values": dict(trial.values), "score": trial.score, "runs": list(trial.runs)}
            for trial in self.trials
        ]
        return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Tuning:
        """The record behind `to_json`.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, a key twice, a
                value out of its range.
        """
        table = _parsed(text)
        version = table.pop("schema", None)
        if type(version) is not int or version != SCHEMA:
            raise _wrong(
                "schema", f"{SCHEMA}, in a file that Tuning.save wrote", repr(version)[:80]
            )
        _check_fields(table, cls)
        if not isinstance(table["trials"], list):
            raise _wrong("trials", "a list", type(table["trials"]).__name__)
        read = {
            "method": _named(Method, "method", table["method"]),
            "kind": _named(Kind, "kind", table["kind"]),
            "trials": tuple(_trial(one) for one in table["trials"]),
        }
        return cls(**table | read)

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all. What was tried is never overwritten."""
        write_new("Tuning.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Tuning:
        """Read a JSON file."""
        return cls.from_json(read_file("Tuning.load", path))


def _trial(table: object) -> Trial:
    if not isinstance(table, dict):
        raise _wrong("trials", "objects", type(table).__name__)
    _check_fields(table, Trial)
    return Trial(**table)


def _check_fields(table: dict[str, Any], kind: type[Tuning | Trial]) -> None:
    names = {field.name for field in fields(kind)}
    if table.keys() != names:
        unknown, missing = sorted(table.keys() - names), sorted(names - table.keys())
        raise _wrong(
            "fields", ", ".join(sorted(names)), f"unknown {unknown}, missing {missing}"[:200]
        )


def _named(kind: type[Enum], name: str, value: object) -> Enum:
    for member in kind:
        if member.value == value:
            return member
    raise _wrong(name, f"one of {', '.join(member.value for member in kind)}", repr(value)[:80])


def _date(value: object) -> str:
    text = check.label("Tuning", "made", value)
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise _wrong("made", "a date and time such as 2026-01-31T12:00:00+00:00", repr(text)[:80])
    return text


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise _wrong("text", "a text", type(text).__name__)
    try:
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise _wrong("text", "a JSON object", str(wrong)[:200]) from None
    if not isinstance(table, dict):
        raise _wrong("text", "a JSON object", type(table).__name__)
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} has no place in a record of tuning")


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Tuning", name=name, expected=expected, got=got)
