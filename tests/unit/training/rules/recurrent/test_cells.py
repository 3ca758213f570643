"""One step after the other: against the formulas, differentiated by autograd."""

import pytest
import torch
from torch import Tensor

from discreet.training.rules.recurrent.cells import (
    CellSteps,
    Weights,
    gru,
    gru_backward,
    rnn,
    rnn_backward,
)
from support.written import draw

T, M, H = 3, 2, 4


def test_steps_go_on_or_back() -> None:
    """Wrong: a reversed direction that starts at the state before the first position."""
    states = torch.arange(4.0)
    ahead, back = CellSteps.of(3, reverse=False), CellSteps.of(3, reverse=True)
    assert ahead.sooner(states).tolist() == [0.0, 1.0, 2.0]
    assert ahead.later(states).tolist() == [1.0, 2.0, 3.0]
    assert back.sooner(states).tolist() == [1.0, 2.0, 3.0]
    assert back.later(states).tolist() == [0.0, 1.0, 2.0]
    assert list(zip(*ahead.back(), strict=True)) == [(2, 2, 3), (1, 1, 2), (0, 0, 1)]


def test_the_maps_of_a_layer() -> None:
    """Wrong: the projection is a map without which hh has no bias."""
    ih, hh, hr, bias = draw(8, 3), draw(8, 2), draw(2, 2), draw(8)
    assert len(Weights(ih, hh).maps) == 2
    assert Weights(ih, hh, bias, bias, hr).maps[2] == (hr, None)


@pytest.mark.parametrize("relu", [False, True])
def test_a_plain_layer(relu: bool) -> None:
    gates, start = draw(T, M, H).requires_grad_(), draw(M, H).requires_grad_()
    weights, steps = Weights(draw(H, 1), draw(H, H)), CellSteps.of(T, reverse=False)
    outputs, h = [], start
    for t in range(T):
        z = gates[t] + h @ weights.hh.t()
        h = z.relu() if relu else z.tanh()
        outputs.append(h)
    d_out, d_last = draw(T, M, H), draw(M, H) + 1.0
    truth = torch.autograd.grad([torch.stack(outputs), h], [gates, start], [d_out, d_last])
    trace = rnn(gates.detach().clone(), (start.detach(),), weights, steps, relu=relu)
    found = rnn_backward(trace, weights, d_out, (d_last,), steps, relu=relu)
    torch.testing.assert_close(steps.later(trace.states[0]), torch.stack(outputs).detach())
    torch.testing.assert_close((found.ih, found.start[0]), truth)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_gru_and_its_two_gradients_of_n(reverse: bool) -> None:
    """Wrong: the same gradient for W_in x and for W_hn h, which r multiplies."""
    from_x, start = draw(T, M, 3 * H).requires_grad_(), draw(M, H).requires_grad_()
    weights = Weights(draw(3 * H, 1), draw(3 * H, H), draw(3 * H), draw(3 * H) + 0.5)
    from_h = torch.zeros(T, M, 3 * H, dtype=torch.float64, requires_grad=True)
    outputs: dict[int, Tensor] = {}
    h = start
    for t in reversed(range(T)) if reverse else range(T):
        x_r, x_z, x_n = from_x[t].chunk(3, 1)
        h_r, h_z, h_n = (h @ weights.hh.t() + from_h[t]).chunk(3, 1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        n = (x_n + r * (h_n + weights.bias_hh[2 * H :])).tanh()  # type: ignore[index]
        h = (1.0 - z) * n + z * h
        outputs[t] = h
    out = torch.stack([outputs[t] for t in range(T)])
    d_out, d_last = draw(T, M, H), draw(M, H) + 1.0
    d_ih, d_hh, d_start = torch.autograd.grad([out, h], [from_x, from_h, start], [d_out, d_last])
    steps = CellSteps.of(T, reverse=reverse)
    trace = gru(from_x.detach().clone(), (start.detach(),), weights, steps)
    torch.testing.assert_close(steps.later(trace.states[0]), out.detach())
    found = gru_backward(trace, weights, d_out, (d_last,), steps)
    torch.testing.assert_close((found.ih, found.hh, found.start[0]), (d_ih, d_hh, d_start))
