"""Many costs by way of fewer: each end on its safe side, counts kept, adjacencies apart."""

from collections import Counter

from discreet.accounting.costs import Cost, Laplace, PoissonGaussian
from discreet.accounting.normalise import Counted
from discreet.accounting.tight.lattice.coarse import MOST, coarse

MANY: Counted = (
    *((PoissonGaussian(0.01 + 1e-4 * i, 1.0 + 0.01 * i), i + 1) for i in range(80)),
    *((PoissonGaussian(0.01 + 1e-4 * i, 1.0 + 0.01 * i, replace=True), 2) for i in range(5)),
    (Laplace(3.0), 7),
)


def _by_kind(costs: Counted) -> Counter[object]:
    totals: Counter[object] = Counter()
    for cost, count in costs:
        totals[cost.replace if isinstance(cost, PoissonGaussian) else cost] += count
    return totals


def test_there_are_few_enough_and_no_step_is_lost() -> None:
    for upper in (True, False):
        fewer = coarse(MANY, upper=upper)
        assert len(fewer) <= MOST + 1
        assert _by_kind(fewer) == _by_kind(MANY)


def test_every_step_has_a_stand_in_on_the_safe_side() -> None:
    # With the mean of a cell, or the sides exchanged, some step would be flattered.
    def poisson(costs: Counted, *, replace: bool) -> list[PoissonGaussian]:
        return [
            cost
            for cost, _ in costs
            if isinstance(cost, PoissonGaussian) and cost.replace is replace
        ]

    def worse(a: PoissonGaussian, b: PoissonGaussian) -> bool:
        return a.probability >= b.probability and a.noise_multiplier <= b.noise_multiplier

    above, below = coarse(MANY, upper=True), coarse(MANY, upper=False)
    for replace in (True, False):
        for cost in poisson(MANY, replace=replace):
            near = sorted(poisson(above, replace=replace), key=lambda one: -one.noise_multiplier)
            assert any(worse(stand_in, cost) for stand_in in near)
            assert any(worse(cost, stand_in) for stand_in in poisson(below, replace=replace))


def test_costs_of_another_kind_stay_as_they_are() -> None:
    others: list[Cost] = [
        cost for cost, _ in coarse(MANY, upper=True) if not isinstance(cost, PoissonGaussian)
    ]
    assert others == [Laplace(3.0)]
