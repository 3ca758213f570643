"""Attacks on mechanisms that once worked:
one record that changes how others are weighed or read.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from discreet.errors import ParameterError
from discreet.mechanisms import (
    AdaptiveClip,
    BatchNorm,
    Count,
    Gaussian,
    Group,
    Histogram,
    Joint,
    Mechanism,
    Moments,
    Normalised,
)

LEAVES = {f"leaf{number}": 2 for number in range(40)}
MANY: dict[str, Mechanism] = {
    "flat": Gaussian(1.0, 1.0),
    "joint": Joint(1.0, 1.0, scales={"leaf0": 2.0, "*": 3.0}),
    "normalised": Normalised(1.0, 1.0),
    "adaptive": AdaptiveClip(Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=5.0),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": np.array,
    "columns": np.asfortranarray,
    "torch, rows": lambda squares: torch.tensor(squares, dtype=torch.float32),
    "torch, columns": lambda squares: torch.tensor(squares.T.copy(), dtype=torch.float64).T,
}


def group_of(name: str) -> Group:
    return MANY[name].bind(LEAVES).start[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MANY)
def test_a_weight_does_not_depend_on_how_many_other_records_there_are(
    name: str, layout: str
) -> None:
    """A library's own sum over leaves adds in another order for one row than for two: `sum(-1)`
    fails here.
    """
    group, arranged = group_of(name), LAYOUTS[layout]
    generator = np.random.default_rng(0)
    for _ in range(20):
        squares = generator.random((33, len(LEAVES)))
        together = np.asarray(group.weights(arranged(squares)))
        for count in (1, 2, 3, 8, 17):
            assert np.array_equal(
                np.asarray(group.weights(arranged(squares[:count]))), together[:count]
            )


def test_no_bit_flips_because_another_record_came() -> None:
    """Records of one norm, at the threshold: with the library's sum all of their bits flip when a
    second one arrives.
    """
    bound = MANY["adaptive"].bind(LEAVES)
    generator = np.random.default_rng(1)
    for _ in range(50):
        squares = torch.tensor(generator.random(len(LEAVES)), dtype=torch.float32)
        state = {"all": float(bound.start[0].ratios(squares[None])[0])}  # where the bit turns
        bits = set()
        for count in (1, 2, 16, 33):
            columns = squares.repeat(count, 1).T.contiguous().T
            bits |= set(bound.observations(state, {"all": columns})["all/below"].tolist())
        assert len(bits) == 1


@pytest.mark.parametrize(
    "odd",
    ["secret", b"secret", None, 10**400, 1j, [0.5, 0.25], [], object()],
    ids=lambda odd: type(odd).__name__,
)
def test_one_odd_value_changes_nobody_and_raises_nothing(odd: object) -> None:
    plain = [0, 1, 2]
    values: Any = [*plain, odd]
    assert np.array_equal(Histogram(3).encode(values)[:3], np.eye(3))
    assert np.array_equal(Histogram(3).encode(values)[3], np.zeros(3))
    moments = Moments(0.0, 2.0)
    assert np.array_equal(moments.encode(values)[:3], moments.encode(plain))
    assert np.isnan(moments.encode(values)[3]).all()
    assert Count().encode(values).tolist() == [[1.0]] * 4


def test_a_masked_value_is_missing() -> None:
    values: Any = np.ma.MaskedArray([1, 1], mask=[True, False])
    assert Histogram(2).encode(values).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert np.isnan(Moments(0.0, 2.0).encode(values)[0]).all()


@pytest.mark.parametrize("encode", [Moments(0.0, 1.0, coordinates=3).encode, Histogram(3).encode])
def test_records_are_not_cut_at_other_places(encode: Callable[[Any], Any]) -> None:
    with pytest.raises(ParameterError, match="records of"):
        encode(np.zeros((6, 2)))


def test_averages_over_positions_do_not_depend_on_other_records() -> None:
    norm, activations = BatchNorm(channels=1), np.random.default_rng(0).random((6, 1, 20))
    together = norm.encode(np.asfortranarray(activations))
    for record in range(6):
        assert np.array_equal(
            norm.encode(np.asfortranarray(activations[record : record + 1])),
            together[record : record + 1],
        )
