"""Deliberate bugs in norms and sums, each applied to the real code,
and the test that catches it.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.numerics import _compiled, exact, ghost, norms, rounded
from discreet.numerics._rational import gamma
from discreet.training.rounding import precision
from support.mutations import Mutation, assert_caught, by_name, replaced

PRECISION = "laws/test_precision.py"
SUMS = "laws/test_sums.py"
COMPILED = "unit/numerics/test_compiled.py"
EXACT = "unit/numerics/test_exact.py"
GHOST = "unit/numerics/test_ghost.py"
NORMS = "unit/numerics/test_norms.py"
ROUNDED = "unit/numerics/test_rounded.py"
UNIT_PRECISION = "unit/training/rounding/test_precision.py"


def per_leaf(squares: Sequence[NDArray[np.float64]], radius: int) -> object:
    return np.all([exact_within([leaf], radius) for leaf in squares], axis=0)


def unchecked(rows: Any, weight: Any, chosen: Any, total: Any, squares: Any) -> None:
    total += np.trunc(rows[chosen] * weight[chosen, np.newaxis]).sum(axis=0)


exact_within = exact._within
right_excess = rounded.FloatSum._excess

MUTATIONS = [
    Mutation(
        "P01 the integers are not checked",
        replaced(exact, "_within", lambda squares, radius: np.ones(len(squares[0]), bool)),
        f"{EXACT}::test_p01_a_wrong_weight_cannot_exceed_the_clip_norm[1.0]",
    ),
    Mutation(
        "P01 leaves are checked one by one",
        replaced(exact, "_within", per_leaf),
        f"{EXACT}::test_leaves_of_a_group_are_checked_together",
    ),
    Mutation(
        "P01 compiled code leaves the squares out, so that every record passes",
        replaced(_compiled, "add_units", unchecked),
        f"{COMPILED}::test_p01_compiled_sums_drop_what_exceeds_the_clip_norm",
    ),
    Mutation(
        "P15 compiled code adds up norms in an order of its own",
        replaced(
            _compiled,
            "sums_of_squares",
            lambda rows: np.square(rows.astype(np.float64)).sum(axis=1),
        ),
        f"{COMPILED}::test_norms_have_the_bits_of_the_numpy_path[float32]",
    ),
    Mutation(
        "P14 records are rounded to the nearest integers, which may be longer",
        replaced(np, "trunc", np.rint),
        f"{EXACT}::test_no_honest_record_fails_the_check[float32-1.1]",
    ),
    Mutation(
        "P14 norms are not rounded up",
        replaced(norms, "_above", lambda values: values * (1 - 2.0**-51)),
        f"{NORMS}::test_a_bound_is_at_or_above_the_truth_and_near_it[float64]",
    ),
    Mutation(
        "P15 norms are added up across the batch's memory, in another order for another place",
        replaced(
            norms,
            "tree_sums",
            lambda terms: np.array([np.roll(row, at).cumsum()[-1] for at, row in enumerate(terms)]),
        ),
        f"{NORMS}::test_p15_every_bit_of_a_norm_is_the_records_own",
    ),
    Mutation(
        "P14 sums have no rounding error",
        replaced(rounded, "gamma", lambda roundings, dtype: Fraction(0)),
        f"{SUMS}::test_p14_repeated_rounding_is_covered_and_without_gamma_it_is_not",
    ),
    Mutation(
        "P14 one neighbour is rounded, the other is not",
        replaced(rounded.FloatSum, "_excess", lambda self: right_excess(self) / 2),
        f"{ROUNDED}::test_the_number_is_the_formula_of_the_proof_rounded_up[None]",
    ),
    Mutation(
        "P15 a random order is taken for fixed places",
        replaced(
            rounded.FloatSum,
            "_excess",
            lambda self: right_excess(replace(self, changed_microbatches=1)),
        ),
        f"{SUMS}::test_p15_in_random_order_two_microbatches_err_and_one_is_not_enough[2]",
    ),
    Mutation(
        "P14 of several parts only the worst counts",
        replaced(rounded, "_length", max),
        f"{SUMS}::test_parts_with_other_microbatches_do_not_merge_into_the_worst",
    ),
    Mutation(
        "P14 pieces of a sequence are added for free",
        replaced(
            rounded.FloatSum, "_across", lambda self: gamma(self.records, np.dtype(np.float64))
        ),
        f"{ROUNDED}::test_the_number_is_the_formula_of_the_proof_rounded_up[2]",
    ),
    Mutation(
        "P14 records are clipped to the charged norm, and rounding comes on top",
        replaced(precision, "clipped_within", lambda group, **_: group),
        f"{PRECISION}::test_p14_records_clipped_to_the_charged_norm_itself_would_exceed_it",
    ),
    Mutation(
        "P14 records whose terms cancel are not held back",
        replaced(precision, "raised_squares", lambda squares, spreads, *, limit: squares),
        f"{UNIT_PRECISION}::test_p14_records_that_cancel_are_held_to_their_spread",
    ),
    Mutation(
        "P15 the inner norm is that of fixed places",
        replaced(precision, "_CHANGED", 1),
        f"{UNIT_PRECISION}::test_one_microbatch_would_state_less",
    ),
    Mutation(
        "P14 tiny weights are rounded up",
        replaced(precision, "LEAST_WEIGHT", 0.0),
        f"{UNIT_PRECISION}::test_weights_that_float32_would_round_up_by_half_become_zero",
    ),
    Mutation(
        "P14 ghost norms are taken as computed",
        replaced(ghost, "_missing", lambda inputs, gradients, spread: 0.0),
        f"{GHOST}::test_p14_a_cancelling_ghost_norm_is_above_the_truth_where_plain_float32_is_not",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
