"""Means and standard deviations of the coordinates of private vectors, by one query.

With a public reference (mean mu, standard deviation v of each of D coordinates) and y = (x - mu)/v,
a record's row is

    (y_1 ... y_D, y_1^2 - 1 ... y_D^2 - 1) / sqrt(2D),

as in `mechanisms.BatchNorm`: a norm of about 1 means one standard deviation off in every
coordinate. Clipping the row by its norm, and not each coordinate by a bound, is what makes many
coordinates cost little. Estimates from the release: docs/proofs/features.md, section 2.

Shapes: B records, D coordinates of a vector, G groups of coordinates that share a variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet.aggregation import Aggregator
from discreet.errors import ParameterError
from discreet.features import _saved
from discreet.features.rowwise import as_vectors, check_plan, chunks
from discreet.ledger import Everything, Ledger
from discreet.mechanisms import Gaussian, Groups
from discreet.plan import Plan
from discreet.randomness import Source
from discreet.sampling import Sampler
from discreet.units import Adjacency, Numerics, Unit

__all__ = ["MOMENTS", "Standardisation", "standardise", "standardise_plan"]

MOMENTS = "moments"
"""Name of the leaf: means, then variances, both relative to the reference."""

# The least standard deviation, relative to the reference, where there is hardly any noise.
_LEAST_FLOOR = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Standardisation:
    """x -> (x - mean)/std, for each coordinate. Public: made from released values alone.

    | case | result |
    |---|---|
    | NaN or an infinity in a row | not finite there; the row's other numbers as ever |
    | no rows | no rows |
    | rows of another size | `ParameterError` |
    | a std of 0, NaN or infinity | `ParameterError` |

    Args:
        mean: of each coordinate (D,).
        std: of each coordinate (D,), above 0.

    >>> standardisation = Standardisation(mean=np.array([1.0]), std=np.array([2.0]))
    >>> standardisation(np.array([[5.0], [1.0]])).tolist()
    [[2.0], [0.0]]
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def __post_init__(self) -> None:
        mean, std = (
            _saved.read_only(np.atleast_1d(np.asarray(part, np.float64)))
            for part in (self.mean, self.std)
        )
        alike = mean.ndim == 1 and mean.shape == std.shape

        # Each coordinate is divided by its std: 0 would make every row infinite.
        if not alike or not (np.isfinite([mean, std]).all() and (std > 0.0).all()):
            raise ParameterError(
                owner="Standardisation",
                name="std",
                expected="finite means and as many standard deviations above 0",
                got=f"shapes {mean.shape} and {std.shape}",
            )

        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)

    def __call__(self, vectors: NDArray[Any]) -> NDArray[np.floating]:
        """Standardise rows, float32 for float32; each from its own row alone."""
        rows = as_vectors("Standardisation", vectors, self.mean.size)
        result = np.empty_like(rows)

        # Elementwise; what is not finite stays so, and no row may raise.
        for part in chunks(*rows.shape):
            with np.errstate(all="ignore"):
                np.divide(rows[part] - self.mean, self.std, out=result[part], casting="same_kind")

        return result

    def save(self, path: str | PathLike[str]) -> None:
        """Write a new file (npz); never over another."""
        _saved.save_arrays("Standardisation", path, {"mean": self.mean, "std": self.std})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Standardisation:
        """Read what `save` wrote; nothing in the file is executed."""
        return cls(**_saved.load_arrays("Standardisation", path, ("mean", "std")))


def standardise_plan(
    *,
    records: int,
    dimension: int,
    noise_multiplier: float,
    clip_norm: float = 2.0,
    unit: Unit = Unit.EXAMPLE,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
) -> Plan:
    """Make the plan of `standardise`: every record, one step.

    Args:
        records: number of records [public].
        dimension: coordinates of a vector [public].
        noise_multiplier: 40 costs next to nothing beside training, and is enough for tens of
            thousands of records.
        clip_norm: of a record's row. Vectors with the reference's means and variances have about
            1.2 if they are normal.
        unit: what is protected.
        adjacency: against which change of the data.

    >>> standardise_plan(records=60_000, dimension=100, noise_multiplier=40.0).step.queries
    (GaussianSum(group='moments', sensitivity=2.0, noise_std=80.0),)
    """
    size = check.whole("standardise_plan", "dimension", dimension, least=1)
    return Plan(
        sampler=Sampler(Everything(), records=records, steps=1),
        mechanism=Groups({MOMENTS: Gaussian(clip_norm, noise_multiplier)}),
        unit=unit,
        adjacency=adjacency,
        leaves={MOMENTS: 2 * size},
        numerics=Numerics.EXACT,
    )


