"""Canaries for the data set: wrong labels and noise."""

from typing import Any

import numpy as np
import pytest

from discreet.canaries import Canaries, mislabelled, out_of_distribution
from discreet.errors import ParameterError, RandomnessMisuse
from discreet.randomness import Source


def key(number: int) -> Source:
    return Source.unsafe_test_key(bytes([number]) * 32)


def test_every_label_is_wrong_and_every_wrong_one_occurs_alike() -> None:
    """With 30 000 draws over 9 wrong classes each occurs 3333 times, standard deviation 54; 7 of
    them is an alpha below 1e-10.

    The named wrong implementation draws from all classes: a tenth of the labels would be right.
    """
    right = np.arange(30_000) % 10
    wrong = mislabelled(right, 10, source=key(1))
    assert (wrong != right).all()
    assert wrong.min() == 0
    assert wrong.max() == 9
    distances = np.bincount((wrong - right) % 10, minlength=10)
    assert distances[0] == 0
    assert np.abs(distances[1:] - 30_000 / 9).max() < 7 * 54.5


def test_two_classes_are_exchanged() -> None:
    assert mislabelled([0, 1, 1], 2).tolist() == [1, 0, 0]


def test_noise_is_uniform_between_its_ends() -> None:
    """The mean of 64 000 uniform numbers on [-1, 3) has standard deviation 0.0046."""
    inputs, labels = out_of_distribution(1000, (8, 8), classes=3, low=-1.0, high=3.0, source=key(2))
    assert inputs.dtype == np.float32
    assert inputs.shape == (1000, 8, 8)
    assert -1.0 <= inputs.min() < -0.99
    assert 2.99 < inputs.max() < 3.0
    assert abs(inputs.mean() - 1.0) < 7 * 0.0046
    assert set(labels.tolist()) == {0, 1, 2}
    assert np.unique(inputs.reshape(1000, -1), axis=0).shape[0] == 1000


def test_one_source_serves_coins_records_and_no_bit_twice() -> None:
    source = key(3)
    Canaries([0, 1], source=source)
    out_of_distribution(2, (1,), classes=2, source=source)
    with pytest.raises(RandomnessMisuse):
        out_of_distribution(2, (1,), classes=2, source=source)
    with pytest.raises(RandomnessMisuse):
        mislabelled([0], 2, source=source)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([0, 3], 3), ([-1], 3), ([0.0], 3), ([], 3), ([[0]], 3), ([0], 1), ([0], True), ("ab", 3)],
)
def test_wrong_labels_are_refused(labels: Any, classes: Any) -> None:
    with pytest.raises(ParameterError):
        mislabelled(labels, classes)


@pytest.mark.parametrize(
    "given",
    [
        {"count": 0},
        {"shape": (0,)},
        {"shape": (1.5,)},
        {"shape": 7},
        {"classes": 0},
        {"low": 1.0},
        {"high": float("inf")},
        {"source": 7},
    ],
)
def test_wrong_noise_is_refused(given: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"count": 2, "shape": (3,), "classes": 2} | given
    with pytest.raises(ParameterError):
        out_of_distribution(arguments.pop("count"), arguments.pop("shape"), **arguments)
