"""What a tensor of a pass may depend on.

    PUBLIC     on no record: parameters, constants, shapes, released values
    NOISE      on random numbers of this pass, each entry drawn by itself; public otherwise
    FILLED     on nothing: every entry of its memory is the same number; public
    Rows       index i along one axis depends on one record alone, and on public things
    OWN        the whole tensor depends on the only record of the pass
    Mixed      on several records, on some of them by their place, or nobody knows

Records keep their order: along the axis of `Rows`, each record comes `inner` times in a row, and
all of them `outer` times over. (B, T) flattened is inner T, (T, B) flattened is outer T. A tensor
that holds some of the records, or all of them in another order, is `Mixed`: what is done to it
could depend on a record's place, and places change (docs/proofs/sums.md, section 3). Such passes
are computed record by record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, final

__all__ = [
    "FILLED",
    "NOISE",
    "OWN",
    "PUBLIC",
    "Mixed",
    "OneByOne",
    "Rows",
    "SharedDraws",
    "State",
    "Stumbled",
    "is_kept",
    "is_public",
    "worst_of",
]


class OneByOne(Exception):
    """A pass cannot be computed for all of its records at once; the reason, in words. Public."""


class SharedDraws(OneByOne):
    """Random numbers that could have been the records' own serve all of them alike: the pass has to
    draw them again, the same in all passes of a step.
    """


class Stumbled(OneByOne):
    """A trial on made-up records met an error where rules compute: a way that they do not know.

    In a pass in earnest such an error is raised as it is: a record may have caused it, and must not
    decide how the others are computed.
    """


@final
class _Named:
    """A state without further facts; one object each, compared by identity."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# Claims about bits: two passes in which a record and everything public are the same give the same
# bits there. PUBLIC implies every `Rows`, and everything implies `Mixed`.
PUBLIC = _Named("PUBLIC")
NOISE = _Named("NOISE")
FILLED = _Named("FILLED")
OWN = _Named("OWN")


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """Index i along `dim` belongs to record (i // inner) % B, where the axis has outer * B * inner
    entries.
    """

    dim: int
    inner: int = 1
    outer: int = 1

    @property
    def fold(self) -> int:
        """Entries of each record along the axis."""
        return self.inner * self.outer

    @property
    def clear(self) -> bool:
        """Whether there is one entry for each record."""
        return self.inner == 1 and self.outer == 1

    def at(self, dim: int) -> Rows:
        """Return these records along another axis."""
        return self if dim == self.dim else Rows(dim, self.inner, self.outer)


@final
class Mixed:
    """Depends on several records, or on something that an earlier pass kept. One object for each
    reason.

    Args:
        why: in words, with the operation and the layer; public.
        kept: whether it comes from an earlier pass, or from the data set's own memory: then
            computing records one by one does not help.
    """

    __slots__ = ("kept", "why")

    def __init__(self, why: str, *, kept: bool) -> None:
        self.why = why
        self.kept = kept

    @staticmethod
    def of(why: str, *, kept: bool = False) -> Mixed:
        """The one object for this reason, so that it can be compared by identity."""
        return _mixed(why, kept)

    def __repr__(self) -> str:
        return f"Mixed({self.why!r})"


@lru_cache(4096)
def _mixed(why: str, kept: bool) -> Mixed:  # noqa: FBT001  (the key of a cache)
    return Mixed(why, kept=kept)


State: TypeAlias = _Named | Rows | Mixed


def worst_of(states: Iterable[State]) -> State:
    """What depends on all of these: what was kept from before comes first, then `Mixed`, `OWN`,
    `Rows`, public.
    """
    return max((PUBLIC, *states), key=_rank)


def _rank(state: State) -> int:
    # What was kept is worst: computing records one by one helps against all but that.
    if isinstance(state, Mixed):
        return 4 if state.kept else 3

    if isinstance(state, Rows):
        return 1

    # PUBLIC, NOISE and FILLED are alike here.
    return 2 if state is OWN else 0


def is_public(state: State) -> bool:
    """Whether a tensor in this state depends on no record."""
    return state is PUBLIC or state is NOISE or state is FILLED


def is_kept(state: State) -> bool:
    """Whether a tensor depends on what an earlier pass kept, or on the data set's own memory."""
    return isinstance(state, Mixed) and state.kept
