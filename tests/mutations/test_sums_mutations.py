"""Deliberate bugs in norms and sums, each applied to the real code, and the test that catches it."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.numerics import _compiled, exact, ghost, norms, rounded
from discreet.numerics._rational import gamma
from discreet.training import precision
from laws import test_precision, test_sums
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit.numerics import test_compiled, test_exact, test_ghost, test_norms, test_rounded
from unit.training import test_precision as unit_precision


def per_leaf(squares: Sequence[NDArray[np.float64]], radius: int) -> object:
    return np.all([exact_within([leaf], radius) for leaf in squares], axis=0)


def unchecked(rows: Any, weight: Any, chosen: Any, total: Any, squares: Any) -> None:
    total += np.trunc(rows[chosen] * weight[chosen, np.newaxis]).sum(axis=0)


exact_within = exact._within
right_excess = rounded.FloatSum._excess

MUTATIONS = [
    Mutation(
        "the integers are not checked",
        replaced(exact, "_within", lambda squares, radius: np.ones(len(squares[0]), bool)),
        lambda: test_exact.test_p01_a_wrong_weight_cannot_exceed_the_clip_norm(1.0),
    ),
    Mutation(
        "leaves are checked one by one",
        replaced(exact, "_within", per_leaf),
        test_exact.test_leaves_of_a_group_are_checked_together,
    ),
    Mutation(
        "compiled code leaves the squares out, so that every record passes",
        replaced(_compiled, "add_units", unchecked),
        test_compiled.test_p01_compiled_sums_drop_what_exceeds_the_clip_norm,
    ),
    Mutation(
        "compiled code adds up norms in an order of its own",
        replaced(_compiled, "sums_of_squares", lambda rows: np.square(rows.astype(np.float64)).sum(axis=1)),
        lambda: test_compiled.test_norms_have_the_bits_of_the_numpy_path(np.float32),
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
        replaced(norms, "tree_sums", lambda terms: np.array([np.roll(row, at).cumsum()[-1] for at, row in enumerate(terms)])),
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
        lambda: test_rounded.test_the_number_is_the_formula_of_the_proof_rounded_up(None),
    ),
    Mutation(
        "P15 a random order is taken for fixed places",
        replaced(rounded.FloatSum, "_excess", lambda self: right_excess(replace(self, changed_microbatches=1))),
        lambda: test_sums.test_p15_in_random_order_two_microbatches_err_and_one_is_not_enough(2),
    ),
    Mutation(
        "of several parts only the worst counts",
        replaced(rounded, "_length", max),
        test_sums.test_parts_with_other_microbatches_do_not_merge_into_the_worst,
    ),
    Mutation(
        "pieces of a sequence are added for free",
        replaced(rounded.FloatSum, "_across", lambda self: gamma(self.records, np.dtype(np.float64))),
        lambda: test_rounded.test_the_number_is_the_formula_of_the_proof_rounded_up(2),
    ),
    Mutation(
        "P14 records are clipped to the charged norm, and rounding comes on top",
        replaced(precision, "inner_group", lambda group, **_: group),
        test_precision.test_p14_records_clipped_to_the_charged_norm_itself_would_exceed_it,
    ),
    Mutation(
        "P14 records whose terms cancel are not held back",
        replaced(precision, "raised_squares", lambda squares, spreads, *, most: squares),
        unit_precision.test_p14_records_that_cancel_are_held_to_their_spread,
    ),
    Mutation(
        "P15 the inner norm is that of fixed places",
        replaced(precision, "_CHANGED", 1),
        unit_precision.test_one_microbatch_would_state_less,
    ),
    Mutation(
        "tiny weights are rounded up",
        replaced(precision, "LEAST_WEIGHT", 0.0),
        unit_precision.test_weights_that_float32_would_round_up_by_half_become_zero,
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
