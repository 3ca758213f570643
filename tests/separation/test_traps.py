"""Code that must not be proved: records meet, or what happens to one depends on its place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from discreet.errors import CoupledRecords
from discreet.training.separation.doors import Doors
from discreet.training.separation.marks import no_functions
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Mixed, OneByOne, Rows

B, T = 4, 5

_RAMP = torch.arange(1.0, B + 1)
_TABLE = torch.linspace(-1.0, 1.0, 21).view(7, 3)
_HEADS = torch.linspace(-1.0, 1.0, 80).view(1, 2, 5, 8)


def _is_proved(function: Callable[[Tensor], Tensor], batch: Tensor, rows: Rows) -> bool:
    proof = Proof(B)
    own = proof.begin(batch, rows)
    torch.manual_seed(0)
    try:
        with proof, Doors(proof):
            result = function(own)
        proof.check()
    except (OneByOne, CoupledRecords):
        return False
    return not isinstance(proof.state(result), Mixed)


def _numbers(*sizes: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


# --- records meet ---


def _statistics_made_here(x: Tensor) -> Tensor:
    mean, variance = torch.zeros(T), torch.ones(T)
    functional.batch_norm(x, mean, variance, training=True)
    return x.sum(1) + mean.sum()


def _written_by_all(x: Tensor) -> Tensor:
    totals = torch.zeros(T)
    totals.index_add_(0, torch.zeros(B, dtype=torch.long), x.sum(1))
    return x.sum(1) + totals[0]


def _keys_are_records(x: Tensor) -> Tensor:
    keys = x[None, None, :, :1].expand(1, 2, B, 8)
    return functional.scaled_dot_product_attention(_HEADS, keys, keys)


def _fewer_keys(x: Tensor) -> Tensor:
    heads = x.view(B, 1, T, 1).expand(B, 2, T, 8).contiguous()
    return functional.scaled_dot_product_attention(heads, heads[:, :, :1].contiguous(), heads)


def _shared_keys(x: Tensor) -> Tensor:
    """Two heads of keys for four of queries."""
    heads = x.view(B, 1, T, 1)
    keys = heads.repeat(1, 2, 1, 1)
    queries = heads.repeat(1, 4, 1, 1)
    return functional.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)


COUPLED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum over records": lambda x: x - x.sum(0),
    "softmax over records": lambda x: x.softmax(0),
    "pairs of records": lambda x: x @ x.T,
    "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "running statistics made in the pass": _statistics_made_here,
    "written by all": _written_by_all,
    "secret index of records": lambda x: x[x.argmax(1) % B],
    "sorted records": lambda x: x.sort(0).values,
    "renormed along another axis": lambda x: x.renorm(2, 1, 1.0),
    "pooled over records": lambda x: functional.avg_pool1d(x.T, 2),
    "neighbours": lambda x: functional.conv1d(x.T[None], torch.ones(1, T, 3), padding=1)[0],
    "unique entries": lambda x: torch.isin(x, _TABLE, assume_unique=True),
    "keys are records": _keys_are_records,
    "fewer keys than values": _fewer_keys,
    "group norm with weights that are expanded": lambda x: torch.native_group_norm(
        x.unsqueeze(2), torch.ones(1).expand(T), None, B, T, 1, 1, 1e-5
    )[0],
    "a backward kernel that is called by hand": lambda x: torch.ops.aten.nll_loss_backward(
        x[:, 0], x, x.argmax(1), None, 0, -100, torch.ones(())
    ),
    "layer norm over records": lambda x: functional.layer_norm(x.T, (B,)),
    "scaled by how often entries come": lambda x: functional.embedding(
        x.argmax(1), _TABLE, scale_grad_by_freq=True
    ),
    "mask decides how many": lambda x: x[x > 0],
    "drawn up to the largest": lambda x: torch.randint_like(x, x.abs().max().long() + 1),
    "two axes tell the record": lambda x: x.unfold(0, 2, 1),
    "pairs of records as complex numbers": lambda x: torch.view_as_complex(
        x.T.contiguous().view(T, 2, 2)
    ),
}


@pytest.mark.parametrize("name", COUPLED)
def test_records_that_meet_are_not_proved_apart(name: str) -> None:
    assert not _is_proved(COUPLED[name], _numbers(B, T), Rows(0))


# --- places ---


def _per_place_state(x: Tensor) -> Tensor:
    layer = nn.LSTM(T, 3)
    start = _RAMP.view(1, B, 1).expand(1, B, 3).contiguous()
    result: Tensor = layer(x.unsqueeze(0), (start, start))[0]
    return result


def _per_place_filters(x: Tensor) -> Tensor:
    filters = _RAMP.view(B, 1, 1).expand(B, 1, 2).contiguous()
    return functional.conv1d(x.unsqueeze(0), filters, groups=B)[0]


def _per_place_mask(x: Tensor) -> Tensor:
    heads = x.view(B, 1, T, 1).expand(B, 2, T, 8)
    mask = _RAMP.view(B, 1, 1, 1).repeat(1, 1, T, T)
    return functional.scaled_dot_product_attention(heads, heads, heads, mask)


def _uneven_bags(x: Tensor) -> Tensor:
    offsets = torch.tensor([0, 2, 5, 9, 10, 13, 15, 16])
    return functional.embedding_bag(x.long().abs().flatten() % 7, _TABLE, offsets)


def _beside_constants(x: Tensor) -> Tensor:
    both = torch.stack([_RAMP, _RAMP], 1).clone()
    both[:, 0] = x[:, 0]
    return both.sum(1)


def _constants_over_records(x: Tensor) -> Tensor:
    own = x.clone()
    own[:, 0] = _RAMP
    return own.sum(1)


def _filled_in_part(x: Tensor) -> Tensor:
    ramp = torch.zeros(B)
    ramp[B - 1] = 5.0
    ramp.as_strided((2, 2), (1, 1)).fill_(1.0)  # as many entries as there are, but not all of them
    return x * ramp[:, None]


def _bytes_of_a_number(x: Tensor) -> Tensor:
    return x * torch.full((1,), 1.5).view(torch.uint8)[:, None]


def _overwritten_constant(x: Tensor) -> Tensor:
    product = _RAMP[:, None].repeat(1, T)
    product.mul_(x * 0.0)  # the same for all by chance of the records
    return product


def _sequence_loss(x: Tensor) -> Tensor:
    scores = x[None, :, :].expand(6, B, T).log_softmax(-1)
    targets = torch.ones(B, 3, dtype=torch.long)
    inputs: Any = [6] * B
    lengths: Any = [1, 2, 3, 1]
    return functional.ctc_loss(scores, targets, inputs, lengths, reduction="none")


def _neighbouring_numbers(x: Tensor) -> Tensor:
    drawn = torch.rand(B + 1)
    return torch.addcmul(x[:, 0], drawn[:-1], drawn[1:])


def _transposed_numbers(x: Tensor) -> Tensor:
    drawn = torch.rand(B, B)
    return torch.addcmul(x, drawn, drawn.T)


def _numbers_of_one(x: Tensor) -> Tensor:
    drawn = torch.rand(B)
    return torch.addcmul(x[:, 0], drawn, drawn[0])


def _numbers_of_all_first(x: Tensor) -> Tensor:
    drawn = torch.rand(B)
    return x[:, 0] * drawn[0] * drawn


BY_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "a constant for each place": lambda x: x + _RAMP[:, None],
    "a weight for each place": lambda x: torch.bmm(x[:, None], _RAMP.view(B, 1, 1).repeat(1, T, 1)),
    "addmm with constants of places": lambda x: torch.addmm(
        x, _RAMP[:, None].repeat(1, 2), torch.ones(2, T)
    ),
    "diagonal": lambda x: x.diagonal(),
    "diagonal by indices": lambda x: x[torch.arange(B), torch.arange(B)],
    "diagonal by one index": lambda x: x[(torch.arange(B),) * 2],
    "put by one index": lambda x: torch.zeros(B, T).index_put((torch.arange(B),) * 2, x[:, 0]),
    "reversed": lambda x: x.flip(0),
    "shifted": lambda x: x.roll(1, 0),
    "shifted by a slice": lambda x: x[1:] * 2,
    "one record": lambda x: x[0] * 2,
    "another order": lambda x: x[torch.tensor([1, 0, 3, 2])],
    "another order selected": lambda x: x.index_select(0, torch.tensor([1, 0, 3, 2])),
    "running sum": lambda x: x.cumsum(0),
    "padded": lambda x: functional.pad(x, (0, 0, 1, 0)),
    "lower triangle": lambda x: x.tril(),
    "beside constants of places": lambda x: torch.cat([x, _RAMP[:, None]], 1),
    "behind constants": lambda x: torch.cat([_RAMP[:, None].repeat(1, T), x]),
    "stacked with constants of places": lambda x: torch.stack([x, _RAMP[:, None].repeat(1, T)]),
    "gathered by places": lambda x: x.gather(1, torch.arange(B)[:, None]),
    "scattered by places": lambda x: torch.zeros(B, T).scatter(1, torch.arange(B)[:, None], x),
    "put by places": lambda x: torch.zeros(B, T).index_put(
        (torch.arange(B), torch.arange(B)), x[:, 0]
    ),
    "sought in a sequence of each place": lambda x: torch.searchsorted(
        (_RAMP[:, None] + torch.arange(3.0)).contiguous(), x
    ),
    "windows of random numbers": lambda x: x * torch.rand(B + T - 1).unfold(0, T, 1),
    "random numbers and their neighbours": _neighbouring_numbers,
    "random numbers along two axes": lambda x: _transposed_numbers(x[:, :B]),
    "random numbers of one and of all": _numbers_of_one,
    "random numbers of all, then of each": _numbers_of_all_first,
    "causal queries": lambda x: functional.scaled_dot_product_attention(
        x[None, None, :, :1].expand(1, 2, B, 8), _HEADS, _HEADS, is_causal=True
    ),
    "a mask for each place": _per_place_mask,
    "a state for each place": _per_place_state,
    "filters for each place": _per_place_filters,
    "bags of different sizes": _uneven_bags,
    "sequences of different lengths": _sequence_loss,
    "targets for each place": lambda x: functional.cross_entropy(
        x, torch.arange(B), reduction="none"
    ),
    "probabilities for each place": lambda x: x * torch.bernoulli(_RAMP / B)[:, None],
    "means for each place": lambda x: x + torch.normal(_RAMP, 1.0)[:, None],
    "an order drawn at random": lambda x: x * torch.randperm(B)[:, None],
    "written beside constants of places": _beside_constants,
    "constants of places written over records": _constants_over_records,
    "filled in part": _filled_in_part,
    "bytes of one number": _bytes_of_a_number,
    "a constant that was overwritten": _overwritten_constant,
    "part of a constant exchanged": lambda x: (
        _RAMP[:, None].repeat(1, 2).select_scatter(x[:, 0], 1, 0)
    ),
}


@pytest.mark.parametrize("name", BY_PLACE)
def test_what_depends_on_a_place_is_not_proved(name: str) -> None:
    assert not _is_proved(BY_PLACE[name], _numbers(B, T), Rows(0))


@pytest.mark.parametrize("make", [torch.empty_like, lambda x: x.new_empty(x.shape)])
def test_memory_that_nobody_wrote_is_zeros_in_every_pass(make: Callable[[Tensor], Tensor]) -> None:
    """It may hold what records of an earlier pass left there; also where the operation is known."""
    batch = _numbers(B, 1000)
    for _ in range(3):
        leftovers = [torch.full((B, 1000), 7.0) for _ in range(20)]
        proof = Proof(B)
        own = proof.begin(batch, Rows(0))
        del leftovers
        with proof, Doors(proof):
            result = make(own)
        assert not result.any()


@pytest.mark.parametrize("ignored", [False, True])
def test_labels_that_were_changed_after_a_loss_do_not_reach_other_records(*, ignored: bool) -> None:
    """The kernel of the backward pass believes them. One that stands for no class is allowed."""
    proof = Proof(B)
    scores = proof.begin(_numbers(B, T), Rows(0)).requires_grad_()
    labels = proof.begin(torch.ones(B, dtype=torch.long), Rows(0))
    with proof, Doors(proof):
        losses = functional.cross_entropy(scores, labels, reduction="none")
        labels.data.fill_(-100 if ignored else T)  # past autograd, which counts writes
        if ignored:
            losses.sum().backward()  # type: ignore[no-untyped-call]
            return
        with pytest.raises(IndexError, match="out of range"):
            losses.sum().backward()  # type: ignore[no-untyped-call]
    assert "nll_loss_backward" in proof.error


def test_what_a_kernel_kept_is_not_exchanged_for_what_all_records_made() -> None:
    """Also below the functions of torch that Python calls, where no door is watched."""
    proof = Proof(B)
    scores = proof.begin(_numbers(B, T), Rows(0))
    with proof, no_functions():
        weights = (scores[:, 0], scores, scores.argmax(1), None, 0, -100)
        of_all = torch.ops.aten.nll_loss_backward(*weights, scores.sum())
        kept = torch.ops.aten.nll_loss_forward(*weights[1:])[1]
        of_kernel = torch.ops.aten.nll_loss_backward(*weights, kept)
    assert isinstance(proof.state(of_all), Mixed)
    assert proof.state(of_kernel) == Rows(0)


def test_statistics_that_do_not_fit_are_not_known() -> None:
    proof = Proof(B)
    x = proof.begin(_numbers(B, 2, T), Rows(0))
    few = x[:, :1, :1].contiguous()
    with proof, no_functions():
        backward = torch.ops.aten.native_layer_norm_backward
        gradient = backward(x, x, [T], few, few, None, None, [True, False, False])[0]
    assert isinstance(proof.state(gradient), Mixed)


def test_channels_of_records_are_not_shuffled() -> None:
    """Channels are the second axis, whatever the rank: records there would change places."""
    images = _numbers(2, B, 2, 2, 2)
    assert not _is_proved(lambda x: functional.channel_shuffle(x, 2), images, Rows(1))


def test_the_traps_are_sprung_by_what_they_are_about() -> None:
    """The same code without its trap is proved."""
    proved = SimpleNamespace(
        constant=lambda x: x + _RAMP[0],
        mask=lambda x: x.masked_fill(x > 0, 0.0),
        order=lambda x: x[torch.arange(B)],
        drawn=lambda x: x * (torch.rand(B, 1) < 0.5),
        drawn_for_all=lambda x: x * torch.rand(T) * torch.rand(()),
        drawn_twice=lambda x: torch.addcmul(x[:, 0], *(2 * [torch.rand(B)])),
        keys=lambda x: functional.scaled_dot_product_attention(*(3 * [x.view(B, 1, T, 1)])),
        shared_keys=_shared_keys,
        median=lambda x: x.median(1).values,
        entries=lambda x: torch.ops.aten.tanh_backward(x, x),
    )
    for name, function in vars(proved).items():
        assert _is_proved(function, _numbers(B, T), Rows(0)), name
