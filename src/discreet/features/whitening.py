"""Strong directions of private vectors, found by one query, and shrunk.

    rows (of a subspace) -> second moments, noised -> eigenvalues, corrected for the noise
                         -> gain of each strong direction

What all records share dominates gradients and uses up the clip norm, but tells little apart. Noise
makes eigenvalues larger: with standard deviation s off the diagonal of an m x m matrix, eigenvalues
of the noise alone fill [-2 s sqrt(m), 2 s sqrt(m)] (Wigner's semicircle), and an eigenvalue t > s
sqrt(m) appears at t + s^2 m / t [BenaychGeorges2011]. Both are undone here, from public numbers
(docs/proofs/features.md, section 4).

Shapes: B records, D coordinates of a vector, M of those of a basis, K directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.second_moments import SECOND_MOMENTS, SecondMoments, symmetrised
from discreet.errors import ParameterError
from discreet.features import _saved
from discreet.features.rowwise import as_vectors, check_plan, chunks, own_product
from discreet.ledger import Everything, Ledger
from discreet.mechanisms import Gaussian, Groups
from discreet.numerics import squared_norms
from discreet.plan import Plan
from discreet.randomness import Source
from discreet.sampling import Sampler
from discreet.units import Adjacency, Numerics, Unit

__all__ = ["Whitening", "whiten", "whiten_plan"]

# How far the product of two columns of a basis may be off.
_ORTHONORMAL = 1e-3

# The largest eigenvalue of noise alone is hardly ever farther out, in units of s m^(-1/6): the
# width of the edge's fluctuations [TracyWidom1994].
_BEYOND_THE_EDGE = 2.0

# What remains of the mean squared norm at least, whatever the noise says.
_SMALLEST_SHARE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """x -> x + U (gains - 1) U^T x: what lies in the directions U is multiplied by their gains.

    Public: made from released values alone.

    | case | result |
    |---|---|
    | no directions | every row as it is |
    | a row with NaN or infinities | NaN in all its numbers, if there are directions |
    | no rows | no rows |
    | a gain of 0, above 1 or NaN; columns that are not orthonormal | `ParameterError` |

    Args:
        directions: U, (D, K), orthonormal columns; the strongest first.
        gains: of each direction (K,), in (0, 1].
        eigenvalues: second moment of each direction (K,), corrected for the noise.
        norm: root mean square norm of a row afterwards, estimated; a radius for `unit_ball`.
    """

    directions: NDArray[np.float64]
    gains: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    norm: float

    def __post_init__(self) -> None:
        for name in ("directions", "gains", "eigenvalues"):
            object.__setattr__(self, name, _saved.read_only(getattr(self, name)))

        object.__setattr__(self, "norm", check.positive("Whitening", "norm", self.norm))
        count, shape = self.gains.shape, self.directions.shape
        alike = len(shape) == 2 and shape[1:] == count == self.eigenvalues.shape
        if not alike or not ((self.gains > 0.0) & (self.gains <= 1.0)).all():
            raise ParameterError(
                owner="Whitening",
                name="gains",
                expected="gains in (0, 1], one for each direction",
                got=f"shapes {shape} and {count}",
            )

        _check_orthonormal("Whitening", "directions", self.directions)

    def __call__(self, vectors: NDArray[Any]) -> NDArray[np.floating]:
        """Whiten rows, float32 for float32; each from its own row alone, bit for bit."""
        rows = as_vectors("Whitening", vectors, len(self.directions))
        result = rows.copy()

        # No row may raise, whatever it holds.
        for part in chunks(*rows.shape) if self.gains.size else ():
            with np.errstate(all="ignore"):
                along = own_product(rows[part], self.directions) * (self.gains - 1.0)
                result[part] += own_product(along, self.directions.T).astype(rows.dtype)

        return result

    def save(self, path: str | PathLike[str]) -> None:
        """Write a new file (npz); never over another."""
        arrays = {name: getattr(self, name) for name in ("directions", "gains", "eigenvalues")}
        _saved.save_arrays("Whitening", path, arrays | {"norm": np.array(self.norm)})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Whitening:
        """Read what `save` wrote; nothing in the file is executed."""
        arrays = _saved.load_arrays(
            "Whitening", path, ("directions", "gains", "eigenvalues", "norm")
        )
        norm = arrays.pop("norm")
        return cls(norm=float(norm) if norm.ndim == 0 else math.nan, **arrays)


def whiten_plan(
    *,
    records: int,
    dimension: int,
    noise_multiplier: float,
    clip_norm: float = 1.0,
    unit: Unit = Unit.EXAMPLE,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
) -> Plan:
    """Make the plan of `whiten`: every record, one step.

    Args:
        records: number of records [public].
        dimension: coordinates of a vector, or columns of the basis [public].
        noise_multiplier: of the matrix of second moments.
        clip_norm: bound on the norm of x x^T, which is the square of that of x; 1 for rows in the
            unit ball.
        unit: what is protected.
        adjacency: against which change of the data.

    >>> whiten_plan(records=60_000, dimension=100, noise_multiplier=12.0).step.queries
    (GaussianSum(group='second_moments', sensitivity=1.0, noise_std=12.0),)
    """
    size = check.whole("whiten_plan", "dimension", dimension, least=1)

    # One more coordinate, for what the basis does not hold.
    return Plan(
        sampler=Sampler(Everything(), records=records, steps=1),
        mechanism=Groups({SECOND_MOMENTS: Gaussian(clip_norm, noise_multiplier)}),
        unit=unit,
        adjacency=adjacency,
        leaves={SECOND_MOMENTS: (size + 1) ** 2},
        numerics=Numerics.EXACT,
    )


def whiten(
    vectors: NDArray[Any],
    *,
    plan: Plan,
    ledger: Ledger,
    source: Source | None = None,
    basis: NDArray[Any] | None = None,
    power: float = 0.5,
    level: float | None = None,
) -> Whitening:
    """Find the directions in which rows are longest, by one private query, and their gains.

    It is charged to the ledger. A direction with second moment t gets the gain
    min(1, (level/t)^power); one that does not rise above the noise has the gain 1. With power 1/2,
    all that were above the level end there.

    Guarantee: the result is post-processing of one Gaussian query with the plan's sensitivity and
    noise, exact numerics. This holds if a record's vector is computed from that record and released
    values alone (docs/proofs/features.md, sections 1 and 4).

    | case | result |
    |---|---|
    | a row with NaN or infinities | it contributes nothing |
    | a row of squared norm above the clip norm | it is clipped |
    | no direction above the noise, or power 0 | no directions: rows stay as they are |
    | vectors of another number than the plan's records | `ParameterError`; nothing is charged |

    Args:
        vectors: (B, ...), a row for each record of the data set, such as `unit_ball` gives.
            Sensitive.
        plan: from `whiten_plan`, or one with its leaf, of one step and one batch. Not chosen from
            anything that these data released: the run is declared as fixed in advance.
        ledger: of the data set, open to append.
        source: of noise and samples; a fresh one from the operating system by default.
        basis: what to look at: a matrix with orthonormal columns, or whole numbers of coordinates;
            everything by default. The fewer dimensions, the less the noise hides. Public.
        power: 0 leaves everything as it is, 1/2 makes directions equally strong, more turns their
            order around. Public.
        level: second moment that needs no shrinking; left out, that of a direction that just rises
            above the noise. Public.

    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(0.0, [0.9] + 9 * [0.1], (5_000, 10))
    >>> plan = whiten_plan(records=5_000, dimension=10, noise_multiplier=3.0)
    >>> whitening = whiten(vectors, plan=plan, ledger=Ledger.in_memory())
    >>> bool(abs(whitening.directions[0, 0]) > 0.99), bool(whitening(vectors)[:, 0].std() < 0.3)
    (True, True)
    """
    owner = "whiten"
    rows = as_vectors(owner, vectors)
    subspace = None if basis is None else _basis(basis, rows.shape[1])
    size = rows.shape[1] if subspace is None else subspace.shape[-1]
    exponent = 0.0 if power == 0 else check.positive(owner, "power", power)
    lowest = None if level is None else check.positive(owner, "level", level)
    check_plan(owner, plan, {SECOND_MOMENTS: (size + 1) ** 2}, len(rows))
    run = SecondMoments(plan, ledger=ledger, source=source, label="features.whiten")
    (sample,) = run.samples()

    # The projection is each row's own, bit for bit: assumption A holds for what is summed.
    sums = run.partial(sample)
    for part in chunks(len(sample), rows.shape[1]):
        sums.add(_projected(rows[sample.indices[part]], subspace))

    released = run.release(sample, sums)

    # From here on everything is a function of the release and of public numbers.
    noise = released.noise_std[SECOND_MOMENTS] / released.divisors[SECOND_MOMENTS] / math.sqrt(2.0)
    matrix = symmetrised(released)
    values_K, directions, least = _strong(matrix[:size, :size], noise)
    gains_K = np.minimum(1.0, ((least if lowest is None else lowest) / values_K) ** exponent)
    shrunk = gains_K < 1.0
    values_K, gains_K, directions = values_K[shrunk], gains_K[shrunk], directions[:, shrunk]

    # The trace is the mean squared norm; shrinking by a gain takes (1 - gain^2) of an eigenvalue.
    total = abs(float(np.trace(matrix)))
    remaining = total - float(np.sum((1.0 - gains_K**2) * values_K))
    norm = math.sqrt(max(remaining, _SMALLEST_SHARE * total))
    return Whitening(_whole(directions, subspace, rows.shape[1]), gains_K, values_K, norm=norm)


def _strong(
    matrix: NDArray[np.float64], noise: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Find the eigenvalues that rise above the noise, corrected, with their vectors.

    The strongest first; and the least eigenvalue that could have risen.

    Args:
        matrix: of second moments, noised (M, M).
        noise: standard deviation of an entry off the diagonal.
    """
    # `eigh` gives the weakest first.
    size = len(matrix)
    eigenvalues, vectors = np.linalg.eigh(matrix)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    edge = noise * math.sqrt(size)

    # What weak directions have: noise spreads them to both sides, by 2 s sqrt(m) at most.
    centre = max(float(eigenvalues[-1]) + 2.0 * edge, 0.0)
    strong = eigenvalues - centre > 2.0 * edge + _BEYOND_THE_EDGE * noise * size ** (-1.0 / 6.0)

    # x = t + s^2 m / t, solved for t.
    above = eigenvalues[strong] - centre
    corrected = centre + (above + np.sqrt(np.maximum(above**2 - 4.0 * edge**2, 0.0))) / 2.0
    return corrected, vectors[:, strong], centre + edge


