"""Parameters, gradients and buffers are after a pass what they were."""

from __future__ import annotations

import torch
from torch import nn

from discreet.training.state.untouched import Buffers, Untouched


def test_a_parameter_that_was_written_to_is_named_and_gradients_are_put_back() -> None:
    layer = nn.Linear(2, 1)
    layer.bias.grad = before = torch.ones(1)
    untouched = Untouched({"grad/weight": layer.weight, "grad/bias": layer.bias})
    assert [parameter.grad for parameter in layer.parameters()] == [None, None]
    with torch.no_grad():
        layer.weight.add_(1.0)
    assert untouched.written() == ["weight"]
    assert layer.bias.grad is before


def test_buffers_are_put_back() -> None:
    layer = nn.BatchNorm1d(2)
    before = layer.running_mean
    buffers = Buffers(layer)
    layer.running_mean = torch.ones(2)
    buffers.restore()
    assert layer.running_mean is before
