"""Exact sums: every record becomes integers of the grid, whose norm is checked.

There is no rounding in the sensitivity:

    k = trunc(v * weight / (scale * spacing)),    K = floor(clip_norm / spacing),
    a record counts if the sum of k^2 over all its leaves is at most K^2

A record that fails the check contributes zeros: one with NaN or infinities, one whose weight was
too large, one whose norm was wrong. The clip is the caller's business; the check is what the
guarantee rests on (docs/proofs/sums.md, section 2).

Shapes: B records, D columns of a leaf.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError
from discreet.numerics import _compiled
from discreet.numerics._rational import up
from discreet.numerics.grid import Grid
from discreet.numerics.norms import Records, as_rows

__all__ = ["ExactSum", "quantise"]

_FloatArray: TypeAlias = NDArray[np.float64]

# Grid units; the sum stays below, so that noise still fits into 53 bits.
_HEADROOM = 2**52

# Relative; more than all roundings between a certified norm and the integers: "honest records
# pass" (sums.md, section 2).
_SLACK = Fraction(1, 2**46)

# Numbers at a time, which stay in the cache; columns at a time.
_CHUNK = 2**16
_WIDTH = 2**14


@final
class ExactSum:
    """The sum of clipped records of one group, in integers of the grid.

    Guarantee: adding, removing or zeroing out one record changes `integers()` times the spacing,
    over all leaves together, by at most `sensitivity` in L2 norm; replacing one by at most twice
    that. No clipping code is trusted. What is assumed: a record's numbers and weight are a function
    of that record alone, bit for bit. The sum does not depend on the order of the records, on how
    they were split into calls, or on how partial sums were merged.

    | record, or batch | what it adds |
    |---|---|
    | NaN or an infinity in any leaf, or as its weight | zeros, in all leaves |
    | joint norm above the clip norm, by whatever mistake | zeros, in all leaves |
    | numbers below one spacing | zeros: integers are cut towards 0 |
    | no records, or a leaf without columns | nothing |
    | more records than fit below 2^52 spacings | `NumericsError`; nothing is added |

    Args:
        dimensions: number of coordinates of each leaf of the group, by name; public.
        clip_norm: bound on one record's norm over all leaves, each divided by its scale; public.
        grid: at most 2^26 spacings per clip_norm; public.
        scales: what each leaf is divided by; 1 where not named; public. The integers are those of
            the divided leaves.

    >>> total = ExactSum({"weight": 2, "bias": 1}, clip_norm=1.0, grid=Grid(2.0**-20))
    >>> weight = np.array([[3.0, 0.0], [np.nan, 1.0]])  # the second record is dropped: it holds NaN
    >>> total.add({"weight": weight, "bias": np.array([[4.0], [1.0]])}, np.array([0.2, 1.0]))
    >>> integers = total.integers()
    >>> [(integers[leaf] * 2.0**-20).round(5).tolist() for leaf in ("weight", "bias")]
    [[0.6, 0.0], [0.8]]
    """

    __slots__ = (
        "_dimensions",
        "_factors",
        "_largest_count",
        "_radius",
        "_records",
        "_scales",
        "_sums",
        "_turn",
        "clip_norm",
        "grid",
    )

    def __init__(
        self,
        dimensions: Mapping[str, int],
        *,
        clip_norm: float,
        grid: Grid,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        owner = "ExactSum"
        named = {
            check.label(owner, "dimensions", name): check.whole(owner, "dimensions", d, least=0)
            for name, d in dimensions.items()
        }
        if not named or not set(scales or {}) <= set(named):
            raise ParameterError(
                owner=owner,
                name="dimensions",
                expected="at least one leaf, and all that have a scale",
                got=f"{sorted(named)} and scales for {sorted(scales or {})}",
            )

        self._dimensions = named
        self._scales = {
            name: check.positive(owner, "scales", (scales or {}).get(name, 1.0)) for name in named
        }
        self.clip_norm = check.positive(owner, "clip_norm", clip_norm)
        self.grid = check.instance(owner, "grid", grid, Grid)
        self._radius = self.grid.radius(self.clip_norm)

        # So many records of at most `radius` units each stay below the headroom.
        self._largest_count = (_HEADROOM - 1) // self._radius
        self._factors = {
            name: _factor(self.clip_norm, self.grid, self._radius, scale)
            for name, scale in self._scales.items()
        }
        self._sums = {name: np.zeros(d) for name, d in named.items()}
        self._records = 0

        # Empty while a call is under way, and for ever if it is broken off; taken in one step by
        # pop(), so that two threads cannot both have it.
        self._turn = [None]

    @property
    def dimensions(self) -> Mapping[str, int]:
        """The number of coordinates of each leaf."""
        return MappingProxyType(self._dimensions)

    @property
    def scales(self) -> Mapping[str, float]:
        """What each leaf is divided by; multiply the release by it."""
        return MappingProxyType(self._scales)

    @property
    def sensitivity(self) -> float:
        """The most that one record moves the sum, in the unit of the (divided) leaves."""
        return self.clip_norm

    def add(self, leaves: Mapping[str, Records], weights: NDArray[np.floating]) -> None:
        """Add a batch of records. What is added is what was checked.

        If a record fails, all are read once more, and must be as they were.

        Args:
            leaves: by name, (B, ...); sensitive.
            weights: what each record is multiplied by, (B,); sensitive.

        Raises:
            NumericsError: more records than stay exact; nothing was added. Or the arrays changed
                meanwhile.
        """
        self._refuse_torn()
        rows, weight = _checked("ExactSum.add", self._dimensions, leaves, weights)

        self._count(len(weight))

        # All that can be refused is refused by now: from here on a failure leaves the sum torn.
        self._begin()
        sums, passed = self._with(rows, weight, None)

        # Rare: once more from the sums as they were, without the records that fail.
        if not passed.all():
            sums, passed_again = self._with(rows, weight, np.flatnonzero(passed))
            if not passed_again.all():
                raise NumericsError(
                    expected="arrays that nobody changes while they are added",
                    got="others than a moment ago",
                    do="Copy arrays that other threads or devices write to.",
                )

        self._sums = sums
        self._end()

    def _with(
        self, rows: Mapping[str, Records], weight: _FloatArray, chosen: NDArray[np.intp] | None
    ) -> tuple[dict[str, _FloatArray], NDArray[np.bool_]]:
        """Compute the sums with the chosen records (None: all), and which of these pass the check.

        The sums are of use only if all pass.
        """
        sums = {name: total.copy() for name, total in self._sums.items()}
        squares = [
            _add_units(leaf, weight, self._factors[name], chosen, sums[name])
            for name, leaf in rows.items()
        ]
        return sums, _within(squares, self._radius)

    def merge(self, partial: ExactSum) -> None:
        """Take over a partial sum of the same group, such as another worker's; it is empty then.

        What was merged is not there to count twice. A copy that was made before is the caller's
        business.
        """
        attributes = ("_dimensions", "_scales", "clip_norm", "grid")
        alike = isinstance(partial, ExactSum) and all(
            getattr(self, name) == getattr(partial, name) for name in attributes
        )
        if not alike or partial is self:
            raise ParameterError(
                owner="ExactSum.merge",
                name="partial",
                expected="another sum with the same leaves, scales, clip norm and grid",
                got="itself" if partial is self else "a different one",
            )

        self._refuse_torn()
        partial._refuse_torn()
        self._count(partial._records)
        partial._begin()
        self._begin()

        # An interruption in here leaves both of them torn: neither can be read again.
        for name in self._sums:
            self._sums[name] += partial._sums[name]
            partial._sums[name][:] = 0.0

        partial._records = 0
        self._end()
        partial._end()

    def integers(self) -> dict[str, _FloatArray]:
        """Copy the sum of each leaf, whole numbers in float64 (D,); sensitive until noised."""
        self._refuse_torn()
        return {name: total.copy() for name, total in self._sums.items()}

    def _refuse_torn(self) -> None:
        if not self._turn:
            raise _torn()

    def _begin(self) -> None:
        try:
            self._turn.pop()
        except IndexError:
            raise _torn() from None

    def _end(self) -> None:
        self._turn.append(None)

    def _count(self, records: int) -> None:
        # The number of records is sensitive: the message says "more", and not how many.
        if self._records + records > self._largest_count:
            raise NumericsError(
                expected=(
                    f"at most {self._largest_count} records at {self._radius} grid units each, "
                    "which add up to less than 2^52"
                ),
                got="more",
                do="Use a coarser grid.",
            )

        self._records += records


def _torn() -> NumericsError:
    return NumericsError(
        expected="a sum of whole records",
        got="one whose last addition was broken off, or is under way on another thread",
        do=(
            "Throw it away: adding the batch again would count some records twice. Give each "
            "thread a sum of its own."
        ),
    )


def quantise(
    leaves: Mapping[str, Records], weights: NDArray[np.floating], *, clip_norm: float, grid: Grid
) -> dict[str, _FloatArray]:
    """Compute each record's integers, as `ExactSum` adds them.

    Their joint norm is at most clip_norm / spacing, or they are zero; edge cases are those of
    `ExactSum`.

    >>> leaves = {"a": np.array([[3.0, 4.0], [30.0, 40.0]])}
    >>> quantise(leaves, np.array([0.2, 0.2]), clip_norm=1.0, grid=Grid(2.0**-4))
    {'a': array([[ 9., 12.],
           [ 0.,  0.]])}
    """
    radius = grid.radius(clip_norm)
    dimensions = {name: math.prod(np.shape(leaf)[1:]) for name, leaf in leaves.items()}
    rows, weight = _checked("quantise", dimensions, leaves, weights)
    factor = _factor(clip_norm, grid, radius, 1.0)
    units = {name: _units(leaf, weight, factor) for name, leaf in rows.items()}
    passed = _within([_squares(integers) for integers in units.values()], radius)[:, np.newaxis]

    # -0.0 + 0.0 is 0.0: integers have no signed zero.
    return {name: np.where(passed, integers + 0.0, 0.0) for name, integers in units.items()}


@lru_cache(64)
def _factor(clip_norm: float, grid: Grid, radius: int, scale: float) -> float:
    """Compute what a weight is multiplied by: 1 / (scale * spacing), lowered a little.

    Lowered so that a record that is clipped to clip_norm passes the check.
    """
    # f = K / (C scale) (1 - 2^-46) of sums.md, section 2, rounded down.
    exact = Fraction(radius) / Fraction(clip_norm) / Fraction(scale) * (1 - _SLACK)
    factor = -up(-exact)
    if not 0.0 < factor < math.inf or Fraction(grid.spacing) * radius > Fraction(clip_norm):
        raise ParameterError(
            owner="ExactSum",
            name="scales",
            expected=(
                f"such that 1 / (scale * spacing), with spacing {grid.spacing!r}, is a float64"
            ),
            got=repr(scale),
        )

    return factor


def _checked(
    owner: str,
    dimensions: Mapping[str, int],
    leaves: Mapping[str, Records],
    weights: NDArray[np.floating],
) -> tuple[dict[str, Records], _FloatArray]:
    weight = as_rows(owner, "weights", weights)
    if set(leaves) != set(dimensions):
        raise ParameterError(
            owner=owner,
            name="leaves",
            expected=f"exactly the leaves {sorted(dimensions)}",
            got=str(sorted(leaves)),
        )

    rows = {name: as_rows(owner, f"leaves[{name!r}]", leaves[name]) for name in dimensions}

    for name, leaf in rows.items():
        if leaf.shape != (len(weight), dimensions[name]) or weight.shape[1] != 1:
            # B itself is sensitive, and must not be told.
            count = "one" if leaf.shape[0] == len(weight) else "not one"
            raise ParameterError(
                owner=owner,
                name=f"leaves[{name!r}]",
                expected=f"of shape (B, {dimensions[name]}), with weights of shape (B,)",
                got=(
                    f"{leaf.shape[1]} numbers per record, and {count} row of {weight.shape[1]} "
                    "weights for each"
                ),
            )

    return rows, weight[:, 0].astype(np.float64)


def _within(squares: Sequence[_FloatArray], radius: int) -> NDArray[np.bool_]:
    """Tell which records have integers of joint norm at most the radius, exactly.

    A float64 sum of whole numbers is exact while it is below 2^53, and once it is not it never
    comes back below: so a computed sum of at most radius^2 <= 2^52 is the true one, in any order.
    NaN and infinity compare as false.
    """
    with np.errstate(all="ignore"):
        return np.asarray(sum(squares) <= float(radius * radius))


def _add_units(
    leaf_BD: Records,
    weight_B: _FloatArray,
    factor: float,
    chosen: NDArray[np.intp] | None,
    total_D: _FloatArray,
) -> _FloatArray:
    """Add the integers of the chosen rows (None: all) to the total.

    Returns the sums of squares of each row's integers (B,), 0 for rows that were not chosen.
    """
    squares_B = np.zeros(len(weight_B))
    with np.errstate(all="ignore"):
        if _compiled.worth_it(leaf_BD):
            rows = np.arange(len(weight_B)) if chosen is None else chosen
            _compiled.add_units(leaf_BD, weight_B * factor, rows, total_D, squares_B)
            return squares_B

        # The same integers, piece by piece; a slice of rows is a view, a list of them a copy.
        count = len(weight_B if chosen is None else chosen)

        for part, columns in _pieces(count, leaf_BD.shape[1]):
            batch = part if chosen is None else chosen[part]
            units = _units(leaf_BD[batch, columns], weight_B[batch], factor)
            total_D[columns] += units.sum(axis=0)
            squares_B[batch] += _squares(units)

    return squares_B


def _units(leaf: Records, weight: _FloatArray, factor: float) -> _FloatArray:
    """Compute integers elementwise, so that every one depends on its own record only."""
    with np.errstate(all="ignore"):
        units = np.multiply(leaf, (weight * factor)[:, np.newaxis], dtype=np.float64)
        return np.trunc(units, out=units)


def _squares(units: _FloatArray) -> _FloatArray:
    """Add up the squares of each record, in any order: `_within` says why that is exact."""
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum("bd,bd->b", units, units))


def _pieces(count: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Cut rows and columns into pieces that fit into the cache, whatever the size of the whole."""
    height = max(1, _CHUNK // max(1, min(columns, _WIDTH)))

    for row in range(0, count, height):
        for column in range(0, columns, _WIDTH):
            yield (
                slice(row, min(row + height, count)),
                slice(column, min(column + _WIDTH, columns)),
            )
