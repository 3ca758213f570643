"""One draw with all its queries, and the one table of the names that events have in files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events.event import Event
from discreet.ledger.events.policies import SAMPLINGS, Sampling
from discreet.ledger.events.queries import QUERIES, Query

__all__ = ["EVENTS", "Step"]

# Writes the normalised fields (rule 4) of a frozen event while it is constructed.
_set = object.__setattr__

# One table for policies and queries: ledgers and plan files name both in the same way.
EVENTS: dict[str, type[Event]] = {event.kind: event for event in (*SAMPLINGS, *QUERIES)}
"""Every event by the name that it has in ledgers and in plan files."""


@dataclass(frozen=True, slots=True, init=False)
class Step:
    """One draw of a sample, and every query asked of it.

    Queries are kept in the order of their group names, so the order in which they were asked does
    not make another step.

    Args:
        sampling: how the sample was drawn.
        queries: one or several, each with a group of its own.

    >>> from discreet.ledger.events import GaussianSum, Poisson
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1, noise_std=2)])
    >>> step == Step(Poisson(0.01), (GaussianSum("grad", 1.0, 2.0),))
    True
    """

    sampling: Sampling
    queries: tuple[Query, ...]

    def __init__(self, sampling: Sampling, queries: Iterable[Query] | Query) -> None:
        check.member("Step", "sampling", sampling, SAMPLINGS)
        asked = list(queries) if isinstance(queries, Iterable) else [queries]

        # Before they are sorted, which needs a group name of each.
        for query in asked:
            check.member("Step", "queries", query, QUERIES)

        # Sorted, equal names stand side by side; each group is clipped and noised by one query.
        asked.sort(key=attrgetter("group"))
        if not asked or any(first.group == second.group for first, second in pairwise(asked)):
            expected = "one query or more, each with a group name of its own"
            got = f"groups {[query.group for query in asked]}"
            raise ParameterError(owner="Step", name="queries", expected=expected, got=got)

        _set(self, "sampling", sampling)
        _set(self, "queries", tuple(asked))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups asked for, in order."""
        return tuple(query.group for query in self.queries)

    @property
    def gaussians(self) -> tuple[Query, ...]:
        """The queries with Gaussian noise: those that Eq. 1 folds into one."""
        return tuple(query for query in self.queries if query.gaussian_cost is not None)
