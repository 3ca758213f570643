"""When a program may be used: the same memory, and the same objects of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training.replay.guards import Guards
from discreet.training.separation.marks import mark_dataset

SCALE = 1.0
NUMBERS = {"temperature": 1.0}


def loss(model: Any, batch: Tensor) -> Tensor:
    losses: Tensor = model(batch).square().sum(1) * SCALE / NUMBERS["temperature"]
    return losses


class Model(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("shift", torch.zeros(2))
        self.factor = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.factor  # type: ignore[no-any-return]


def put_in_place(model: Model) -> None:
    with torch.no_grad():
        model.layer.weight.mul_(2.0)


def exchange_data(model: Model) -> None:
    model.layer.weight.data = torch.ones(2, 3)


def transpose_data(model: Model) -> None:
    model.layer.weight.data = model.layer.weight.data.t().contiguous().t()


def replace_parameter(model: Model) -> None:
    model.layer.weight = nn.Parameter(torch.ones(2, 3))


def replace_buffer(model: Model) -> None:
    model.shift = torch.ones(2)


def write_attribute(model: Model) -> None:
    model.factor = 3.5


def put_hook(model: Model) -> None:
    model.layer.register_forward_hook(lambda *_: None)


def switch_mode(model: Model) -> None:
    model.eval()


def write_entry(_: Model) -> None:
    NUMBERS["temperature"] = 7.5


def mark_records(model: Model) -> None:
    mark_dataset(model.shift)


@pytest.fixture(autouse=True)
def _numbers() -> Any:
    yield
    NUMBERS["temperature"] = 1.0


def test_values_in_place_may_change() -> None:
    model = Model()
    guards = Guards(model, loss, [])
    put_in_place(model)
    assert guards.moved(loss) is None


@pytest.mark.parametrize(
    "change",
    [
        exchange_data,
        transpose_data,
        replace_parameter,
        replace_buffer,
        write_attribute,
        put_hook,
        switch_mode,
        write_entry,
        mark_records,
    ],
)
def test_what_has_moved_is_seen(change: Callable[[Model], None]) -> None:
    model = Model()
    guards = Guards(model, loss, [])
    assert guards.moved(loss) is None
    change(model)
    assert guards.moved(loss) is not None


def test_a_number_among_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    guards = Guards(Model(), loss, [])
    monkeypatch.setitem(globals(), "SCALE", 2.5)
    assert guards.moved(loss) is not None


def test_a_tensor_from_before_that_is_none_of_the_models() -> None:
    constant = torch.ones(3)
    guards = Guards(Model(), loss, [constant])
    constant.untyped_storage().resize_(0)
    assert guards.moved(loss) is not None


def test_another_default_of_numbers() -> None:
    guards = Guards(Model(), loss, [])
    torch.set_default_dtype(torch.float64)
    try:
        assert guards.moved(loss) is not None
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_loss_that_is_defined_in_the_loop_is_the_same_with_the_same_objects() -> None:
    scale, other_scale = object(), object()

    def make(value: object) -> Any:
        def made_loss(model: Any, batch: Any) -> Any:
            return model(batch), value

        return made_loss

    guards = Guards(Model(), make(scale), [])
    assert guards.moved(make(scale)) is None
    assert guards.moved(make(other_scale)) is not None
    assert guards.moved(loss) is not None
