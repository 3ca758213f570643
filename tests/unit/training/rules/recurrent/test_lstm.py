"""The steps of an LSTM, and when compiled code takes them."""

import pytest
import torch

from discreet.training.rules.recurrent import lstm as module
from discreet.training.rules.recurrent.cells import CellSteps, Weights
from support.written import draw

T, M, H, P = 3, 2, 4, 2


@pytest.fixture(autouse=True)
def count_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cells_so_far", [0])
    monkeypatch.setattr(module, "_expected_passes", [1])


@pytest.mark.parametrize("projects", [False, True])
def test_an_lstm_against_its_formula(projects: bool) -> None:
    """Wrong: with a projection, y in the place of h, or dh in that of dy."""
    out_size = P if projects else H
    from_x = draw(T, M, 4 * H).requires_grad_()
    start = (draw(M, out_size).requires_grad_(), draw(M, H).requires_grad_())
    weights = Weights(draw(4 * H, 1), draw(4 * H, out_size), hr=draw(P, H) if projects else None)
    (h, c), outputs = start, []
    for t in range(T):
        i, f, g, o = (from_x[t] + h @ weights.hh.t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        y = o.sigmoid() * c.tanh()
        h = y if weights.hr is None else y @ weights.hr.t()
        outputs.append(h)
    d_out = draw(T, M, out_size)
    d_last = (draw(M, out_size) + 1.0, draw(M, H) - 1.0)
    truth = torch.autograd.grad([torch.stack(outputs), h, c], [from_x, *start], [d_out, *d_last])
    steps = CellSteps.of(T, reverse=False)
    trace = module.lstm(from_x.detach().clone(), tuple(s.detach() for s in start), weights, steps)
    torch.testing.assert_close(steps.later(trace.states[0]), torch.stack(outputs).detach())
    found = module.lstm_backward(trace, weights, d_out, d_last, steps)
    torch.testing.assert_close((found.ih, *found.start), truth)


def test_expected_passes_count_as_if_they_were_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a long run computes for seconds before its kernels are compiled."""
    cells = torch.zeros(5, 2, 10)
    monkeypatch.setattr(module, "_WORTH", 60)
    monkeypatch.setattr(module, "_is_compiled", lambda: False)
    assert not module._compiled_is_faster(cells)
    module._cells_so_far[0] = 0
    module.expect_passes(2)
    assert module._compiled_is_faster(cells)


def test_only_float32_is_compiled() -> None:
    module.expect_passes(10**12)
    assert not module._compiled_is_faster(torch.zeros(2, 2, 2, dtype=torch.float64))
    assert module._compiled_is_faster(torch.zeros(2, 2, 2))


def test_what_is_compiled_already_is_used_from_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_cells_so_far", [0])
    monkeypatch.setattr(module, "_WORTH", 10**12)
    monkeypatch.setattr(module, "_is_compiled", lambda: True)
    assert module._compiled_is_faster(torch.zeros(2, 2, 2))
