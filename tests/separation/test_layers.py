"""Layers and idioms of losses that must be proved, with every claim held to its word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from discreet.training.separation.states import Rows
from separation.claims import Choice, Report, Trial, Way
from separation.exchange import CHANGES

B = 4  # records


def _numbers(*sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(sizes, generator=generator)


def _classes(most: int, *sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + most)
    return torch.randint(0, most, sizes, generator=generator)


@dataclass(frozen=True)
class Case:
    """Code, its tensors, and where the records of each are; None is a public tensor."""

    function: Callable[..., Any]
    tensors: list[Tensor]
    rows: list[Rows | None] = field(default_factory=list)
    backward: bool = True

    @property
    def choice(self) -> Choice:
        places = self.rows or [Rows(0)] * len(self.tensors)
        chosen = {number: rows for number, rows in enumerate(places) if rows is not None}
        return Choice(chosen, B)


def _examined(case: Case, kind: str) -> Report:
    report = Report()
    first, *others = case.tensors
    way = Way(kind, case.function, (first, tuple(others), {}))
    for turn in range(2):
        Trial(way, case.tensors, case.choice, report, turn).run("", CHANGES)
    return report


# --- cases ---


def _folded(images: Tensor) -> Tensor:
    """Records folded into channels."""
    return images.flatten(0, 1).unsqueeze(0)


def _filters_of_each(images: Tensor, filters: Tensor) -> Tensor:
    convolved = functional.conv2d(_folded(images), filters.flatten(0, 1), groups=B)
    return convolved.view(B, -1, *convolved.shape[2:])


def _transposed_filters_of_each(images: Tensor, filters: Tensor) -> Tensor:
    convolved = functional.conv_transpose2d(_folded(images), filters.flatten(0, 1), groups=B)
    return convolved.view(B, -1, *convolved.shape[2:])


def _same_filters(images: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    repeated = filters.repeat(B, 1, 1, 1)
    convolved = functional.conv2d(_folded(images), repeated, bias.repeat(B), groups=2 * B)
    return convolved.view(B, -1, *convolved.shape[2:])


CONVOLUTIONS = {
    "conv2d": Case(
        functional.conv2d, [_numbers(B, 3, 6, 6), _numbers(5, 3, 3, 3)], [Rows(0), None]
    ),
    "conv_transpose1d": Case(
        functional.conv_transpose1d, [_numbers(B, 3, 6), _numbers(3, 5, 3)], [Rows(0), None]
    ),
    "grouped conv3d": Case(
        lambda x, w: functional.conv3d(x, w, groups=2),
        [_numbers(B, 4, 4, 4, 4), _numbers(6, 2, 3, 3, 3)],
        [Rows(0), None],
    ),
    "filters of each record": Case(
        _filters_of_each, [_numbers(B, 3, 6, 6), _numbers(B, 5, 3, 3, 3)]
    ),
    "transposed filters of each record": Case(
        _transposed_filters_of_each, [_numbers(B, 3, 6, 6), _numbers(B, 3, 2, 3, 3)]
    ),
    "the same filters, two groups for each record": Case(
        _same_filters,
        [_numbers(B, 6, 6, 6), _numbers(4, 3, 3, 3), _numbers(4)],
        [Rows(0), None, None],
    ),
}

_GAIN, _SHIFT = _numbers(6), _numbers(6)
_ONES, _ZEROS = torch.ones(6), torch.zeros(6)
_IMAGES = _numbers(B, 6, 4, 4)

NORMS = {
    "instance norm": Case(
        lambda x: functional.instance_norm(x, None, None, _GAIN, _SHIFT), [_IMAGES]
    ),
    "group norm": Case(lambda x: functional.group_norm(x, 3, _GAIN, _SHIFT), [_IMAGES]),
    "layer norm": Case(lambda x: functional.layer_norm(x, (4, 4)), [_IMAGES]),
    "layer norm, records in the middle": Case(
        lambda x: functional.layer_norm(x, (4,)), [_numbers(3, B, 4)], [Rows(1)]
    ),
    "root mean square norm": Case(lambda x: functional.rms_norm(x, (4,)), [_IMAGES]),
    "batch norm in eval mode": Case(
        lambda x: functional.batch_norm(x, _ZEROS, _ONES, _GAIN, _SHIFT, training=False), [_IMAGES]
    ),
    "local response norm": Case(lambda x: functional.local_response_norm(x, 2), [_IMAGES]),
}


def _recurrent(layer: nn.Module, dim: int) -> Case:
    sizes = (B, 5, 3) if dim == 0 else (5, B, 3)
    return Case(lambda x: layer(x)[0], [_numbers(*sizes)], [Rows(dim)])


def _attended(mask: Tensor | None = None, *, causal: bool = False) -> Callable[..., Tensor]:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)


_HEADS = [_numbers(B, 2, 5, 8), _numbers(B, 2, 5, 8) + 1, _numbers(B, 2, 5, 8) - 1]
_SHARED = [_numbers(1, 2, B, 8), _numbers(1, 2, 5, 8), _numbers(1, 2, 5, 8) + 1]
_MANY_HEADS = nn.MultiheadAttention(8, 2, batch_first=True)
_ENCODER = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

SEQUENCES = {
    "LSTM": _recurrent(nn.LSTM(3, 4), 1),
    "LSTM, batch first, both directions": _recurrent(
        nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), 0
    ),
    "GRU": _recurrent(nn.GRU(3, 4, batch_first=True), 0),
    "RNN": _recurrent(nn.RNN(3, 4), 1),
    "attention": Case(_attended(), _HEADS),
    "causal attention": Case(_attended(causal=True), _HEADS),
    "attention, one mask for all": Case(_attended(_numbers(5, 5) > 0), _HEADS, []),
    "attention, a mask of each record": Case(
        lambda q, k, v, m: functional.scaled_dot_product_attention(
            q, k, v, m[:, None, None] > -9.0
        ),
        [*_HEADS, _numbers(B, 5)],
        backward=False,
    ),
    "attention, records are queries": Case(_attended(), _SHARED, [Rows(2), None, None]),
    "multi-head attention": Case(
        lambda x: _MANY_HEADS(x, x, x, need_weights=False)[0], [_numbers(B, 5, 8)]
    ),
    "multi-head attention with weights": Case(
        lambda x: _MANY_HEADS(x, x, x)[1], [_numbers(B, 5, 8)]
    ),
    "transformer layer": Case(_ENCODER, [_numbers(B, 5, 8)]),
}

_TABLE = _numbers(7, 3)
_PLACES = torch.arange(B)

INDEXING = {
    "embedding": Case(
        lambda i: functional.embedding(i, _TABLE), [_classes(7, B, 5)], backward=False
    ),
    "embedding bag": Case(
        lambda i, w: functional.embedding_bag(i, _TABLE, mode="sum", per_sample_weights=w),
        [_classes(7, B, 5), _numbers(B, 5)],
    ),
    "embedding bag, two bags for each record": Case(
        lambda i: functional.embedding_bag(i.flatten(), _TABLE, torch.arange(0, 6 * B, 3)),
        [_classes(7, B, 6)],
        backward=False,
    ),
    "table": Case(lambda i: _TABLE[i], [_classes(7, B, 5)], backward=False),
    "own entry": Case(lambda x, i: x[_PLACES, i], [_numbers(B, 5, 3), _classes(5, B)]),
    "own entries": Case(lambda x, i: x[_PLACES[:, None], i], [_numbers(B, 5), _classes(5, B, 2)]),
    "the same entries of all": Case(lambda x: x[:, torch.tensor([2, 0])], [_numbers(B, 5, 3)]),
    "each record twice": Case(
        lambda x: x[_PLACES.repeat_interleave(2)], [_numbers(B, 3)], backward=False
    ),
    "each record twice, selected": Case(
        lambda x: x.index_select(0, _PLACES.repeat_interleave(2)).view(B, 6), [_numbers(B, 3)]
    ),
    "gather": Case(lambda x, i: x.gather(1, i), [_numbers(B, 5), _classes(5, B, 2)]),
    "scatter": Case(
        lambda x, i: torch.zeros(B, 6).scatter_add(1, i, x), [_numbers(B, 5), _classes(6, B, 5)]
    ),
    "one hot": Case(lambda i: functional.one_hot(i, 7), [_classes(7, B, 5)], backward=False),
    "first of each flattened": Case(lambda x: x.flatten(0, 1)[::5], [_numbers(B, 5, 3)]),
    "part of each": Case(lambda x: x[:, 1:4:2], [_numbers(B, 5, 3)]),
    "windows": Case(lambda x: x.unfold(1, 3, 2), [_numbers(B, 7)]),
    "diagonal of each": Case(lambda x: x.diagonal(dim1=1, dim2=2), [_numbers(B, 3, 3)]),
    "two copies of all": Case(lambda x: torch.cat([x, 2 * x]).chunk(2)[1], [_numbers(B, 3)]),
    "beside zeros": Case(lambda x: torch.cat([x, torch.zeros(B, 2)], 1), [_numbers(B, 3)]),
    "written column by column": Case(
        lambda x: torch.zeros(B, 3).index_copy(1, torch.tensor([2, 0, 1]), x), [_numbers(B, 3)]
    ),
}


def _without_reduction(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, y: loss(x, y, reduction="none")


def _ctc(scores: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    inputs = torch.full((B,), 6)
    log_probs = scores.transpose(0, 1).log_softmax(-1)
    return functional.ctc_loss(log_probs, targets, inputs, lengths + 1, reduction="none")


LOSSES = {
    "cross entropy": Case(
        _without_reduction(functional.cross_entropy), [_numbers(B, 5), _classes(5, B)]
    ),
    "cross entropy of images": Case(
        _without_reduction(functional.cross_entropy), [_numbers(B, 5, 2, 3), _classes(5, B, 2, 3)]
    ),
    "smooth cross entropy": Case(
        lambda x, y: functional.cross_entropy(x, y, reduction="none", label_smoothing=0.1),
        [_numbers(B, 5), _classes(5, B)],
    ),
    "squared error": Case(
        _without_reduction(functional.mse_loss), [_numbers(B, 5), _numbers(B, 5) + 1]
    ),
    "multi margin": Case(
        _without_reduction(functional.multi_margin_loss), [_numbers(B, 5), _classes(5, B)]
    ),
    "multilabel margin": Case(
        _without_reduction(functional.multilabel_margin_loss), [_numbers(B, 5), _classes(5, B, 5)]
    ),
    "temporal classification": Case(
        _ctc, [_numbers(B, 6, 5), _classes(4, B, 3) + 1, _classes(3, B)]
    ),
}

ALGEBRA = {
    "einsum": Case(
        lambda x, y: torch.einsum("bij,bkj->bik", x, y), [_numbers(B, 2, 3), _numbers(B, 4, 3)]
    ),
    "bilinear": Case(
        lambda x, y: functional.bilinear(x, y, _numbers(5, 3, 2)), [_numbers(B, 3), _numbers(B, 2)]
    ),
    "distances to centres": Case(lambda x: torch.cdist(x, _TABLE), [_numbers(B, 3)]),
    "distances inside of each": Case(lambda x: torch.cdist(x, x + 1), [_numbers(B, 4, 3)]),
    "systems": Case(
        lambda a, b: torch.linalg.solve_ex(a, b)[0],
        [_numbers(B, 3, 3) + 5 * torch.eye(3), _numbers(B, 3, 2)],
    ),
    "spectral values": Case(torch.linalg.svdvals, [_numbers(B, 3, 2)]),
    "pooling": Case(
        lambda x: functional.max_pool2d(functional.avg_pool2d(x, 2), 2), [_numbers(B, 3, 8, 8)]
    ),
    "upsampling": Case(
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), [_numbers(B, 3, 4, 4)]
    ),
    "patches": Case(lambda x: functional.unfold(x, 2), [_numbers(B, 3, 4, 4)]),
    "dropout": Case(lambda x: functional.dropout(x, 0.5), [_numbers(B, 9)]),
    "weighted mask": Case(lambda x: x * (torch.rand(B, 1) < 0.5), [_numbers(B, 9)]),
    "spectrum": Case(lambda x: torch.fft.rfft(x, dim=1).abs(), [_numbers(B, 9)]),
}

CASES = CONVOLUTIONS | NORMS | SEQUENCES | INDEXING | LOSSES | ALGEBRA


@pytest.mark.parametrize("name", CASES)
def test_records_of_a_layer_are_apart_and_proved_so(name: str) -> None:
    report = _examined(CASES[name], "forward")
    assert report.wrong == []
    assert report.counts["forward rows"] == 2, report
    assert report.counts["comparisons"] >= 2 * len(CHANGES)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.backward])
def test_gradients_of_a_layer_are_apart_and_proved_so(name: str) -> None:
    report = _examined(CASES[name], "backward")
    assert report.wrong == []
    assert report.counts["backward rows"] == 2, report
