"""The second NumPy engine: the noised sum of the outer products x x^T of a sample's records.

As fast as a matrix product:

    vectors -> clipped -> integers k of a grid, |k|^2 checked exactly
            -> sum of k k^T, exact in any order
            -> + noise on each of the d x d entries, exact -> * spacing -> release
            -> symmetrised afterwards

The Frobenius norm of k k^T is |k|^2, so a bound on a record's squared norm is the sensitivity of
the whole matrix. Sums of whole numbers below 2^53 are exact in float64, so the order in which a
library multiplies and adds does not matter (docs/proofs/features.md, section 1).

Shapes: B records, D numbers of a vector.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.aggregation.sums import SampleId, bare
from discreet.errors import NumericsError, ParameterError, SampleMisuse
from discreet.ledger import Ledger
from discreet.mechanisms import Group
from discreet.numerics import Grid, squared_norms
from discreet.plan import Plan
from discreet.randomness import GaussianNoise, Source
from discreet.sampling import Sample, Sampler
from discreet.units import Numerics, Parameters

__all__ = ["SECOND_MOMENTS", "OuterSums", "SecondMoments", "symmetrised"]

SECOND_MOMENTS = "second_moments"
"""Name of the one leaf: a matrix of d x d numbers, row after row."""

# The noise's standard deviation is below 2^32 grid units. Below 2^-16 there is hardly any noise,
# and soon none that can be drawn.
_MOST_SCALE_BITS = 32
_LEAST_SCALE = 2.0**-16

# The clip norm is within 2^400 of 1, so that its square, by which weights go, is a float64.
_CLIP_BITS = 400

# Sums stay below 2^52 grid units, so that noise still fits into 53 bits.
_HEADROOM_BITS = 52

# Relative; more than all roundings between a certified norm and the integers: "honest records
# pass" (features.md, section 1).
_SLACK = 2.0**-40

# Numbers at a time: enough rows for a fast product, little memory.
_CHUNK = 2**22


class OuterSums:
    """The sum of k k^T over some records of one sample, in integers of the grid. Sensitive.

    Guarantee: adding, removing or zeroing out one record moves the matrix by at most the group's
    clip norm in Frobenius norm, exactly, whatever the record holds; replacing one by at most twice
    that. What is assumed: a record's numbers are a function of that record alone, bit for bit.
    Neither the order of records, nor how they were split into calls, nor the number of threads
    matters. No clipping code is trusted.

    | record, or batch | what it adds |
    |---|---|
    | NaN, an infinity or a masked number | zeros |
    | a squared norm above the clip norm | k k^T of the clipped record |
    | no records, of any shape | nothing |
    | more records than the sample may have | `SampleMisuse`; nothing is added |
    | integers, or rows of another size | `ParameterError`; nothing is added |

    Args:
        group: clip norm and clipping rule; the norm of a record is that of x x^T, |x|^2. Public.
        dimension: d, numbers of a vector; public.
        records: most records of a sample; public.
        sample_id: of the sample: sums of another sample are not released in its place.
    """

    __slots__ = (
        "_factor",
        "_group",
        "_largest_count",
        "_radius",
        "_sample_id",
        "_total",
        "_turn",
        "dimension",
        "grid",
        "records",
    )

    def __init__(self, group: Group, *, dimension: int, records: int, sample_id: SampleId) -> None:
        self._group, self._sample_id = group, sample_id
        self.dimension = dimension
        self.grid, self._radius = _grid(group, records)

        # Lowered, so that a record clipped to the clip norm passes the check.
        self._factor = math.sqrt(self._radius / group.clip_norm) * (1.0 - _SLACK)
        self._largest_count = records
        self._total = np.zeros((dimension, dimension))

        # Empty while a call is under way, and for ever if it is broken off; taken in one step by
        # pop(), so that two threads cannot both have it.
        self._turn = [None]
        self.records = 0

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Add records; each is clipped by itself. Nothing is added if anything about them is wrong.

        Args:
            vectors: one row of `dimension` numbers per record; sensitive.
        """
        rows = bare(vectors)

        # An empty sample may have lost the shape and kind of its rows.
        if rows.ndim and not len(rows):
            rows = np.empty((0, self.dimension))

        kinds, shape = (np.float16, np.float32, np.float64), (self.dimension,)
        if rows.dtype not in kinds or rows.shape[1:] != shape:
            raise ParameterError(
                owner="OuterSums.add",
                name="vectors",
                expected=f"floating-point rows of {self.dimension} numbers",
                got=f"{rows.dtype}, rows of shape {rows.shape[1:]}",
            )

        # n K < 2^52 for so many records: every sum of some of their products is exact.
        if self.records + len(rows) > self._largest_count:
            raise _wrong_number()

        self._begin()

        # Whole numbers below 2^52: chunks and the library's own order do not change the sum.
        height = max(1, _CHUNK // self.dimension)

        for start in range(0, len(rows), height):
            units = self._integers(rows[start : start + height])
            self._total += units.T @ units

        self.records += len(rows)
        self._turn.append(None)

    def _integers(self, rows_BD: NDArray[np.floating]) -> NDArray[np.float64]:
        """Compute the integers of each row, or zeros where the check on their norm fails.

        Elementwise, so that they depend on their own record only. No record may raise; what is not
        finite fails the check.
        """
        squares_B = squared_norms(rows_BD)
        with np.errstate(all="ignore"):
            # The norm of x x^T is |x|^2, so its square is the square of that of x.
            weights_B = np.sqrt(self._group.weights((squares_B * squares_B)[:, np.newaxis]))
            factors = (weights_B * self._factor)[:, np.newaxis]
            units_BD = np.multiply(rows_BD, factors, dtype=np.float64)
            np.trunc(units_BD, out=units_BD)

            # False for NaN; exact where it is true, in any order (sums.md, theorem 1).
            within_B = np.einsum("bd,bd->b", units_BD, units_BD) <= self._radius

        units_BD[~within_B] = 0.0
        return np.asarray(units_BD)

    def check_complete(self, sample_id: SampleId, records: int) -> None:
        """Refuse sums that are not those of all records of this sample."""
        self._check_whole()
        if self._sample_id != sample_id or self.records != records:
            raise _wrong_number()

    def integers(self) -> NDArray[np.float64]:
        """Copy the matrix in grid units, whole numbers, row after row; sensitive until noised."""
        self._check_whole()
        return self._total.reshape(-1).copy()

    def _begin(self) -> None:
        try:
            self._turn.pop()
        except IndexError:
            raise _torn() from None

    def _check_whole(self) -> None:
        if not self._turn:
            raise _torn()


class SecondMoments:
    """Executes a plan whose records are vectors x and whose one leaf is the matrix x x^T.

    Guarantee: what `release` returns is post-processing of the Gaussian query that the ledger was
    charged with before the sample was drawn: sensitivity checked record by record in integers,
    exact noise, numerics `exact`. This holds if a record's vector is computed from that record and
    from released values alone, bit for bit (docs/proofs/sums.md, assumption A). Edge cases are
    those of `Aggregator`.

    Args:
        plan: with the one leaf "second_moments" of d*d numbers in one group that is clipped flat.
            The group's clip norm bounds |x x^T| = |x|^2.
        ledger: of the data set, open to append.
        source: of noise and samples; a fresh one from the operating system by default.
        label: what this run is, for the ledger; public. Left out, the name of the script or
            notebook.
        parameters: as for `Aggregator`.

    >>> from discreet.ledger.events import Everything
    >>> from discreet.mechanisms import Gaussian
    >>> sampler = Sampler(Everything(), records=4_000, steps=1)
    >>> mechanism = Gaussian(1.0, noise_multiplier=2.0)
    >>> plan = Plan(sampler=sampler, mechanism=mechanism, leaves={"second_moments": 4})
    >>> run = SecondMoments(plan, ledger=Ledger.in_memory())
    >>> for sample in run.samples():
    ...     released = run.release(sample, np.tile([0.6, 0.8], (len(sample), 1)))
    >>> bool(np.allclose(symmetrised(released), [[0.36, 0.48], [0.48, 0.64]], atol=0.005))
    True
    """

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger,
        source: Source | None = None,
        label: str | None = None,
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
    ) -> None:
        self._session = Session(
            plan,
            ledger=ledger,
            numerics=Numerics.EXACT,
            source=source,
            label=label,
            parameters=parameters,
        )
        self._group, self.dimension = _only_group(plan)

        # Refuses what is out of range, before anything is charged.
        _grid(self._group, self.sampler.records)
        self._lock = threading.Lock()

    @property
    def plan(self) -> Plan:
        """The plan that is executed."""
        return self._session.plan

    @property
    def sampler(self) -> Sampler:
        """The sampler of the plan."""
        return self._session.sampler

    def stop(self, reason: str) -> None:
        """Declare that the loop ends early for a public reason; as `Aggregator.stop`."""
        self._session.stop(reason)

    def samples(self, start: int = 0, *, until_budget: bool = False) -> Iterator[Sample]:
        """Draw the plan's samples, each charged before it is drawn; as `Aggregator.samples`."""
        return self._session.samples(start, until_budget=until_budget)

    def partial(self, sample: Sample) -> OuterSums:
        """Make empty sums for the records of this sample, to be filled in pieces."""
        return OuterSums(
            self._group,
            dimension=self.dimension,
            records=self.sampler.records,
            sample_id=self._session.sample_id(sample),
        )

    def release(self, sample: Sample, vectors: NDArray[np.floating] | OuterSums) -> Release:
        """Clip, sum, add noise to every entry, once for each sample.

        The matrix is not symmetric: `symmetrised` makes it so.

        Args:
            sample: from `samples()` of this run.
            vectors: one row for each record of the sample, in any order; or sums of them from
                `partial`. Sensitive.

        Raises:
            SampleMisuse: another run's sample, a second release, sums of another sample, or not as
                many records as were drawn.
        """
        session = self._session
        session.check_issued(sample)
        if isinstance(vectors, OuterSums):
            sums = vectors
        else:
            sums = self.partial(sample)
            sums.add(vectors)

        with self._lock:
            # A copy before the check: what another thread adds after it does not count.
            matrix = sums.integers()
            sums.check_complete(session.sample_id(sample), len(sample))
            session.spend(sample)
            stream = session.noise_stream(sample, 0)
            scale = sums.grid.scale(self._group.noise_std)
            GaussianNoise(stream, scale=scale, size=matrix.size).add_to(matrix)
            matrix *= sums.grid.spacing

        # Public numbers, which turn the sum into an average.
        divisor = self._group.divisor(self.plan.expected_batch_size)
        return Release(
            sample.step,
            sample.batch,
            {SECOND_MOMENTS: matrix},
            {SECOND_MOMENTS: self._group.noise_std},
            {SECOND_MOMENTS: divisor},
        )


