"""Operations that are special in what they read, draw, fill or write.

Names are without the underscore of in-place forms. Where overloads differ, an entry names the
overload too: `bernoulli.p` draws with one number, while `bernoulli` itself draws with a probability
for each entry, which may be another one for each place of a batch.
"""

from __future__ import annotations

__all__ = [
    "BOUNDED",
    "DRAWS_BY_VALUE",
    "FILLS",
    "GEOMETRY",
    "IGNORED",
    "RANDOM",
    "SHAPE_ONLY",
    "STATIC_SHAPE",
    "UNDECLARED_WRITES",
    "UNINITIALISED",
]


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


BOUNDED = {
    "nll_loss_backward": ("target", 1, 2),
    "nll_loss2d_backward": ("target", 1, 2),
    "max_pool2d_with_indices_backward": ("indices", -2, None),
    "max_pool3d_with_indices_backward": ("indices", -3, None),
    "adaptive_max_pool2d_backward": ("indices", -2, None),
    "adaptive_max_pool3d_backward": ("indices", -3, None),
}
"""Backward kernels that write where indices say, without a look whether there is such a place: an
argument, and from which to which axis of `self` lie the places that it names."""

DRAWS_BY_VALUE = _names(
    "rrelu rrelu_with_noise rrelu_with_noise_functional poisson binomial multinomial",
    "_standard_gamma _sample_dirichlet",
)
"""They draw as many random numbers as values ask for, and so shift those of later records."""

FILLS = _names(
    "zeros zeros_like new_zeros zero ones ones_like new_ones",
    "full full_like new_full fill scalar_tensor",
)
"""Every entry of the result is the same number."""

GEOMETRY = _names(
    "set_ resize_ resize_as_ as_strided_ detach_",
    "t_ transpose_ unsqueeze_ squeeze_ swapaxes_ swapdims_",
    "size stride numel dim storage_offset is_same_size _has_same_storage_numel is_contiguous",
    "sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous",
)
"""They change or tell a tensor's geometry, not its numbers. In-place forms keep the underscore."""

IGNORED = {
    # Without a reduction, the only way in which the rules know these losses, nobody reads it.
    "nll_loss_backward": ("total_weight",),
    "nll_loss2d_backward": ("total_weight",),
    # Laid out by oneDNN alone; what it holds of a record goes into that record's gradient.
    "mkldnn_rnn_layer_backward": ("workspace",),
    # Of each record, what its own forward wrote, no further than its own target.
    "_ctc_loss_backward": ("log_alpha",),
}
"""Arguments whose values do not matter, or matter to their own record only.

They are what a kernel has kept for itself (`INSIDE`), and has given to its backward."""

RANDOM = _names(
    "rand rand_like randn randn_like randint",
    "randint_like.default randint_like.low_dtype",
    "randint_like.generator randint_like.low_generator_dtype",
    "uniform exponential random cauchy log_normal geometric",
    "bernoulli.p bernoulli.float normal.default normal.float_float normal_functional",
)
"""They fill with random numbers, each drawn by itself from one law, as many as the shape has."""

SHAPE_ONLY = _names(
    "zeros_like ones_like full_like new_zeros new_ones new_full",
    "empty_like new_empty new_empty_strided",
    "rand_like randn_like",
    "uniform exponential random cauchy log_normal geometric normal_ normal_functional",
)
"""Of a tensor they take the shape."""

STATIC_SHAPE = _names("index one_hot _ctc_loss")
"""Tagged as having a shape that depends on values: their rules see to it that it does not, or that
nobody sees it."""

UNDECLARED_WRITES = dict.fromkeys(
    (
        "native_batch_norm",
        "cudnn_batch_norm",
        "miopen_batch_norm",
        "batch_norm_update_stats",
        "batch_norm_gather_stats",
        "batch_norm_gather_stats_with_counts",
    ),
    ("running_mean", "running_var"),
)
"""Arguments that are written in training though the schema does not say so."""

UNINITIALISED = _names(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided",
)
"""Their results hold what was in the memory before."""
