"""Enclosures against many digits: the truth is inside, and little else."""

import mpmath
import numpy as np
import pytest

from discreet.randomness._enclosures import atanh, minus_log


@pytest.mark.parametrize("bits", [80, 128, 300])
def test_enclosures_hold_and_are_narrow(bits: int) -> None:
    rng = np.random.default_rng(bits)
    with mpmath.workprec(bits + 100):
        unit = mpmath.mpf(2) ** bits

        def holds(enclosure: tuple[int, int], value: mpmath.mpf) -> None:
            lo, hi = enclosure
            assert lo <= value * unit <= hi
            assert hi - lo <= 200 * bits

        for _ in range(300):
            bottom = int(rng.integers(1, 2**60))
            top = int(rng.integers(0, bottom // 3 + 1))
            holds(atanh(top, bottom, bits), mpmath.atanh(mpmath.mpf(top) / bottom))
            n = int(rng.integers(1, 2 ** int(rng.integers(1, 63))))
            holds(minus_log(n, 63, bits), 63 * mpmath.log(2) - mpmath.log(n))
        for n in (1, 2, 3, 2**62, 2**63 - 1, 2**63):
            holds(minus_log(n, 63, bits), 63 * mpmath.log(2) - mpmath.log(n))


def test_a_sum_without_its_slack_is_below_the_truth() -> None:
    """Divisions round down: without the units that are counted, the upper end would be too low."""
    with mpmath.workprec(300):
        low = [
            mpmath.atanh(mpmath.mpf(top) / 97) * mpmath.mpf(2) ** 128 > atanh(top, 97, 128)[0]
            for top in range(1, 33)
        ]
    assert all(low)


def test_the_ends_of_the_logarithm_are_exact() -> None:
    lo, hi = minus_log(2**63, 63, 128)
    assert lo == 0 <= hi < 2**20
