"""What an attack said of each canary, and whether it was in: all that an estimator needs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.canaries.arrays import array_of
from discreet.errors import ParameterError

__all__ = ["SCHEMA", "Scores"]

SCHEMA = 1
"""Version of the file. Another one is refused, never guessed at."""

_FIELDS = {"schema", "attack", "values", "inside", "trials", "heads"}
_HEAD = re.compile(r"[0-9a-f]{64}")


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
        with np.errstate(over="ignore"):  # what float64 cannot hold is refused below
            found = _array("values", values, "iuf").astype(np.float64)
        if not np.isfinite(found).all():
            raise ParameterError(
                owner="Scores", name="values", expected="finite numbers", got="some that are not"
            )
        coins = _array("inside", inside, "b")
        runs = (
            np.zeros(found.size, np.int64)
            if trials is None
            else _numbered(_array("trials", trials, "iu"))
        )
        if not found.size == coins.size == runs.size:
            got = f"{found.size} values, {coins.size} coins, {runs.size} numbers of runs"
            raise ParameterError(
                owner="Scores", name="inside", expected="one for each value", got=got
            )
        for name, array in (("values", found), ("inside", coins), ("trials", runs)):
            own = array.copy()
            own.flags.writeable = False
            object.__setattr__(self, name, own)
        object.__setattr__(self, "attack", check.label("Scores", "attack", attack))
        object.__setattr__(self, "heads", _heads(heads))

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def runs(self) -> int:
        """How many independent runs there were."""
        return int(np.unique(self.trials).size)

    @property
    def independent(self) -> bool:
        """Whether every canary had a run of its own."""
        return self.runs == len(self)

    @classmethod
    def pooled(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several runs of the same attack, which are independent of each other."""
        if (
            not isinstance(parts, Sequence)
            or not parts
            or not all(isinstance(part, Scores) for part in parts)
        ):
            got = f"{type(parts).__name__}, or something else in it"
            raise ParameterError(
                owner="Scores.pooled",
                name="parts",
                expected="a list of Scores, at least one",
                got=got,
            )
        shifts = np.cumsum([0, *(part.runs for part in parts[:-1])])
        runs = [
            np.unique(part.trials, return_inverse=True)[1] + shift
            for part, shift in zip(parts, shifts, strict=True)
        ]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.inside for part in parts]),
            trials=np.concatenate(runs),
            attack=parts[0].attack,
            heads=tuple(dict.fromkeys(head for part in parts for head in part.heads)),
        )

    def to_json(self) -> str:
        """The scores as JSON; `from_json` gives equal ones."""
        table = {
            "schema": SCHEMA,
            "attack": self.attack,
            "values": self.values.tolist(),
            "inside": self.inside.tolist(),
            "trials": self.trials.tolist(),
            "heads": self.heads,
        }
        return json.dumps(table, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Scores:
        """The scores behind `to_json`.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, values of another
                kind.
        """
        try:
            table: Any = json.loads(text)
        except (ValueError, RecursionError, TypeError) as wrong:
            raise ParameterError(
                owner="Scores", name="text", expected="a JSON object", got=str(wrong)[:200]
            ) from None
        if (
            not isinstance(table, dict)
            or table.keys() != _FIELDS
            or type(table["schema"]) is not int
            or table["schema"] != SCHEMA
        ):
            expected = f"an object with {', '.join(sorted(_FIELDS))}, schema {SCHEMA}"
            got = (
                ", ".join(sorted(map(str, table)))[:200]
                if isinstance(table, dict)
                else type(table).__name__
            )
            raise ParameterError(owner="Scores", name="text", expected=expected, got=got)
        return cls(
            table["values"],
            table["inside"],
            trials=table["trials"],
            attack=table["attack"],
            heads=table["heads"],
        )

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all; never over another."""
        write_new("Scores.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        """Read a JSON file."""
        return cls.from_json(read_file("Scores.load", path))


def _heads(given: object) -> tuple[str, ...]:
    if not isinstance(given, tuple | list) or not all(
        isinstance(head, str) and _HEAD.fullmatch(head) for head in given
    ):
        expected, got = (
            "digests that ledger.head() gives: 64 digits of 0-9a-f each",
            repr(given)[:80],
        )
        raise ParameterError(owner="Scores", name="heads", expected=expected, got=got)
    return tuple(given)


def _numbered(runs: NDArray[Any]) -> NDArray[np.int64]:
    if int(runs.max()) >= 2**63:
        raise ParameterError(
            owner="Scores", name="trials", expected="whole numbers below 2^63", got="a larger one"
        )
    return runs.astype(np.int64)


def _array(name: str, given: ArrayLike, kinds: str) -> NDArray[Any]:
    array = array_of(given)
    if array.ndim != 1 or not array.size or array.dtype.kind not in kinds:
        expected = {"b": "booleans", "iu": "whole numbers"}.get(
            kinds, "numbers"
        ) + ", one for each canary, at least one"
        raise ParameterError(
            owner="Scores", name=name, expected=expected, got=f"{array.dtype}, shape {array.shape}"
        )
    return array
