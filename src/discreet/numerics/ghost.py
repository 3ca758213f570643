"""Norms of products that are never formed, as certified upper bounds.

A layer's gradient for one record is A^T B = sum_t a_t b_t^T, with a_t its input and b_t its output
gradient at position t.

    |A^T B|^2 = sum_(t,s) (a_t.a_s)(b_t.b_s)                               ("ghost norm")
    truth <= computed + (gamma_p + gamma_q + gamma_p gamma_q + rest) * S^2,
        S = sum_t |a_t||b_t|                                                   ("spread")

The terms of the first line cancel, so its float32 value may be far below the truth; the second line
adds what may be missing. Also |A^T B| <= S, whatever the arithmetic. Proof: docs/proofs/sums.md,
section 4.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ParameterError
from discreet.numerics._rational import binary, gamma, tiny, up
from discreet.numerics.norms import Records, l2_norms

__all__ = ["ghost_squared_norms", "outer_spread"]

_WIDE = np.dtype(np.float64)

# Above all roundings of the few positive terms that it is applied to.
_MORE = 1.0 + 2.0**-40


def outer_spread(inputs: Records, gradients: Records) -> NDArray[np.float64]:
    """An upper bound of sum_t |a_t||b_t| for each record; +infinity if anything is not finite.

    It bounds the norm of A^T B, and with it the rounding error of sums over t (`FloatSum.spread`).

    Args:
        inputs: the a_t, shape (B, T, p); sensitive.
        gradients: the b_t, shape (B, T, q); sensitive.

    >>> outer_spread(np.ones((1, 2, 4)), np.array([[[3.0, 4.0], [0.0, 1.0]]])).round(9).tolist()
    [12.0]
    """
    _same_positions("outer_spread", inputs, gradients)
    with np.errstate(all="ignore"):
        first, second = _lengths(inputs), _lengths(gradients)
        lengths = first * second

        # A product may underflow: each position may lose up to the smallest normal number.
        lost = (
            lengths.shape[1]
            * float(np.finfo(np.float64).tiny)
            * np.any((first > 0.0) & (second > 0.0), axis=1)
        )
        total = np.sum(lengths, axis=1) + lost
        return _infinite_if_nan(total * up(1 / (1 - gamma(lengths.shape[1] + 3, _WIDE))) * _MORE)


def ghost_squared_norms(inputs: Records, gradients: Records) -> NDArray[np.float64]:
    """An upper bound of |A^T B|^2 for each record, from Gram matrices in the arrays' own precision
    (float32 or float64).

    Guarantee: at or above the truth for any order of additions inside the products. It exceeds it
    by at most about 2 (p + q) u S^2, so records whose terms nearly cancel are clipped more than
    needed, never less. Where that matters, pass float64 arrays.

    Args:
        inputs: the a_t, shape (B, T, p); sensitive.
        gradients: the b_t, shape (B, T, q), of the same dtype; sensitive.

    >>> a = np.array([[[1.0], [1.0]]], np.float32)
    >>> b = np.array([[[3.0, 4.0], [-3.0, 4.0]]], np.float32)  # a_1 b_1 + a_2 b_2 = (0, 8)
    >>> ghost_squared_norms(a, b).round(4).tolist()
    [64.0]
    """
    owner = "ghost_squared_norms"
    _same_positions(owner, inputs, gradients)
    kind = binary(owner, inputs.dtype)
    if gradients.dtype != kind:
        raise ParameterError(
            owner=owner, name="gradients", expected=f"of dtype {kind}", got=str(gradients.dtype)
        )

    inputs, gradients = np.asarray(inputs), np.asarray(gradients)
    # In the arrays' own precision, which is fast; `_missing` answers for what that loses.
    with np.errstate(all="ignore"):
        gram_inputs = np.matmul(inputs, inputs.swapaxes(1, 2)).astype(np.float64)
        gram_gradients = np.matmul(gradients, gradients.swapaxes(1, 2)).astype(np.float64)
        computed = np.einsum("bts,bts->b", gram_inputs, gram_gradients)
        spread = outer_spread(inputs, gradients)
        high = np.nextafter(computed + _missing(inputs, gradients, spread), math.inf)
        # Overflow of the Gram matrices says nothing; the spread still does.
        high = np.where(np.isfinite(computed), high, math.inf)
        return _infinite_if_nan(
            np.minimum(
                high,
                np.where(spread > 0.0, np.nextafter(_MORE * spread * spread, math.inf), spread),
            )
        )


def _missing(
    inputs: Records, gradients: Records, spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The most by which the computed value is below the truth: relative errors of the terms, and
    underflow.
    """
    kind = binary("ghost_squared_norms", inputs.dtype)
    positions, p, q = inputs.shape[1], inputs.shape[2], gradients.shape[2]
    # Two inner products in the own precision, and the sum over pairs of positions in float64.
    relative = (1 + gamma(p, kind)) * (1 + gamma(q, kind)) * (
        1 + gamma(positions**2 + 1, _WIDE)
    ) - 1

    # An entry of one Gram matrix that underflows is multiplied by one of the other.
    lost = up(16 * tiny(kind))
    sums = p * _lengths(gradients).sum(axis=1) ** 2 + q * _lengths(inputs).sum(axis=1) ** 2
    underflow = (
        lost * sums
        + lost * lost * p * q * positions**2
        + 2.0**-1000 * (p + 1) * (q + 1) * (positions + 1) ** 2
    )
    return np.asarray((up(relative) * spread * spread + underflow) * _MORE)


def _lengths(vectors: Records) -> NDArray[np.float64]:
    count, positions, width = vectors.shape
    return l2_norms(vectors.reshape(count * positions, width)).reshape(count, positions)


def _same_positions(owner: str, inputs: Records, gradients: Records) -> None:
    if inputs.ndim != 3 or gradients.ndim != 3 or inputs.shape[:2] != gradients.shape[:2]:
        expected = "of shape (B, T, q), with inputs of shape (B, T, p)"

        # B is sensitive.
        got = f"records of shape {gradients.shape[1:]}, with inputs of shape {inputs.shape[1:]}"
        raise ParameterError(owner=owner, name="gradients", expected=expected, got=got)


def _infinite_if_nan(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), math.inf, values)
