"""The noise has the law that the theorem states, and the same tests notice named faults.

Level. Each test of the true noise rejects with probability at most alpha = 1e-6 over the choice of
the key:

*   `cell_statistic`: Pearson's chi-square of N counts over k cells with probabilities from the
    error function. For N p >= 900 in every cell its law is close to chi-square with k - 1 degrees
    of freedom; the limit is the 1 - 1e-6 quantile of that.
*   `correlation_statistic`: sqrt(N) times the correlation of two independent sequences (or of their
    squares) is close to standard normal; the limit 6 has two-sided probability 2e-9 and leaves room
    for the four comparisons of each call.

The keys are fixed, so a run never flakes; the level says how lucky a wrong implementation would
have to be.

Power. A scale that is 5 % off moves the mean of the chi-square by N sum (p' - p)^2/p, which
`test_power` computes to be ten of its standard deviations above the limit for every scale used. A
correlation of 0.06 gives 0.06 * sqrt(40,000) = 12 > 6 + 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom, chi2

from discreet.randomness import GaussianNoise, Purpose, Source, gaussian, source, ziggurat
from discreet.randomness._cipher import derive
from discreet.randomness.layers import COUNT, tables
from discreet.randomness.refine import refine
from support.backends import LAZY

ALPHA = 1e-6
KEY = b"statistics of the noise, key 1.."
SCALES = (0.3, 0.5, 1.0, 7.3, 1000.1, 1.1 * 2**23, 2.0**32)
Floats = NDArray[np.float64]


def draw(count: int, scale: float, *, step: int = 0, lane: int = 0) -> Floats:
    stream = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=step, lane=lane)
    return GaussianNoise(stream, scale=scale, size=count).take(count)


def ends_of_cells(count: int, scale: float) -> Floats:
    """Up to 63 ends at integers plus 1/2, symmetric, with at least 900 of `count` numbers expected
    in every cell.
    """
    cells = min(64, count // 1_500)
    positive = np.ceil(scale * ndtri(np.arange(cells // 2 + 1, cells) / cells)) - 0.5
    positive = np.unique(positive[ndtr(-positive / scale) * count >= 900])
    return np.concatenate([-positive[::-1], positive])


def probabilities(ends: Floats, scale: float) -> Floats:
    return np.diff(ndtr(ends / scale), prepend=0.0, append=1.0)


def cell_statistic(numbers: Floats, scale: float) -> tuple[float, float]:
    """(statistic, limit) for round(scale * Z); cells end at integers plus 1/2, so their
    probabilities are exact.
    """
    ends = ends_of_cells(numbers.size, scale)
    expected = probabilities(ends, scale) * numbers.size
    assert ends.size >= 2
    assert expected.min() >= 900
    observed = np.histogram(numbers, [-np.inf, *ends, np.inf])[0]
    return float(((observed - expected) ** 2 / expected).sum()), float(chi2.isf(ALPHA, ends.size))


def fits(numbers: Floats, scale: float) -> bool:
    statistic, limit = cell_statistic(numbers, scale)
    return statistic < limit


def correlation_statistic(a: Floats, b: Floats) -> float:
    """Largest sqrt(N) |correlation| of values and squares."""
    pairs = itertools.product((a, a**2), (b, b**2))
    return max(abs(float(np.corrcoef(x, y)[0, 1])) for x, y in pairs) * float(np.sqrt(a.size))


def independent(a: Floats, b: Floats) -> bool:
    return correlation_statistic(a, b) < 6.0


# --- one number ---


@pytest.mark.parametrize("scale", SCALES)
def test_the_law_of_one_number(scale: float) -> None:
    numbers = draw(400_000, scale)
    assert np.array_equal(numbers, np.rint(numbers))
    assert fits(numbers, scale)
    assert fits(numbers[0::2], scale)
    assert fits(numbers[1::2], scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_power(scale: float, factor: float) -> None:
    """Under the alternative the mean is k - 1 + d and the variance about 2(k - 1) + 4d, with d = N
    sum (p' - p)^2/p.
    """
    count = 400_000
    ends = ends_of_cells(count, scale)
    p, other = (probabilities(ends, s) for s in (scale, scale * factor))
    d = count * float(((other - p) ** 2 / p).sum())
    assert ends.size + d - 10 * np.sqrt(2 * ends.size + 4 * d) > chi2.isf(ALPHA, ends.size)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_scale_five_per_cent_off_is_caught(scale: float, factor: float) -> None:
    if scale * factor <= 2.0**32:
        assert not fits(draw(400_000, scale * factor), scale)


def lowest_bits_fit(numbers: Floats) -> bool:
    counts = np.bincount(np.mod(numbers, 16).astype(int), minlength=16)
    return float(((counts - numbers.size / 16) ** 2 / (numbers.size / 16)).sum()) < float(
        chi2.isf(ALPHA, 15)
    )


def test_the_lowest_bits_are_uniform() -> None:
    """For a scale of 2^23 the law modulo 16 is uniform to within e^(-2 pi^2 2^38)."""
    assert lowest_bits_fit(draw(400_000, 2.0**23))


def test_float_noise_is_caught_by_the_lowest_bits() -> None:
    """Noise of float32 precision, scaled to the same grid, has even integers in its tails (P19)."""
    assert not lowest_bits_fit(
        np.rint(
            np.random.default_rng(1).standard_normal(400_000, np.float32).astype(float) * 2.0**26
        )
    )


# --- refinement ---


def wide_margin(*arguments: Any) -> tuple[NDArray[np.intp], Floats]:
    """A backend that leaves three quarters of the numbers to the exact path."""
    *_, spacing, out = arguments
    units = np.rint(arguments[2] / spacing)
    places, _ = ziggurat.release_inside(*arguments)
    chosen = np.flatnonzero(np.random.default_rng(0).random(out.size) < 0.75)
    chosen = np.union1d(places, chosen)
    out[chosen] = np.nan
    return chosen, units[chosen]


WIDE = LAZY._replace(release=wide_margin)


def near_zero(exact: Callable[..., int]) -> Callable[..., int]:
    def wrong(*arguments: Any) -> int:
        return int(exact(*arguments) * 0.95)  # rounds towards zero, by 5 %

    return wrong


def test_what_is_left_to_refinement_has_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = draw(20_000, 7.3)
    monkeypatch.setattr(gaussian, "_backend", lambda: WIDE)
    assert np.array_equal(draw(20_000, 7.3), expected)
    assert fits(expected, 7.3)


@pytest.mark.parametrize("answer", [lambda *_: 0, near_zero(refine)])
def test_a_wrong_refinement_is_caught(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., int]
) -> None:
    monkeypatch.setattr(gaussian, "_backend", lambda: WIDE)
    monkeypatch.setattr(gaussian, "refine", answer)
    assert not fits(draw(20_000, 7.3), 7.3)


def test_a_missing_refinement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast path in float32 cannot decide numbers above 2^24. Refined, they are right; left as
    they are, they are even.
    """
    expected = draw(60_000, 2.0**23)

    def coarse(*arguments: Any) -> tuple[NDArray[np.intp], Floats]:
        *_, out = arguments
        places, _ = ziggurat.release_inside(*arguments)
        large = np.flatnonzero(np.abs(out) >= 2.0**24)
        out[:] = out.astype(np.float32)
        left = np.union1d(places, large)
        out[left] = np.nan
        return left, np.zeros(left.size)

    def unrefined(*arguments: Any) -> tuple[NDArray[np.intp], Floats]:
        *_, out = arguments
        places, units = ziggurat.release_inside(*arguments)
        out[:] = out.astype(np.float32)
        return places, units

    monkeypatch.setattr(
        gaussian,
        "_backend",
        lambda: ziggurat.IN_NUMPY._replace(release=coarse),
    )
    assert np.array_equal(draw(60_000, 2.0**23), expected)
    monkeypatch.setattr(
        gaussian,
        "_backend",
        lambda: ziggurat.IN_NUMPY._replace(release=unrefined),
    )
    assert not lowest_bits_fit(draw(60_000, 2.0**23))


# --- layers ---


def beyond_r_fits(numbers: Floats, scale: float) -> bool:
    """The count beyond r, binomial with a mean above 40: its probability comes from the error
    function, and alpha is split between both sides.
    """
    end = np.ceil(scale * ziggurat.R_FLOAT) - 0.5
    count, p = int(np.sum(np.abs(numbers) > end)), 2.0 * float(ndtr(-end / scale))
    low, high = binom.ppf([ALPHA / 2, 1.0 - ALPHA / 2], numbers.size, p)
    return bool(low <= count <= high)


def test_the_tail_has_its_share() -> None:
    assert beyond_r_fits(draw(4_000_000, 1000.1), 1000.1)


def test_a_tail_that_is_cut_off_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ziggurat._tails

    def cut(f: Floats, height: NDArray[np.uint64]) -> tuple[Floats, Floats]:
        distance, over = right(f, height)
        return distance * 0.0 - 0.1, over

    monkeypatch.setattr(ziggurat, "_tails", cut)
    monkeypatch.setattr(gaussian, "_backend", lambda: ziggurat.IN_NUMPY)
    assert not beyond_r_fits(draw(4_000_000, 1000.1), 1000.1)


def test_wedges_that_are_skipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is outside is accepted: the densities of the layers, and not that of the bell. The
    numbers outside are looked at by themselves, as they are one in a thousand of all.
    """
    words = np.random.default_rng(8).integers(0, 2**64, 3_000_000, dtype=np.uint64)
    first = words[ziggurat.is_outside(words)]
    further = np.random.default_rng(9).integers(0, 2**64, (first.size, 5), dtype=np.uint64)
    right = second_attempts(first, further)
    assert abs(right - share_rejected()) < 6 * (share_rejected() / first.size) ** 0.5
    monkeypatch.setattr(ziggurat, "surplus", lambda log, x: np.ones(np.shape(log)))
    assert second_attempts(first, further) == 0.0


def second_attempts(first: NDArray[np.uint64], further: NDArray[np.uint64]) -> float:
    """Share of the numbers outside whose first attempt is rejected."""
    return len(ziggurat._attempt(first, further[:, 0], 1.0)[1]) / first.size


def share_rejected() -> float:
    """What is above the bell, as a share of what is not inside: from areas alone."""
    table = tables()
    area = float(table.heights[1] * table.twice_widths[1] / 2)
    above = 1.0 - float(np.sqrt(np.pi / 2)) / (COUNT * area)
    return above / float(np.mean(1.0 - 2.0 * np.maximum(table.limits, 0.0)))


# --- several numbers ---


def test_neighbours_steps_and_lanes_are_independent() -> None:
    numbers = draw(400_000, 1000.1)
    assert independent(numbers[:-1], numbers[1:])
    assert independent(numbers, draw(400_000, 1000.1, step=1))
    assert independent(numbers, draw(400_000, 1000.1, lane=1))


def test_purposes_are_independent() -> None:
    bits = Source.unsafe_test_key(KEY)
    a, b = (
        bits.stream(purpose, step=0).words(200_000).astype(np.float64)
        for purpose in (Purpose.NOISE, Purpose.SAMPLE)
    )
    assert independent(a, b)


def test_a_word_that_serves_two_numbers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*arguments: Any) -> tuple[NDArray[np.intp], Floats]:
        words, *others = arguments
        words[1::2] = words[0::2] ^ (words[1::2] & np.uint64(1 << 63))
        return ziggurat.release_inside(words, *others)

    monkeypatch.setattr(
        gaussian,
        "_backend",
        lambda: ziggurat.IN_NUMPY._replace(release=twice),
    )
    numbers = draw(40_000, 1000.1)
    assert fits(numbers[0::2], 1000.1)
    assert not independent(numbers[0::2], numbers[1::2])


def test_correlated_lanes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A derivation that forgets the lane: the same key, hence the same noise for two groups."""

    def forgetful(reveal: Callable[[], bytes], *labels: str) -> bytes:
        return derive(reveal, *labels[:3])

    monkeypatch.setattr(source, "derive", forgetful)
    assert not independent(draw(40_000, 1000.1), draw(40_000, 1000.1, lane=1))


def test_lanes_with_a_common_part_are_caught() -> None:
    a, b, common = (draw(40_000, 1000.1, lane=lane) for lane in (0, 1, 2))
    assert not independent(
        np.sqrt(0.94) * a + np.sqrt(0.06) * common, np.sqrt(0.94) * b + np.sqrt(0.06) * common
    )
