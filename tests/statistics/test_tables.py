"""What rows of a table hold has the law that it has with noise on all rows in every step, given
when they were read; and a rounding for each visit is noticed.

Level. Pearson's chi-square of N numbers over the cells of one integer each, with probabilities from
the error function, against the 1 - 1e-6 quantile; 900 numbers are expected in every cell. Joint
laws are compared with those of a simulation with noise on all rows, by the chi-square for two
samples of equal size, at the same level. Keys are fixed.

Power. The noise of a step is 0.3 of the unit that is rounded to. Rounded at each of eight visits, a
number is 0 with probability 0.58 instead of 0.44: with N = 60,000 the mean of the chi-square is
then above 5,000, the limit below 60. With two visits, the variance is 0.89 instead of 0.80: a mean
of some 300.
"""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2
from torch import nn

from discreet.randomness import Purpose, Source
from discreet.randomness.walk import Clock, Walk
from discreet.training.tables.held import HeldTable, Series

KEY = b"statistics of tables, key 1....."
SCALE, STEPS, ROWS, WIDTH = 0.3, 8, 1_000, 60
ALPHA = 1e-6
Numbers = NDArray[np.int64]

# At which steps rows are read: never, late, seldom, always. The last read is at the end.
VISITS: dict[str, tuple[int, ...]] = {
    "settled alone": (),
    "at the end": (8,),
    "twice": (3, 8),
    "often": (1, 2, 3, 4, 5, 6, 7, 8),
}


def held(step: int = 0) -> tuple[HeldTable, nn.Parameter]:
    parameter = nn.Parameter(torch.zeros(ROWS * len(VISITS), WIDTH, dtype=torch.float64))
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=step)
    size, width = parameter.shape
    walk = Walk(stream, Clock((1,) * STEPS), scale=SCALE, rows=size, width=width)
    table = HeldTable(parameter)
    table.conceal(Series(walk, -1.0))
    return table, parameter


def rows_of(kind: str) -> NDArray[np.int64]:
    return np.arange(ROWS) + ROWS * [*VISITS].index(kind)


def run(step: int = 0) -> dict[str, dict[int, Numbers]]:
    """Integers that rows held, by kind of row and step; under 0 those when all were settled."""
    table, parameter = held(step)
    seen: dict[str, dict[int, Numbers]] = {kind: {} for kind in VISITS}
    for now in range(STEPS + 1):
        for kind, visits in VISITS.items():
            if now in visits:
                ids = torch.from_numpy(rows_of(kind))
                present, slots = table.look_up(ids)
                seen[kind][now] = present[slots[ids]].numpy().astype(np.int64)
        if now < STEPS:
            table.add(np.zeros(0, np.int64), np.zeros((0, WIDTH), np.int64))
    table.settle()
    for kind in VISITS:
        seen[kind][0] = parameter.data.numpy()[rows_of(kind)].astype(np.int64)
    return seen


def statistic(numbers: Numbers, deviation: float) -> tuple[float, float]:
    """(chi-square, limit) for round(deviation * Z)."""
    last = 0
    while ndtr(-(last + 0.5) / deviation) * numbers.size >= 900:
        last += 1
    ends = np.arange(-last, last) + 0.5
    expected = np.diff(ndtr(ends / deviation), prepend=0.0, append=1.0) * numbers.size
    observed = np.histogram(numbers, [-np.inf, *ends, np.inf])[0]
    return float(((observed - expected) ** 2 / expected).sum()), float(chi2.isf(ALPHA, ends.size))


def joint_statistic(first: Iterable[Numbers], second: Iterable[Numbers]) -> tuple[float, float]:
    """(chi-square, limit) for two samples of equal size, of several integers each."""
    cells = []
    for sample in (first, second):
        bounded = [np.clip(numbers.reshape(-1), -2, 2) + 2 for numbers in sample]
        cells.append(np.bincount(np.ravel_multi_index(bounded, [5] * len(bounded)), minlength=25))
    a, b = (counts[(cells[0] + cells[1]) >= 1_000] for counts in cells)
    return float(((a - b) ** 2 / (a + b)).sum()), float(chi2.isf(ALPHA, a.size))


def dense() -> dict[int, Numbers]:
    """Noise on all rows in every step, as float64 has it; the cumulative sum is rounded."""
    noise = SCALE * np.random.default_rng(5).standard_normal((STEPS, ROWS, WIDTH))
    total = np.cumsum(noise, axis=0)
    return {step + 1: np.rint(total[step]).astype(np.int64) for step in range(STEPS)}


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[int, Numbers]]:
    return run()


@pytest.mark.parametrize("kind", VISITS)
def test_p25_what_a_row_holds_at_the_end_does_not_tell_when_it_was_read(
    kind: str, seen: dict[str, dict[int, Numbers]]
) -> None:
    """The law given the visits, against the exact one."""
    value, limit = statistic(seen[kind][0], SCALE * STEPS**0.5)
    assert value < limit
    if 8 in seen[kind]:
        assert np.array_equal(seen[kind][8], seen[kind][0])


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_p25_every_read_has_the_noise_of_all_steps_so_far(
    step: int, seen: dict[str, dict[int, Numbers]]
) -> None:
    value, limit = statistic(seen["often"][step], SCALE * step**0.5)
    assert value < limit


@pytest.mark.parametrize("kind", ["twice", "often"])
def test_p25_two_reads_have_the_joint_law_of_the_dense_path(
    kind: str, seen: dict[str, dict[int, Numbers]]
) -> None:
    truth = dense()
    value, limit = joint_statistic((seen[kind][3], seen[kind][8]), (truth[3], truth[8]))
    assert value < limit


def test_the_laws_of_rounding_at_each_visit_are_others() -> None:
    """The power of these tests, by the bug itself."""
    noise = SCALE * np.random.default_rng(6).standard_normal((STEPS, ROWS, WIDTH))
    often = np.rint(noise).sum(0).astype(np.int64)
    twice = np.rint(noise[:3].sum(0)) + np.rint(noise[3:].sum(0))
    for numbers in (often, twice.astype(np.int64)):
        value, limit = statistic(numbers, SCALE * STEPS**0.5)
        assert value > 2 * limit
