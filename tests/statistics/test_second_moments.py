"""The noise of second moments, on the diagonal and off it.

alpha = 1e-6 for each statistic. The matrix has 400 x 400 entries, of which 400 are on the diagonal
and D = 79,800 above it. In units of noise_std, entries on the diagonal should be standard normal,
those above normal with variance 1/2. A mean of k squares of standard normal numbers has standard
deviation (2/k)^1/2, and is within 5.1 of them but for a probability below 1e-6 (for k = 400 the
upper tail is that of a chi-square distribution: 6.5 in the place of 5.1). Named alternatives:
    noise that is symmetrised twice, s/2 off the diagonal: the mean square is 1/2 of what it should
    be, 100 deviations off;
    noise on the upper triangle alone, symmetrised: s/2 off the diagonal, the same;
    noise drawn once and mirrored: s off the diagonal, twice what it should be: not a leak, but 200
        deviations off;
    no noise off the diagonal: 200 deviations. All are missed with probability below 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.randomness import GaussianNoise
from support import second_moments

Array = NDArray[np.float64]


def deviations() -> tuple[float, float]:
    on, off = second_moments.noise_on_and_off_the_diagonal()
    off_by = [
        abs(float(np.mean(square) - 1.0)) * (len(square) / 2) ** 0.5
        for square in (on**2, 2.0 * off**2)
    ]
    return off_by[0], off_by[1]


def test_p23_the_noise_is_what_the_plan_states_on_and_off_the_diagonal() -> None:
    on, off = deviations()
    assert on < 6.5
    assert off < 5.1


def test_entries_have_noise_of_their_own() -> None:
    _, off = second_moments.noise_on_and_off_the_diagonal()
    assert abs(float(np.mean(2.0 * off[1:] * off[:-1]))) * len(off) ** 0.5 < 5.1
    assert abs(float(np.mean(off))) * (2 * len(off)) ** 0.5 < 5.1


def _alternative(name: str, noise: Array) -> Array:
    matrix = noise.reshape(400, 400)
    wrong: dict[str, Array] = {
        "symmetrised twice": (matrix + matrix.T) / 2.0 / 2.0**0.5,
        "upper triangle alone": np.triu(matrix),
        "mirrored": np.triu(matrix) + np.triu(matrix, 1).T,
        "forgotten off the diagonal": np.diag(np.diag(matrix)),
    }
    return wrong[name]


@pytest.mark.parametrize(
    "name", ["symmetrised twice", "upper triangle alone", "mirrored", "forgotten off the diagonal"]
)
def test_wrong_noise_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = GaussianNoise.add_to

    def wrong(self: GaussianNoise, integers: Array) -> None:
        before = integers.copy()
        right(self, integers)
        integers[:] = before + _alternative(name, integers - before).reshape(-1)

    monkeypatch.setattr(GaussianNoise, "add_to", wrong)
    assert deviations()[1] > 5.1
