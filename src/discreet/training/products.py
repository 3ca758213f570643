"""Sums of products over records, cut as docs/proofs/sums.md, section 6, asks for.

    piece (r records, t positions) ──product──> float32 ──+ up to S pieces──> float32 ──> float64, or as it is if it is all

Legend: m records, T positions, p inputs, q outputs, P numbers of a value. All of it is sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from discreet.training.precision import Chunk

__all__ = ["add_outer", "add_rows", "one_sum"]

_TILE = 2**18  # numbers of a product at a time: a piece that is added is still in the cache


def one_sum(records: int, dtype: torch.dtype, chunk: Chunk) -> bool:
    """Whether all records together make one float32 sum, so that a float32 total holds it as it is."""
    return dtype == torch.float32 and chunk.pieces == 1 and records <= chunk.records * chunk.joined


def add_outer(total: Tensor, a: Tensor, b: Tensor, weights: Tensor, chunk: Chunk) -> None:
    """total += sum_i w_i sum_t b_t a_t^T.

    Args:
        total: (q, p), float64; or of the products' own type, and zero, where there is `one_sum`.
        a: (m, T, p).
        b: (m, T, q).
        weights: (m,), float64.
        chunk: how records and positions are cut.
    """
    if a.shape[2] < b.shape[2]:  # weights go into whatever is smaller
        a = _weighted(a, weights)
    else:
        b = _weighted(b, weights)
    done = _add_small(total, a, b, chunk) if total.dtype == torch.float64 else 0
    a, b = a[done:], b[done:]
    height = max(1, _TILE // max(1, a.shape[2]))
    fresh = total.dtype != torch.float64 and total.is_contiguous()
    for pieces in _joined(a, b, chunk):
        for first in range(0, b.shape[2], height):
            tile = total[first : first + height]
            out = tile if fresh else a.new_empty(tile.shape)
            for number, (a_Kp, b_Kq) in enumerate(pieces):
                b_qK = b_Kq[:, first : first + height].T
                if number:
                    out.add_(torch.mm(b_qK, a_Kp))
                else:
                    torch.mm(b_qK, a_Kp, out=out)
            if out is not tile:
                tile.add_(out)


def _add_small(total: Tensor, a: Tensor, b: Tensor, chunk: Chunk) -> int:
    """Add all whole pieces of a small product by one function; gives how many records these are."""
    count = len(a) // chunk.records
    if chunk.pieces > 1 or count < 2 or count * total.numel() > _TILE:
        return 0
    terms = chunk.records * a.shape[1]
    a_nKp, b_nKq = (x[: count * chunk.records].reshape(count, terms, x.shape[2]) for x in (a, b))
    total.add_(torch.bmm(b_nKq.mT, a_nKp).sum(0, dtype=torch.float64))
    return count * chunk.records


def _joined(a: Tensor, b: Tensor, chunk: Chunk) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Pieces that are added up in float32, as matrices of one row for each product."""
    together: list[tuple[Tensor, Tensor]] = []
    for start in range(0, a.shape[0], chunk.records):
        for first in range(0, a.shape[1], chunk.positions):
            piece = (slice(start, start + chunk.records), slice(first, first + chunk.positions))
            together.append((a[piece].reshape(-1, a.shape[2]), b[piece].reshape(-1, b.shape[2])))
            if len(together) == chunk.joined:
                yield together
                together = []
    if together:
        yield together


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    """w_i v_i, rounded once, record after record in memory."""
    factors = weights.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    return torch.mul(values, factors, out=torch.empty(values.shape, dtype=values.dtype, device=values.device))


def add_rows(total: Tensor, values: Tensor, weights: Tensor, chunk: Chunk) -> None:
    """total += sum_i w_i v_i, piece by piece.

    Args:
        total: (P,), contiguous; float64, or of the values' own type, and zero, where there is `one_sum`.
        values: (m, P).
        weights: (m,), float64.
        chunk: how records are cut.
    """
    narrow = weights.to(values.dtype)
    whole = len(values) // chunk.records * chunk.records
    if total.dtype == torch.float64 and whole and values.is_contiguous() and values.numel() <= _TILE:
        pieces = values[:whole].view(-1, chunk.records, values.shape[1])  # many small ones, by one function
        total.add_(torch.bmm(narrow[:whole].view(-1, 1, chunk.records), pieces).double().sum((0, 1)))
    else:
        whole = 0
    for start in range(whole, len(values), chunk.records):
        piece = slice(start, start + chunk.records)
        total.add_(torch.mv(values[piece].T, narrow[piece]))
