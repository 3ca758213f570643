"""The engine of second moments: what it releases is what was planned and charged, once, whatever
the vectors hold.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import discreet as dp
from discreet.aggregation import SecondMoments, second_moments, symmetrised
from discreet.aggregation.second_moments import OuterSums
from discreet.mechanisms import Gaussian, Groups, Joint, Microbatches, NotPrivate
from discreet.randomness import GaussianNoise
from discreet.sampling import Sampler
from support.second_moments import keyed, plan, released

Array = NDArray[np.float64]
NO_SAMPLE = ("", 0, 0)


def integers(vectors: NDArray[Any], clip_norm: float = 1.0) -> Array:
    (group,) = plan(vectors.shape[1], clip_norm=clip_norm).bound.start
    sums = OuterSums(
        group, dimension=vectors.shape[1], records=max(1, len(vectors)), sample_id=NO_SAMPLE
    )
    sums.add(vectors)
    return sums.integers() * sums.grid.spacing


def test_the_ledger_is_charged_what_the_plan_says() -> None:
    ledger = dp.Ledger.in_memory()
    its = plan(3)
    run = SecondMoments(its, ledger=ledger, label="")
    assert not ledger.charges()
    (sample,) = run.samples()
    run.release(sample, np.ones((10, 3)))
    (charge,) = ledger.charges()
    assert (replace(charge, number=0),) == replace(its, numerics=dp.Numerics.EXACT).charges()


def test_the_sum_is_that_of_clipped_outer_products(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 4))
    clipped = vectors / np.maximum(1.0, np.linalg.norm(vectors, axis=1) / 2.0)[:, np.newaxis]
    monkeypatch.setattr(GaussianNoise, "add_to", lambda self, values: None)
    found = released(vectors, clip_norm=4.0)  # of x x^T: the norm of x is cut to 2
    assert np.allclose(symmetrised(found), clipped.T @ clipped / 50, atol=1e-3)
    assert found.noise_std == {"second_moments": 6.0}
    assert found.divisors == {"second_moments": 50.0}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_kinds_of_numbers_give_the_same_sum(kind: type) -> None:
    vectors = np.random.default_rng(0).integers(-9, 9, (40, 3)).astype(kind) / 64
    assert np.array_equal(integers(vectors), integers(vectors.astype(np.float64)))


def test_the_same_sum_in_any_order_and_in_any_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(3).normal(size=(300, 7))
    whole = integers(vectors)
    assert np.array_equal(whole, integers(vectors[::-1]))
    monkeypatch.setattr(second_moments, "_CHUNK", 70)
    assert np.array_equal(whole, integers(vectors))


def test_the_product_is_that_of_exact_integers() -> None:
    vectors = (
        np.random.default_rng(5).normal(size=(200, 33)) * 10.0
    )  # all are clipped to the largest integers there are
    (group,) = plan(33).bound.start
    sums = OuterSums(group, dimension=33, records=200, sample_id=NO_SAMPLE)
    units = [[int(number) for number in row] for row in sums._integers(vectors)]
    sums.add(vectors)
    exact = [[sum(row[i] * row[j] for row in units) for j in range(33)] for i in range(33)]
    assert sums.integers().astype(int).reshape(33, 33).tolist() == exact


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_p13_what_is_not_finite_contributes_nothing(bad: float) -> None:
    good = np.array([[0.1, 0.2], [0.3, 0.1]])
    assert np.array_equal(integers(np.vstack([good, [bad, 0.5], [bad, bad]])), integers(good))


def test_a_long_record_is_clipped_and_not_dropped() -> None:
    trace = integers(np.array([[3e5, 4e5]])).reshape(2, 2)
    assert np.allclose(trace, [[0.36, 0.48], [0.48, 0.64]], atol=1e-4)


def test_p01_a_wrong_weight_costs_accuracy_and_not_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp.mechanisms.Group, "weights", lambda self, squares: np.ones(len(squares)))
    assert not integers(np.array([[3.0, 4.0]])).any()


def test_p16_a_sample_is_released_once() -> None:
    run = keyed(plan(2))
    (sample,) = run.samples()
    run.release(sample, np.zeros((10, 2)))
    with pytest.raises(dp.errors.SampleMisuse):
        run.release(sample, np.zeros((10, 2)))


@pytest.mark.parametrize("rows", [0, 9, 11])
def test_p10_as_many_rows_as_were_drawn(rows: int) -> None:
    run = keyed(plan(2))
    (sample,) = run.samples()
    with pytest.raises(dp.errors.SampleMisuse) as refused:
        run.release(sample, np.zeros((rows, 2)))
    assert str(rows) not in str(refused.value)


def test_sums_of_another_sample_are_refused() -> None:
    sampler = Sampler(dp.Everything(), records=4, steps=2)
    run = keyed(plan(2, sampler=sampler))
    samples = run.samples()
    first = next(samples)
    sums = run.partial(first)
    sums.add(np.zeros((4, 2)))
    run.release(first, np.zeros((4, 2)))
    with pytest.raises(dp.errors.SampleMisuse):
        run.release(next(samples), sums)


def test_sums_in_pieces_are_released_as_one() -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 3))
    run = keyed(plan(3))
    (sample,) = run.samples()
    sums = run.partial(sample)
    sums.add(vectors[:4])
    sums.add(vectors[4:])
    assert np.array_equal(
        run.release(sample, sums)["second_moments"], released(vectors)["second_moments"]
    )


def test_an_addition_that_was_broken_off_leaves_nothing_to_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = keyed(plan(2))
    (sample,) = run.samples()
    sums = run.partial(sample)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OuterSums, "_integers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        sums.add(np.zeros((10, 2)))
    for use in (
        lambda: sums.add(np.zeros((10, 2))),
        lambda: run.release(sample, sums),
        sums.integers,
    ):
        with pytest.raises(dp.errors.SampleMisuse):
            use()


def test_rows_that_another_thread_adds_after_the_check_are_not_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 3))
    run = keyed(plan(3))
    (sample,) = run.samples()
    sums = run.partial(sample)
    sums.add(vectors)
    check = OuterSums.check_complete

    def then_added(self: OuterSums, *known: Any) -> None:
        check(self, *known)
        self._largest_count = 20  # as where a sample has fewer records than the data set
        self.add(vectors)

    with monkeypatch.context() as patch:
        patch.setattr(OuterSums, "check_complete", then_added)
        late = run.release(sample, sums)
    assert np.array_equal(late["second_moments"], released(vectors)["second_moments"])


def test_p28_an_empty_sample_releases_noise() -> None:
    run = keyed(plan(3, sampler=Sampler(dp.Poisson(1e-12), records=5, steps=1)))
    (sample,) = run.samples()
    assert np.all(run.release(sample, np.empty(0))["second_moments"] != 0.0)


def test_p20_steps_have_noise_of_their_own() -> None:
    run = keyed(plan(3, sampler=Sampler(dp.Poisson(0.5), records=5, steps=2)))
    first, second = (
        run.release(sample, np.zeros((len(sample), 3)))["second_moments"]
        for sample in run.samples()
    )
    assert not np.any(first == second)


@pytest.mark.parametrize(
    "other",
    [
        {"leaves": {"x": 4}},
        {"leaves": {"second_moments": 5}},
        {"leaves": {"second_moments": 4, "x": 1}},
        {
            "mechanism": Groups({"x": Gaussian(1.0, 1.0), "*": Gaussian(1.0, 1.0)}),
            "leaves": {"second_moments": 4, "x": 1},
        },
        {"mechanism": NotPrivate()},
        {"mechanism": Joint(1.0, 1.0, scales={"*": 2.0})},
        {"mechanism": Microbatches(Gaussian(1.0, 1.0), slots=3)},
        {"mechanism": dp.AdaptiveClip(Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=3.0)},
    ],
)
def test_another_plan_is_refused_before_anything_is_charged(other: Any) -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.ParameterError):
        SecondMoments(plan(2, **other), ledger=ledger)
    assert not ledger.charges()


@pytest.mark.parametrize(
    ("clip_norm", "noise_multiplier"),
    [(1.0, 1e12), (1.0, 1e-30), (1e280, 1.0), (1e-280, 1.0), (1e210, 1.0), (1e-210, 1.0)],
)
def test_what_no_grid_serves_is_refused_before_anything_is_charged(
    clip_norm: float, noise_multiplier: float
) -> None:
    with pytest.raises(dp.errors.NumericsError):
        keyed(plan(2, clip_norm=clip_norm, noise_multiplier=noise_multiplier))


@pytest.mark.parametrize("noise_multiplier", [1e-3, 0.5, 3.0, 64.0, 1e4])
@pytest.mark.parametrize("records", [1, 60_000, 2**31])
def test_sums_and_noise_stay_exact(noise_multiplier: float, records: int) -> None:
    (group,) = plan(2, noise_multiplier=noise_multiplier, clip_norm=0.7).bound.start
    grid, radius = second_moments._grid(group, records)
    assert radius * records < 2**52
    assert radius * grid.spacing <= group.clip_norm
    assert grid.scale(group.noise_std) <= 2**32


@pytest.mark.parametrize(
    "vectors", [np.zeros((10, 3)), np.zeros((10, 2), int), np.array(1.0), np.zeros((10, 2, 1))]
)
def test_other_arrays_are_refused(vectors: Any) -> None:
    run = keyed(plan(2))
    (sample,) = run.samples()
    with pytest.raises(dp.errors.ParameterError):
        run.release(sample, vectors)
    run.release(sample, np.zeros((10, 2)))  # nothing was spent
