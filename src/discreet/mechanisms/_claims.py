"""Which pattern claims which leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from discreet import _validate as check
from discreet._validate import label
from discreet.errors import ParameterError

__all__ = ["checked_leaves", "claim_leaves"]


def checked_leaves(owner: str, leaves: Mapping[str, int]) -> dict[str, int]:
    """Names and dimensions of the vectors of a record; at least one."""
    where = f"{owner}.bind"
    if not isinstance(leaves, Mapping) or not leaves:
        raise ParameterError(
            owner=where,
            name="leaves",
            expected="a mapping from the name of each leaf to its dimension, not empty",
            got=f"{leaves!r:.80}",
        )

    return {
        label(where, "leaves", leaf): check.whole(where, f"leaves[{leaf!r}]", size, least=1)
        for leaf, size in leaves.items()
    }


def claim_leaves(
    owner: str, name: str, patterns: Iterable[str], leaves: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """For each pattern its leaves: the first pattern that matches (`*`, `?`, `[...]`, case counts)
    has the leaf.

    Raises:
        ParameterError: a leaf is claimed by no pattern, or a pattern claims no leaf.

    >>> claim_leaves("Groups", "mechanisms", ["grad/b*", "grad/*"], ["grad/body", "grad/head"])
    {'grad/b*': ('grad/body',), 'grad/*': ('grad/head',)}
    """
    claimed: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    orphans = []
    for leaf in leaves:
        for pattern, names in claimed.items():
            # The first one has it, and no other: a leaf in two groups would be released twice.
            if fnmatchcase(leaf, pattern):
                names.append(leaf)
                break
        else:
            orphans.append(leaf)

    # A pattern that claims nothing is a misspelt name more often than not, and its noise would be
    # missing where it was meant to be.
    idle = [pattern for pattern, names in claimed.items() if not names]
    if orphans or idle:
        raise ParameterError(
            owner=owner,
            name=name,
            expected=(
                "patterns that claim every leaf, each at least one (the first that matches has "
                "the leaf)"
            ),
            got=f"leaves that nobody claims {orphans}, patterns that claim nothing {idle}; "
            f"leaves {list(leaves)}, patterns {list(claimed)}",
            do="Add a pattern for the former, remove or reorder the latter.",
        )

    return {pattern: tuple(names) for pattern, names in claimed.items()}
