"""Deliberate privacy bugs in second moments and features, each applied to the real code, and the
test that catches it.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation import Aggregator, SecondMoments, second_moments
from discreet.aggregation.second_moments import OuterSums
from discreet.features import whitening
from discreet.mechanisms import Group
from discreet.numerics import Grid
from discreet.randomness import GaussianNoise
from support.mutations import Mutation, assert_caught, by_name, replaced

LAWS = "laws/test_features.py"
NOISE = "statistics/test_second_moments.py"
UNIT = "unit/aggregation/test_second_moments.py"
FEATURES = "unit/features"


def norm_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: OuterSums, vectors: Any) -> Any:
        weights = np.sqrt(self._group.weights(np.square(np.square(vectors).sum(1))[:, np.newaxis]))
        return np.nan_to_num(np.trunc(vectors * (weights * self._factor)[:, np.newaxis]))

    monkeypatch.setattr(OuterSums, "_integers", wrong)


def triangle_without_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    right = second_moments._grid

    def wrong(group: Group, records: int) -> tuple[Grid, int]:
        grid, radius = right(group, records)
        return grid, math.floor(
            radius * 2.0 / 3.0**0.5
        )  # at two equal coordinates a plain triangle is shorter by this

    monkeypatch.setattr(second_moments, "_grid", wrong)


def noise_on_one_half(monkeypatch: pytest.MonkeyPatch) -> None:
    right = GaussianNoise.add_to

    def wrong(self: GaussianNoise, integers: Any) -> None:
        before = integers.copy()
        right(self, integers)
        size = math.isqrt(integers.size)
        integers[:] = before + np.triu((integers - before).reshape(size, size)).reshape(-1)

    monkeypatch.setattr(
        second_moments, "GaussianNoise", type("Half", (GaussianNoise,), {"add_to": wrong})
    )


def without_noise(engine: type) -> Any:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = engine.release  # type: ignore[attr-defined]

        def wrong(self: Any, sample: dp.sampling.Sample, records: Any) -> Any:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(GaussianNoise, "add_to", lambda self, integers: None)
                return right(self, sample, records)

        monkeypatch.setattr(engine, "release", wrong)

    return patch


def rounded_product(vectors: Any, matrix: Any) -> Any:
    """As a library might: another order of additions for another number of rows."""
    order = np.arange(vectors.shape[1])[:: -1 if len(vectors) % 2 else 1]
    with np.errstate(all="ignore"):
        return np.add.accumulate(vectors[:, order, np.newaxis] * matrix[order], axis=1)[:, -1]


def unpickles(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.load
    monkeypatch.setattr(np, "load", lambda path, *, allow_pickle: right(path, allow_pickle=True))


MUTATIONS = [
    Mutation(
        "P01 the norm of integers is not checked",
        norm_not_checked,
        f"{UNIT}::test_p01_a_wrong_weight_costs_accuracy_and_not_privacy",
    ),
    Mutation(
        "P01 the triangle of x x^T counted without weight",
        triangle_without_weight,
        f"{LAWS}::test_p01_no_record_moves_the_sum_by_more_than_the_clip_norm",
    ),
    Mutation(
        "P23 noise on one half of a matrix that is then symmetrised",
        noise_on_one_half,
        f"{NOISE}::test_p23_the_noise_is_what_the_plan_states_on_and_off_the_diagonal",
    ),
    Mutation(
        "P42 second moments without noise",
        without_noise(SecondMoments),
        f"{FEATURES}/test_whitening.py::test_p20_other_noise_gives_another_result",
    ),
    Mutation(
        "P42 means and variances without noise",
        without_noise(Aggregator),
        f"{FEATURES}/test_standardisation.py::test_p20_other_noise_gives_another_result",
    ),
    Mutation(
        "P15 a product that rounds otherwise for another number of rows",
        replaced(whitening, "own_product", rounded_product),
        f"{LAWS}::test_p15_no_row_of_a_transformation_depends_on_another",
    ),
    Mutation(
        "P13 a record that is not finite poisons the sum of outer products",
        replaced(OuterSums, "_integers", lambda self, vectors: np.trunc(vectors * self._factor)),
        f"{UNIT}::test_p13_what_is_not_finite_contributes_nothing",
    ),
    Mutation(
        "P16 a sample of second moments released twice",
        replaced(dp.sampling.Sample, "spend", lambda self: None),
        f"{UNIT}::test_p16_a_sample_is_released_once",
    ),
    Mutation(
        "P10 vectors not counted",
        replaced(OuterSums, "check_complete", lambda *_: None),
        f"{UNIT}::test_p10_as_many_rows_as_were_drawn[9]",
    ),
    Mutation(
        "P45 the plan of whitening is not checked",
        replaced(whitening, "check_plan", lambda *_: None),
        f"{FEATURES}/test_whitening.py::test_wrong_parameters_charge_nothing",
    ),
    Mutation(
        "P46 files of features are unpickled",
        unpickles,
        f"{FEATURES}/test_standardisation.py::test_p46_nothing_in_a_file_is_executed",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
