"""The search for an order: far out, on a flat valley, and next to infinity."""

import math

import pytest

from discreet.accounting.rdp._orders import best_order


@pytest.mark.parametrize("wanted", [1.0001, 1.5, 9.0, 1e3, 1e9])
def test_the_lowest_place_of_a_valley_is_found(wanted: float) -> None:
    # A search on a list of orders up to 1024, say, misses the first and the last of these.
    log = math.log(wanted - 1.0)
    order = best_order(lambda order: (math.log(order - 1.0) - log) ** 2)
    assert math.log(order - 1.0) == pytest.approx(log, abs=2e-3)


def test_infinite_values_on_one_side_do_not_stop_the_search() -> None:
    def bound(order: float) -> float:
        return math.inf if order > 5.0 else 1.0 / (order - 1.0)

    order = best_order(bound, first=1.0)
    assert 4.5 < order <= 5.0


def test_the_order_is_never_worse_than_where_the_walk_ended() -> None:
    tried: dict[float, float] = {}

    def bound(order: float) -> float:
        tried[order] = abs(math.sin(3.0 * math.log(order - 1.0))) + 0.01 * (order - 1.0)
        return tried[order]

    assert bound(best_order(bound)) <= tried[1.0 + math.exp(math.log(8.0))]
