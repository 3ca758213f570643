"""Strong directions by one private query, and their gains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation import Release, SecondMoments
from discreet.features import (
    Standardisation,
    Whitening,
    rowwise,
    standardise,
    standardise_plan,
    unit_ball,
    whiten,
    whiten_plan,
)
from discreet.features.whitening import _strong
from discreet.randomness import Source

N, D = 20_000, 30
KEY = bytes(range(4, 36))
MOMENTS = np.array([0.4, 0.2, 0.1] + 27 * [0.01])
TURN = np.linalg.qr(np.random.default_rng(8).normal(size=(D, D)))[0]


def vectors() -> Any:
    """Second moments as stated along the columns of TURN; norms within the unit ball,
    nearly all.
    """
    signs = np.random.default_rng(9).choice([-1.0, 1.0], (N, D))
    return (signs * np.sqrt(MOMENTS * 0.95)) @ TURN.T


def found(
    data: Any, *, dimension: int = D, noise_multiplier: float = 4.0, **other: Any
) -> Whitening:
    plan = other.pop("plan", None) or whiten_plan(
        records=N, dimension=dimension, noise_multiplier=noise_multiplier
    )
    ledger = other.pop("ledger", None) or dp.Ledger.in_memory()
    return whiten(data, plan=plan, ledger=ledger, source=Source.unsafe_test_key(KEY), **other)


def test_strong_directions_are_found_and_made_equal() -> None:
    data = vectors()
    one = found(data, level=0.02)
    assert np.allclose(one.eigenvalues, 0.95 * MOMENTS[:3], atol=0.005)
    assert np.allclose(np.abs(np.sum(one.directions * TURN[:, :3], axis=0)), 1.0, atol=0.01)
    after = one(data) @ TURN
    assert np.allclose((after[:, :3] ** 2).mean(0), 0.02, atol=0.002)
    assert np.allclose((after[:, 3:] ** 2).mean(0), 0.0095, atol=0.001)
    assert np.isclose(one.norm, np.sqrt((after**2).sum(1).mean()), rtol=0.02)


def test_the_power_says_how_much() -> None:
    data = vectors()
    assert np.allclose(
        found(data, level=0.02, power=0.25).gains, found(data, level=0.02).gains ** 0.5
    )
    nothing = found(data, power=0)
    assert nothing.gains.size == 0
    assert np.array_equal(nothing(data), data)
    assert np.isclose(nothing.norm, 0.96, atol=0.005)


def test_without_a_level_gains_go_to_one_at_the_noise() -> None:
    one = found(vectors(), noise_multiplier=100.0)
    noise = 100.0 / N / 2**0.5 * D**0.5
    assert 0 < one.gains.size <= 4
    assert one.eigenvalues.min() > noise
    assert np.allclose(one.gains, np.sqrt((0.0095 + noise) / one.eigenvalues), rtol=0.2)


def test_noise_alone_gives_no_directions() -> None:
    assert found(np.zeros((N, D)), noise_multiplier=50.0).gains.size == 0


def test_one_charge_and_nothing_else() -> None:
    ledger = dp.Ledger.in_memory()
    found(vectors(), ledger=ledger)
    (charge,) = ledger.charges()
    assert charge.step == dp.ledger.Step(
        dp.Everything(), dp.ledger.GaussianSum("second_moments", 1.0, 4.0)
    )
    assert charge.run.numerics is dp.Numerics.EXACT


@pytest.mark.parametrize("kind", ["columns", "numbers"])
def test_a_subspace_is_seen_and_the_rest_stays(kind: str) -> None:
    data = vectors() @ TURN  # second moments along the axes
    basis: Any = (
        np.array([2, 0, 5]) if kind == "numbers" else np.eye(D, dtype=np.float32)[:, [2, 0, 5]]
    )
    one = found(data, dimension=3, basis=basis, level=0.02)
    assert np.allclose(one.eigenvalues, 0.95 * MOMENTS[[0, 2]], atol=0.005)
    after = one(data)
    assert np.allclose((after[:, [0, 2]] ** 2).mean(0), 0.02, atol=0.003)
    assert np.allclose(np.delete(after, [0, 2], axis=1), np.delete(data, [0, 2], axis=1), atol=0.02)
    assert np.isclose(
        one.norm, np.sqrt((after**2).sum(1).mean()), rtol=0.02
    )  # of whole rows, also what was not seen


def test_columns_and_numbers_of_coordinates_are_the_same() -> None:
    data, numbers = vectors(), np.array([4, 1, 7, 22])
    by_number = found(data, dimension=4, basis=numbers)
    by_column = found(data, dimension=4, basis=np.eye(D)[:, numbers])
    assert np.allclose(by_number.directions, by_column.directions, atol=1e-3)


def test_p13_rows_that_are_not_finite_contribute_nothing_and_stay_so() -> None:
    data = vectors()
    zeroed = data.copy()
    data[:3, 1], zeroed[:3] = np.nan, 0.0
    one = found(data)
    assert np.array_equal(one.directions, found(zeroed).directions)
    assert np.isnan(one(data)[:3]).all()
    assert np.isfinite(one(data)[3:]).all()


@pytest.mark.parametrize(
    "row",
    [
        np.array([3.4e38, 3.4e38, 0.0], np.float32),  # beyond float32 along a direction
        np.array([0x7FA00000, 0, 0], np.uint32).view(np.float32),  # a NaN that signals
        np.array([1e-45, 1e-45, 0.0], np.float32),
        np.array([1.7e308, 1.7e308, 0.0]),
        np.ma.array(np.array(["1e4000", 1, 1], np.longdouble), mask=[False, True, False]),
    ],
    ids=["large", "signalling", "small", "largest", "masked"],
)
def test_p13_no_row_raises_or_warns(row: Any) -> None:
    """Whether a record is in the data must not show in an error or a warning, whatever the caller
    has set.
    """
    direction = np.array([[0.9], [0.3], [0.1**0.5]])
    whitening = Whitening(direction, np.array([0.01]), np.array([1.0]), norm=1.0)
    with np.errstate(all="raise"):
        for transform in (
            whitening,
            unit_ball,
            Standardisation(mean=np.zeros(3), std=np.full(3, 0.5)),
        ):
            assert transform(row[np.newaxis]).shape == (1, 3)
        for basis, size in ((None, 3), (np.eye(3)[:, :2], 2), (np.array([0, 2]), 2)):
            plan = whiten_plan(records=1, dimension=size, noise_multiplier=4.0)
            whiten(row[np.newaxis], plan=plan, ledger=dp.Ledger.in_memory(), basis=basis)
        plan = standardise_plan(records=1, dimension=3, noise_multiplier=4.0)
        standardise(row[np.newaxis], plan=plan, ledger=dp.Ledger.in_memory())


def test_p15_a_row_alone_is_what_it_is_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    data = vectors()[:301].astype(np.float32)
    one = found(vectors())
    together = one(data)
    assert together.dtype == np.float32
    assert np.array_equal(one(data[7:]), together[7:])
    assert np.array_equal(
        np.concatenate([one(data[[number]]) for number in range(9)]), together[:9]
    )
    monkeypatch.setattr(rowwise, "_CHUNK", 333)
    assert np.array_equal(one(data), together)


def test_the_correction_undoes_what_noise_adds() -> None:
    size, noise = 300, 0.01
    random = np.random.default_rng(0).normal(0.0, noise, (size, size))
    matrix = (random + random.T) / 2**0.5
    matrix[0, 0] += 0.5
    matrix[1, 1] += 0.3
    raw = np.sort(np.linalg.eigvalsh(matrix + 0.05 * np.eye(size)))[::-1][:2] - 0.05
    values, directions, least = _strong(matrix + 0.05 * np.eye(size), noise)
    assert np.allclose(values - 0.05, [0.5, 0.3], atol=0.03)
    assert np.all(raw - (values - 0.05) > 0.04)  # 300 * 0.01^2/0.5 = 0.06 and 0.1 are taken away
    assert directions.shape == (size, 2)
    assert np.isclose(least, 0.05 + noise * size**0.5, atol=0.01)


def test_the_radius_for_the_ball_is_stated() -> None:
    data = vectors()
    one = found(data)
    norms = np.linalg.norm(unit_ball(one(data), radius=one.norm), axis=1)
    assert 0.9 < norms.mean() <= 1.0


@pytest.mark.parametrize(
    "other",
    [
        {"power": -0.5},
        {"level": 0.0},
        {"basis": np.ones((D, 2))},
        {"basis": np.eye(D)[:, :2] * np.nan},
        {"basis": np.eye(D)[:5, :2]},
        {"basis": np.array([0, 0])},
        {"basis": np.array([0, D])},
        {"basis": np.array([-1, 3])},
        {"basis": np.array([0.0, 1.0])},
        {"basis": np.array([], int)},
        {"dimension": D - 1},
        {"plan": whiten_plan(records=N - 1, dimension=D, noise_multiplier=1.0)},
        {"plan": "moments"},
    ],
)
def test_wrong_parameters_charge_nothing(other: Any) -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.ParameterError):
        found(vectors(), ledger=ledger, **other)
    assert not ledger.charges()


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    data = vectors()
    one = found(data)
    one.save(tmp_path / "white.npz")
    again = Whitening.load(tmp_path / "white.npz")
    assert np.array_equal(one(data[:9]), again(data[:9]))
    assert one.norm == again.norm
    assert np.array_equal(one.eigenvalues, again.eigenvalues)


@pytest.mark.parametrize(
    ("directions", "gains", "norm"),
    [
        (np.eye(3)[:, :2], [0.5], 1.0),
        (np.eye(3)[:, :1], [1.5], 1.0),
        (np.eye(3)[:, :1], [0.0], 1.0),
        (np.eye(3)[:, :1], [np.nan], 1.0),
        (np.ones((3, 1)), [0.5], 1.0),
        (np.eye(3)[:, :1], [0.5], 0.0),
        (np.ones(3), [0.5], 1.0),
    ],
)
def test_what_is_no_whitening_is_refused(directions: Any, gains: Any, norm: float) -> None:
    with pytest.raises(dp.errors.ParameterError):
        Whitening(directions, np.array(gains), np.array(gains), norm)


def test_p42_the_result_is_a_function_of_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = SecondMoments.release
    kept: list[Release] = []

    def first(self: SecondMoments, sample: dp.sampling.Sample, sums: Any) -> Release:
        kept.append(release(self, sample, sums))
        return kept[0]

    monkeypatch.setattr(SecondMoments, "release", first)
    one, two = found(vectors()), found(vectors()[:, ::-1])
    assert np.array_equal(one.directions, two.directions)
    assert np.array_equal(one.gains, two.gains)
    assert one.norm == two.norm


def test_p20_other_noise_gives_another_result() -> None:
    plan = whiten_plan(records=N, dimension=D, noise_multiplier=4.0)
    one, two = (whiten(vectors(), plan=plan, ledger=dp.Ledger.in_memory()) for _ in range(2))
    assert one.norm != two.norm
    assert one.eigenvalues[0] != two.eigenvalues[0]
