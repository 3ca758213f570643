"""Words that a faulty fast path would get wrong: window edges, powers of two, values near a
rounding boundary.
"""

import numpy as np
from numpy.typing import NDArray

from discreet.randomness import box_muller


def adversarial(count: int, scale: float, seed: int) -> NDArray[np.uint64]:
    """Words of `count` pairs: a third each random, with special U, and with x close to the middle
    between two integers.
    """
    rng = np.random.default_rng(seed)
    u = rng.integers(0, 2**63, count, dtype=np.uint64)
    t = rng.integers(0, 2**52, count, dtype=np.uint64)
    flags = rng.integers(0, 4, count, dtype=np.uint64)
    third = count // 3
    u[:third] = _special_prefixes(rng, third)
    t[: third // 2] = _special_angles(rng, third // 2)
    near = slice(third, 2 * third)
    u[near] = _near_boundary(rng, t[near], scale)
    return np.column_stack([u << np.uint64(1), t | flags << np.uint64(62)]).reshape(-1)


def _special_prefixes(rng: np.random.Generator, count: int) -> NDArray[np.uint64]:
    """Near the window's edges, powers of two and their products with sqrt(1/2)."""
    places = [
        int(box_muller.LOWEST),
        int(box_muller.HIGHEST),
        *(2**k for k in range(40, 64)),
        *(int(2**k * 0.5**0.5) for k in range(42, 64)),
    ]
    chosen = rng.choice(np.array(places, np.float64), count).astype(np.uint64).astype(object)
    reach = rng.choice([1, 2, 600, 2**20, 2**45], count)
    shift = [int(rng.integers(-r, r + 1)) for r in reach]
    return np.array(
        [min(max(c + d, 1), 2**63 - 1) for c, d in zip(chosen, shift, strict=True)], np.uint64
    )


def _special_angles(rng: np.random.Generator, count: int) -> NDArray[np.uint64]:
    places = np.array([0, 1, 2**51 - 1, 2**51, 2**51 + 1, 2**52 - 1, 2**50, 3 * 2**50], np.uint64)
    return rng.choice(places, count)


def _near_boundary(
    rng: np.random.Generator, t: NDArray[np.uint64], scale: float
) -> NDArray[np.uint64]:
    """U such that r*cos(b) is k + 1/2 plus or minus a few error bounds; float64 is close enough to
    land on either side.
    """
    cosine = np.cos((t.astype(float) * 2.0**-52 - 0.5) * np.pi / 2)
    wanted = np.floor(scale * np.abs(rng.normal(size=t.size))) + 0.5
    wanted += (
        scale
        * box_muller.ERROR
        * rng.choice([-8, -2, -1.1, -0.9, -0.1, 0, 0.1, 0.9, 1.1, 2, 8], t.size)
    )
    uniform = np.exp(-0.5 * (wanted / scale / cosine) ** 2)
    return np.clip(uniform * 2.0**63, 1, 2.0**63 - 1024).astype(np.uint64)
