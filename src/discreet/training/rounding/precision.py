"""Float32 sums inside the charged sensitivity: records are clipped to a little less, and rounding
has the rest.

An engine that sums in float32 may move its sums further than a record is long. It clips to C_in <=
C such that

    float_sum_sensitivity(clip_norm=C_in) <= C,

so what the ledger was charged with, (C, noise_std), holds as it stands. The sums are cut into
chunks short enough that C_in is within a percent or so of C:

    chunk (r records, t positions)    one float32 sum of r*t products per coordinate
    S such sums                       one float32 sum
    all of them                       the sum, in float64, which is then rounded to the grid

What an engine must do besides is written in docs/proofs/sums.md, section 6; where it does, theorem
5 there holds.

Legend: C clip norm, T positions of a record, kappa the spread, u = 2^-24, L most records of a
    sample.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError
from discreet.mechanisms import Array, Clipping, Group
from discreet.numerics import FloatSum, Grid, float_sum_sensitivity
from discreet.numerics._rational import UNIT, gamma

__all__ = [
    "LARGEST_INPUT",
    "LEAST_WEIGHT",
    "ROW_DRIFT",
    "UP",
    "Chunk",
    "chunk_for",
    "clipped_within",
    "lookup_chunk",
    "most_spread",
    "raised_squares",
    "sum_weights",
]

LARGEST_INPUT = 2.0**60
"""The longest |a_t| and |b_t|. A record with a longer one is left out, as one that is not finite
(docs/proofs/sums.md, section 6).
"""

UP = 1.0 + 2.0**-48
"""Above all roundings of the few float64 operations that it is applied to; zero stays zero."""

ROW_DRIFT = 2.0**-10
"""How far a record's contribution may move in another row of a microbatch, in units of the clip
norm: far above the 1e-7 that another row does to a gradient in float32.
"""

LEAST_WEIGHT = 2.0**-100
"""Smaller weights become zero: near the end of its range float32 rounds them by more than its
roundoff.
"""

_NORM_ERROR = 2.0**-23  # of contributions: a float32 weight, and weighted numbers that underflow
_SINGLE = np.dtype(np.float32)
_CHANGED = 2  # microbatches that differ between neighbours, in random order
_EXCESS = Fraction(1, 100)  # of the clip norm, that one chunk may add to the sensitivity
_MOST_TERMS = 1024  # of a chunk: more make a product no faster
_MOST_JOINED = 1024
_MOST_LOSS = 0.1  # of the clip norm, that all of it together may cost
_LOST = 2.0**-126  # by a weighted number that underflows
_LOST_SHARE = 2.0**-25  # of the clip norm, that all of these together may be


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one float32 sum holds at most: so many records, of each so many positions. Public.

    Args:
        records: consecutive places of the order that are summed together.
        positions: products that a record contributes to one coordinate of one such sum.
        pieces: how many such sums hold a record's products for one coordinate; they are added in
            float64.
        joined: how many consecutive chunks at most are added up in float32, before float64.
    """

    records: int
    positions: int
    pieces: int = 1
    joined: int = 1

    def __post_init__(self) -> None:
        for name in ("records", "positions", "pieces", "joined"):
            object.__setattr__(self, name, check.whole("Chunk", name, getattr(self, name), least=1))


def most_spread(positions: int) -> float:
    """The bound on kappa = sum_t |a_t||b_t| / C that records are held to: 2 sqrt(T), 1 for T = 1.

    Terms that are orthogonal have a spread of at most sqrt(T) times their norm, so only records
    that cancel by more than half are held back (`raised_squares`).

    >>> most_spread(1), most_spread(64)
    (1.0, 16.0)
    """
    count = check.whole("most_spread", "positions", positions, least=1)
    return 1.0 if count == 1 else 2.0 * math.sqrt(count)


def raised_squares(squared_norms: Array, spreads: Array, *, limit: float) -> Array:
    """Squared norms, raised where a record's spread is above `limit` times its norm.

    They are what `Group.weights` gets (step 4 of docs/proofs/sums.md, section 6). With weights
    w <= C/n for these n, both hold: w |v| <= C and w sum_t |a_t||b_t| <= limit * C, over all leaves
    together.

    Args:
        squared_norms: records x leaves, float64, not below the truth; sensitive.
        spreads: sum_t |a_t||b_t| of each, not below the truth; where there is one position, the
            norm. Sensitive.
        limit: see `most_spread`; public.

    >>> raised_squares(np.array([[1.0, 1.0]]), np.array([[8.0, 1.0]]), limit=4.0).round(6).tolist()
    [[4.0, 1.0]]
    """
    bound = check.positive("raised_squares", "limit", limit)
    with np.errstate(all="ignore"):  # infinities and NaN are meant: such a record has weight 0
        share = spreads / bound
        return squared_norms.clip(min=share * share * UP)