def symmetrised(released: Release) -> NDArray[np.float64]:
    """Compute the average second moment, (A + A^T)/2 over the public divisor: post-processing.

    With independent noise of standard deviation s on every entry of A, the noise is s/sqrt(2) off
    the diagonal, s on it. A mechanism on the upper triangle, whose entries off the diagonal count
    sqrt(2) times in the norm, would have the same.
    """
    # One axis in a release, so that its shape does not tell of the records.
    flat = released.mean(SECOND_MOMENTS)
    matrix = flat.reshape(math.isqrt(flat.size), -1)
    return np.asarray((matrix + matrix.T) / 2.0)


def _only_group(plan: Plan) -> tuple[Group, int]:
    """Find the one group of the plan, and the number of coordinates of a vector."""
    dimensions, groups = dict(plan.bound.dimensions), plan.bound.start
    size = dimensions.get(SECOND_MOMENTS, 0)
    dimension = math.isqrt(size)

    # Flat: without scales, slots or a threshold that moves.
    group = groups[0]
    one_leaf = list(dimensions) == [SECOND_MOMENTS] and dimension * dimension == size
    flat = group.private and group.scales == (1.0,) and group.slots is None
    if len(groups) != 1 or not one_leaf or not flat or plan.bound.thresholds:
        raise ParameterError(
            owner="SecondMoments",
            name="plan",
            expected=(
                f"of one leaf {SECOND_MOMENTS!r} with d*d numbers, clipped flat in one private "
                "group"
            ),
            got=f"{dimensions} in {len(groups)} groups",
        )

    return group, dimension


