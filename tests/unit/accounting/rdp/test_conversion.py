"""From a divergence at one order to epsilon and delta, and back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.accounting.rdp.conversion import delta_from, epsilon_from, log_delta_from


@given(order=st.floats(1.01, 1e5), divergence=st.floats(0.0, 1e3), delta=st.floats(1e-300, 0.5))
def test_conversion_round_trip_and_never_below_the_classic_derivation(
    order: float, divergence: float, delta: float
) -> None:
    epsilon = epsilon_from(divergence, order, delta)
    assert epsilon <= divergence - math.log(delta) / (order - 1) + 1e-9 * (
        1 + divergence
    )  # at least as good as Mironov's
    assert (
        delta_from(divergence, order, epsilon)
        <= delta * (1 + 1e-6 * (1 + divergence * order * 1e-6))
        or epsilon == 0.0
    )


@pytest.mark.parametrize("order", [1.5, 2.0, 30.0])
def test_the_converted_delta_bounds_the_hockey_stick_of_every_loss(order: float) -> None:
    # One outcome with loss y: D = (order - 1) y / (order - 1) at all orders, delta = 1 - e^(eps-y).
    for loss in (0.1, 1.0, 5.0):
        for epsilon in (0.0, 0.05, 0.9, 4.9):
            assert delta_from(loss, order, epsilon) >= -math.expm1(min(epsilon - loss, 0.0))


def test_edge_cases() -> None:
    assert epsilon_from(math.inf, 2.0, 1e-6) == math.inf
    assert epsilon_from(0.7, math.inf, 0.0) == 0.7
    assert epsilon_from(0.7, 2.0, 0.0) == math.inf
    assert epsilon_from(0.0, 2.0, 0.9) == 0.0
    assert delta_from(math.inf, 2.0, 1.0) == 1.0
    assert delta_from(0.7, math.inf, 0.7) == 0.0
    assert delta_from(0.7, math.inf, 0.6) == 1.0
    assert delta_from(0.1, 1e5, 1e4) == math.ulp(0.0)
    assert log_delta_from(math.inf, 2.0, 1.0) == math.inf
