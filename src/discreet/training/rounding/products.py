"""Sums of products over records, cut as docs/proofs/sums.md, section 6, asks for.

    piece (r records, t positions) ──product──> float32 ──+ up to S pieces──> float32 ──> float64,
    or as it is if it is all

Legend: m records, T positions, p inputs, q outputs, P numbers of a value. All of it is sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from discreet.training.rounding.precision import Chunk, chunk_for

__all__ = ["add_outer", "add_rows", "even_places", "one_sum"]

_TILE = 2**18  # numbers of a product at a time: a piece that is added is still in the cache
_BLOCK = 8  # records that convolutions sum together: a chunk must not cut through them


def even_places(places: int) -> int:
    """As many, or up to a percent more or less, if chunks are then of equal size: one function can
    sum all of them. Public.

    >>> even_places(289), even_places(558), even_places(3)
    (288, 560, 3)
    """
    unit = _BLOCK * -(-places // chunk_for(1, 1.0).records)
    near = round(places / unit) * unit
    return near if 100 * abs(near - places) <= places else places


def _cut(records: int, chunk: Chunk) -> int:
    """Records of one piece: of a chunk, or fewer where that makes all pieces equal. Leaves of equal
    chunks are cut alike.
    """
    count = -(-records // chunk.records)
    size = records // max(1, count)
    return size if size * count == records and size % _BLOCK == 0 and size else chunk.records


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
    records = a.shape[0]
    size = _cut(records, chunk)
    done = _add_small(total, a, b, chunk, size)
    if done == records:
        return
    a, b = a[done:], b[done:]
    height = max(1, _TILE // max(1, a.shape[2]))
    fresh = total.dtype != torch.float64 and total.is_contiguous()
    for pieces in _joined(a, b, chunk, size):
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


def _add_small(total: Tensor, a: Tensor, b: Tensor, chunk: Chunk, size: int) -> int:
    """Add whole pieces of a small product by one function; gives how many records these are. Into
    float32: all, or none.
    """
    records = a.shape[0]
    count = records // size
    single = total.dtype != torch.float64
    if (
        chunk.pieces > 1
        or count * total.numel() > _TILE
        or (count * size < records if single else count < 2)
    ):
        return 0
    done = count * size
    a_nKp, b_nKq = (
        (x if done == records else x[:done]).reshape(count, size * x.shape[1], x.shape[2])
        for x in (a, b)
    )
    total.add_(torch.bmm(b_nKq.mT, a_nKp).sum(0, dtype=total.dtype))
    return done


def _joined(a: Tensor, b: Tensor, chunk: Chunk, size: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Pieces that are added up in float32, as matrices of one row for each product."""
    together: list[tuple[Tensor, Tensor]] = []
    for start in range(0, a.shape[0], size):
        for first in range(0, a.shape[1], chunk.positions):
            piece = (slice(start, start + size), slice(first, first + chunk.positions))
            together.append((a[piece].reshape(-1, a.shape[2]), b[piece].reshape(-1, b.shape[2])))
            if len(together) == chunk.joined:
                yield together
                together = []
    if together:
        yield together


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    """w_i v_i, rounded once, record after record in memory."""
    factors = weights.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    return torch.mul(
        values, factors, out=torch.empty(values.shape, dtype=values.dtype, device=values.device)
    )


def add_rows(total: Tensor, values: Tensor, weights: Tensor, chunk: Chunk) -> None:
    """total += sum_i w_i v_i, piece by piece.

    Args:
        total: (P,), contiguous; float64, or of the values' own type, and zero, where there is
            `one_sum`.
        values: (m, P).
        weights: (m,), float64.
        chunk: how records are cut.
    """
    narrow = weights.to(values.dtype)
    records = values.shape[0]
    size = _cut(records, chunk)
    whole = records // size * size
    evenly = (
        whole == records or total.dtype == torch.float64
    )  # float32 holds one sum only: all of it, or piece by piece
    if whole and evenly and values.is_contiguous() and values.numel() <= _TILE:
        rows, factors = (values, narrow) if whole == records else (values[:whole], narrow[:whole])
        pieces = rows.view(-1, size, values.shape[1])  # many small ones, by one function
        total.add_(torch.bmm(factors.view(-1, 1, size), pieces).sum((0, 1), dtype=total.dtype))
    else:
        whole = 0
    for start in range(whole, records, size):
        piece = slice(start, start + size)
        total.add_(torch.mv(values[piece].T, narrow[piece]))