def _projected(rows: NDArray[np.floating], basis: NDArray[Any] | None) -> NDArray[np.float64]:
    """Project each row onto the basis, and append the length of the remainder: (B, M + 1).

    From its own row alone, bit for bit. The remainder makes the trace of the second moments that of
    whole rows, and costs nothing: together they are as long as the row. What is not finite
    contributes nothing.
    """
    # No row may raise, not even a signalling NaN that is cast. Certified norms are a little above
    # the truth, so their difference may be below 0.
    with np.errstate(all="ignore"):
        if basis is None:
            return np.hstack([rows, np.zeros((len(rows), 1))])

        inside = rows[:, basis] if basis.ndim == 1 else own_product(rows, basis)
        length = np.sqrt(np.maximum(squared_norms(rows) - squared_norms(inside), 0.0))
        return np.hstack([inside, length[:, np.newaxis]])


def _whole(
    directions: NDArray[np.float64], basis: NDArray[Any] | None, dimension: int
) -> NDArray[np.float64]:
    """Turn directions of the basis (M, K) into directions of whole vectors (D, K)."""
    if basis is None:
        return directions

    if basis.ndim == 2:
        return np.asarray(basis @ directions)

    whole = np.zeros((dimension, directions.shape[1]))
    whole[basis] = directions
    return whole


