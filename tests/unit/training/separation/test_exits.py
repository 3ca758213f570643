"""Ways by which an operation could let something of a record out of a pass."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training.separation.exits import (
    MENDED,
    arguments_of,
    layer_of,
    leak_of,
    require_bounds,
    targets_of_records,
    undeclared_by,
)
from discreet.training.separation.operation import operation_of
from discreet.training.separation.states import PUBLIC, Rows

aten: Any = torch.ops.aten
X = torch.ones(4, 3)


def test_the_layer_whose_forward_runs_is_named() -> None:
    names: dict[int, str] = {}
    seen: list[str] = []

    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(layer_of(names))
            return x

    model = nn.Sequential(nn.Identity(), Asking())
    names.update({id(module): name for name, module in model.named_modules()})
    model(X)
    assert seen == ["layer '1'"]
    assert layer_of(names) == ""


def facts(func: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    operation = operation_of(func)
    return operation, arguments_of(operation, args, kwargs)


def test_arguments_have_their_defaults() -> None:
    _, arguments = facts(aten.sum.dim_IntList, X, [1])
    assert arguments == {"self": X, "dim": [1], "keepdim": False, "dtype": None}


@pytest.mark.parametrize(
    ("func", "args", "words"),
    [
        (aten._local_scalar_dense.default, (X,), "leave for Python"),
        (aten.nonzero.default, (X,), "a shape that depends on records"),
        (aten.poisson.default, (X,), "as many random numbers as records ask for"),
        (aten.add.Tensor, (X, X), None),
    ],
)
def test_numbers_shapes_and_draws_that_leave_are_named(
    func: Any, args: tuple[Any, ...], words: str | None
) -> None:
    leak = leak_of(*facts(func, *args), {id(X): Rows(0)})
    assert leak is None if words is None else leak is not None and words in leak


def test_a_mask_of_records_makes_a_shape_and_a_public_one_does_not() -> None:
    mask = X > 0
    call = facts(aten.index.Tensor, X, [mask])
    assert leak_of(*call, {id(mask): Rows(0)}) is not None
    assert leak_of(*call, {id(mask): PUBLIC}) is None


@pytest.mark.parametrize(("label", "inside"), [(2, True), (3, False), (-1, False), (-100, True)])
def test_labels_that_a_kernel_believes_are_within_bounds(label: int, inside: bool) -> None:
    """-100 is the label that stands for none."""
    targets = torch.full((4,), label)
    _, arguments = facts(
        aten.nll_loss_backward.default, torch.ones(4), X, targets, None, 0, -100, torch.ones(())
    )
    with nullcontext() if inside else pytest.raises(IndexError):
        require_bounds(operation_of(aten.nll_loss_backward.default), arguments)


def test_running_statistics_are_written_in_training_alone() -> None:
    mean = torch.zeros(3)
    for training, written in ((True, [mean, mean]), (False, [])):
        call = facts(aten.native_batch_norm.default, X, None, None, mean, mean, training, 0.1, 1e-5)
        assert undeclared_by(*call) == written


def test_only_what_is_computed_from_records_is_a_write_of_them() -> None:
    target, source = torch.zeros(4, 3), torch.ones(4, 3)
    call = facts(aten.add_.Tensor, target, source)
    assert list(targets_of_records(*call, {id(source): PUBLIC})) == []
    (written,) = targets_of_records(*call, {id(source): Rows(0)})
    assert written is target


def test_a_median_and_a_sequence_loss_get_arguments_that_stay_within_their_memory() -> None:
    ((own,), _) = MENDED["median"]((torch.zeros(1).expand(4),), {})
    assert own.is_contiguous()
    lengths = torch.tensor([9, 2])
    (_, targets, inside, _), _ = MENDED["ctc_loss"](
        (torch.zeros(5, 2, 3), torch.full((2, 2), 7), lengths, torch.tensor([1, 1])), {}
    )
    assert int(targets.max()) == 2
    assert inside.tolist() == [5, 2]