def sum_weights(weights: Array, *, scale: float) -> Array:
    """Weights of `Group.weights` as factors of a leaf's vectors, ready to be rounded to float32.

    Args:
        weights: float64, one for each record; sensitive.
        scale: of the leaf in its group; public.

    >>> sum_weights(np.array([1.0, 2.0**-110]), scale=4.0).tolist()
    [0.25, 0.0]
    """
    factors = weights / check.positive("sum_weights", "scale", scale)
    return factors * (factors >= LEAST_WEIGHT)


@lru_cache(1024, typed=True)
def chunk_for(positions: int, spread: float) -> Chunk:
    """The chunk with the most terms, up to 1024, that adds at most 1 % of the clip norm.

    Then the most chunks are joined that stay within that percent:

        (gamma(r t + 2) (4 r - 1) + gamma(S) (1 + gamma(r t + 2)) (4 r S - 1)) kappa <= 0.01

    with gamma(n) = n u / (1 - n u), r and S powers of two (docs/proofs/sums.md, chunks). Positions
    beyond t go into further pieces of about equal length; these are not joined. S chunks of r
    places err far less than one of r S: a number is rounded r t + S times, not r t S times.

    Args:
        positions: T; public.
        spread: kappa, usually `most_spread` of the most positions in the group; not used where T is
            1, which has none. Public.

    >>> chunk_for(1, 1.0)
    Chunk(records=128, positions=1, pieces=1, joined=8)
    >>> chunk_for(128, most_spread(128))
    Chunk(records=2, positions=128, pieces=1, joined=16)
    >>> chunk_for(1024, most_spread(1024))
    Chunk(records=1, positions=512, pieces=2, joined=1)
    """
    count = check.whole("chunk_for", "positions", positions, least=1)
    # Exact fractions: the condition is decided without rounding.
    kappa = Fraction(_checked_spread("chunk_for", spread) if count > 1 else 1)
    best = Chunk(1, 1, count)
    records = 1

    while records <= _MOST_TERMS:
        allowed = _EXCESS / ((2 * _CHANGED * records - 1) * kappa)
        # The most terms n with gamma(n + 2) <= allowed.
        terms = min(int(allowed / (1 + allowed) / UNIT[_SINGLE]) - 2, _MOST_TERMS)
        fit = min(count, terms // records)
        if fit < 1:
            break

        pieces = -(-count // fit)
        chunk = Chunk(records, -(-count // pieces), pieces)
        # Of equal ones the first, which has fewer pieces.
        if chunk.records * chunk.positions > best.records * best.positions:
            best = chunk

        records *= 2

    return replace(best, joined=_joined(best, kappa))


def _joined(chunk: Chunk, kappa: Fraction) -> int:
    # The most chunks, a power of two, that may be added up in float32: what the first term of the
    # condition leaves is for the second.
    within = gamma(chunk.records * chunk.positions + 2, _SINGLE)
    allowed = _EXCESS / kappa - within * (2 * _CHANGED * chunk.records - 1)
    joined = 1

    while chunk.pieces == 1 and joined < _MOST_JOINED:
        places = 2 * _CHANGED * chunk.records * 2 * joined - 1
        if gamma(2 * joined, _SINGLE) * (1 + within) * places > allowed:
            break

        joined *= 2

    return joined


def lookup_chunk(positions: int, size: int, records: int) -> Chunk:
    """How the rows of a table are summed: in float64, in a sum of each pass, then over passes.

    At most size * T are added to one number in a pass; together at most size * T + L additions of
    one number, as many as L * pieces.

    Args:
        positions: T; public.
        size: places of a pass; public.
        records: L; public.

    >>> lookup_chunk(128, 560, 60_000)
    Chunk(records=1, positions=1, pieces=3, joined=1)
    """
    return Chunk(1, 1, 1 + -(-size * positions // records))


def clipped_within(
    group: Group,
    *,
    dimension: int,
    chunks: Collection[Chunk],
    spread: float,
    records: int,
    grid: Grid,
    row_drift: float = ROW_DRIFT,
) -> Group:
    """The inner group: a little less clip norm, so that sums move by at most the group's own.

    Guarantee: an engine that keeps to docs/proofs/sums.md, section 6, and takes weights from the
    inner group, has sums on the grid whose sensitivity is at most group.clip_norm, for samples of
    at most `records` records (theorem 5). So noise, event and scales stay those of `group`.

    Args:
        group: as it is charged; public. One that is not private comes back as it is.
        dimension: coordinates of all its leaves together; public.
        chunks: of all its leaves; leaves with the same chunk.records are cut at the same places,
            and joined alike if they have the same chunk.joined. Public.
        spread: kappa that records are held to, over all leaves together (`raised_squares`); a chunk
            of one position in one piece has spread 1. Public.
        records: most records of a sample: the limit of the policy, or the number of records of the
            data set; public.
        grid: on which the sum is noised; public.
        row_drift: most that a record's contribution changes when it stands in another row of a
            microbatch, in units of the clip norm: a matrix product may round rows in different
            ways. One record of a sample may have to move. Public.

    Raises:
        NumericsError: it would cost more than a tenth of the clip norm, or numbers that float32
            does not hold.

    >>> group = Group(name="g", leaves=("w",), scales=(1.0,), clip_norm=1.0, noise_std=1.0)
    >>> grid = Grid.for_noise(noise_std=1.0, clip_norm=1.0)
    >>> chunks = [chunk_for(1, 1.0)]
    >>> inner = clipped_within(
    ...     group, dimension=10**6, chunks=chunks, spread=1.0, records=60_000, grid=grid
    ... )
    >>> round(inner.clip_norm, 4), inner.noise_std
    (0.993, 1.0)
    """
    if not check.instance("clipped_within", "group", group, Group).private:
        return group

    # The engine sums records, not averages of slots.
    if group.slots is not None:
        expected = "without slots: averages of slots are clipped, and summed exactly"
        raise ParameterError(
            owner="clipped_within", name="group", expected=expected, got=f"{group.slots} slots"
        )

    parts = _parts(chunks, dimension, _checked_spread("clipped_within", spread), records)
    error = _NORM_ERROR + check.fraction("clipped_within", "row_drift", row_drift, zero=True)

    def sensitivity(clip_norm: float) -> float:
        return float_sum_sensitivity(
            *parts, clip_norm=clip_norm, grid=grid, norm_error=math.nextafter(error, 1.0)
        )

    # Step (iv) of the proof: the bound is a c + b with a >= 1, so taking off the whole excess is
    # enough at once.
    moved = sensitivity(group.clip_norm)
    inner = group.clip_norm - (moved - group.clip_norm)
    if not inner >= group.clip_norm * (1.0 - _MOST_LOSS):
        raise NumericsError(
            expected=(
                f"float32 sums that cost at most {_MOST_LOSS:.0%} of the clip norm "
                f"{group.clip_norm!r} of {group.name!r}"
            ),
            got=(
                f"{moved / group.clip_norm - 1.0:.1%}, for samples of up to {records} records and "
                f"{dimension} coordinates"
            ),
            do=(
                "Sample with TruncatedPoisson, whose limit is small, sum in smaller chunks, or "
                "declare numerics idealised."
            ),
        )

    # The bound itself is rounded up: a few steps of float64 may be missing.
    while sensitivity(inner) > group.clip_norm:
        inner = math.nextafter(inner, 0.0)

    _refuse_small(group, inner, dimension, max(part.terms * part.pieces for part in parts))

    return replace(group, clip_norm=inner)


def _parts(
    chunks: Collection[Chunk], dimension: int, spread: float, records: int
) -> list[FloatSum]:
    """One part for each way to cut and join.

    Where it is the same, neighbours differ in the same chunks of all leaves.
    """
    if not chunks:
        raise ParameterError(
            owner="clipped_within", name="chunks", expected="at least one", got="none"
        )

    checked = [check.instance("clipped_within", "chunks", chunk, Chunk) for chunk in chunks]

    # A neighbour may have one more.
    most_records = check.whole("clipped_within", "records", records, least=1) + 1
    parts: list[FloatSum] = []

    for size, joined in sorted({(chunk.records, chunk.joined) for chunk in checked}):
        # Leaves that are cut and joined alike: the longest of them counts for all.
        alike = [chunk for chunk in checked if (chunk.records, chunk.joined) == (size, joined)]
        terms = max(chunk.positions for chunk in alike)
        pieces = max(chunk.pieces for chunk in alike)
        parts.append(
            FloatSum(
                records=most_records,
                microbatch=min(size, most_records),
                dtype=_SINGLE,
                # In the first part only: what follows from it depends on the sum over parts.
                dimension=0 if parts else dimension,
                terms=terms,
                pieces=pieces,
                joined=joined,
                # A record of one product has no terms that could cancel.
                spread=1.0 if terms * pieces == 1 else spread,
                changed_microbatches=_CHANGED,
            )
        )

    return parts


def _refuse_small(group: Group, clip_norm: float, dimension: int, positions: int) -> None:
    # Weights and weighted vectors must stay within the range of float32: step (ii) of the proof.
    least = positions * math.sqrt(dimension) * LARGEST_INPUT * _LOST / _LOST_SHARE
    heaviest = 1.0 if group.clipping is Clipping.CLIP else clip_norm / group.stability
    largest = max(heaviest / min(group.scales), *group.scales)
    if not (clip_norm >= least and largest <= LARGEST_INPUT):
        raise NumericsError(
            expected=(
                f"a clip norm of at least {least:.3g}, scales and weights within a factor of 2^60 "
                "of 1, as float32 needs"
            ),
            got=(
                f"clip norm {clip_norm!r}, scales from {min(group.scales)!r} to "
                f"{max(group.scales)!r}"
            ),
            do="Rescale the records, or the loss.",
        )


def _checked_spread(owner: str, spread: float) -> float:
    number = check.positive(owner, "spread", spread)
    if number < 1.0:
        expected = "at least 1: the sum of |a_t||b_t| is never below the norm"
        raise ParameterError(owner=owner, name="spread", expected=expected, got=repr(spread))

    return number
