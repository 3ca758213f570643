"""Sums of products over records, cut as docs/proofs/sums.md, section 6, asks for.

    one piece, r records and t positions    products, added up in float32
    up to S pieces                          added up in float32
    all of them                             added up in float64, or as it is if there is one

Legend: m records, T positions, r records of a piece, K its products (r t), n pieces, p inputs,
    q outputs, P numbers of a value. All of it is sensitive.
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
    """The number of places, or up to a percent more or less if chunks are then of equal size.

    One function can sum chunks of equal size. Public.

    >>> even_places(289), even_places(558), even_places(3)
    (288, 560, 3)
    """
    # So many places at a time can be cut into as many equal chunks, of whole blocks.
    unit = _BLOCK * -(-places // chunk_for(1, 1.0).records)
    near = round(places / unit) * unit

    # A percent of the memory and of the work, no more, is worth it.
    return near if 100 * abs(near - places) <= places else places


def _cut(records: int, chunk: Chunk) -> int:
    # Records of one piece: of a chunk, or fewer where that makes all pieces equal. It depends on
    # public numbers only: leaves of equal chunks are cut alike (step 1 of section 6).
    count = -(-records // chunk.records)
    size = records // max(1, count)
    is_even = size * count == records and size % _BLOCK == 0

    return size if size and is_even else chunk.records


def one_sum(records: int, dtype: torch.dtype, chunk: Chunk) -> bool:
    """Whether all records make one float32 sum, so that a float32 total holds it as it is."""
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
    # Weights go into whatever is smaller.
    if a.shape[2] < b.shape[2]:
        a = _weighted(a, weights)
    else:
        b = _weighted(b, weights)

    # Small products by one function, as far as they go; what is left piece by piece.
    records = a.shape[0]
    size = _cut(records, chunk)
    done = _add_small(total, a, b, chunk, size)
    if done == records:
        return

    a, b = a[done:], b[done:]

    # Tile after tile of the rows of the sum: all pieces of a tile, while it is in the cache.
    height = max(1, _TILE // max(1, a.shape[2]))

    # Where there is one sum, the total is its memory, and holds zeros so far.
    fresh = total.dtype != torch.float64 and total.is_contiguous()

    for pieces in _joined(a, b, chunk, size):
        for first in range(0, b.shape[2], height):
            tile = total[first : first + height]
            out = tile if fresh else a.new_empty(tile.shape)

            # The first product fills the memory, whatever was in it; the others are added.
            for number, (a_Kp, b_Kq) in enumerate(pieces):
                b_qK = b_Kq[:, first : first + height].T
                if number:
                    out.add_(torch.mm(b_qK, a_Kp))
                else:
                    torch.mm(b_qK, a_Kp, out=out)

            # To float64: exact, as every float32 number is one of float64.
            if out is not tile:
                tile.add_(out)


def _add_small(total: Tensor, a: Tensor, b: Tensor, chunk: Chunk, size: int) -> int:
    """Add whole pieces of a small product by one function.

    Returns:
        How many records these are.
    """
    records = a.shape[0]
    count = records // size
    done = count * size

    # A float32 total holds one sum only: of all records, or of none.
    pays = count >= 2 if total.dtype == torch.float64 else done == records
    if not pays or chunk.pieces > 1 or count * total.numel() > _TILE:
        return 0

    a_nKp, b_nKq = (
        side[:done].reshape(count, size * side.shape[1], side.shape[2]) for side in (a, b)
    )
    total.add_(torch.bmm(b_nKq.mT, a_nKp).sum(0, dtype=total.dtype))

    return done


def _joined(a: Tensor, b: Tensor, chunk: Chunk, size: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Lists of pieces that are added up in float32, as matrices of one row for each product."""
    together: list[tuple[Tensor, Tensor]] = []

    # Records in their order, and of each the positions: as the proof counts the roundings.
    for start in range(0, a.shape[0], size):
        for first in range(0, a.shape[1], chunk.positions):
            piece = (slice(start, start + size), slice(first, first + chunk.positions))
            together.append((a[piece].reshape(-1, a.shape[2]), b[piece].reshape(-1, b.shape[2])))

            # So many pieces and no more are added in float32 before they go to float64.
            if len(together) == chunk.joined:
                yield together
                together = []

    if together:
        yield together


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    # w_i v_i, rounded once (step 5 of section 6), record after record in memory.
    factors = weights.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    return torch.mul(values, factors, out=out)


def add_rows(total: Tensor, values: Tensor, weights: Tensor, chunk: Chunk) -> None:
    """total += sum_i w_i v_i, piece by piece.

    Args:
        total: (P,), contiguous; float64, or of the values' own type, and zero, where there is
            `one_sum`.
        values: (m, P).
        weights: (m,), float64.
        chunk: how records are cut.
    """
    narrow, records = weights.to(values.dtype), values.shape[0]
    size = _cut(records, chunk)
    done = records // size * size

    # A float32 total holds one sum only: of all records at once, or piece by piece.
    fits = done == records or total.dtype == torch.float64

    if done and fits and values.is_contiguous() and values.numel() <= _TILE:
        # Many small pieces, by one function.
        pieces_nrP = values[:done].view(-1, size, values.shape[1])
        factors_n1r = narrow[:done].view(-1, 1, size)
        total.add_(torch.bmm(factors_n1r, pieces_nrP).sum((0, 1), dtype=total.dtype))
    else:
        done = 0

    # What the one function did not take: all of it, or the last records.
    for start in range(done, records, size):
        piece = slice(start, start + size)
        total.add_(torch.mv(values[piece].T, narrow[piece]))
