"""Numbers behind the charts: epsilon over steps, the attacker's trade-off, the claim without
amplification.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from discreet.accounting import TradeOff, account, profile_of
from discreet.accounting.normalise import normalise
from discreet.accounting.tight import tight_upper
from discreet.accounting.tight.lattice.bracket import Starts
from discreet.ledger import Everything, GaussianSum, Snapshot, Step
from discreet.units import Adjacency, Guarantee

__all__ = ["FALSE_POSITIVES", "detail", "hit_limit", "spending", "tradeoff", "unamplified"]

FALSE_POSITIVES = 0.01
"""The rate at which an attacker's success is stated, in reports and by commands."""

_POINTS = 20
# Different steps. With more of them, charts and tables get fewer points, because each costs more.
_PLENTY = 10
# How closely the points of a chart are computed; the last one is the claim itself.
_TOLERANCE = 4e-3
# Epsilons of the trade-off, as shares of the furthest. Beyond 30, nothing is left to be said.
_SHAPE = (0.0, 0.06, 0.12, 0.2, 0.28, 0.36, 0.45, 0.55, 0.65, 0.8, 1.0)
_FURTHEST = 30.0


def detail(steps: Sequence[tuple[Step, int]]) -> float:
    """Which part of the usual number of points is affordable, in (0, 1]."""
    # Equal steps compose in one go, so that only kinds of steps cost time.
    kinds = {step for step, _ in steps}
    return min(1.0, _PLENTY / max(1, len(kinds)))


def spending(snapshot: Snapshot, guarantee: Guarantee) -> tuple[tuple[int, float], ...]:
    """(steps, certified upper bound on epsilon after them) in the order of the ledger, from (0, 0)
    to the claim.

    Epsilon grows with every step, so what bounds a point bounds every point before it as well.
    """
    # Points are spread evenly over the steps that count, with the last step always among them.
    charges = snapshot.counted()
    total = sum(count for _, count in charges)
    number = max(4, math.ceil(_POINTS * detail(charges)))
    stops = sorted({math.ceil(total * i / number) for i in range(1, number + 1)} - {0})

    # From the last point backwards: where one search ended, the next one begins, and no bound may
    # be above that of a later step.
    starts: Starts = {}
    bounds = [guarantee.upper] if stops else []

    for stop in reversed(stops[:-1]):
        costs = normalise(_first(charges, stop), guarantee.adjacency)
        bounds.append(min(bounds[-1], tight_upper(costs, guarantee.delta, _TOLERANCE, starts)))

    return ((0, 0.0), *zip(stops, reversed(bounds), strict=True))


def _first(counted: Sequence[tuple[Step, int]], steps: int) -> Iterator[tuple[Step, int]]:
    """The first so many steps, in the order of the ledger."""
    # What comes after the last of them is left in with a count of 0, which costs nothing.
    for step, count in counted:
        part = min(count, steps)
        steps -= part
        yield step, part


def tradeoff(source: Snapshot | None, guarantee: Guarantee) -> TradeOff:
    """What an attacker can do at most. Without a source (a filter): what the claim alone proves.

    Each point of the profile is a valid limit, so the choice of points decides how near the curve
    is to the best one, never whether it holds. They lie between 0 and the claim, and closer where
    the limit at 1 % is decided.
    """
    if source is None:
        return TradeOff((guarantee.upper,), (guarantee.delta,))

    # With many kinds of steps each point takes long: then few of them must do.
    profile = profile_of(source)
    furthest = min(guarantee.upper, _FURTHEST)
    plenty = detail(source.counted()) < 1.0
    shares = _SHAPE[::3] if plenty else _SHAPE
    profile_points = {furthest * share: profile(furthest * share) for share in shares}

    if plenty:
        return TradeOff(tuple(profile_points), tuple(profile_points.values()))

    # Which point decides the limit at 1 %? Look closer on both sides of it.
    best = min(profile_points, key=lambda epsilon: hit_limit(epsilon, profile_points[epsilon]))
    places = sorted(profile_points)
    place = places.index(best)

    for near in places[max(place - 1, 0) : place] + places[place + 1 : place + 2]:
        for share in (1.0 / 3.0, 2.0 / 3.0):
            between = best + (near - best) * share
            profile_points[between] = profile(between)

    return TradeOff(tuple(profile_points), tuple(profile_points.values()))


def hit_limit(epsilon: float, delta: float) -> float:
    """The hit rate that one point of a profile allows at 1 % false positives.

    Both limits are proved in docs/proofs/tradeoff.md. They are not rounded here.
    """
    # Beyond, e^epsilon overflows and nothing is claimed.
    if epsilon > 700.0:
        return 1.0

    x = FALSE_POSITIVES
    return min(delta + math.exp(epsilon) * x, 1.0 - math.exp(-epsilon) * (1.0 - delta - x))


def unamplified(source: Snapshot, delta: float, guarantee: Guarantee) -> Guarantee | None:
    """The claim if an attacker knew every sample, and the record had been in each; None if samples
    play no part anyway.

    Guarantee: an upper bound for every way of drawing the samples that does not look at the
        records.
    """
    counted = source.counted()
    if not any(count and step.sampling.amplifies(guarantee.adjacency) for step, count in counted):
        return None

    # The samples are known, so each step is one over everything; what else the claim rests on
    # stays as it was.
    steps = [(_known(step, guarantee.adjacency), count) for step, count in counted]
    claim = account(steps, delta=delta, adjacency=guarantee.adjacency, unit=guarantee.unit)
    return replace(
        claim,
        numerics=guarantee.numerics,
        assumptions=guarantee.assumptions,
        voided_by=guarantee.voided_by,
    )


def _known(step: Step, adjacency: Adjacency) -> Step:
    """The step with every record in its sample (of an epoch: in one of its batches)."""
    queries = step.queries
    if step.sampling.displaces(adjacency):
        # One record more may push another one out of a full sample: two contributions change, and
        # the sum moves by at most twice the sensitivity.
        queries = tuple(
            replace(query, sensitivity=2.0 * query.sensitivity)
            if isinstance(query, GaussianSum)
            else query
            for query in queries
        )

    return Step(Everything(), queries)
