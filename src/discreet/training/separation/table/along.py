"""Rules of operations that work along some axes and leave all others alone.

The record axis must be among the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from discreet.training.separation.states import State
from discreet.training.separation.table.operands import (
    SUM,
    Operands,
    Rule,
    axes_of,
    overlaps,
    require,
    rules_for,
    same_rank,
)

__all__ = ["RULES"]

_ALONG = "runs along records"


def _reduced(operands: Operands) -> State | list[State]:
    """Axes are folded into one number; none named means all of them."""
    operands.require_known("self")
    rows = operands.require_rows("self")
    axes = axes_of(operands["dim"], operands["self"].ndim)

    # No claim either way; a sum over records, as the gradient of a bias, is called what it is.
    if rows.dim in axes and operands.name == "sum":
        return SUM

    require(rows.dim not in axes, "runs over records")

    # Each axis that disappears before that of the records moves it to the left.
    gone = 0 if operands["keepdim"] else sum(axis < rows.dim for axis in axes)
    return [operands.kept(rows, result, rows.dim - gone) for result in operands.results]


def _halved(operands: Operands) -> State | list[State]:
    """Follow the rows of a median, as `_reduced` does.

    The kernel of torch 2.13 sorts a copy that has the strides of its argument. If entries share a
    place there, those of neighbours come out, or what was in the memory before.
    """
    require(not overlaps(operands["self"]), "an expanded tensor")
    return _reduced(operands)


def _along(*names: str) -> Rule:
    """Operands of one rank that meet line by line along `dim` or `dims`."""

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*names)
        tensors = operands.tensors(names)
        require(same_rank(tensors), "operands of different rank")
        rows = operands.matched(tensors)

        # A line along these axes lies within one record only if they leave out that of the records.
        axes = axes_of(operands["dims" if operands.has("dims") else "dim"], tensors[0].ndim)
        require(rows.dim not in axes, _ALONG)
        return operands.in_all(rows)

    return rule


def _renormed(operands: Operands) -> list[State]:
    """The other way round: each index along `dim` is scaled by the norm of what lies there."""
    operands.require_known("self")
    rows = operands.require_rows("self")
    axes = axes_of(operands["dim"], operands["self"].ndim)
    require(rows.dim in axes, _ALONG)
    return operands.in_all(rows)


def _padded(operands: Operands) -> list[State]:
    """The list of widths begins with the last axis, two numbers for each."""
    operands.require_known("self")
    rows, pad = operands.require_rows("self"), operands["pad"]
    begin = 2 * (operands["self"].ndim - 1 - rows.dim)

    # Widths of 0, or none at all for this axis: otherwise places would move to other records.
    require(not any(pad[begin : begin + 2]), "pads along records")
    return operands.in_all(rows)


# --- the last axes are worked on, those before are a batch ---


def _leading(last: int, *names: str) -> Rule:
    """Records must lie before the `last` axes.

    Operands have the same leading axes and are not broadcast. Results that were not asked for,
    as some factors of a matrix, are empty.
    """

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*names)
        tensors = operands.tensors(names)
        rows = operands.matched(tensors)

        # Leading axes are only walked through: each of their indices is a computation of its own.
        require(rows.dim < tensors[0].ndim - last, _ALONG)
        return operands.where_fitting(rows)

    return rule


def _solved(*names: str) -> Rule:
    """Systems of equations (..., n, m).

    If ranks differ, right sides may be vectors instead of matrices: then nothing is known.
    """

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*names, "pivots")
        matrices = operands.tensors(names)
        require(same_rank(matrices), "systems and right sides of different rank")

        # The last two axes are one system of equations, all of which meet in its solution.
        rows = operands.matched([*matrices, *operands.tensors(["pivots"])])
        require(rows.dim < matrices[0].ndim - 2, _ALONG)
        return operands.where_fitting(rows)

    return rule


def _pooled_at_random(last: int) -> Rule:
    """Pooling by `random_samples` of shape (N, C, last); for an image without N they have N = 1."""

    def rule(operands: Operands) -> list[State]:
        operands.require_known("self", public=["random_samples"])
        image, samples = operands["self"], operands["random_samples"]

        # Axes are counted as in (N, C, ...), where images and samples have N and C in common.
        shift = last + 2 - image.ndim
        rows = operands.agreed([(image, shift), (samples, 0)])
        require(rows.dim < 2, _ALONG)
        return operands.in_all(rows.at(rows.dim - shift))

    return rule


# --- the first axis is the batch ---


def _first(ranks: Mapping[str, int | None]) -> Rule:
    """Records must lie along the first axis of operands of these ranks, if one is given.

    With one axis less, some operations take the first for that of channels.
    """

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*ranks)
        for name, rank in ranks.items():
            fits = rank is None or operands[name].ndim == rank
            require(fits, "an operand without a batch axis")

        return operands.in_all(operands.matched_along_first(operands.tensors(ranks)))

    return rule


def _sampled_backward(ndim: int) -> Rule:
    """Samples of images at points, going back.

    With padding other than zeros, torch 2.13 lets a point that is no number write outside of its
    image (it ended the process): then nothing is known.
    """
    row_by_row = _first({"grad_output": ndim, "input": ndim, "grid": ndim})

    def rule(operands: Operands) -> State | Sequence[State]:
        require(operands["padding_mode"] == 0, "points may lie outside of the image")
        return row_by_row(operands)

    return rule


# `max` and `min` by overload: with two tensors they work entry by entry.
_REDUCTIONS = """
    sum nansum mean prod amax amin argmax argmin aminmax any all count_nonzero
    max.dim max.default min.dim min.default mode kthvalue
    var std var_mean std_mean norm linalg_vector_norm logsumexp
