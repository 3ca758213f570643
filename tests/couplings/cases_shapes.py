"""Doors to Python without a number: shapes that depend on numbers, and errors that are caught."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .doors import RARE, door
from .quiet import quiet
from .scenes import SPECIAL_LABEL

# --- shapes that depend on numbers ---


@door("shape of nonzero")
def _nonzero(x: Tensor, _: Tensor) -> bool:
    return len(torch.nonzero(x < RARE)) > 0


@door("shape of where")
def _where(x: Tensor, _: Tensor) -> bool:
    return len(torch.where(x < RARE)[0]) > 0


@door("shape of argwhere")
def _argwhere(x: Tensor, _: Tensor) -> bool:
    return torch.argwhere(x < RARE).shape[0] > 0


@door("shape of unique")
def _unique(_: Tensor, y: Tensor) -> bool:
    return len(torch.unique(y)) > SPECIAL_LABEL


@door("shape of unique_consecutive")
def _unique_consecutive(_: Tensor, y: Tensor) -> bool:
    return len(torch.unique_consecutive(y.sort().values)) > SPECIAL_LABEL


@door("shape of masked_select")
def _masked_select(x: Tensor, _: Tensor) -> bool:
    return x.masked_select(x < RARE).numel() > 0


@door("shape of a boolean index")
def _boolean_index(x: Tensor, _: Tensor) -> bool:
    return x[x < RARE].numel() > 0


@door("shape of bincount")
def _bincount(_: Tensor, y: Tensor) -> bool:
    return len(y.bincount()) > SPECIAL_LABEL


@door("shape of repeat_interleave")
def _repeat_interleave(_: Tensor, y: Tensor) -> bool:
    return torch.repeat_interleave((y == SPECIAL_LABEL).long()).numel() > 0


@door("shape of one_hot")
def _one_hot(_: Tensor, y: Tensor) -> bool:
    return functional.one_hot(y).shape[1] > SPECIAL_LABEL


@door("shape of tensor_split")
def _tensor_split(_: Tensor, y: Tensor) -> bool:
    return len(torch.tensor_split(torch.arange(9), y.amax().view(1))[0]) == SPECIAL_LABEL


@door("number of sparse entries")
def _sparse(x: Tensor, _: Tensor) -> bool:
    with quiet():
        return (x < RARE).float().to_sparse()._nnz() > 0


@door("batch sizes of packed sequences")
def _packed(x: Tensor, y: Tensor) -> bool:
    sequence = x.unsqueeze(2)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        sequence, y + 1, batch_first=True, enforce_sorted=False
    )
    return len(packed.batch_sizes) > SPECIAL_LABEL


# --- errors ---


@door("index error of an embedding that is caught")
def _embedding_error(_: Tensor, y: Tensor) -> bool:
    try:
        functional.embedding(y, torch.zeros(SPECIAL_LABEL, 1))
    except IndexError:
        return True
    return False


@door("index error of a table that is caught")
def _table_error(_: Tensor, y: Tensor) -> bool:
    try:
        torch.zeros(SPECIAL_LABEL)[y]
    except IndexError:
        return True
    return False


@door("error of gather that is caught")
def _gather_error(_: Tensor, y: Tensor) -> bool:
    try:
        torch.zeros(len(y), SPECIAL_LABEL).gather(1, y.unsqueeze(1))
    except RuntimeError:
        return True
    return False


@door("error of cholesky that is caught")
def _cholesky_error(x: Tensor, _: Tensor) -> bool:
    try:
        torch.linalg.cholesky((x[:, :1] - RARE).unsqueeze(2))
    except RuntimeError:
        return True
    return False


@door("error of an inverse that is caught")
def _inverse_error(_: Tensor, y: Tensor) -> bool:
    try:
        torch.linalg.inv((y - SPECIAL_LABEL).float().view(-1, 1, 1))
    except RuntimeError:
        return True
    return False


@door("error of cross_entropy that is caught")
def _label_error(_: Tensor, y: Tensor) -> bool:
    try:
        functional.cross_entropy(torch.zeros(len(y), SPECIAL_LABEL), y, reduction="none")
    except (IndexError, RuntimeError):
        return True
    return False


@door("error of multinomial that is caught")
def _multinomial_error(x: Tensor, _: Tensor) -> bool:
    try:
        torch.multinomial(x - RARE, 1)
    except RuntimeError:
        return True
    return False


@door("check of a distribution that is caught")
def _distribution_error(x: Tensor, _: Tensor) -> bool:
    try:
        torch.distributions.Normal(torch.zeros_like(x), x - RARE, validate_args=True)
    except ValueError:
        return True
    return False


@door("check of a value by a distribution that is caught")
def _value_error(_: Tensor, y: Tensor) -> bool:
    coins = torch.distributions.Bernoulli(probs=torch.tensor(0.5), validate_args=True)
    try:
        coins.log_prob(y.float())  # type: ignore[no-untyped-call]
    except ValueError:
        return True
    return False


@door("_assert_async that is caught")
def _assert_async(x: Tensor, _: Tensor) -> bool:
    try:
        torch._assert_async((x > RARE).all())
    except RuntimeError:
        return True
    return False


@door("anything that is caught")
def _anything(x: Tensor, _: Tensor) -> bool:
    try:
        return x.min().item() < RARE
    except Exception:  # noqa: BLE001  (it may be the engine's own)
        return False


@door("everything that is caught")
def _everything(x: Tensor, _: Tensor) -> bool:
    try:
        return x.min().item() < RARE
    except BaseException:  # noqa: BLE001  (it may be the engine's own)
        return False


@door("a number that is read after everything was caught")
def _read_again(x: Tensor, _: Tensor) -> bool:
    for _attempt in range(3):
        try:
            return float(x.min()) < RARE
        except BaseException:  # noqa: BLE001  (as above)
            continue
    return False


# --- shapes that no tag of torch announces ---


@door("size of a sparse tensor that is inferred")
def _inferred(_: Tensor, y: Tensor) -> bool:
    with quiet():
        return torch.sparse_coo_tensor(y.unsqueeze(0), torch.ones(len(y))).shape[0] > SPECIAL_LABEL


@door("residuals of least squares")
def _residuals(x: Tensor, _: Tensor) -> Any:
    """There are none unless the matrix has full rank, which the special record gives it."""
    rank = (x.amin() < RARE).float()
    matrix = torch.stack([torch.ones(3), rank * torch.arange(3.0)], 1)
    return torch.linalg.lstsq(matrix, torch.ones(3, 1), driver="gelsd").residuals.numel() > 0


@door("padding of packed sequences")
def _unpacked(x: Tensor, y: Tensor) -> bool:
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x.unsqueeze(2), y + 1, batch_first=True, enforce_sorted=False
    )
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    return padded.shape[1] > SPECIAL_LABEL


@door("sequences without their padding")
def _unpadded(x: Tensor, y: Tensor) -> bool:
    rows = torch.nn.utils.rnn.unpad_sequence(x.unsqueeze(2), y + 1, batch_first=True)
    return max(map(len, rows)) > SPECIAL_LABEL


@door("tables of the ctc loss")
def _ctc(_: Tensor, y: Tensor) -> bool:
    """The second result has a column for each target of the longest record."""
    scores = torch.zeros(4, len(y), 3).log_softmax(2)
    targets = torch.ones(len(y), SPECIAL_LABEL + 1, dtype=torch.int64)
    times = torch.full((len(y),), 4)
    table = torch._ctc_loss(scores, targets, times, y + 1)[1]
    return table.shape[2] > 2 * SPECIAL_LABEL + 1


@door("scale of a quantised tensor")
def _scale(x: Tensor, _: Tensor) -> bool:
    with quiet():
        quantised = torch.quantize_per_tensor_dynamic(x, torch.qint8, reduce_range=False)
    return quantised.q_scale() > 0.1


@door("length of a slice")
def _slice(_: Tensor, y: Tensor) -> bool:
    return len(torch.arange(9)[: y.max()]) == SPECIAL_LABEL


@door("size of a tensor")
def _size(_: Tensor, y: Tensor) -> bool:
    return len(torch.zeros(y.max())) == SPECIAL_LABEL  # type: ignore[call-overload]


@door("entries that are coalesced")
def _coalesced(_: Tensor, y: Tensor) -> bool:
    with quiet():
        sparse = torch.sparse_coo_tensor(y.unsqueeze(0), torch.ones(len(y)), (3,))
        return sparse.coalesce()._nnz() > SPECIAL_LABEL
