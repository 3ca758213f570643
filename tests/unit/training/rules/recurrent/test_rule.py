"""The rules of recurrent layers and cells: which calls they take, and what goes one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.per_record import compare
from support.written import draw


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, *, learned_start: bool = False) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 2, batch_first=True).double()
        self.start = nn.Parameter(draw(1, 1, 2)) if learned_start else None

    def forward(self, x: Tensor) -> Tensor:
        start = None if self.start is None else self.start.expand(1, len(x), 2).contiguous()
        out: Tensor = self.layer(x, start)[0][:, -1]
        return out


def loss(model: nn.Module, batch: Any) -> Tensor:
    return torch.as_tensor(model(*batch).pow(3).sum(1))


@pytest.mark.parametrize("frozen", [(), ("weight_hh_l0",), ("weight_ih_l0", "bias_ih_l0")])
def test_weights_and_biases_are_uses_of_their_own(frozen: tuple[str, ...]) -> None:
    """Wrong: a frozen weight takes the gradient of its bias with it."""
    model = Last()
    for name in frozen:
        model.layer.get_parameter(name).requires_grad_(False)
    compare(model, loss, (draw(4, 5, 3),))


def test_a_start_that_is_learned_gets_its_gradient() -> None:
    """Wrong: the layer hands out the gradients of its maps, and none of its start."""
    compare(Last(learned_start=True), loss, (draw(4, 5, 3),))


CELLS: list[type[nn.RNNCellBase]] = [nn.GRUCell, nn.LSTMCell, nn.RNNCell]


class Steps(nn.Module):
    """A cell that is called for each position, from zeros or from a start that is learned."""

    def __init__(
        self,
        kind: type[nn.RNNCellBase],
        *,
        bias: bool = True,
        learned_start: bool = False,
        blind: bool = False,
    ) -> None:
        super().__init__()
        self.cell: nn.Module = kind(3, 2, bias=bias).double()  # type: ignore[call-arg]
        self.start = nn.Parameter(draw(1, 2)) if learned_start else None
        self.blind = blind  # the first input says nothing

    def forward(self, x: Tensor) -> Tensor:
        inputs = list(x.unbind(1))
        if self.blind:
            inputs = [torch.zeros_like(inputs[0]), *inputs]

        first = x.new_zeros(len(x), 2) if self.start is None else self.start.expand(len(x), 2)
        if not isinstance(self.cell, nn.LSTMCell):
            for entry in inputs:
                first = self.cell(entry, first)
            return first

        state = (first, first)
        for entry in inputs:
            state = self.cell(entry, state)
        return state[0] + state[1]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"learned_start": True}, {"blind": True}], ids=str
)
def test_a_cell_is_a_layer_of_one_position(kind: Any, options: dict[str, bool]) -> None:
    compare(Steps(kind, **options), loss, (draw(4, 3, 3),))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("frozen", ["cell.weight_hh", "cell.bias_ih"])
def test_a_cell_with_a_frozen_weight_gives_the_gradients_of_the_others(
    kind: Any, frozen: str
) -> None:
    model = Steps(kind)
    model.get_parameter(frozen).requires_grad_(False)
    compare(model, loss, (draw(4, 3, 3),))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("in_turn", [False, True])
def test_several_rows_of_one_record_are_its_positions(kind: Any, in_turn: bool) -> None:
    """Wrong: rows of neighbours are counted to a record."""

    def of_rows(model: nn.Module, batch: Any) -> Tensor:
        (x,) = batch
        count, rows = x.shape[:2]
        folded = x.movedim(1, 0) if in_turn else x
        out = model(folded.flatten(0, 1))
        out = out.unflatten(0, (rows, count) if in_turn else (count, rows))
        return torch.as_tensor(out.pow(3).sum((0, 2) if in_turn else (1, 2)))

    compare(Steps(kind), of_rows, (draw(4, 3, 5, 3),))


def test_a_layer_takes_several_rows_of_one_record() -> None:
    def of_rows(model: nn.Module, batch: Any) -> Tensor:
        out = model(batch[0].flatten(0, 1)).unflatten(0, (len(batch[0]), 3))
        return torch.as_tensor(out.pow(3).sum((1, 2)))

    compare(Last(), of_rows, (draw(4, 3, 5, 3),))


def test_a_packed_sequence_goes_one_by_one() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(3, 2, batch_first=True).double()

        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.full((len(x),), x.shape[1])
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            out: Tensor = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]
            return out.transpose(0, 1).flatten(1)

    compare(Packed(), loss, (draw(4, 5, 3),), loop=True)
