"""Functions of TorchScript: what is allowed in a pass, and what makes it fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training.passes.scripted import unseen_in


def _scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def _layers(x: Tensor, flag: bool) -> Tensor:
    parts = [x, 2 * x]
    if flag:
        parts.append(torch.nn.functional.layer_norm(x, [x.shape[1]]))
    for part in parts:
        x = x + part.sum(1, keepdim=True) / len(parts)
    if x.dim() > 9:
        raise ValueError(f"{x.dim()} axes")
    return torch.cat(parts, 1)


def _listed(x: Tensor) -> list[float]:
    numbers: list[float] = x.tolist()
    return numbers


def _calls(x: Tensor) -> list[float]:
    return _listed(x)


def _percent(x: Tensor) -> str:
    return "%s" % x  # noqa: UP031


def _formatted(x: Tensor) -> str:
    return "{}".format(x)  # noqa: UP032


def _printed(x: Tensor) -> Tensor:
    print(x)  # noqa: T201
    return x


def _split(x: Tensor, places: Tensor) -> Tensor:
    return torch.tensor_split(x, places)[0]


def _saved(x: Tensor) -> None:
    torch.save(x, "numbers")


def _by_hand(x: Tensor) -> Tensor:
    return torch._softmax_backward_data(x, x, 1, torch.float32) + torch._euclidean_dist(x, x)


@pytest.mark.parametrize(
    "function", [_layers, nn.Linear(3, 3), nn.TransformerEncoderLayer(4, 2, 8)]
)
def test_operations_that_the_proof_sees_are_allowed(function: Any) -> None:
    script = _scripted(function)
    assert (
        unseen_in(
            script if callable(function) and not isinstance(function, nn.Module) else script.forward
        )
        == ""
    )


@pytest.mark.parametrize(
    ("function", "node"),
    [
        (_listed, "prim::tolist"),
        (_calls, "prim::tolist"),
        (_percent, "aten::percentFormat"),
        (_formatted, "aten::format"),
        (_printed, "prim::Print"),
        (_split, "aten::tensor_split"),
        (_saved, "aten::save"),
        (_by_hand, "aten::_euclidean_dist"),
    ],
)
def test_what_nobody_sees_is_named(function: Callable[..., Any], node: str) -> None:
    script = _scripted(function)
    assert unseen_in(script) == node
    assert unseen_in(script) == node  # remembered
