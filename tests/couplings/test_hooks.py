"""Hooks see what all records make together, or nothing; or the run refuses them before a charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from discreet.errors import DiscreetError

from . import harness
from .quiet import quiet
from .scenes import FRESH, Pair, Relation, Scene

Seen: TypeAlias = Callable[[Any], None]
Watch: TypeAlias = Callable[[Pair, Seen], Any]


class Sightings:
    """What hooks were called with, and which records it tells of.

    Args:
        model: of the run.
        x: its records.
        weights: of their losses, all different.
    """

    def __init__(self, model: Pair, x: Tensor, weights: Tensor) -> None:
        self.tensors: list[Tensor] = []
        hidden = x @ model.first.weight.detach().T
        at_output = weights.unsqueeze(1)
        self._rows = [x, hidden, at_output, at_output * model.last.weight.detach()]
        by_first = torch.einsum("nh,nf->nhf", self._rows[3], x).flatten(1)
        self._gradients = [by_first, at_output * hidden]

    def __call__(self, values: Any) -> None:
        """Note all tensors among the arguments of a hook."""
        if isinstance(values, Tensor):
            self.tensors.append(values.detach().clone())
        elif isinstance(values, tuple | list):
            for value in values:
                self(value)

    def partial(self) -> list[str]:
        """What tells of some records, and not of all."""
        words = []
        for tensor in self.tensors:
            for rows in (*self._rows, *self._gradients):
                present = _records_in(tensor, rows)
                if 0 < present < len(rows):
                    words.append(f"{tuple(tensor.shape)}: {present} of {len(rows)} records")
        return words


def _records_in(tensor: Tensor, rows: Tensor) -> int:
    """How many of these rows are in a tensor."""
    width = rows.shape[1]
    flat = tensor.flatten()
    if flat.numel() % width or not flat.is_floating_point():
        return 0
    distances = torch.cdist(rows, flat.view(-1, width).float())
    near = distances <= 1e-4 * rows.norm(dim=1, keepdim=True)
    return int(near.any(1).sum())


# --- hooks of every kind ---


def _parameter(model: Pair, seen: Seen) -> None:
    for parameter in model.parameters():
        parameter.register_hook(seen)  # type: ignore[no-untyped-call]


def _accumulated(model: Pair, seen: Seen) -> None:
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda leaf: seen(leaf.grad))  # type: ignore[no-untyped-call]


def _node(model: Pair, seen: Seen) -> Any:
    """The node of autograd that adds to a parameter's gradient; kept, or its hook is gone."""
    nodes = []
    for parameter in model.parameters():
        function: Any = parameter.expand_as(parameter).grad_fn
        node = function.next_functions[0][0]
        node.register_hook(lambda _, outputs: seen(outputs))
        nodes.append(node)
    return nodes


def _forward(model: Pair, seen: Seen) -> None:
    for module in model.modules():
        module.register_forward_hook(lambda _, inputs, outputs: seen((inputs, outputs)))


def _forward_pre(model: Pair, seen: Seen) -> None:
    for module in model.modules():
        module.register_forward_pre_hook(lambda _, inputs: seen(inputs))


def _full_backward(model: Pair, seen: Seen) -> None:
    model.last.register_full_backward_hook(lambda _, inputs, outputs: seen((inputs, outputs)))


def _full_backward_pre(model: Pair, seen: Seen) -> None:
    model.last.register_full_backward_pre_hook(lambda _, outputs: seen(outputs))


@contextmanager
def _global_forward(_: Pair, seen: Seen) -> Iterator[None]:
    handle = global_hooks.register_module_forward_hook(
        lambda _, inputs, outputs: seen((inputs, outputs))
    )
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _global_backward(_: Pair, seen: Seen) -> Iterator[None]:
    handle = global_hooks.register_module_full_backward_pre_hook(lambda _, outputs: seen(outputs))
    try:
        yield
    finally:
        handle.remove()


def _saved(_: Pair, seen: Seen) -> Any:
    def packed(tensor: Tensor) -> Tensor:
        seen(tensor)
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor)


def _in_forward(model: Pair, seen: Seen) -> None:
    """A hook of a tensor, registered in each pass."""

    def registered(_: nn.Module, __: Any, hidden: Tensor) -> None:
        if hidden.requires_grad:
            hidden.register_hook(seen)  # type: ignore[no-untyped-call]

    model.first.register_forward_hook(registered)


KINDS: dict[str, Watch] = {
    "parameter": _parameter,
    "accumulated gradient": _accumulated,
    "node of a parameter": _node,
    "forward": _forward,
    "forward, before": _forward_pre,
    "backward of a module": _full_backward,
    "backward of a module, before": _full_backward_pre,
    "forward of all modules": _global_forward,
    "backward of all modules": _global_backward,
    "saved tensors": _saved,
    "tensor inside the model": _in_forward,
}
OF_PARAMETERS = ("parameter", "accumulated gradient", "node of a parameter")


def _watched(watch: Watch, *, late: bool) -> tuple[Sightings, bool]:
    """A run with hooks: what they saw, and whether it was refused before a charge."""
    scene = Scene.of(FRESH.clock(), Relation.ADDED, special=False)
    weights = 37.0 + 1.7 * torch.arange(len(scene.x))
    model = Pair()
    sightings = Sightings(model, scene.x, weights)
    dataset = torch.utils.data.TensorDataset(scene.x, weights)

    def loss(own: Any, batch: Any) -> Tensor:
        losses: Tensor = own(batch[0]) * batch[1]
        return losses

    with ExitStack() as stack:
        run = harness.begin(model, records=len(scene.x), steps=3)
        for number, batch in enumerate(run.batches(dataset)):
            if number == int(late):
                hooks = watch(model, sightings)
                if hasattr(hooks, "__enter__"):
                    stack.enter_context(hooks)
            try:
                with quiet():  # torch warns of hooks of layers whose inputs need no gradient
                    run.backward(loss, batch)
            except DiscreetError:
                return sightings, not harness.charged(run)
    return sightings, False


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "from the second step on"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_hook_is_called_with_what_tells_of_some_records_only(kind: str, late: bool) -> None:
    sightings, refused = _watched(KINDS[kind], late=late)
    assert refused or not sightings.partial()


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*OF_PARAMETERS}))
def test_hooks_are_called_or_refused_before_a_charge(kind: str) -> None:
    """A hook that is left out in silence would be as wrong as one that sees too much."""
    sightings, refused = _watched(KINDS[kind], late=False)
    assert refused or sightings.tensors


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "from the second step on"])
@pytest.mark.parametrize("kind", OF_PARAMETERS)
def test_hooks_of_parameters_are_not_called_before_noise_is_added(kind: str, late: bool) -> None:
    """In a private run autograd gives parameters nothing: what such a hook sees is unclipped."""
    sightings, refused = _watched(KINDS[kind], late=late)
    assert refused or not sightings.tensors


def test_sightings_of_single_records_are_found() -> None:
    """The test's own check, on what hooks of plain training would see."""
    scene = Scene.of(FRESH.clock(), Relation.ADDED, special=False)
    weights = 37.0 + 1.7 * torch.arange(len(scene.x))
    model = Pair()
    sightings = Sightings(model, scene.x, weights)
    _forward_pre(model, sightings)
    model(scene.x)
    assert not sightings.partial()
    model(scene.x[:3])
    assert len(sightings.partial()) == 3
    sightings.tensors.clear()
    _parameter(model, sightings)
    (model(scene.x[:1]) * weights[:1]).sum().backward()
    assert sightings.partial()
