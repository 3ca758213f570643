"""Words that a faulty fast path would get wrong: ends of layers, points close to the bell, the tail
and its ends, and numbers close to a rounding boundary.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.randomness import ziggurat
from discreet.randomness.addresses import FURTHER
from discreet.randomness.layers import COUNT, tables

_Words = NDArray[np.uint64]
_LAYER_BITS = np.uint64(12)
_TOP = 2**52 - 1


@dataclass(frozen=True)
class Case:
    """w_0 of some numbers, and w_1 ... w_5 of each, a row each."""

    first: _Words
    further: _Words

    def known(self, j: int) -> _Words:
        """The words of number j that are known before any is asked for."""
        if ziggurat.is_outside(self.first[j : j + 1])[0]:
            return np.append(self.first[j], self.further[j])
        return self.first[j : j + 1]


def random_case(count: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    return Case(
        rng.integers(0, 2**64, count, dtype=np.uint64),
        rng.integers(0, 2**64, (count, FURTHER), dtype=np.uint64),
    )


def adversarial(count: int, scale: float, seed: int) -> Case:
    """A sixth each of: random words; ends of insides; points close to the bell; the tail and its
    ends; numbers close to a rounding boundary; special bits.
    """
    rng = np.random.default_rng(seed)
    case = random_case(count, seed + 1)
    sixth = count // 6
    layer, position = rng.integers(0, COUNT, count), rng.integers(0, _TOP + 1, count)
    part = [slice(sixth * k, sixth * (k + 1)) for k in range(5)]

    position[part[0]] = _ends(rng, layer[part[0]])
    case.further[part[1], 0], position[part[1]] = _close_to_the_bell(rng, layer[part[1]])
    layer[part[2]] = 0
    case.further[part[2], 0], position[part[2]] = _of_the_tail(rng, sixth)
    position[part[3]] = _close_to_a_boundary(rng, layer[part[3]], scale)
    position[part[4]] = rng.choice([0, 1, 2**51 - 1, 2**51, 2**51 + 1, _TOP], sixth)
    layer[part[4]] = rng.choice([0, 1, 2, COUNT - 2, COUNT - 1], sixth)
    special = np.array([0, 1, 2**44 - 1, 2**44, 2**64 - 1], np.uint64)
    case.further[part[4], 0] = rng.choice(special, sixth)

    first = position.astype(np.uint64) << _LAYER_BITS | layer.astype(np.uint64)
    case.first[: 5 * sixth] = first[: 5 * sixth]
    return case


def far_out(count: int, seed: int) -> Case:
    """Numbers of the tail that are accepted, where further bits of the position count for most."""
    rng, case = np.random.default_rng(seed), random_case(count, seed)
    u = ziggurat.LEAST_TAIL * (1.0 + rng.random(count))
    position = _positions(rng, (1.0 - u / ziggurat.TAIL_AREA) / 2.0)
    case.first[:] = position.astype(np.uint64) << _LAYER_BITS
    case.further[:, 0] = 2**46
    return case


def _positions(rng: np.random.Generator, size: NDArray[np.float64]) -> NDArray[np.int64]:
    """The 52 bits of |f| = size, with either sign."""
    units = np.clip(size * 2.0**52, 0, 2.0**51 - 1).astype(np.int64)
    return np.where(rng.random(size.size) < 0.5, 2**51 + units, 2**51 - 1 - units)


def _near(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.choice([-8, -2, -1.1, -0.9, -0.1, 0, 0.1, 0.9, 1.1, 2, 8], count)


def _ends(rng: np.random.Generator, layer: NDArray[np.int64]) -> NDArray[np.int64]:
    limit = tables().limits[layer] + rng.integers(-2, 3, layer.size) * 2.0**-52
    return _positions(rng, limit)


def _close_to_the_bell(
    rng: np.random.Generator, layer: NDArray[np.int64]
) -> tuple[_Words, NDArray[np.int64]]:
    """Positions between inside and the end of a layer, at the height of the bell and some margins
    away from it.
    """
    table = tables()
    limit = np.maximum(table.limits[layer], 0.0)
    size = limit + (0.5 - limit) * rng.random(layer.size)
    bell = np.exp(-0.5 * (size * table.twice_widths[layer]) ** 2)
    v = (bell * (1 + ziggurat.DOUBT * _near(rng, layer.size)) - table.edges[layer]) / (
        table.heights[layer]
    )
    heights = np.clip(v * 2.0**64, 0, 2.0**64 - 4096).astype(np.uint64)
    return heights, _positions(rng, size)


def _of_the_tail(rng: np.random.Generator, count: int) -> tuple[_Words, NDArray[np.int64]]:
    """U at random, near its ends, or far out; heights close to the bell."""
    u = rng.random(count)
    u[::4] = ziggurat.LEAST_TAIL * (1 + 2.0**-30 * _near(rng, u[::4].size))
    u[1::4] = 1.0 - ziggurat.DOUBT * np.abs(_near(rng, u[1::4].size))
    u[2::16] = 2.0**-40
    distance = -np.log(u) * ziggurat.INVERSE_R
    v = np.exp(-0.5 * distance**2 * (1 + ziggurat.DOUBT * _near(rng, count)))
    v[::3] = rng.random(v[::3].size)
    heights = np.clip(v * 2.0**64, 0, 2.0**64 - 4096).astype(np.uint64)
    return heights, _positions(rng, (1.0 - u / ziggurat.TAIL_AREA) / 2.0)


def _close_to_a_boundary(
    rng: np.random.Generator, layer: NDArray[np.int64], scale: float
) -> NDArray[np.int64]:
    """|f| such that scale * x is k + 1/2 plus or minus a few error bounds."""
    slope = ziggurat.slopes(scale)[layer]
    wanted = np.floor(slope * 0.5 * rng.random(layer.size)) + 0.5
    wanted += scale * ziggurat.ERROR * _near(rng, layer.size)
    return _positions(rng, np.clip(wanted / slope, 0.0, 0.5))
