"""Readings of an odometer: shares that add up to delta, and the smallest epsilon of any rule."""

import math

import pytest

from discreet.accounting.costs import Gaussian
from discreet.accounting.normalise import normalise
from discreet.accounting.odometer import mixture_epsilon, odometer_reading, shares
from discreet.accounting.rdp import composed
from discreet.accounting.tight import tight_upper
from discreet.ledger.events import Everything, GaussianSum, Poisson, Step
from discreet.ledger.terms import Rule, Terms
from discreet.units import Adjacency

ADD, DELTA = Adjacency.ADD_OR_REMOVE, 1e-6
STEP = Step(Poisson(0.01), [GaussianSum("grad", 1.0, 1.5)])
OTHER = Step(Everything(), [GaussianSum("grad", 1.0, 30.0)])


def terms() -> Terms:
    levels, orders = shares(((STEP, 100),), ADD, DELTA)
    return Terms(
        rule=Rule.ODOMETER, delta=DELTA, planned=((STEP, 100),), levels=levels, orders=orders
    )


def test_shares_of_levels_and_orders_are_exactly_the_whole() -> None:
    levels, orders = shares(((STEP, 100),), ADD, DELTA)
    assert sum(share for _, share in (*levels, *orders)) == 1.0
    assert all(order > 1.0 for order, _ in orders)
    assert [order for order, _ in orders] == sorted({order for order, _ in orders})


@pytest.mark.parametrize(("count", "copies", "share"), [(100, 1, 1 / 2), (101, 2, 1 / 8)])
def test_the_lowest_level_that_holds_all_charges_is_read(
    count: int, copies: int, share: float
) -> None:
    reading = odometer_reading(terms(), ((STEP, count),), ADD)
    costs = normalise([(STEP, 100 * copies)], ADD)
    assert reading.epsilon == tight_upper(costs, DELTA * share, 1e-3, {})
    assert f"{share:g} of delta" in reading.rule


def test_steps_that_were_not_planned_are_on_no_level() -> None:
    reading = odometer_reading(terms(), ((STEP, 100), (OTHER, 1)), ADD)
    assert reading.rule == "a mixture of Rényi orders"
    assert reading.epsilon > odometer_reading(terms(), ((STEP, 100),), ADD).epsilon


def test_readings_never_fall_as_more_is_charged() -> None:
    readings = [odometer_reading(terms(), ((STEP, n),), ADD).epsilon for n in (1, 100, 101, 2500)]
    assert readings == sorted(readings)


@pytest.mark.parametrize("order", [2.0, 10.0, 60.0])
def test_one_order_with_the_whole_of_delta_is_the_usual_conversion(order: float) -> None:
    costs = [(Gaussian(2.0), 3)]
    usual = (
        composed(costs, order)
        + math.log1p(-1.0 / order)
        - (math.log(DELTA) + math.log(order)) / (order - 1.0)
    )
    found = mixture_epsilon(costs, [(order, 1.0)], DELTA)
    assert usual <= found <= usual * (1.0 + 1e-8)


def test_a_mixture_is_at_most_each_of_its_orders_with_its_share() -> None:
    costs = [(Gaussian(2.0), 3)]
    orders = [(5.0, 0.5), (20.0, 0.25)]
    together = mixture_epsilon(costs, orders, DELTA)
    assert together <= min(mixture_epsilon(costs, [pair], DELTA) for pair in orders)


def test_without_an_order_nothing_is_claimed() -> None:
    assert mixture_epsilon([(Gaussian(2.0), 1)], [], DELTA) == math.inf


def test_nothing_charged_is_epsilon_zero_at_a_large_delta() -> None:
    assert mixture_epsilon([], [(2.0, 1.0)], 0.9) == 0.0
