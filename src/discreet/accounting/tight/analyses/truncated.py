"""Poisson samples cut to a limit: which pairs dominate one step, for each adjacency.

Legend: n records, the one in question among them; q the probability of a draw; B the limit; s the
noise multiplier. Let the *others* be drawn first: |S| ~ Binomial(n-1, q) of them. Two cases, each
as likely under either data set (docs/proofs/truncated.md):

* |S| < B, probability 1 - p: nothing is cut, with or without the record: the Poisson pair (q, s).
* |S| >= B, probability p = P[Binomial(n-1, q) >= B]: the others fill the sample. The record can
  only *take the place of another*, which moves the sum by up to 2, and does so with the conditional
  probability

      q' = E[q B/(|S|+1) | |S| >= B] = (B/n) P[Binomial(n, q) > B] / p  <=  q B/(B+1).

  - add-or-remove: without the record the place is never taken: the Poisson pair (q', s/2);
  - zero-out and replace-one: under both data sets the place is taken, by different values:
    `Exchange` (q', s/2).

The attacker may be shown which case it is: with probability w_j the pair (P_j, Q_j), and the index
j. Then

    D(eps) = sum_j w_j D_j(eps),

so every cell's mass, over and under are the weighted sums of those of the parts. If each part
dominates what happens in its case, and the case has the same probability under both data sets, the
mixture dominates; so does one with larger weights, whose sum may exceed 1 (lemmas 1 and 2 there).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.accounting._binomial import at_least
from discreet.accounting.costs import TruncatedPoissonGaussian
from discreet.accounting.tight.analyses.fixed_size import Exchange
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove, PoissonReplace
from discreet.accounting.tight.interface import Bounds, Cells, Direction, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["Cut", "Mixture", "Part", "cut", "truncated_directions"]


@dataclass(frozen=True, slots=True)
class Cut:
    """How often the others fill the sample, p with bounds, and q' rounded up; see the header."""

    lower: float
    upper: float
    taken: float


def cut(cost: TruncatedPoissonGaussian, records: int) -> Cut:
    """The p and q' of the header, for the larger data set having this many records."""
    n, q, limit = records, cost.probability, cost.limit
    lower, upper = at_least(limit, n - 1, q)

    # The simple bound on q' always holds; the exact form needs a p that is certainly not 0.
    taken = q * limit / (limit + 1.0)
    if lower > 0.0:
        taken = min(taken, at_least(limit + 1, n, q)[1] * limit / (n * lower))

    return Cut(lower, upper, min(taken * (1.0 + 16.0 * U), 1.0))


def truncated_directions(cost: TruncatedPoissonGaussian) -> tuple[Direction, Direction]:
    """Both directions (record under P, record under Q) of the dominating pair of one step.

    Add-or-remove: the neighbour has one record less or one more than `records`, so the pair must
    dominate for n = records and for n = records + 1. It takes the larger weight of either case and
    the larger q': more mass dominates. The surplus, q P[Binomial(n-1, q) = B-1], is tiny where the
    limit is chosen with any margin.
    """
    q, s = cost.probability, cost.noise_multiplier
    same = cut(cost, cost.records)

    # The number of records does not change: one cut serves both data sets.
    if cost.replace:
        pair = _by_case(same, PoissonReplace(q, s), Exchange(same.taken, s / 2.0))
        return pair, pair

    if cost.zero_out:
        exchange = Exchange(same.taken, s / 2.0)
        remove = _by_case(same, PoissonRemove(q, s), exchange)
        return remove, _by_case(same, PoissonAdd(q, s), exchange)

    # Add-or-remove: p grows with n, so its lower end is that of n, its upper end that of n + 1.
    more = cut(cost, cost.records + 1)
    either = Cut(same.lower, more.upper, max(same.taken, more.taken))
    return (
        _by_case(either, PoissonRemove(q, s), PoissonRemove(either.taken, s / 2.0)),
        _by_case(either, PoissonAdd(q, s), PoissonAdd(either.taken, s / 2.0)),
    )


def _by_case(filled: Cut, uncut: Direction, taken: Direction) -> Mixture:
    """The pair `uncut` where the others leave room, `taken` where they fill the sample."""
    # Weights are rounded up, so they may sum to a little more than 1: that dominates too.
    free = min((1.0 - filled.lower) * (1.0 + 4.0 * U), 1.0)
    return Mixture((Part(free, uncut), Part(filled.upper, taken)))


@dataclass(frozen=True, slots=True)
class Part:
    """One pair of a mixture with its weight: a probability, rounded up where it is not known
    exactly.
    """

    weight: float
    direction: Direction


@dataclass(frozen=True, slots=True)
class Mixture:
    """The pairs of `parts`, one of them drawn and shown to the attacker."""

    parts: tuple[Part, ...]

    def quadrature(self) -> Quadrature:
        """All nodes of all parts, by increasing loss."""
        # A part of weight 0 has no nodes: its logarithm would be infinite.
        possible = [part for part in self.parts if part.weight > 0.0]
        nodes = [part.direction.quadrature() for part in possible]
        loss = np.concatenate([node.loss for node in nodes])
        log_weight = np.concatenate(
            [
                node.log_weight + np.log(part.weight)
                for node, part in zip(nodes, possible, strict=True)
            ]
        )
        order = np.argsort(loss, kind="stable")
        return Quadrature(loss[order], log_weight[order])

    def cells(self, edges: FloatArray) -> Cells:
        """Weighted sums of the cells of the parts, rounded outward."""
        # The index of the part is shown, so curves add up (lemma 1 of docs/proofs/truncated.md).
        possible = [part for part in self.parts if part.weight > 0.0]
        cells = [part.direction.cells(edges) for part in possible]
        weights = [part.weight for part in possible]
        return Cells(
            _weighted_sum(weights, [cell.mass for cell in cells]),
            _weighted_sum(weights, [cell.over for cell in cells]),
            _weighted_sum(weights, [cell.under for cell in cells]),
            max(cell.slack for cell in cells),
        )


def _weighted_sum(weights: list[float], terms: list[Bounds]) -> Bounds:
    """Bounds on the sum of weight times term, all non-negative."""
    # One product and one sum for each term.
    error = 4.0 * (1.0 + len(terms)) * U
    weighted = list(zip(weights, terms, strict=True))
    lower = sum((weight * term.lower for weight, term in weighted), start=np.zeros(1))
    upper = sum((weight * term.upper for weight, term in weighted), start=np.zeros(1))
    return Bounds(lower * (1.0 - error), upper * (1.0 + error))