def standardise(
    vectors: NDArray[Any],
    *,
    plan: Plan,
    ledger: Ledger,
    source: Source | None = None,
    reference: tuple[ArrayLike, ArrayLike] = (0.0, 1.0),
    floor: float | None = None,
    groups: Sequence[int] | NDArray[np.integer] | None = None,
) -> Standardisation:
    """Estimate means and standard deviations of all coordinates, by one private query.

    It is charged to the ledger.

    Guarantee: the result is post-processing of one Gaussian query with the plan's sensitivity and
    noise, exact numerics. This holds if a record's vector is computed from that record and released
    values alone (docs/proofs/features.md, section 2).

    | case | result |
    |---|---|
    | a row with NaN or infinities | it contributes nothing |
    | a row longer than the clip norm | it is clipped: the result leans towards the reference |
    | a variance that the noise makes negative | the floor |
    | vectors of another number than the plan's records | `ParameterError`; nothing is charged |

    Args:
        vectors: (B, ...), a row for each record of the data set; the sample is drawn from them.
            Sensitive.
        plan: from `standardise_plan`, or one with its leaf, of one step and one batch. Not chosen
            from anything that these data released: the run is declared as fixed in advance.
        ledger: of the data set, open to append.
        source: of noise and samples; a fresh one from the operating system by default.
        reference: mean and standard deviation that are expected, for each coordinate or for all.
            Public: not from these data, unless released. Far from the truth, rows are long and
            clipped, and the result lies between reference and truth.
        floor: least std, as a part of the reference's; left out, the root of the noise on a
            variance: no coordinate is magnified on the strength of noise. Public.
        groups: a number for each coordinate; those with the same number share one variance, with
            less noise. Public.

    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal([0.5, -0.5], [1.0, 0.5], (20_000, 2)).astype(np.float32)
    >>> plan = standardise_plan(records=20_000, dimension=2, noise_multiplier=20.0, clip_norm=4.0)
    >>> centre = standardise(vectors, plan=plan, ledger=Ledger.in_memory())
    >>> bool(np.allclose(centre.mean, [0.5, -0.5], atol=0.1)), centre(vectors).dtype
    (True, dtype('float32'))
    """
    owner = "standardise"
    rows = as_vectors(owner, vectors)
    dimension = rows.shape[1]
    centre, spread = _reference(reference, dimension)
    group = np.arange(dimension) if groups is None else _groups(groups, dimension)
    least = None if floor is None else check.positive(owner, "floor", floor)

    # Everything is refused before the run begins, which charges the ledger.
    check_plan(owner, plan, {MOMENTS: 2 * dimension}, len(rows))
    run = Aggregator(plan, ledger=ledger, source=source, label="features.standardise")
    (sample,) = run.samples()
    sums = run.partial(sample)

    # In pieces: the encoded rows of a whole data set need not fit into memory.
    for part in chunks(len(sample), 2 * dimension):
        sums.add({MOMENTS: _encoded(rows[sample.indices[part]], centre, spread)})

    released = run.release(sample, sums)

    # From here on everything is a function of the release and of public numbers. m and q of
    # features.md, section 2, and the noise t on every one of them.
    first, second = released.mean(MOMENTS).reshape(2, dimension) * math.sqrt(2 * dimension)
    noise = released.noise_std[MOMENTS] / released.divisors[MOMENTS] * math.sqrt(2 * dimension)

    # t^2 is what the noise in m adds to m^2 on average.
    variance_D = 1.0 + second - first**2 + noise**2
    size_G = np.maximum(np.bincount(group), 1)
    variance_G = np.bincount(group, variance_D) / size_G

    # The root of the noise on a shared variance: no coordinate is magnified on its strength.
    floor_G = np.sqrt(np.clip(noise / np.sqrt(size_G), _LEAST_FLOOR**2, 1.0))
    std_G = np.sqrt(np.maximum(variance_G, 0.0))
    std = np.maximum(std_G, floor_G if least is None else least)[group]
    return Standardisation(mean=centre + spread * first, std=spread * std)


def _encoded(
    rows: NDArray[np.floating], centre: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Encode each record as (y, y^2 - 1)/sqrt(2D), elementwise: (B, D) to (B, 2D).

    So a row depends on its own record only. What overflows is not finite and contributes nothing.
    """
    dimension = rows.shape[1]
    encoded = np.empty((len(rows), 2 * dimension))
    with np.errstate(all="ignore"):
        unit = np.divide(rows - centre, spread, out=encoded[:, :dimension])
        np.subtract(np.square(unit), 1.0, out=encoded[:, dimension:])
        encoded /= math.sqrt(2 * dimension)

    return encoded


def _reference(
    reference: tuple[ArrayLike, ArrayLike], dimension: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read mean and standard deviation of each coordinate, both (D,)."""
    # What has another shape or kind becomes a spread of 0, which is refused below.
    try:
        centre, spread = (
            np.broadcast_to(np.asarray(part, np.float64), dimension) for part in reference
        )
    except (TypeError, ValueError):
        centre = spread = np.zeros(1)

    if not (np.isfinite(centre).all() and np.isfinite(spread).all() and (spread > 0.0).all()):
        raise ParameterError(
            owner="standardise",
            name="reference",
            expected=(
                f"a finite mean and a standard deviation above 0, for all {dimension} coordinates "
                "or for each"
            ),
            got="something else",
        )

    return centre, spread


def _groups(groups: Sequence[int] | NDArray[np.integer], dimension: int) -> NDArray[np.intp]:
    # Below `dimension`, as there are no more groups than coordinates; gaps between are allowed.
    numbers = np.asarray(groups)
    whole = numbers.shape == (dimension,) and numbers.dtype.kind in "iu"
    if not whole or not 0 <= numbers.min() <= numbers.max() < dimension:
        raise ParameterError(
            owner="standardise",
            name="groups",
            expected=(
                f"{dimension} whole numbers from 0 to {dimension - 1}, one for each coordinate"
            ),
            got=f"{numbers.dtype}, {numbers.shape}",
        )

    return numbers.astype(np.intp)
