"""Adaptive clipping: numbers, direction, one threshold for everything in a step, released values
only (P24).
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from discreet.errors import ParameterError
from discreet.mechanisms import AdaptiveClip, Bound, Gaussian, Groups, Microbatches, Threshold

ADAPTIVE = AdaptiveClip(
    Gaussian(clip_norm=2.0, noise_multiplier=1.1), quantile=0.5, count_noise_std=26.0
)
BOUND = ADAPTIVE.bind({"a": 3, "b": 1}, "g")


def test_p24_the_bit_is_centred_and_paid_for() -> None:
    vectors, bits = BOUND.queries
    assert (vectors.sensitivity, bits.sensitivity, bits.noise_std) == (1.0, 0.5, 26.0)
    assert vectors.noise_std**-2 + (2 * 26.0) ** -2 == pytest.approx(1.1**-2, rel=1e-14)
    squares = np.array([[1.0, 1.0], [9.0, 0.0], [math.nan, 0.0], [math.inf, 0.0], [0.0, 0.0]])
    values = BOUND.observations(BOUND.initial_state, {"g": squares})["g/below"]
    assert values.tolist() == [0.5, -0.5, 0.0, 0.0, 0.5]
    assert BOUND.observed == ("g/below",)
    assert np.abs(values).max() <= bits.sensitivity


def test_bits_of_torch_tensors() -> None:
    values = BOUND.observations(
        BOUND.initial_state, {"g": torch.tensor([[1.0, 1.0], [9.0, 0.0], [math.nan, 0.0]])}
    )
    assert values["g/below"].tolist() == [0.5, -0.5, 0.0]


def test_p24_clip_noise_and_scaling_back_use_the_threshold_of_this_step() -> None:
    """Noise in the leaf's unit is scale * noise_std: it moves with the bound, while the event
    stays.
    """
    for threshold in (0.5, 2.0, 7.0):
        vectors, _ = BOUND.groups({"g": threshold})
        assert vectors.scales == (threshold, threshold)
        assert vectors.query == BOUND.queries[0]
        (weight,) = vectors.weights(np.array([[(10 * threshold) ** 2, 0.0]]))
        assert weight == pytest.approx(0.1)


def test_p24_the_threshold_moves_towards_the_quantile() -> None:
    def after(total: float) -> float:
        return BOUND.update(
            BOUND.initial_state, {"g/below": np.array([total])}, expected_batch_size=100.0
        )["g"]

    assert after(0.0) == 2.0
    assert after(50.0) == pytest.approx(2.0 * math.exp(-0.2 * 0.5))  # all below: too large
    assert after(-50.0) == pytest.approx(2.0 * math.exp(0.2 * 0.5))
    assert 0.0 < after(-1e300) < math.inf
    assert 0.0 < after(1e300) < math.inf


def test_the_threshold_never_moves_on_data_that_was_not_released() -> None:
    """Only `update` makes a state, and it is given released values; whatever the norms, the groups
    of a state are the same.
    """
    state = BOUND.initial_state
    before = BOUND.groups(state)
    for norm in (1e-9, 1.0, 1e9, math.nan):
        squares = np.full((50, 2), norm)
        BOUND.observations(state, {"g": squares})
        before[0].weights(squares)
    assert BOUND.groups(state) == before
    assert dict(BOUND.initial_state) == {"g": 2.0}
    released = {"g/below": 1.0, "a": np.zeros(3), "b": np.zeros(1)}
    assert BOUND.update(state, released, expected_batch_size=10.0) == BOUND.update(
        state, released | {"a": np.full(3, 1e9)}, expected_batch_size=10.0
    )


def test_a_state_is_a_frozen_mapping_of_numbers() -> None:
    state = BOUND.update(BOUND.initial_state, {"g/below": 3.0}, expected_batch_size=10.0)
    assert BOUND.groups(dict(state)) == BOUND.groups(state)  # as read back from a file
    with pytest.raises(TypeError):
        state["g"] = 5.0  # type: ignore[index]
    for wrong in ({}, {"g": 0.0}, {"g": math.nan}, {"g": 1.0, "h": 1.0}, {"h": 1.0}):
        with pytest.raises(ParameterError):
            BOUND.groups(wrong)


@pytest.mark.parametrize(
    "released", [{}, {"g/below": math.nan}, {"g/below": math.inf}, {"g/below": np.zeros(2)}]
)
def test_a_release_that_is_no_number_is_refused(released: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        BOUND.update(BOUND.initial_state, released, expected_batch_size=10.0)


def test_p23_the_divisor_is_public_and_stated() -> None:
    with pytest.raises(TypeError):
        BOUND.update(BOUND.initial_state, {"g/below": 1.0})  # type: ignore[call-arg]
    with pytest.raises(ParameterError):
        BOUND.update(BOUND.initial_state, {"g/below": 1.0}, expected_batch_size=0.0)


def test_p23_the_divisor_of_slots_is_their_number() -> None:
    slots = Microbatches(ADAPTIVE, slots=10).bind({"a": 1}, "g")
    assert [query.sensitivity for query in slots.queries] == [2.0, 1.0]
    moved = slots.update(slots.initial_state, {"g/below": 5.0}, expected_batch_size=1000.0)
    assert moved["g"] == pytest.approx(2.0 * math.exp(-0.2 * 0.5))


def test_several_thresholds_follow_their_own_groups() -> None:
    bound: Bound = Groups({"a/*": ADAPTIVE, "b/*": ADAPTIVE}).bind({"a/x": 1, "b/x": 1})
    state = bound.update(
        bound.initial_state, {"a/*/below": 50.0, "b/*/below": -50.0}, expected_batch_size=100.0
    )
    assert state["a/*"] < 2.0 < state["b/*"]
    with pytest.raises(ParameterError, match="squared norms of group"):
        bound.observations(state, {"a/*": np.zeros((1, 1))})


def test_a_leaf_may_not_take_the_name_of_the_bit() -> None:
    with pytest.raises(ParameterError, match="more than once"):
        ADAPTIVE.bind({"g/below": 1}, "g")


def test_too_little_noise_on_the_bits_is_refused() -> None:
    with pytest.raises(ParameterError, match="above half the noise multiplier"):
        AdaptiveClip(Gaussian(1.0, 2.0), 0.5, count_noise_std=1.0)
    AdaptiveClip(Gaussian(1.0, 2.0), 0.5, count_noise_std=1.0001)


@pytest.mark.parametrize(
    "fields",
    [{"quantile": 0.0}, {"quantile": 1.0}, {"count_noise_std": 0}, {"learning_rate": -0.1}],
)
def test_bad_parameters_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        AdaptiveClip(Gaussian(1.0, 1.0), **{"quantile": 0.5, "count_noise_std": 10.0} | fields)
    with pytest.raises(ParameterError):
        AdaptiveClip(ADAPTIVE, 0.5, 10.0)  # type: ignore[arg-type]


def test_a_threshold_stays_within_reach() -> None:
    rule = Threshold(group="g", observed="b", start=1.0, quantile=0.5, learning_rate=1.0)
    threshold = 1.0
    for _ in range(10_000):
        threshold = rule.moved(threshold, 1e6)
    assert threshold == 2.0**-30
