"""Identity nodes: they catch the gradient that passes, once, and change nothing."""

import torch
from torch import Tensor

from discreet.training.rules.nodes import new_anchor, spread_to_records, tap


def test_a_tap_catches_the_gradient_and_hands_it_on() -> None:
    """Wrong: the gradient ends at the node, and what comes before gets none."""
    caught: list[Tensor] = []
    x = torch.ones(3, requires_grad=True)
    y = tap(x * 2.0, new_anchor(x.device), caught.append)
    torch.autograd.backward((y * torch.arange(3.0)).sum())
    assert [gradient.tolist() for gradient in caught] == [[0.0, 1.0, 2.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 4.0]


def test_a_tapped_tensor_may_be_changed_in_place_and_the_gradient_is_that_of_before() -> None:
    """Wrong: a view, which autograd does not let be changed in place."""
    caught: list[Tensor] = []
    y = tap(torch.ones(3), new_anchor(torch.device("cpu")), caught.append)
    y.mul_(5.0)
    torch.autograd.backward(y.sum())
    assert [gradient.tolist() for gradient in caught] == [[5.0, 5.0, 5.0]]


def test_a_pass_towards_the_anchor_visits_every_node_and_gives_it_no_gradient() -> None:
    caught: list[str] = []
    anchor = new_anchor(torch.device("cpu"))
    first = tap(torch.ones(2), anchor, lambda _: caught.append("first"))
    second = tap(first * 3.0, anchor, lambda _: caught.append("second"))
    gradients: list[object] = [*torch.autograd.grad(second.sum(), anchor, allow_unused=True)]
    assert gradients == [None]
    assert caught == ["second", "first"]


def test_copies_of_a_value_have_a_gradient_each() -> None:
    """Wrong: the gradients of all records, added up as autograd does for an expanded tensor."""
    caught: list[Tensor] = []
    value = torch.tensor([[1.0, 2.0]])
    copies = spread_to_records(value, (3, 2), new_anchor(value.device), caught.append)
    torch.autograd.backward((copies * torch.arange(6.0).view(3, 2)).sum())
    assert copies.tolist() == [[1.0, 2.0]] * 3
    assert caught[0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