"""

# Each line along `dim` is worked on by itself; its length may change, as of `topk` and `glu`.
_LINES = """
    cumsum cumprod cummax cummin logcumsumexp sort argsort topk flip roll rot90 glu
    _softmax _log_softmax softmax log_softmax _safe_softmax _fft_r2c _fft_c2r _fft_c2c
"""

_LAST_AXIS = """
    reflection_pad1d replication_pad1d
    upsample_nearest1d upsample_linear1d _upsample_nearest_exact1d
"""

_LAST_TWO = """
    avg_pool2d max_pool2d_with_indices
    adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d
    reflection_pad2d replication_pad2d upsample_nearest2d _upsample_nearest_exact2d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_bicubic2d _upsample_bicubic2d_aa
    tril triu linalg_eig _linalg_eigvals linalg_cholesky_ex cholesky cholesky_inverse
    linalg_ldl_factor_ex geqrf
"""

_LAST_THREE = """
    avg_pool3d max_pool3d_with_indices
    adaptive_avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d
    reflection_pad3d replication_pad3d upsample_nearest3d _upsample_nearest_exact3d
    upsample_trilinear3d pixel_shuffle pixel_unshuffle
"""

_FACTORS = """
    linalg_inv_ex linalg_qr linalg_lu linalg_lu_factor_ex
    _linalg_det _linalg_slogdet _linalg_eigh _linalg_svd
"""

# Going back from enlarging: the input's sizes are numbers, and the gradient is the only tensor.
_ENLARGED_1D = """
    upsample_nearest1d_backward _upsample_nearest_exact1d_backward upsample_linear1d_backward
"""

_ENLARGED_2D = """
    upsample_nearest2d_backward _upsample_nearest_exact2d_backward
    upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward
    upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward
"""

_ENLARGED_3D = """
    upsample_nearest3d_backward _upsample_nearest_exact3d_backward upsample_trilinear3d_backward
"""

# Going back from pooling and padding: the input is there too, or where its maxima were.
_POOLED_2D = """
    reflection_pad2d_backward replication_pad2d_backward avg_pool2d_backward
    _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward max_pool2d_with_indices_backward
    fractional_max_pool2d_backward
"""

_POOLED_3D = """
    reflection_pad3d_backward replication_pad3d_backward avg_pool3d_backward
    _adaptive_avg_pool3d_backward adaptive_max_pool3d_backward max_pool3d_with_indices_backward
    fractional_max_pool3d_backward
"""

RULES: dict[str, Rule] = {
    **rules_for(_REDUCTIONS, _reduced),
    **rules_for("median nanmedian", _halved),
    **rules_for(_LINES, _along("self")),
    "_softmax_backward_data": _along("grad_output", "output"),
    "_log_softmax_backward_data": _along("grad_output", "output"),
    "glu_backward": _along("grad_output", "self"),
    "linalg_cross": _along("self", "other"),
    "renorm": _renormed,
    "constant_pad_nd": _padded,
    **rules_for(_LAST_AXIS, _leading(1, "self", "input")),
    **rules_for(_LAST_TWO, _leading(2, "self", "input")),
    **rules_for(_LAST_THREE, _leading(3, "self", "input")),
    **rules_for(_FACTORS, _leading(2, "A")),
    **rules_for(_ENLARGED_1D, _leading(1, "grad_output")),
    **rules_for(_ENLARGED_2D, _leading(2, "grad_output")),
    **rules_for(_ENLARGED_3D, _leading(3, "grad_output")),
    "reflection_pad1d_backward": _leading(1, "grad_output", "self"),
    "replication_pad1d_backward": _leading(1, "grad_output", "self"),
    **rules_for(_POOLED_2D, _leading(2, "grad_output", "self", "indices")),
    **rules_for(_POOLED_3D, _leading(3, "grad_output", "self", "indices")),
    "max_unpool2d": _leading(2, "self", "indices"),
    "max_unpool3d": _leading(3, "self", "indices"),
    "linalg_householder_product": _leading(2, "input", "tau"),
    "ormqr": _leading(2, "self", "input2", "input3"),
    "lu_unpack": _leading(2, "LU_data", "LU_pivots"),
    "_linalg_solve_ex": _solved("A", "B"),
    "linalg_solve_triangular": _solved("self", "B"),
    "triangular_solve": _solved("self", "A"),
    "cholesky_solve": _solved("self", "input2"),
    "linalg_lu_solve": _solved("LU", "B"),
    "fractional_max_pool2d": _pooled_at_random(2),
    "fractional_max_pool3d": _pooled_at_random(3),
    "im2col": _first({"self": 4}),
    "col2im": _first({"self": 3}),
    **rules_for("channel_shuffle native_channel_shuffle", _first({"self": None})),
    "affine_grid_generator": _first({"theta": 3}),
    "grid_sampler_2d": _first({"input": 4, "grid": 4}),
    "grid_sampler_3d": _first({"input": 5, "grid": 5}),
    "grid_sampler_2d_backward": _sampled_backward(4),
    "grid_sampler_3d_backward": _sampled_backward(5),
}
"""By name of the operation."""
