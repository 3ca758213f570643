"""Floating-point sums with a proven sensitivity: what rounding adds to it.

    Delta = C' + (gamma * N + gamma_64 * (2L - 1)) * kappa * C' + L * rho * C'
               + underflow + g * sqrt(d),                                       C' = C * (1 + eta)

(and gamma(S) * N_S more where the sums of S microbatches are joined before they go to float64).

C clip norm, eta how far it may be exceeded, L most records in a sample, g spacing of the grid, d
dimension, gamma the relative error of one coordinate of a microbatch and gamma_64 that of the
float64 sum over microbatches, kappa and rho the spread and drift of `FloatSum`. N counts the
records of both neighbours whose sums may differ: 2L - 1, or 2mk - 1 if at most k microbatches of m
records do. Proof: docs/proofs/sums.md, section 3, theorems 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import DTypeLike

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError
from discreet.numerics._rational import binary, gamma, root_up, tiny, up
from discreet.numerics.grid import Grid

__all__ = ["FloatSum", "float_sum_sensitivity"]

_WIDE = np.dtype(np.float64)

# Roundings of a term beside those of a sum of products, such as by its weight and its scale.
_EXTRA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatSum:
    """How a sum is computed: microbatches of records in `dtype`, then these in float64.

    In any order.

    | case | what happens |
    |---|---|
    | no records, or a microbatch of none | `ParameterError`: at least 1 |
    | a microbatch of more than all records | `ParameterError` |
    | dimension 0 | allowed: nothing to round |
    | spread below 1, NaN or infinite; drift below 0 or above 1 | `ParameterError` |
    | float16, bfloat16 | `ParameterError`: 2^8 roundings lose everything |

    Args:
        records: most records in a sample, or the limit whose overflow is charged to delta
            (`overflow_probability`); public.
        microbatch: most records of one sum in `dtype`; equal to `records` if everything is summed
            in `dtype`; public.
        dtype: float32 or float64; public.
        dimension: coordinates of all leaves of the group together; public.
        terms: products that a record contributes to one coordinate of one sum in `dtype`, such as
            the length of a sequence; public.
        pieces: into how many sums in `dtype`, added in float64, a microbatch is split by its terms;
            public.
        joined: how many sums of consecutive microbatches are added up in `dtype`, before float64,
            by a rule that does not depend on the sample; public.
        spread: bound on sum_t |a_t||b_t| of a weighted record in units of clip_norm; 1 where terms
            is 1 (sums.md, section 4).
        drift: most that one record's own contribution may change, in units of clip_norm, when other
            records come or go. Zero if its bits depend on nothing but the record.
        changed_microbatches: in how many microbatches at most the neighbours differ, where a
            microbatch with the same contents has the same sum, bit for bit. None: in all. 1: a
            record's coming or going leaves every other record in its microbatch and place. 2: the
            records stand in a uniformly random order, drawn for this sample alone, and the places
            are cut by a rule that does not depend on the sample (`Session.order`).

    >>> how = FloatSum(records=1024, microbatch=32, dtype="float32", dimension=10**6)
    >>> how.relative_error < 2.1e-6
    True
    """

    records: int
    microbatch: int
    dtype: DTypeLike
    dimension: int
    terms: int = 1
    pieces: int = 1
    joined: int = 1
    spread: float = 1.0
    drift: float = 0.0
    changed_microbatches: int | None = None

    def __post_init__(self) -> None:
        owner = "FloatSum"
        kind = binary(owner, self.dtype)

        # Checked values take the place of what came in, such as an int for NumPy's.
        for name in ("records", "microbatch", "terms", "pieces", "joined"):
            object.__setattr__(self, name, check.whole(owner, name, getattr(self, name), least=1))

        if self.microbatch > self.records:
            raise ParameterError(
                owner=owner,
                name="microbatch",
                expected=f"at most records={self.records}",
                got=str(self.microbatch),
            )

        spread = check.positive(owner, "spread", self.spread)
        if spread < 1.0:
            raise ParameterError(
                owner=owner,
                name="spread",
                expected="at least 1: the sum of |a_t||b_t| is never below the norm",
                got=repr(self.spread),
            )

        object.__setattr__(self, "dtype", kind)
        object.__setattr__(
            self, "dimension", check.whole(owner, "dimension", self.dimension, least=0)
        )
        object.__setattr__(self, "spread", spread)
        object.__setattr__(
            self, "drift", check.fraction(owner, "drift", self.drift, zero=True, one=True)
        )
        if self.changed_microbatches is not None:
            changed = check.whole(owner, "changed_microbatches", self.changed_microbatches, least=1)
            object.__setattr__(self, "changed_microbatches", changed)

    @property
    def relative_error(self) -> float:
        """The error of one coordinate, relative to the sizes of its terms; rounded up."""
        return up((1 + self._within()) * (1 + self._joining()) * (1 + self._across()) - 1)

    def _within(self) -> Fraction:
        return gamma(self.microbatch * self.terms + _EXTRA, binary("FloatSum", self.dtype))

    def _joining(self) -> Fraction:
        return (
            gamma(self.joined, binary("FloatSum", self.dtype)) if self.joined > 1 else Fraction(0)
        )

    def _across(self) -> Fraction:
        # There are no more microbatches than records.
        return gamma(self.records * self.pieces, _WIDE)

    def _excess(self) -> Fraction:
        """What rounding adds to the difference of two neighbours, in units of a contribution."""
        within, joining, across = self._within(), self._joining(), self._across()

        # Each kind of sum rounds what the one before it made of the terms, hence the products.
        # G N and G_S (1 + G) N_S of sums.md, section 3: only sums that differ count here.
        rounding = within * self._differing(1)
        rounding += joining * (1 + within) * self._differing(self.joined)

        # H (2L - 1): the float64 sum is over all records of both neighbours.
        rounding += across * (1 + within) * (1 + joining) * (2 * self.records - 1)
        return rounding * Fraction(self.spread) + self.records * Fraction(self.drift)

    def _differing(self, microbatches: int) -> int:
        """Count the records of both neighbours in sums of so many microbatches that may differ."""
        # One of the neighbours lacks the record that differs.
        if self.changed_microbatches is None:
            return 2 * self.records - 1

        places = self.microbatch * microbatches * self.changed_microbatches
        return 2 * min(self.records, places) - 1


def float_sum_sensitivity(
    how: FloatSum, *further: FloatSum, clip_norm: float, grid: Grid, norm_error: float = 2.0**-23
) -> float:
    """Bound how far one record moves the sum after it was rounded to the grid; rounded up.

    Guarantee: for any two samples of at most `how.records` records that differ by one (added,
    removed or zeroed out), whose contributions have norm at most clip_norm * (1 + norm_error), the
    sums computed as `how` says and rounded by `grid.integers` differ by at most this in L2 norm.
    Replace-one: at most twice this.

    | case | result |
    |---|---|
    | one record, float64, an exact norm (norm_error 0) | little more than clip_norm + g sqrt(d) |
    | dimension 0 | no underflow, no grid: the clip norm and its rounding |
    | clip_norm 0, infinite or NaN; norm_error below 0 or NaN | `ParameterError` |
    | a clip norm whose sums may overflow `dtype`, or a bound above 1.8e308 | `NumericsError` |

    Args:
        how: the way in which the leaves are summed, or the first part of them; public.
        further: how further leaves of the same group are summed, each part with its own leaves and
            so its own dimension. Their errors stand at right angles, but do not merge into the
            worst one: neighbours may differ in other records' sums in each part. Public.
        clip_norm: bound that the weights were computed for, over all leaves together; public.
        grid: to which the float64 sum is rounded, once; public.
        norm_error: how far contributions may exceed clip_norm, relative; the default covers weights
            from certified norms that were rounded to float32, and the product of weight and vector
            if that is rounded before the sum.

    >>> how = FloatSum(records=1024, microbatch=32, dtype="float32", dimension=10**6)
    >>> round(float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-24)), 4)
    1.0042
    """
    owner = "float_sum_sensitivity"
    parts = (how, *further)

    for part in parts:
        check.instance(owner, "how", part, FloatSum)
        if part.records != how.records:
            raise ParameterError(
                owner=owner,
                name="further",
                expected=f"of the same sample, with records={how.records}",
                got=str(part.records),
            )

    check.instance(owner, "grid", grid, Grid)
    clip = Fraction(check.positive(owner, "clip_norm", clip_norm))
    slack = Fraction(check.real(owner, "norm_error", norm_error))
    if slack < 0:
        raise ParameterError(
            owner=owner, name="norm_error", expected="at least 0", got=repr(norm_error)
        )

    # C' of the formula above.
    contribution = clip * (1 + slack)
    for part in parts:
        _refuse_overflow(part, contribution, binary(owner, part.dtype))

    # At most so much in every coordinate, by the root of their number in norm.
    coordinate = max(map(_underflow, parts)) + Fraction(grid.spacing)
    side = root_up(sum(part.dimension for part in parts))
    excess = _length([part._excess() for part in parts])  # noqa: SLF001
    value = up(contribution * (1 + excess) + coordinate * side)
    if not math.isfinite(value):
        raise NumericsError(
            expected="a sensitivity that is a float64",
            got="one beyond its range",
            do="Rescale the records.",
        )

    return value


def _length(sizes: list[Fraction]) -> Fraction:
    """Round the root of the sum of squares up; exact for one size."""
    if len(sizes) == 1:
        return sizes[0]

    # Times 2^128, whose root is 2^64: a whole number, rounded up, with many digits.
    square = sum((size * size for size in sizes), Fraction(0)) * 2**128
    return root_up(math.ceil(square)) / 2**64


def _underflow(how: FloatSum) -> Fraction:
    """Bound what one coordinate loses to underflow, in both neighbours.

    At most three operations per term, four where sums are joined, doubled by later roundings.
    """
    per_term = 6 if how.joined == 1 else 8
    terms = how.records * how.terms * how.pieces
    return 2 * per_term * terms * tiny(binary("FloatSum", how.dtype))


def _refuse_overflow(how: FloatSum, contribution: Fraction, kind: np.dtype[np.floating]) -> None:
    largest = Fraction(float(np.finfo(kind).max))
    if 2 * how.microbatch * how.joined * Fraction(how.spread) * contribution > largest:
        raise NumericsError(
            expected=f"a sum of {how.microbatch} clipped records that fits into {kind}",
            got=f"a clip norm of {up(contribution)!r}",
            do="Rescale the records.",
        )
