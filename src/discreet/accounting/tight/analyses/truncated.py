"""Poisson samples cut to a limit: which pairs dominate one step, for each adjacency.

Legend: n records, the one in question among them; q the probability of a draw; B the limit; s the
noise multiplier. Let the *others* be drawn first: |S| ~ Binomial(n-1, q) of them. Two cases, each
as likely under either data set (see docs/proofs/truncated.md):

* |S| < B, probability 1 - p: nothing is cut, with or without the record: the Poisson pair (q, s).
* |S| >= B, probability p = P[Binomial(n-1, q) >= B]: the others fill the sample. The record can
  only *take the place of another*, which moves the sum by up to 2, and does so with the conditional
  probability

      q' = E[q B/(|S|+1) | |S| >= B] = (B/n) P[Binomial(n, q) > B] / p  <=  q B/(B+1).

  - add-or-remove: without the record the place is never taken: the Poisson pair (q', s/2);
  - zero-out and replace-one: under both data sets the place is taken, by different values:
    `Exchange` (q', s/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.accounting._binomial import at_least
from discreet.accounting.tight.analyses.exchange import Exchange
from discreet.accounting.tight.analyses.mixture import Mixture, Part
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.analyses.replace import PoissonReplace
from discreet.accounting.tight.rounding import U

if TYPE_CHECKING:
    from discreet.accounting.costs import TruncatedPoissonGaussian
    from discreet.accounting.tight.interface import Direction

__all__ = ["Cut", "cut", "truncated_directions"]


@dataclass(frozen=True, slots=True)
class Cut:
    """How often the others fill the sample, p with bounds, and q' rounded up; see the header."""

    lower: float
    upper: float
    taken: float


def cut(cost: TruncatedPoissonGaussian, records: int) -> Cut:
    """Of p and q', for the larger data set having this many records."""
    n, q, limit = records, cost.probability, cost.limit
    lower, upper = at_least(limit, n - 1, q)
    most = q * limit / (limit + 1.0)
    if lower > 0.0:
        most = min(most, at_least(limit + 1, n, q)[1] * limit / (n * lower))
    return Cut(lower, upper, min(most * (1.0 + 16.0 * U), 1.0))


def truncated_directions(cost: TruncatedPoissonGaussian) -> tuple[Direction, Direction]:
    """Both directions (record under P, record under Q) of the dominating pair of one step.

    Add-or-remove: the neighbour has one record less or one more than `records`, so the pair must
    dominate for n = records and for n = records + 1. It takes the larger weight of either case and
    the larger q': more mass dominates. The surplus, q P[Binomial(n-1, q) = B-1], is tiny where the
    limit is chosen with any margin.
    """
    q, s = cost.probability, cost.noise_multiplier
    one = cut(cost, cost.records)
    if cost.replace:
        pair = _mixture(one, PoissonReplace(q, s), Exchange(one.taken, s / 2.0))
        return pair, pair
    if cost.zero_out:
        exchange = Exchange(one.taken, s / 2.0)
        return _mixture(one, PoissonRemove(q, s), exchange), _mixture(
            one, PoissonAdd(q, s), exchange
        )
    more = cut(cost, cost.records + 1)
    both = Cut(one.lower, more.upper, max(one.taken, more.taken))
    return (
        _mixture(both, PoissonRemove(q, s), PoissonRemove(both.taken, s / 2.0)),
        _mixture(both, PoissonAdd(q, s), PoissonAdd(both.taken, s / 2.0)),
    )


def _mixture(found: Cut, uncut: Direction, taken: Direction) -> Mixture:
    free = min((1.0 - found.lower) * (1.0 + 4.0 * U), 1.0)
    return Mixture((Part(free, uncut), Part(found.upper, taken)))
