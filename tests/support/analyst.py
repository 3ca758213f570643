"""The analyst's game: somebody who looks at every output before deciding what to do next, played
exactly.

A *game* is a ledger held to some terms, and a menu of runs. The analyst begins runs, takes their
steps one by one, stops, and reads the claim, each time as a function of all outputs so far. What is
admitted, and what is claimed, the library itself
decides: its pure functions on snapshots, the same that a ledger calls in its transactions.

Outputs are real Gaussian releases of the worst pair of data sets, put into bins. That is
post-processing, so every claim must hold for it, and probabilities are exact. With P and Q the laws
of the outputs on the two data sets, and e the claim that is read at an outcome, a claim system is
valid at delta only if for every set S of outcomes

    P[S] <= sum over outcomes in S of exp(e) Q[outcome] + delta,

that is, if the *excess*, the sum over outcomes of (P - exp(e) Q)_+, is at most delta. `most_excess`
is the largest
excess that any strategy on the menu reaches: decisions are maximised over by backward induction,
    not sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from discreet.accounting import account
from discreet.accounting.odometer import odometer_reading
from discreet.errors import AccountingError, BudgetExceeded
from discreet.ledger import (
    Everything,
    GaussianSum,
    Poisson,
    Rule,
    RunInfo,
    Snapshot,
    Step,
    Terms,
    decisions,
)
from discreet.ledger.snapshot import RunRecord
from discreet.ledger.storage.rows import Began, Held, Reserved
from discreet.ledger.terms import Planned
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = [
    "INFO",
    "Claims",
    "Game",
    "bins_between",
    "full_batch",
    "library_claim",
    "most_excess",
    "poisson",
]

Array = NDArray[np.float64]
Claims = Callable[[Snapshot], float]
"""Epsilon that is claimed for what a snapshot holds."""

INFO = RunInfo(
    unit=Unit.EXAMPLE,
    adjacency=Adjacency.ADD_OR_REMOVE,
    groups=("sum",),
    numerics=Numerics.EXACT,
    randomness=Randomness.SYSTEM,
    parameters=Parameters.FIXED_IN_ADVANCE,
)


def full_batch(noise_multiplier: float) -> Step:
    """One sum over all records."""
    return Step(Everything(), [GaussianSum("sum", 1.0, noise_multiplier)])


def poisson(probability: float, noise_multiplier: float) -> Step:
    """One sum over a Poisson sample."""
    return Step(Poisson(probability), [GaussianSum("sum", 1.0, noise_multiplier)])


def bins_between(low: float, high: float, count: int) -> tuple[float, ...]:
    """Equally wide bins, in units of the noise, and the two tails."""
    return tuple(float(edge) for edge in np.linspace(low, high, count))


@dataclass(frozen=True)
class Game:
    """Rules and menu.

    Args:
        terms: that the ledger is held to when it is opened; None for a ledger that nobody said
            anything about.
        menu: runs that the analyst may begin, each with its plan.
        edges: of the bins that outputs are put into, in units of the noise.
        most_steps: that are taken at all, to keep the game finite.
        most_runs: that are begun at all.
        removal: the other direction: the record is in the second data set.
        admits: whether a proposed state of the ledger is allowed; by default the library decides.
        claims: what is claimed; by default what the library's accountant says.
    """

    terms: Terms | None
    menu: tuple[Planned, ...]
    edges: tuple[float, ...]
    most_steps: int = 3
    most_runs: int = 3
    removal: bool = False
    admits: Callable[[Snapshot], bool] | None = None
    claims: Claims | None = None

    def first_state(self) -> Snapshot:
        """A ledger that was just opened."""
        history = () if self.terms is None else (Held(self.terms, "", "now"),)
        return Snapshot(runs=(), history=history, head="head", ledger="game", schema=2)

    def moves(self, state: Snapshot) -> Iterator[tuple[Snapshot, Step | None]]:
        """What the analyst may do next: the state afterwards, and the step that is released, if one
        is.
        """
        if len(state.runs) < self.most_runs:
            for planned in self.menu:
                after = self._begun(state, planned)
                if after is not None:
                    yield after, None
        if state.steps < self.most_steps and state.runs:
            run = state.runs[-1]
            for step, _ in run.planned:
                after = self._charged(state, run, step)
                if after is not None:
                    yield after, step

    def _begun(self, state: Snapshot, planned: Planned) -> Snapshot | None:
        row = Began(INFO, (), "now", planned)
        before = replace(state, runs=tuple(replace(run, over=True) for run in state.runs))
        run = RunRecord(number=len(state.runs) + 1, info=INFO, planned=planned)
        if self.admits is not None:
            after = replace(before, runs=(*before.runs, run))
            return after if self.admits(after) else None
        try:
            rows = decisions.beginning(before, row)
        except (AccountingError, BudgetExceeded):
            return None
        held = tuple(row for row in rows if isinstance(row, Held))
        return replace(before, runs=(*before.runs, run), history=(*before.history, *held))

    def _charged(self, state: Snapshot, run: RunRecord, step: Step) -> Snapshot | None:
        if dict(run.charged).get(step, 0) >= dict(run.planned)[step]:
            return None
        try:
            decisions.reservation(
                state, Reserved(run.number, step, 1), step
            ) if self.admits is None else None
        except (AccountingError, BudgetExceeded):
            return None
        charged = dict(run.charged)
        more = replace(run, charged=tuple({**charged, step: charged.get(step, 0) + 1}.items()))
        return replace(state, runs=(*state.runs[:-1], more))

    def claim(self, state: Snapshot) -> float:
        """What is claimed for the state; 0 while nothing was released."""
        if not state.steps:
            return 0.0
        return library_claim(state, self._delta) if self.claims is None else self.claims(state)

    @property
    def _delta(self) -> float:
        return 0.0 if self.terms is None or self.terms.delta is None else self.terms.delta


_claims: dict[tuple[object, ...], float] = {}


def library_claim(state: Snapshot, delta: float) -> float:
    """What `dp.account` claims; remembered, because many outcomes share a state.

    Of an odometer only the reading is computed, which is what the accountant claims (`test_analyst`
    compares the two).
    """
    terms = state.history[-1].terms
    if terms.rule is Rule.ODOMETER:
        return odometer_reading(terms, state.counted(), INFO.adjacency).epsilon
    key = (terms, frozenset(state.counted()), delta)
    if key not in _claims:
        _claims[key] = account(state, delta=delta).upper
    return _claims[key]


@cache
def probabilities(step: Step, edges: tuple[float, ...], *, removal: bool) -> tuple[Array, Array]:
    """Probabilities of the bins on the two data sets: one record at the clip norm, or nobody."""
    sampling = step.sampling
    rate = sampling.probability if isinstance(sampling, Poisson) else 1.0
    (query,) = step.queries
    shift = query.sensitivity / query.noise_std  # type: ignore[attr-defined]
    limits = np.array([-math.inf, *edges, math.inf])

    def law(mean: float) -> Array:
        low, high = limits[:-1] - mean, limits[1:] - mean
        # The tail that is smaller, so that no digit is lost.
        law: Array = np.where(
            low > 0.0, norm.sf(low) - norm.sf(high), norm.cdf(high) - norm.cdf(low)
        )
        return law

    absent = law(0.0)
    present = (1.0 - rate) * absent + rate * law(shift)
    return (absent, present) if removal else (present, absent)


def most_excess(game: Game) -> float:
    """The largest excess that any strategy reaches."""
    start = np.ones(1)
    return float(_value(game, game.first_state(), start, start)[0])


def _value(game: Game, state: Snapshot, first: Array, second: Array) -> Array:
    """The largest excess from here on, for each of many histories of outputs that led to this
    state.

    Args:
        game: with its rules.
        state: of the ledger, the same for all of them: it holds public values only.
        first: probability of each history on the first data set.
        second: on the second.
    """
    claimed = min(game.claim(state), 700.0)
    best = np.maximum(first - math.exp(claimed) * second, 0.0)  # stop, and read the claim
    for after, step in game.moves(state):
        if step is None:
            best = np.maximum(best, _value(game, after, first, second))
            continue
        law_first, law_second = probabilities(step, game.edges, removal=game.removal)
        outcomes_first = np.outer(first, law_first)
        outcomes_second = np.outer(second, law_second)
        values = _value(game, after, outcomes_first.ravel(), outcomes_second.ravel())
        best = np.maximum(best, values.reshape(outcomes_first.shape).sum(axis=1))
    return best
