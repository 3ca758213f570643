from __future__ import annotations

import math

import pytest

from discreet.accounting.costs import Gaussian
from discreet.accounting.meaning.group_privacy import group_gaussian, group_guarantee
from discreet.errors import AccountingError
from discreet.units import Adjacency, Guarantee, Numerics, Unit


def one(epsilon: float, delta: float) -> Guarantee:
    return Guarantee(
        lower=epsilon,
        upper=epsilon,
        delta=delta,
        unit=Unit.EXAMPLE,
        adjacency=Adjacency.ADD_OR_REMOVE,
        accountant="tight",
        sampling=("Poisson",),
        numerics=Numerics.CERTIFIED,
        assumptions=(),
        estimate=epsilon,
    )


def test_published_example_with_the_sum_instead_of_its_rough_bound() -> None:
    # The guide: k = 20, (2, 1e-24) -> (40, 4.7e-6). The geometric sum gives 3.68e-8.
    group = group_guarantee(one(2.0, 1e-24), size=20)
    assert group.upper == pytest.approx(40.0, rel=1e-12)
    assert group.delta == pytest.approx(3.684194710333141e-08, rel=1e-9)
    assert group.delta >= 3.684194710333141e-08
    assert group.lower == 0.0
    assert group.estimate is None
    assert "20" in group.accountant


def test_one_unit_is_no_group_and_pure_stays_pure() -> None:
    assert group_guarantee(one(1.0, 1e-6), size=1) == one(1.0, 1e-6)
    assert group_guarantee(one(1.0, 0.0), size=5).delta == 0.0
    assert group_guarantee(one(0.0, 0.1), size=5).delta == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "size"),
    [(2.0, 1e-6, 20), (1.0, 0.5, 2), (500.0, 1e-300, 3), (math.inf, 1e-6, 2)],
)
def test_a_group_without_a_guarantee_is_refused(epsilon: float, delta: float, size: int) -> None:
    guarantee = one(1.0, delta)
    object.__setattr__(guarantee, "upper", epsilon)
    with pytest.raises(AccountingError, match="group"):
        group_guarantee(guarantee, size=size)


def test_gaussian_group_is_a_gaussian_with_k_times_the_sensitivity() -> None:
    assert group_gaussian(Gaussian(4.0), size=4) == Gaussian(1.0)
    for noise in (0.1, 1.1, 4.95583513603209):
        for size in (3, 7, 20):
            assert group_gaussian(Gaussian(noise), size=size).noise_multiplier * size <= noise