def _grid(group: Group, records: int) -> tuple[Grid, int]:
    """Choose the finest grid on which sums and noise are exact, and the largest |k|^2.

    That is the clip norm in units of the grid, rounded down. Vectors have the root of the spacing,
    so it is finer than that of other sums.
    """
    # 2^bits is above each number: noise_std/g <= 2^32 and n K < 2^52 (features.md, section 1).
    noise_bits, clip_bits = math.frexp(group.noise_std)[1], math.frexp(group.clip_norm)[1]
    exponent = max(noise_bits - _MOST_SCALE_BITS, clip_bits + records.bit_length() - _HEADROOM_BITS)
    in_range = abs(clip_bits) < _CLIP_BITS and abs(exponent) < 900
    grid = Grid(math.ldexp(1.0, exponent if in_range else 0))
    radius = math.floor(group.clip_norm / grid.spacing)
    if not in_range or radius < 1 or grid.scale(group.noise_std) < _LEAST_SCALE:
        raise NumericsError(
            expected=(
                "clip norm and noise within 2^400 of 1, and neither thousands of millions of "
                "times the other"
            ),
            got=f"clip_norm {group.clip_norm!r}, noise_std {group.noise_std!r}",
            do="Choose other units, or less noise.",
        )

    return grid, radius


def _torn() -> SampleMisuse:
    return SampleMisuse(
        expected="sums to which every record was added once",
        got=(
            "sums that an error or an interruption left half changed, or that another thread is "
            "changing"
        ),
        do="Start again from new sums: SecondMoments.partial(sample).",
    )


def _wrong_number() -> SampleMisuse:
    return SampleMisuse(
        expected="one row for each record of the sample, each added once",
        got="another number of rows, or sums of another sample",
        do=(
            "Compute vectors for exactly sample.indices (or sample.units), also for an empty "
            "sample."
        ),
    )
