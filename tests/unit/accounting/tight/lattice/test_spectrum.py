"""Which frequencies of a composition matter, and the transform there, against one long FFT."""

import numpy as np
import pytest

from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice import spectrum
from discreet.accounting.tight.lattice.compose import tilted
from discreet.accounting.tight.lattice.spectrum import (
    Step,
    all_frequencies,
    frequencies,
    phases,
)
from discreet.accounting.tight.rounding import WIDE
from support.lattices import measures_of

LENGTH = 30_000


def _step(count: int, probability: float = 0.1) -> Step:
    upper, _ = measures_of(directions(PoissonGaussian(probability, 1.0))[0], 3.0, 0.01)
    part = tilted(((upper, count),), 3.0, outward=1)
    return Step(part.weights[0], part.places[0], count)


def _log_sizes(step: Step) -> np.ndarray:
    """The ln of |F|^count at every frequency, by one long transform."""
    dense = np.zeros(LENGTH)
    np.add.at(dense, np.mod(step.place, LENGTH), step.weight)
    return step.count * np.log(np.maximum(np.abs(np.fft.rfft(dense)), 1e-300))


@pytest.mark.parametrize("count", [200, 10_000, 1_000_000])
@pytest.mark.parametrize("probability", [0.1, 1e-3])
def test_no_frequency_that_matters_is_left_out(count: int, probability: float) -> None:
    step = _step(count, probability)
    matters = np.flatnonzero(_log_sizes(step) > -60.0)
    found = frequencies([step], LENGTH, 60.0)
    assert set(matters.tolist()) <= set(found.tolist())


def test_few_are_computed_where_few_matter() -> None:
    step = _step(10_000)
    matters = np.count_nonzero(_log_sizes(step) > -60.0)
    assert len(frequencies([step], LENGTH, 60.0)) < matters + 30


def test_a_peak_between_two_points_of_the_grid_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two places 1024 apart: |F| is 1 again at every multiple of 2 pi / 1024, and half of these lie
    # away from the points of a grid that is moved against them.
    step = Step(np.array([0.4, 0.4, 0.2]), np.array([0, 1025, 2050]), 4000)
    matters = set(np.flatnonzero(_log_sizes(step) > -60.0).tolist())
    assert matters <= set(frequencies([step], LENGTH, 60.0).tolist())

    # The values on the grid alone would not have told.
    monkeypatch.setattr(spectrum, "_bulge", lambda *_: 0.0)
    monkeypatch.setattr(spectrum, "_FEW", LENGTH)
    assert not matters <= set(frequencies([step], LENGTH, 60.0).tolist())


def test_short_transforms_are_computed_in_full() -> None:
    assert np.array_equal(frequencies([_step(1000)], 1000, 60.0), all_frequencies(1000))


@pytest.mark.parametrize("kind", [np.float64, np.longdouble] if WIDE else [np.float64])
def test_single_sums_and_the_long_transform_agree_within_both_errors(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, chosen = _step(1000), np.array([0, 1, 7, 300, LENGTH // 2])
    few = step.rest(chosen, LENGTH, kind)
    monkeypatch.setattr(spectrum, "_POINTS", 0)
    long = step.rest(chosen, LENGTH, kind)
    assert few.error != long.error
    assert np.max(np.abs(few.value - long.value)) <= (few.error + long.error) * few.loose
    assert few.loose + few.atom == pytest.approx(1.0)


def test_phases_are_the_same_from_a_table_and_one_by_one() -> None:
    turn = np.arange(0, 1000, 7)
    assert phases(turn, 1000, np.float64) == pytest.approx(np.exp(2j * np.pi * turn / 1000))
    assert phases(turn[:3], 1000, np.float64) == pytest.approx(phases(turn, 1000, np.float64)[:3])
