"""Deliberate bugs in norms and sums, each applied to the real code, and the test that catches it."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from discreet.numerics import exact, ghost, norms, rounded
from laws import test_sums
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit.numerics import test_exact, test_ghost, test_norms, test_rounded


def per_leaf(rows: Mapping[str, object], weight: object, factors: Mapping[str, float], radius: int) -> object:
    right = exact_within
    return np.all([right({name: leaf}, weight, {name: factors[name]}, radius) for name, leaf in rows.items()], axis=0)  # type: ignore[dict-item,arg-type]


exact_within = exact._within
right_excess = rounded.FloatSum._excess

MUTATIONS = [
    Mutation(
        "the integers are not checked",
        replaced(exact, "_within", lambda rows, weight, factors, radius: np.ones(len(weight), bool)),
        lambda: test_exact.test_p01_a_wrong_weight_cannot_exceed_the_clip_norm(1.0),
    ),
    Mutation(
        "leaves are checked one by one",
        replaced(exact, "_within", per_leaf),
        test_exact.test_leaves_of_a_group_are_checked_together,
    ),
    Mutation(
        "records are rounded to the nearest integers, which may be longer",
        replaced(np, "trunc", np.rint),
        lambda: test_exact.test_no_honest_record_fails_the_check(1.1, np.float32),
    ),
    Mutation(
        "norms are not rounded up",
        replaced(norms, "_above", lambda values: values * (1 - 2.0**-51)),
        lambda: test_norms.test_a_bound_is_at_or_above_the_truth_and_near_it(np.float64),
    ),
    Mutation(
        "norms are added up across the batch's memory, in another order for another place",
        replaced(norms, "_tree", lambda terms: np.array([np.roll(row, at).cumsum()[-1] for at, row in enumerate(terms)])),
        test_norms.test_p15_every_bit_of_a_norm_is_the_records_own,
    ),
    Mutation(
        "sums have no rounding error",
        replaced(rounded, "gamma", lambda roundings, dtype: Fraction(0)),
        test_sums.test_p14_repeated_rounding_is_covered_and_without_gamma_it_is_not,
    ),
    Mutation(
        "one neighbour is rounded, the other is not",
        replaced(rounded.FloatSum, "_excess", lambda self: right_excess(self) / 2),
        lambda: test_rounded.test_the_number_is_the_formula_of_the_proof_rounded_up(fixed_places=False),
    ),
    Mutation(
        "ghost norms are taken as computed",
        replaced(ghost, "_missing", lambda inputs, gradients, spread: 0.0),
        test_ghost.test_p14_a_cancelling_ghost_norm_is_above_the_truth_where_plain_float32_is_not,
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