def _basis(basis: NDArray[Any], dimension: int) -> NDArray[Any]:
    """Read a basis: columns in float64 (D, M), or the numbers of coordinates (M,)."""
    array = np.asarray(basis)
    kind, shape = (array.ndim, array.dtype.kind), array.shape
    if kind in ((1, "i"), (1, "u")) and array.size == np.unique(array).size > 0:
        if array.min() >= 0 and array.max() < dimension:
            return array.astype(np.intp)

    # A basis of columns may not have more of them than there are dimensions.
    elif kind == (2, "f") and shape[0] == dimension >= shape[1] > 0:
        _check_orthonormal("whiten", "basis", array)
        return array.astype(np.float64)

    raise ParameterError(
        owner="whiten",
        name="basis",
        expected=(
            f"a matrix of {dimension} rows with orthonormal columns, or different whole numbers "
            f"from 0 to {dimension - 1}"
        ),
        got=f"{array.dtype}, shape {array.shape}",
    )


def _check_orthonormal(owner: str, name: str, matrix: NDArray[Any]) -> None:
    columns = matrix.astype(np.float64)
    error = np.abs(columns.T @ columns - np.eye(matrix.shape[1])).max(initial=0.0)

    # The comparison is false for NaN, which is refused too.
    if not error <= _ORTHONORMAL:
        raise ParameterError(
            owner=owner,
            name=name,
            expected="a matrix with orthonormal columns",
            got="columns whose products are off by more than 0.001",
        )
