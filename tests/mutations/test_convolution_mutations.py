"""Deliberate bugs in the gradients and norms of convolutions, each applied to the real code, and
the test that catches it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from discreet.training.rules.convolution import geometry as convolution
from discreet.training.rules.convolution import norms as convolution_norms
from discreet.training.rules.convolution.geometry import Convolution
from support.mutations import Mutation, assert_caught, by_name, replaced

CONVOLUTION = "unit/training/rules/convolution/test_geometry.py"
CONVOLUTION_NORMS = "unit/training/rules/convolution/test_norms.py"

right_error = convolution_norms._error
right_patches = Convolution.patches
right_part = convolution_norms._on_both_sides


def without(name: str) -> Any:
    """The error of the norms with one part left out."""

    def error(how: Convolution, positions: int, shifts: bool, dtype: torch.dtype) -> object:
        whole = right_error(how, positions, shifts, dtype)
        names = ("relative", "lost_inner", "lost_outer", "growth", "rest", "rounding", "lost")
        parts = {part: getattr(whole, part) for part in names}
        return convolution_norms._Error(**(parts | {name: 0.0}))

    return error


def first_group_only(how: Convolution, wide: Tensor) -> Tensor:
    windows = right_patches(how, wide)
    return windows[:, :1].expand_as(windows)


def unshifted(gram: Tensor, axis: int, part: slice) -> Tensor:
    return right_part(
        gram, axis, slice(0, part.stop - part.start, part.step) if part.step else part
    )


MUTATIONS = [
    Mutation(
        "P14 the ghost norm of a convolution has no allowance for rounding",
        replaced(convolution_norms, "_error", without("relative")),
        f"{CONVOLUTION_NORMS}::test_p14_a_float32_ghost_norm_is_below_the_truth_and_the_bound_is_not",
    ),
    Mutation(
        "P14 squares that underflow are forgotten",
        replaced(convolution_norms, "_error", without("lost_inner")),
        f"{CONVOLUTION_NORMS}::test_numbers_whose_squares_underflow_keep_a_bound_above_the_truth[1e-22]",
    ),
    Mutation(
        "P07 windows of the Gram matrix are not shifted",
        replaced(convolution_norms, "_on_both_sides", unshifted),
        f"{CONVOLUTION_NORMS}::test_p07_bounds_hold_for_a_strided_dilated_padded_grouped_convolution",
    ),
    Mutation(
        "P14 TF32 and bfloat16 factors are let through",
        replaced(convolution_norms, "_refuse_short_products", lambda x: None),
        f"{CONVOLUTION_NORMS}::test_a_setting_for_short_factors_is_refused",
    ),
    Mutation(
        "P13 a record of weight zero is multiplied by zero instead of left out",
        replaced(convolution, "_without_zeros", lambda rows, weights: rows),
        f"{CONVOLUTION}::test_p13_a_record_of_weight_zero_contributes_nothing_whatever_it_holds[x-nan]",
    ),
    Mutation(
        "P07 groups of a convolution share their windows",
        replaced(Convolution, "patches", first_group_only),
        f"{CONVOLUTION}::test_p07_a_grouped_convolution_equals_a_loop",
    ),
    Mutation(
        "a product alone takes a kernel of its own",
        replaced(convolution, "product", lambda left, right, out: torch.bmm(left, right, out=out)),
        f"{CONVOLUTION_NORMS}::test_a_records_bits_do_not_depend_on_the_number_of_others[1-1]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
