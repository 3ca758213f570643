"""What an attack said of each canary, and whether it was in: all that an estimator needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _strict_json
from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.errors import ParameterError

__all__ = ["SCORES_SCHEMA", "Scores", "array_of"]

SCORES_SCHEMA = 1
"""Version of the file. Another one is refused, never guessed at."""

# What an array may hold, by the codes of NumPy, for error messages.
_KINDS = {"b": "booleans", "iu": "whole numbers", "iuf": "numbers"}


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of an attack on canaries: the higher, the surer it is that the canary was in.

    Scores must not depend on the coins but through what was released, and the coins must be fair
    and independent: then the bounds of `discreet.auditing` hold whatever the attack is.

    Args:
        values: one finite score for each canary.
        inside: whether it was in.
        trials: number of the run that each canary was in. Runs are independent of each other;
            canaries of one run need not be.
            Left out: all in one run.
        attack: what was done, in a few words; public.
        heads: `ledger.head()` of the ledger of each run when it began, if known: then `audit`
            refuses another ledger; public.

    >>> scores = Scores([2.0, -1.0, 0.5], [True, False, True])
    >>> len(scores), scores.runs, scores.independent
    (3, 1, False)
    """

    values: NDArray[np.float64]
    inside: NDArray[np.bool_]
    trials: NDArray[np.int64]
    attack: str
    heads: tuple[str, ...]

    def __init__(
        self,
        values: ArrayLike,
        inside: ArrayLike,
        *,
        trials: ArrayLike | None = None,
        attack: str = "scores",
        heads: Sequence[str] = (),
    ) -> None:
        # What float64 cannot hold is refused below.
        with np.errstate(over="ignore"):
            numbers = _array("values", values, "iuf").astype(np.float64)

        if not np.isfinite(numbers).all():
            raise _wrong("values", "finite numbers", "numbers that are not")

        coins = _array("inside", inside, "b")
        runs = np.zeros(numbers.size, np.int64) if trials is None else _runs(trials)
        if not numbers.size == coins.size == runs.size:
            got = f"{numbers.size} values, {coins.size} coins, {runs.size} numbers of runs"
            raise _wrong("inside", "one for each value", got)

        # Copies that nobody can write to: scores stay what they were, whatever becomes of the
        # arrays they came from.
        for name, array in (("values", numbers), ("inside", coins), ("trials", runs)):
            copy = array.copy()
            copy.flags.writeable = False
            object.__setattr__(self, name, copy)

        object.__setattr__(self, "attack", check.label("Scores", "attack", attack))
        object.__setattr__(self, "heads", _heads(heads))

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def runs(self) -> int:
        """Number of independent runs that the canaries were in."""
        return int(np.unique(self.trials).size)

    @property
    def independent(self) -> bool:
        """Whether every canary had a run of its own."""
        return self.runs == len(self)

    @classmethod
    def pooled(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several runs of the same attack, which are independent of each other."""
        if not isinstance(parts, Sequence) or not parts:
            raise _no_parts(type(parts).__name__)

        if not all(isinstance(part, Scores) for part in parts):
            raise _no_parts(f"{type(parts).__name__}, with something else in it")

        # Numbers of runs are counted anew, so that runs of different parts never share one.
        runs: list[NDArray[np.int64]] = []
        first = 0
        for part in parts:
            runs.append(first + np.unique(part.trials, return_inverse=True)[1])
            first += part.runs

        # Each ledger is named once, in the order in which they came.
        heads = chain.from_iterable(part.heads for part in parts)
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.inside for part in parts]),
            trials=np.concatenate(runs),
            attack=parts[0].attack,
            heads=tuple(dict.fromkeys(heads)),
        )

    def to_json(self) -> str:
        """Write the scores as JSON on one line; `from_json` gives equal ones."""
        # On one line: there may be millions of values, and nobody reads them.
        table = {
            "schema": SCORES_SCHEMA,
            "attack": self.attack,
            "values": self.values.tolist(),
            "inside": self.inside.tolist(),
            "trials": self.trials.tolist(),
            "heads": self.heads,
        }
        return json.dumps(table, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Scores:
        """Read scores from what `to_json` wrote.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, a key twice,
                values of another kind.
        """
        names = [field.name for field in fields(cls)]
        table = _strict_json.read_version(
            "Scores", text, schema=SCORES_SCHEMA, names=names, writer="Scores.save"
        )
        return cls(**table)

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all; never over another."""
        write_new("Scores.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        """Read a JSON file that `save` wrote."""
        return cls.from_json(read_file("Scores.load", path))


def array_of(values: ArrayLike) -> NDArray[Any]:
    """Take what was passed as an array; what is none, as an empty one of objects.

    Rows of different lengths are none, for example. The empty array has two axes, so that every
    check of one axis refuses it.

    >>> array_of([1, 2]).shape, array_of([[1], [2, 3]]).shape
    ((2,), (0, 0))
    """
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        return np.empty((0, 0), object)


def _array(name: str, values: ArrayLike, kinds: str) -> NDArray[Any]:
    """Check that there is one value for each canary, of a kind of `_KINDS`."""
    array = array_of(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in kinds:
        expected = f"{_KINDS[kinds]}, one for each canary, at least one"
        raise _wrong(name, expected, f"{array.dtype}, shape {array.shape}")

    return array


def _runs(trials: ArrayLike) -> NDArray[np.int64]:
    # An unsigned number beyond int64 would turn negative, and perhaps into another run's.
    numbers = _array("trials", trials, "iu")
    if int(numbers.max()) >= 2**63:
        raise _wrong("trials", "whole numbers below 2^63", "a larger one")

    return numbers.astype(np.int64)


def _heads(heads: object) -> tuple[str, ...]:
    if not isinstance(heads, tuple | list):
        raise _wrong("heads", "digests that ledger.head() gives", repr(heads)[:80])

    return tuple(check.digest("Scores", "heads", head) for head in heads)


def _no_parts(got: str) -> ParameterError:
    expected = "a list of Scores, at least one"
    return ParameterError(owner="Scores.pooled", name="parts", expected=expected, got=got)


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Scores", name=name, expected=expected, got=got)
