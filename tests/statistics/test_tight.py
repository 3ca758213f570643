"""Samples of the privacy loss never contradict a bracket, and do contradict a wrong one.

delta(eps) = E_P (1 - e^(eps - S))_+ is the mean of n independent values in [0, 1]. By the empirical
Bernstein inequality [MaurerPontil2009, Theorem 4] the sample mean is within w = sqrt(2 v
ln(4/alpha)/n) + 7 ln(4/alpha)/(3(n-1)) of it, v the sample variance, except with probability alpha,
here 1e-6 per test. The named wrong alternative, noise 5 % larger than claimed by mistake, moves
delta by several w, so it is missed with a probability below 1e-6 as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.accounting.costs import Cost, Laplace, PoissonGaussian
from discreet.accounting.tight import tight_delta
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.bracket import delta_bracket
from discreet.accounting.tight.lattice.pair import Composition

ALPHA = 1e-6
N = 400_000
FloatArray = NDArray[np.float64]
Sampler = Callable[[np.random.Generator], FloatArray]


def _mixture_loss(x: FloatArray, q: float, s: float) -> FloatArray:
    return np.log1p(q * np.expm1((2.0 * x - 1.0) / (2.0 * s * s)))


def remove(q: float, s: float, steps: int) -> Sampler:
    def sample(rng: np.random.Generator) -> FloatArray:
        total = np.zeros(N)
        for _ in range(steps):
            total += _mixture_loss(rng.normal(0.0, s, N) + (rng.random(N) < q), q, s)
        return total

    return sample


def add(q: float, s: float, steps: int) -> Sampler:
    def sample(rng: np.random.Generator) -> FloatArray:
        total = np.zeros(N)
        for _ in range(steps):
            total -= _mixture_loss(rng.normal(0.0, s, N), q, s)
        return total

    return sample


def exchanged(q: float, s: float, steps: int) -> Sampler:
    def sample(rng: np.random.Generator) -> FloatArray:
        total = np.zeros(N)
        for _ in range(steps):
            x = rng.normal(0.0, s, N) + (rng.random(N) < q)
            total += _mixture_loss(x, q, s) - _mixture_loss(-x, q, s)
        return total

    return sample


def laplace(b: float, steps: int) -> Sampler:
    def sample(rng: np.random.Generator) -> FloatArray:
        total = np.zeros(N)
        for _ in range(steps):
            x = rng.laplace(0.0, b, N)
            total += (np.abs(x - 1.0) - np.abs(x)) / b
        return total

    return sample


def interval(loss: FloatArray, epsilon: float) -> tuple[float, float]:
    value = np.maximum(-np.expm1(epsilon - loss), 0.0)
    log = math.log(4.0 / ALPHA)
    width = math.sqrt(2.0 * float(value.var(ddof=1)) * log / N) + 7.0 * log / (3.0 * (N - 1))
    return float(value.mean()) - width, float(value.mean()) + width


CASES = [
    pytest.param(
        PoissonGaussian(0.1, 0.8),
        PoissonGaussian(0.1, 0.84),
        30,
        0,
        remove(0.1, 0.8, 30),
        0.6,
        id="remove",
    ),
    pytest.param(
        PoissonGaussian(0.1, 0.8),
        PoissonGaussian(0.1, 0.84),
        30,
        1,
        add(0.1, 0.8, 30),
        0.6,
        id="add",
    ),
    pytest.param(
        PoissonGaussian(0.1, 0.8, replace=True),
        PoissonGaussian(0.1, 0.84, replace=True),
        30,
        0,
        exchanged(0.1, 0.8, 30),
        1.0,
        id="replace",
    ),
    pytest.param(Laplace(4.0), Laplace(4.2), 20, 0, laplace(4.0, 20), 0.8, id="laplace"),
]


@pytest.mark.parametrize(("cost", "wrong", "steps", "way", "sampler", "epsilon"), CASES)
def test_samples_contradict_only_a_wrong_bracket(
    cost: Cost, wrong: Cost, steps: int, way: int, sampler: Sampler, epsilon: float
) -> None:
    low, high = interval(sampler(np.random.default_rng(20261115)), epsilon)
    bracket = delta_bracket(Composition(((directions(cost)[way], steps),)), epsilon, 1e-3)
    assert bracket.lower <= high
    assert low <= bracket.upper
    assert tight_delta(((cost, steps),), epsilon).upper >= bracket.lower
    mistaken = delta_bracket(Composition(((directions(wrong)[way], steps),)), epsilon, 1e-3)
    assert mistaken.upper < low
