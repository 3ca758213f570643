"""Statistics as records and decoders: a value becomes a vector of bounded norm, and a released sum
becomes an estimate.

    values -> encode: one row per record -> (an engine clips, sums, adds noise) -> decode:
    post-processing

`encode` sees data and is sensitive. It never raises for what a value is: an exception that depends
on one record would be a release. Every record is read by itself, so that no value changes how
another is read. A record that is not the right number of numbers is not a number, has weight 0 and
contributes nothing. `decode` sees released sums only. Give the group
`clip_norm=statistic.clip_norm`, so that no valid record is clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["BatchNorm", "Count", "Histogram", "MomentEstimate", "Moments"]

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Count:
    """How many records: each contributes 1.

    >>> Count().encode([3.5, 1.0]).tolist(), Count().decode([1.75])
    ([[1.0], [1.0]], 1.75)
    """

    @property
    def dimension(self) -> int:
        """How many numbers a row has."""
        return 1

    @property
    def clip_norm(self) -> float:
        """Largest norm of a row."""
        return 1.0

    def encode(self, values: ArrayLike) -> NDArray[np.float64]:
        """A row of 1 for each record along the first axis."""
        # A list is counted as it is: records that differ in length make no array.
        return np.ones((len(values if isinstance(values, list | tuple) else np.asarray(values)), 1))

    def decode(self, released: ArrayLike) -> float:
        """The noised count; it may be negative or broken."""
        return float(_sums("Count", released, 1)[0])


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many records of each category: each contributes 1 to one of them, so that all bins
    together cost as much as one.

    Args:
        categories: their number; public.

    >>> Histogram(3).encode([2, 0, 7]).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    categories: int

    def __post_init__(self) -> None:
        _set(self, "categories", check.whole("Histogram", "categories", self.categories, least=1))

    @property
    def dimension(self) -> int:
        """How many numbers a row has."""
        return self.categories

    @property
    def clip_norm(self) -> float:
        """Largest norm of a row."""
        return 1.0

    def encode(self, values: ArrayLike) -> NDArray[np.float64]:
        """One row per record, values 0 ... categories - 1; any other value counts nowhere."""
        # NaN equals no category, nor does 1.5: such a record is a row of zeros.
        return np.asarray(
            _numbers("Histogram", values, 1) == np.arange(self.categories), np.float64
        )

    def decode(self, released: ArrayLike) -> NDArray[np.float64]:
        """The noised counts; they may be negative or broken."""
        return _sums("Histogram", released, self.categories)


@dataclass(frozen=True, slots=True)
class MomentEstimate:
    """What `Moments.decode` gives: a count, and for each coordinate mean and variance."""

    count: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, means and variances of values in [low, high], by one query.

    With y = (x - centre)/radius in [-1, 1] for each of d coordinates, a row is (1, y_1 ... y_d,
    y_1^2 - 1/2 ... y_d^2 - 1/2). As y^2 + (y^2 - 1/2)^2 = y^4 + 1/4 <= 5/4, its norm is at most
    sqrt(1 + 5d/4).

    Args:
        low: values below are raised to it; public, chosen without looking at the data.
        high: values above are lowered to it; public.
        coordinates: d, numbers per record.

    >>> moments = Moments(low=0.0, high=10.0)
    >>> exact = moments.decode(moments.encode([[4.0], [6.0], [8.0]]).sum(0))
    >>> round(exact.count, 6), exact.mean.round(6).tolist(), exact.variance.round(6).tolist()
    (3.0, [6.0], [2.666667])
    """

    low: float
    high: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _set(self, "low", check.real("Moments", "low", self.low))
        _set(self, "high", check.real("Moments", "high", self.high))

        # The width of two finite numbers may be infinite.
        if not 0.0 < self._radius < math.inf:
            raise ParameterError(
                owner="Moments",
                name="high",
                expected=f"above low={self.low!r}",
                got=repr(self.high),
            )

        _set(self, "coordinates", check.whole("Moments", "coordinates", self.coordinates, least=1))

    @property
    def dimension(self) -> int:
        """How many numbers a row has."""
        return 1 + 2 * self.coordinates

    @property
    def clip_norm(self) -> float:
        """Largest norm of a row."""
        return math.sqrt(1.0 + 1.25 * self.coordinates)

    def encode(self, values: ArrayLike) -> NDArray[np.float64]:
        """One row per record, from records x coordinates."""
        rows = _numbers("Moments", values, self.coordinates)

        # Clipped last, so that rounding cannot lead outside; what overflows is brought back, too.
        with np.errstate(all="ignore"):
            unit = np.clip((rows - self._centre) / self._radius, -1.0, 1.0)

        # The count is made of the values: a record that is NaN is NaN there as well, and left out.
        return np.concatenate([unit[:, :1] * 0.0 + 1.0, unit, unit**2 - 0.5], axis=1)

    def decode(self, released: ArrayLike) -> MomentEstimate:
        """Estimates inside their possible ranges; the noised count is taken as at least 1."""
        sums = _sums("Moments", released, self.dimension)
        count, first, second = (
            max(float(sums[0]), 1.0),
            sums[1 : 1 + self.coordinates],
            sums[1 + self.coordinates :],
        )

        # Noise may lead out of what is possible: |y| <= 1, and a variance in [0, 1] for it.
        mean = np.clip(first / count, -1.0, 1.0)
        variance = np.clip(second / count + 0.5 - mean**2, 0.0, 1.0)
        return MomentEstimate(
            float(sums[0]), self._centre + self._radius * mean, self._radius**2 * variance
        )

    @property
    def _centre(self) -> float:
        return self.low + (self.high - self.low) / 2.0

    @property
    def _radius(self) -> float:
        return (self.high - self.low) / 2.0


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Mean and variance of each channel of a layer, for batch normalisation with private
    statistics.

    Rows tell how far a record is from the statistics that are already public, mean mu and variance
    v of each of C channels: with y = (x - mu)/sqrt(v), and averages over the record's own
    positions, a row is

        (avg y_1 ... avg y_C, avg y_1^2 - 1 ... avg y_C^2 - 1) / sqrt(2C).

    So a norm of about 1 means: one standard deviation off in every channel; and a sum of zero
    means: as before. What clipping takes away, and a sample smaller than expected, make the
    statistics move more slowly, not towards zero. Activations have no bound of their own, so the
    group's clip_norm is a choice. [Ponomareva2023, section 5.5.1 (b)]

    Args:
        channels: C; public.
        floor: least variance that is stated; public.

    >>> norm = BatchNorm(channels=1)
    >>> sums = norm.encode([[[1.0, 3.0]], [[2.0, 2.0]]]).sum(0)
    >>> mean, variance = norm.decode(sums, expected_batch_size=2)
    >>> mean.round(9).tolist(), variance.round(9).tolist()
    ([2.0], [0.5])
    """

    channels: int
    floor: float = 1e-5

    def __post_init__(self) -> None:
        _set(self, "channels", check.whole("BatchNorm", "channels", self.channels, least=1))
        _set(self, "floor", check.positive("BatchNorm", "floor", self.floor))

    @property
    def dimension(self) -> int:
        """How many numbers a row has."""
        return 2 * self.channels

    def encode(
        self, activations: ArrayLike, *, mean: ArrayLike = 0.0, variance: ArrayLike = 1.0
    ) -> NDArray[np.float64]:
        """One row per record, from records x channels x positions (any number of axes of positions,
        or none).

        Args:
            activations: sensitive.
            mean: of each channel, which rows are relative to; public.
            variance: of each channel; public.
        """
        # Contiguous, so that the order in which a record's positions are added up does not depend
        # on how the batch lies in memory.
        values = np.asarray(activations, np.float64)
        values = np.ascontiguousarray(
            values.reshape(len(values), self.channels, math.prod(values.shape[2:]))
        )

        centre, scale = (column[:, np.newaxis] for column in self._reference(mean, variance))
        with np.errstate(all="ignore"):  # what overflows is not finite and contributes nothing
            unit = (values - centre) / scale
            return np.concatenate([unit.mean(-1), (unit**2).mean(-1) - 1.0], axis=1) / math.sqrt(
                self.dimension
            )

    def decode(
        self,
        released: ArrayLike,
        *,
        expected_batch_size: float,
        mean: ArrayLike = 0.0,
        variance: ArrayLike = 1.0,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of each channel. The divisor is public, never the realised size (P29).

        Args:
            released: the noised sum of rows.
            expected_batch_size: public.
            mean: which the rows were relative to.
            variance: which the rows were relative to.
        """
        size = check.positive("BatchNorm.decode", "expected_batch_size", expected_batch_size)
        centre, scale = self._reference(mean, variance)

        # What `encode` did, backwards; the variance is E y^2 - (E y)^2, with the 1 that rows lack.
        sums = _sums("BatchNorm", released, self.dimension) * math.sqrt(self.dimension)
        first, second = sums.reshape(2, self.channels) / size
        return centre + scale * first, np.maximum(scale**2 * (1.0 + second - first**2), self.floor)

    def _reference(
        self, mean: ArrayLike, variance: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each channel."""
        centre = np.broadcast_to(np.asarray(mean, np.float64), self.channels)
        spread = np.broadcast_to(np.asarray(variance, np.float64), self.channels)

        # These are public, so that an error about them tells nothing of a record.
        if not (np.isfinite(centre).all() and np.isfinite(spread).all() and (spread > 0.0).all()):
            raise ParameterError(
                owner="BatchNorm",
                name="variance",
                expected="positive finite variances and finite means, those that are public "
                "already",
                got="others",
            )

        return centre, np.sqrt(spread)


def _numbers(owner: str, values: ArrayLike, width: int) -> NDArray[np.float64]:
    """Records x width numbers; NaN for a record that is something else. An array of another shape
    is an error.
    """
    # A masked entry is no number; what lies under the mask must not count.
    try:
        array = np.asarray(
            np.ma.filled(values.astype(np.float64), np.nan)
            if isinstance(values, np.ma.MaskedArray)
            else values
        )
    except ValueError:  # a list of records of different lengths
        array = np.empty(0, object)

    # The usual case: numbers, and as many in each record as there should be.
    has_numbers = array.dtype.kind in "biuf"
    if has_numbers and array.ndim and math.prod(array.shape[1:]) == width:
        return array.reshape(len(array), width).astype(np.float64)

    # The shape of an array is that of all its records, not of one: an error about it is allowed.
    if has_numbers and not isinstance(values, list | tuple):
        raise ParameterError(
            owner=f"{owner}.encode",
            name="values",
            expected=f"records of {width} numbers",
            got=f"an array whose records have shape {array.shape[1:]}",
        )

    # One text among numbers would turn all of them into texts: each record by itself.
    records = values if isinstance(values, list | tuple) else array
    return np.array([_record(value, width) for value in records], np.float64).reshape(
        len(records), width
    )


def _record(value: ArrayLike, width: int) -> NDArray[np.float64]:
    # Whatever the value is, a row comes back: an exception would tell that this record was there.
    nothing = np.full(width, np.nan)
    try:
        # NumPy would read the text "1.5", and drop an imaginary part.
        if isinstance(value, str | bytes) or np.iscomplexobj(value):
            return nothing

        row = np.array(value, np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        return nothing

    return row if row.size == width else nothing


def _sums(owner: str, released: ArrayLike, dimension: int) -> NDArray[np.float64]:
    sums = np.array(released, np.float64).reshape(-1)
    if sums.size != dimension or not np.isfinite(sums).all():
        raise ParameterError(
            owner=f"{owner}.decode",
            name="released",
            expected=f"{dimension} finite numbers",
            got=f"{sums.size} numbers",
        )

    return sums
