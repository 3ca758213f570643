"""Weights that are repeated for each record before they meet one: guessed from sizes, shown by the
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from discreet.training.engine import Engine
from support.per_record import compare

B, T, E = 5, 4, 6


class Written(nn.Module):
    """A model that is one function of its parameter and its input."""

    def __init__(self, forward: Callable[..., Tensor], weight: Tensor) -> None:
        super().__init__()
        self.written, self.w = forward, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.written(self.w, x)


def draw(*shape: int) -> Tensor:
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


def cubes(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[0])
    if len(out) == T * len(batch[0]):  # all records in turn
        out = torch.unflatten(out, 0, (T, -1)).movedim(1, 0)
    out = out.reshape(len(batch[0]), -1)
    return (out * (0.3 + out + 0.1 * out.square())).sum(1)


def joined(tokens: Tensor, x: Tensor) -> Tensor:
    """What each token makes of the positions of its own record."""
    return torch.softmax(torch.cat([tokens, x], 1).cumsum(1), 2)


def _windows(x: Tensor) -> Tensor:
    """Two windows of each record, folded into the first axis."""
    return x.reshape(2 * len(x), T // 2, E)


def _mask_of_windows(x: Tensor) -> Tensor:
    """A mask for each of a record's windows."""
    mask = torch.arange(2.0 * (T // 2), dtype=x.dtype).reshape(2, T // 2, 1)
    return mask.repeat(len(x), 1, 1)


def _of_positions(x: Tensor) -> Tensor:
    """A number for each position, all records in turn."""
    return torch.arange(float(T), dtype=x.dtype).repeat_interleave(len(x)).unsqueeze(1)


REPEATED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "class token, expand": (lambda w, x: joined(w.expand(len(x), -1, -1), x), (1, 1, E)),
    "class token, expand_as": (lambda w, x: joined(w.expand_as(x[:, :1]), x), (1, 1, E)),
    "class token, broadcast_to": (
        lambda w, x: joined(torch.broadcast_to(w, (len(x), 1, E)), x),
        (1, 1, E),
    ),
    "prompt, repeat": (lambda w, x: joined(w.repeat(len(x), 1, 1), x), (3, E)),
    "prompt, new axis": (lambda w, x: joined(w[None].expand(len(x), 3, E), x), (3, E)),
    "plus zeros of each record": (
        lambda w, x: joined(w + torch.zeros(len(x), 1, 1, dtype=w.dtype), x),
        (3, E),
    ),
    "times ones of each record": (
        lambda w, x: joined(w * torch.ones(len(x), 3, E, dtype=w.dtype), x),
        (3, E),
    ),
    "constant ids": (
        lambda w, x: joined(F.embedding(torch.arange(3).repeat(len(x), 1), w), x),
        (7, E),
    ),
    "a linear map of ones": (
        lambda w, x: joined(F.linear(torch.ones(len(x), 3, E, dtype=w.dtype), w), x),
        (E, E),
    ),
    "a product with zeros": (
        lambda w, x: joined(((torch.zeros(len(x), 2, dtype=w.dtype) + 1) @ w)[:, None], x),
        (2, E),
    ),
    "a bias and a mask of windows": (
        lambda w, x: _windows(x) * (w + _mask_of_windows(x)),
        (1, T // 2, E),
    ),
    "a bias and a mask, all records in turn": (
        lambda w, x: x.movedim(1, 0).flatten(0, 1) * (w + _of_positions(x)),
        (1, E),
    ),
    "heads, repeated as a whole": (
        lambda w, x: torch.bmm(_windows(x), w.repeat(len(x), 1, 1)),
        (2, E, 3),
    ),
    "records second": (
        lambda w, x: joined(w.unsqueeze(1).expand(3, len(x), E).movedim(1, 0), x),
        (3, E),
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_p12_a_weight_repeated_for_each_record_is_taped(name: str) -> None:
    forward, shape = REPEATED[name]
    compare(Written(forward, draw(*shape)), cubes, (draw(B, T, E),))


class Latents(nn.Module):
    """Learnt positions that go through layers before they meet a record."""

    def __init__(self, *, moved: bool = False) -> None:
        super().__init__()
        self.latents = nn.Parameter(draw(1, 3, E))
        self.norm = nn.LayerNorm(E).double()
        self.map = nn.Linear(E, E).double()
        self.moved = moved

    def forward(self, x: Tensor) -> Tensor:
        latents = self.latents.expand(len(x), -1, -1)
        if self.moved:
            latents = latents + torch.linspace(0.0, 1.0, len(x), dtype=x.dtype)[:, None, None]
        return joined(self.map(self.norm(latents)), x)


def test_p12_a_weight_that_was_repeated_goes_on_through_layers() -> None:
    compare(Latents(), cubes, (draw(B, T, E),))


def test_p12_t06_one_that_was_made_another_for_each_place_does_not() -> None:
    engine = Engine(Latents(moved=True))
    list(engine.passes(cubes, (draw(B, T, E),), B, B))
    assert "clear record axis" in str(engine.one_by_one)


def positions(w: Tensor, x: Tensor) -> Tensor:
    """Repeated along positions, not along records."""
    return torch.tanh(x * 0.5 + w.expand(x.shape[1], -1))


def transposed(w: Tensor, x: Tensor) -> Tensor:
    return torch.tanh(x + w.repeat(x.shape[1], 1))


@pytest.mark.parametrize("forward", [positions, transposed])
@pytest.mark.parametrize("length", [T, B])
def test_p12_as_many_positions_as_records_are_not_taken_for_them(forward: Any, length: int) -> None:
    """With T == B the guess is wrong, the gradient shows it,
    and the pass is repeated without it.
    """
    found = compare(Written(forward, draw(1, E)), cubes, (draw(B, length, E),), loop=None)
    assert found.engine.one_by_one is None


def of_positions(w: Tensor, x: Tensor) -> Tensor:
    """Rows of a public table that differ from each other, as many as positions."""
    table = torch.linspace(0.0, 1.0, x.shape[1] * E, dtype=x.dtype).reshape(-1, E)
    return torch.tanh(x * F.linear(table, w))


def of_ones(w: Tensor, x: Tensor) -> Tensor:
    """The same, with rows that are all alike: only the gradient shows that they are no records."""
    return torch.tanh(x * F.linear(torch.ones(x.shape[1], E, dtype=x.dtype), w))


def of_many_ones(w: Tensor, x: Tensor) -> Tensor:
    """As many entries as all records have positions, and meant for the positions."""
    return torch.tanh(x * (w + torch.ones(x.shape[1], E, dtype=x.dtype)))


@pytest.mark.parametrize("forward", [of_positions, of_ones, of_many_ones])
@pytest.mark.parametrize("length", [T, B, 2 * B])
def test_p12_a_map_of_constants_for_positions_is_not_taken_for_one_of_records(
    forward: Any, length: int
) -> None:
    shape = (1, E) if forward is of_many_ones else (E, E)
    compare(Written(forward, draw(*shape)), cubes, (draw(B, length, E),))


@pytest.mark.parametrize("inner", [1, 2])
def test_p12_t06_a_map_of_other_constants_for_other_places_is_not_computed_together(
    inner: int,
) -> None:
    """Wrong: what a record contributes depends on its place in the batch. The results are zeros,
    whatever the rows are: only these tell the places apart.
    """

    def forward(w: Tensor, x: Tensor) -> Tensor:
        rows = torch.linspace(0.0, 1.0, inner * len(x) * E, dtype=x.dtype).reshape(-1, 1, E)
        return x[:, :inner].reshape(-1, 1, E) * F.linear(rows, w)

    engine = Engine(Written(forward, torch.zeros(E, E, dtype=torch.float64)))
    list(engine.passes(cubes, (draw(B, T, E),), B, B))
    assert "own axis" in str(engine.one_by_one)  # and not because the numbers were compared


def test_p12_a_wrong_guess_is_not_made_again() -> None:
    passes = 0

    def loss(model: Any, batch: Any) -> Tensor:
        nonlocal passes
        passes += 1
        return cubes(model, batch)

    engine = Engine(Written(positions, draw(1, E)))
    for _ in range(3):
        list(engine.passes(loss, (draw(B, B, E),), B, B))
    first, passes = passes, 0
    list(engine.passes(loss, (draw(B, B, E),), B, B))
    assert (passes, engine.one_by_one) == (1, None)
    assert (
        first <= 3 + 2 + 2
    )  # the trial and its two records alone, and a pass more for the guess in each kind of pass


def test_p12_constant_ids_of_positions_are_not_taken_for_records() -> None:
    table = draw(9, E)
    for length in (T, B):
        compare(
            Written(lambda w, x: torch.tanh(x + F.embedding(torch.arange(x.shape[1]), w)), table),
            cubes,
            (draw(B, length, E),),
        )


def test_a_token_that_meets_several_records_goes_one_by_one() -> None:
    """The guess cannot say whose the token's gradient is: the proof does."""
    model = Written(lambda w, x: joined(w.expand(len(x), -1, -1), x - x.mean(0)), draw(1, 1, E))
    engine = Engine(model)
    list(engine.passes(cubes, (draw(B, T, E),), B, B))
    assert "mean" in str(engine.one_by_one)
