"""Epsilon after every step of a run, at a small part of the step's cost.

Epsilon grows with every step, so the certified upper bound of a somewhat longer run is a certified
upper bound of every run before it. The meter computes the bound for a run that is longer by a small
share, reports it until the run gets there, and only then computes again: never less than the truth,
more by a share of about half the look-ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from discreet import _validate as check
from discreet.accounting.normalise import normalise
from discreet.accounting.tight import tight_epsilon, tight_upper
from discreet.accounting.tight.lattice.bracket import Starts
from discreet.ledger.events import Step
from discreet.units import Adjacency

__all__ = ["LiveEpsilon"]


class LiveEpsilon:
    """A running upper bound on epsilon at one delta; final.

    Guarantee: `epsilon` is at least the epsilon of the steps added so far; equal to the certified
    upper bound for a run in which the latest step was taken up to `look_ahead` times the number of
    steps more often.

    Args:
        delta: in (0, 1).
        adjacency: of the run.
        look_ahead: by which share of its length the run may grow before the bound is computed
            again.
        tolerance: of the accountant between two computations; coarser than usual, as the look-ahead
            outweighs it.
        before: steps that were taken already, with their counts.

    >>> from discreet.ledger.events import GaussianSum, Poisson, Step
    >>> from discreet.units import Adjacency
    >>> meter = LiveEpsilon(delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE)
    >>> meter.add(Step(Poisson(0.005), [GaussianSum("grad", 1.0, 1.0)]), 200)
    >>> 0.5867 < meter.epsilon < 0.5867 * 1.02
    True
    """

    def __init__(
        self,
        *,
        delta: float,
        adjacency: Adjacency,
        look_ahead: float = 0.02,
        tolerance: float = 4e-3,
        before: Iterable[tuple[Step, int]] = (),
    ) -> None:
        self._delta = check.fraction("LiveEpsilon", "delta", delta)
        self._look_ahead = check.fraction("LiveEpsilon", "look_ahead", look_ahead, zero=True)
        self._tolerance = check.positive("LiveEpsilon", "tolerance", tolerance)
        self._adjacency = check.instance("LiveEpsilon", "adjacency", adjacency, Adjacency)

        # Covered is what the bound holds for: at least the counts, usually some steps more.
        self._counts: dict[Step, int] = {}
        self._covered: dict[Step, int] = {}
        self._upper = 0.0
        self._starts: Starts = {}

        for step, count in before:
            # The same step may come from several runs.
            self._counts[step] = self._counts.get(step, 0) + check.whole(
                "LiveEpsilon", "before", count, least=0
            )

        if self._counts:
            self._cover(self._counts)

    def add(self, step: Step, count: int = 1) -> None:
        """The step was (or is about to be) taken `count` times."""
        number = self._counts.get(step, 0) + check.whole("LiveEpsilon", "count", count, least=0)

        # More steps cost more, so a bound for what is covered holds for everything within it.
        if number > self._covered.get(step, 0):
            # Most runs repeat one step, so it is the latest that is counted ahead.
            covered = self._counts | {step: number}
            covered[step] += math.floor(sum(covered.values()) * self._look_ahead)
            self._cover(covered)

        # Last: a step that is refused was not added.
        self._counts[step] = number

    def _cover(self, counts: dict[Step, int]) -> None:
        self._upper = tight_upper(
            normalise(counts.items(), self._adjacency), self._delta, self._tolerance, self._starts
        )
        self._covered = dict(counts)

    @property
    def counts(self) -> dict[Step, int]:
        """Steps added so far, with their counts."""
        return dict(self._counts)

    @property
    def epsilon(self) -> float:
        """A certified upper bound for the steps added so far."""
        return self._upper

    def exact(self) -> float:
        """The certified upper bound for exactly the steps added so far, computed now."""
        return tight_epsilon(
            normalise(self._counts.items(), self._adjacency), self._delta, 1e-3
        ).upper
