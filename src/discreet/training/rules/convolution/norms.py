"""Squared norms of convolutions' per-record gradients that are never formed, as certified upper
bounds.

    |dW|^2 = sum_(t,s) Z_ts H_ts,    H_ts = n_t . n_s,    Z_ts = a_t . a_s

n and w are the narrow and the wide side of `geometry.py`, a_t the window of w at position t: the
ghost norm of a linear map over windows [Bu2022]. Z needs no windows: with u(t,k) the place k of
window t,

    Z_ts = sum_k w_u(t,k) . w_u(s,k)

is a sum of shifted parts of the Gram matrix of w itself, one axis of the kernel after the other.
This takes L^2 C products and a few additions in the place of T^2 C K (L numbers per channel, C
channels of a group, K places of the kernel), and it rounds less. Where windows hardly overlap they
are copied out instead.

Proof: docs/proofs/convolution.md.

Legend: m records, T positions, p numbers of a window, q narrow channels of a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from discreet.errors import NumericsError, ParameterError
from discreet.numerics._rational import gamma, root_up, tiny, up
from discreet.numerics.norms import tree_sums
from discreet.training.rules.convolution.geometry import Convolution, product

__all__ = ["ghost_pays", "ghost_squares"]

_CACHE = 2**20  # bytes of Gram matrices worked on at a time, about one core's cache
_ADDITION = 30  # cost of an addition in memory, in multiplications of a matrix product; measured
_KINDS: dict[torch.dtype, np.dtype[np.floating]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
_WIDE = np.dtype(np.float64)
_MORE = 1.0 + 2.0**-40  # above all roundings of the few positive terms that it is applied to


def ghost_squares(how: Convolution, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """(m,) twice, float64: upper bounds of the squared norms of the records' weight gradients, and
    of their squared spreads S^2 = (sum_t |a_t||n_t|)^2.

    Guarantee: at or above the squared norm of the true gradient, and of the gradient computed as a
    sum of T products in the dtype of x in any order (`unfolded`, `streamed`). It exceeds the truth
    by about 2 (C + q + T + sum of the kernel) u S^2 at most: records whose terms nearly cancel are
    clipped more than needed, never less. Over several groups of channels the spread is the root of
    the sum of squares: different groups enter different numbers.

    | record | bounds |
    |---|---|
    | holds NaN or an infinity, or its squares leave the range of the dtype | +infinity |
    | all zeros | 0, or a number below 1e-30 |

    Args:
        how: public.
        x: the input, (m, channels, *sizes), float32 or float64; sensitive.
        g: the gradient of the output, of the same dtype; sensitive.

    >>> how = Convolution.of((1, 1, 2))
    >>> x, g = torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[[1.0, -1.0]]])
    >>> how.unfolded(x, g).tolist(), ghost_squares(how, x, g)[0].numpy().round(4).tolist()
    ([[[[-1.0, -1.0]]]], [2.0])
    """
    wide, narrow = how.sides(x, g)
    _refuse_short_products(x)
    wide_sizes, sizes = tuple(wide.shape[2:]), tuple(narrow.shape[2:])
    channels, narrow_channels = how.weight_shape[1], how.weight_shape[0] // how.groups
    by_shifts = _shifts_pay(how, wide_sizes)
    error = _error(how, math.prod(sizes), by_shifts, x.dtype)

    bounds = x.new_zeros((2, len(x), how.groups), dtype=torch.float64)
    # At least two records at a time: see `product`.
    step = max(2, _CACHE // _record_bytes(how, wide_sizes, x.element_size()))

    for start in range(0, len(x), step):
        part = slice(start, start + step)
        if by_shifts:
            places = _gram(wide[part].reshape(-1, channels, math.prod(wide_sizes)))
            inner = _window_gram(how, places.view(-1, *wide_sizes, *wide_sizes), sizes)
        else:
            inner = _gram(how.patches(wide[part]).flatten(0, 1).transpose(1, 2))

        outer = _gram(narrow[part].reshape(-1, narrow_channels, math.prod(sizes)))
        bounds[:, part] = error.bound(inner, outer).view(2, -1, how.groups)

    # NaN becomes infinity: such a record is left out, as one whose norm is infinite (P13).
    squares, spreads = (
        torch.nan_to_num(tree_sums(bound) * _MORE, nan=math.inf, posinf=math.inf)
        for bound in bounds
    )

    return squares, spreads


def ghost_pays(how: Convolution, wide_sizes: Sequence[int]) -> bool:
    """Whether Gram matrices take less than the gradients themselves; from public shapes.

    >>> how = Convolution.of((64, 64, 3, 3), padding=1)
    >>> ghost_pays(how, (8, 8)), ghost_pays(how, (16, 16))
    (True, False)
    """
    positions, narrow_channels = (
        math.prod(how.positions(wide_sizes)),
        how.weight_shape[0] // how.groups,
    )
    channels = how.weight_shape[1] + narrow_channels
    products = math.prod(wide_sizes) ** 2 * (channels + _ADDITION * sum(how.weight_shape[2:]))

    return products <= 2 * positions * how.window * narrow_channels


@dataclass(frozen=True, slots=True)
class _Error:
    """How far computed Gram matrices may be off, for p, q and T; see the proof for the names."""

    relative: float
    lost_inner: float
    lost_outer: float
    growth: float
    rest: float
    rounding: float
    lost: float

    def bound(self, inner: Tensor, outer: Tensor) -> Tensor:
        """(2, n): upper bounds of the squared norm and of the squared spread, for each pair of Gram
        matrices (n, T, T).
        """
        # Step 2 of the proof: lengths |a_t| and |n_t| from the diagonals, and S from the lengths.
        lengths_inner = _lengths(inner, self.lost_inner, self.growth)
        lengths_outer = _lengths(outer, self.lost_outer, self.growth)
        spread = tree_sums(lengths_inner * lengths_outer) * _MORE

        # Step 3: the sum of all products, and what rounding and underflow may have taken from it.
        computed = tree_sums(inner.flatten(1).double() * outer.flatten(1))
        all_inner, all_outer = tree_sums(lengths_inner), tree_sums(lengths_outer)
        underflow = self.lost_inner * all_outer**2 + self.lost_outer * all_inner**2 + self.rest
        missing = (self.relative * spread**2 + underflow) * _MORE
        high = torch.nextafter(computed + missing, torch.full_like(computed, math.inf))
        # An overflow says nothing about the products, but the spread still holds. NaN goes on as
        # NaN.
        root = torch.minimum(torch.where(high >= 0.0, high, math.inf).sqrt() * _MORE, spread)

        # Step 4: above computed gradients as well.
        return torch.stack([root + self.rounding * spread + self.lost, spread]) ** 2 * _MORE


@lru_cache(1024)
def _error(
    how: Convolution,
    positions: int,
    by_shifts: bool,  # noqa: FBT001  (the key of a cache)
    dtype: torch.dtype,
) -> _Error:
    kind = _KINDS[dtype]
    p, q = how.window, how.weight_shape[0] // how.groups
    # Step 1: a product of two channels' numbers is rounded C times in the matrix product, then at
    # most k - 1 times per axis.
    roundings = how.weight_shape[1] + sum(how.weight_shape[2:]) if by_shifts else p
    inner, outer = gamma(roundings, kind), gamma(q, kind)
    depth = gamma(math.ceil(2 * math.log2(max(2, positions))) + 2, _WIDE)
    least = 16 * tiny(kind)

    return _Error(
        relative=up((1 + inner) * (1 + outer) * (1 + depth) - 1),
        lost_inner=up(least * p),
        lost_outer=up(least * q),
        growth=up(1 / (1 - max(inner, outer))),
        rest=up(least * least * p * q * positions**2)
        + 2.0**-1000 * (p + 1) * (q + 1) * (positions + 1) ** 2,
        rounding=up(gamma(positions, kind)),
        lost=up(4 * positions * tiny(kind) * root_up(p * q)),
    )


def _lengths(gram: Tensor, lost: float, growth: float) -> Tensor:
    # (n, T): upper bounds of the vectors' lengths, from the diagonal.
    return ((gram.diagonal(dim1=1, dim2=2).double() + lost) * growth).sqrt() * _MORE


def _gram(columns: Tensor) -> Tensor:
    # (n, T, T): the scalar products of all pairs of columns of (n, d, T).
    count, _, width = columns.shape
    return product(columns.transpose(1, 2), columns, columns.new_empty((count, width, width)))


def _window_gram(how: Convolution, gram: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """(n, T, T): products of windows, from products (n, *wide, *wide) of single places."""
    axes = len(sizes)
    for axis in reversed(range(axes)):
        size, positions, step = gram.shape[1 + axis], sizes[axis], how.stride[axis]
        shape = list(gram.shape)
        shape[1 + axis] = shape[1 + axes + axis] = positions
        total = gram.new_zeros(shape)
        for place in range(how.weight_shape[2 + axis]):
            shift = how.dilation[axis] * place - how.padding[axis][0]
            # Positions t whose place of the window lies inside: 0 <= step * t + shift < size.
            first, last = max(0, -(shift // step)), min(positions - 1, (size - 1 - shift) // step)
            if first <= last:
                here = slice(first, last + 1)
                there = slice(step * first + shift, step * last + shift + 1, step)
                _on_both_sides(total, axis, here).add_(_on_both_sides(gram, axis, there))

        gram = total

    return gram.view(len(gram), math.prod(sizes), math.prod(sizes))


def _on_both_sides(gram: Tensor, axis: int, part: slice) -> Tensor:
    # The same part of one axis for rows and for columns of a Gram matrix (n, *sizes, *sizes).
    index = [slice(None)] * gram.ndim
    index[1 + axis] = index[1 + gram.ndim // 2 + axis] = part
    return gram[tuple(index)]


def _shifts_pay(how: Convolution, wide_sizes: tuple[int, ...]) -> bool:
    # Whether shifts of one large Gram matrix take less than copying windows out; from public
    # shapes.
    wide, positions = math.prod(wide_sizes), math.prod(how.positions(wide_sizes))
    by_shifts = wide**2 * (how.weight_shape[1] + _ADDITION * sum(how.weight_shape[2:]))
    return by_shifts <= positions * how.window * (positions + _ADDITION)


def _record_bytes(how: Convolution, wide_sizes: tuple[int, ...], itemsize: int) -> int:
    # Bytes of the largest Gram matrix of one record, or of its windows.
    positions = math.prod(how.positions(wide_sizes))
    copied = math.prod(wide_sizes) ** 2 if _shifts_pay(how, wide_sizes) else positions * how.window
    return how.groups * itemsize * max(1, copied, positions**2)


def _refuse_short_products(x: Tensor) -> None:
    # The bound is one for IEEE products: no half precision, no TF32.
    if x.dtype not in _KINDS:
        raise ParameterError(
            owner="ghost_squares",
            name="x",
            expected="float32 or float64",
            got=str(x.dtype),
            do="Convert it first.",
        )

    try:
        short = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # set by more than one of torch's interfaces: torch itself cannot say
        short = True

    if short:
        raise NumericsError(
            expected="float32 matrix products in full precision",
            got="a setting that allows shorter factors",
            do='Call torch.set_float32_matmul_precision("highest").',
        )
