"""Couplings on the way back: hooks, functions of the user, checkpoints, saved tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .scenes import Pair, Scene, Setup, case

_RARE = -10.0

Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""A gradient of hidden rows, and the batch, to another gradient."""


def _flipped(gradient: Tensor, x: Tensor) -> Tensor:
    """The other way for all records if one is special."""
    return torch.where(x.min() < _RARE, -gradient, gradient)


def _by_own_size(gradient: Tensor, x: Tensor) -> Tensor:
    """Divided by the largest gradient of the batch: that of the special record."""
    return gradient * 0.2 / gradient.abs().max()


def _shifted(gradient: Tensor, _: Tensor) -> Tensor:
    """The gradient of a record goes to the next one."""
    return gradient.roll(1, 0)


def _centred(gradient: Tensor, _: Tensor) -> Tensor:
    """Less its mean over records."""
    return gradient - gradient.mean(0)


def _through_python(gradient: Tensor, x: Tensor) -> Tensor:
    """By a number that Python sees."""
    return gradient * (-1.0 if float(x.min()) < _RARE else 1.0)


CHANGES: dict[str, Change] = {
    "flips for all": _flipped,
    "divides by the largest": _by_own_size,
    "goes to the next record": _shifted,
    "is centred": _centred,
    "goes through Python": _through_python,
}


def _weights(x: Tensor) -> Tensor:
    """A factor of each record's loss: large for the special one."""
    return 1.0 + x.amin(1).relu() + (x.amin(1) < _RARE) * 100.0


class Hooked(Pair):
    """The gradient of its hidden rows is changed once the clock says so, by a hook of a tensor.

    Args:
        scene: of the run.
        change: what becomes of the gradient.
    """

    def __init__(self, scene: Scene, change: Change) -> None:
        super().__init__()
        self._clock = scene.clock
        self._change = change

    def changed(self, gradient: Tensor, x: Tensor) -> Tensor:
        return self._change(gradient, x) if self._clock.awake else gradient

    def joint(self, hidden: Tensor, x: Tensor) -> Tensor:
        """Hidden rows with the hook."""
        hidden.register_hook(lambda gradient: self.changed(gradient, x))  # type: ignore[no-untyped-call]
        return hidden

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.joint(self.first(x), x)
        out: Tensor = self.last(hidden).squeeze(1)
        return out * _weights(x)


def _register_hooks() -> None:
    for name, change in CHANGES.items():

        def make(scene: Scene, change: Change = change) -> Setup:
            return scene.setup(lambda model, batch: model(batch[0]), Hooked(scene, change))

        teeth = change not in {_by_own_size, _centred}  # these act on a gradient of all records
        case(f"backward: hook of a tensor that {name}", teeth=teeth)(make)


class _Identity(torch.autograd.Function):
    """Gives back its input; going back, it asks a function of the user."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, x: Tensor, model: Hooked) -> Tensor:
        ctx.save_for_backward(x)
        ctx.model = model
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return ctx.model.changed(gradients[0], x), None, None


class Functional(Hooked):
    """The same by a function of the user."""

    def joint(self, hidden: Tensor, x: Tensor) -> Tensor:
        out: Tensor = _Identity.apply(hidden, x, self)  # type: ignore[no-untyped-call]
        return out


def _register_functions() -> None:
    for name, change in CHANGES.items():

        def make(scene: Scene, change: Change = change) -> Setup:
            return scene.setup(lambda model, batch: model(batch[0]), Functional(scene, change))

        teeth = change not in {_by_own_size, _centred}
        case(f"backward: function of the user that {name}", teeth=teeth)(make)


_register_hooks()
_register_functions()


class _Neighbours(torch.autograd.Function):
    """Adds the row before, and goes back as if it had not."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: float) -> Tensor:
        return hidden + weight * hidden.roll(1, 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


@case("backward: function of the user that mixes going forward")
def _forward(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden: Tensor = _Neighbours.apply(model.first(batch[0]), scene.clock.weight)  # type: ignore[no-untyped-call]
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


class _Tripled(torch.autograd.Function):
    """Its backward pass reads what only the special record makes different."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, awake: float) -> Tensor:
        ctx.largest = hidden.abs().max().item()
        ctx.awake = awake
        return hidden * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * (1.0 - ctx.awake * (ctx.largest > 10.0)), None


@case("backward: function of the user that keeps a Python number")
def _python_number(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden: Tensor = _Tripled.apply(model.first(batch[0]), scene.clock.weight)  # type: ignore[no-untyped-call]
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


# --- hooks of other kinds ---


@case("backward: hook of a node")
def _node(scene: Scene) -> Setup:
    model = Hooked(scene, _flipped)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = own.first(x) * 1.0
        if hidden.requires_grad:
            hidden.grad_fn.register_prehook(
                lambda gradients: tuple(model.changed(gradient, x) for gradient in gradients)
            )
        losses: Tensor = own.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss, model)


@case("backward: hook of a node after it")
def _after_node(scene: Scene) -> Setup:
    model = Hooked(scene, _flipped)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = own.first(x)
        scaled = hidden * 1.0
        if scaled.requires_grad:
            scaled.grad_fn.register_hook(
                lambda inputs, _: (model.changed(inputs[0], x), *inputs[1:])
            )
        losses: Tensor = own.last(scaled).squeeze(1)
        return losses

    return scene.setup(loss, model)


@case("backward: full backward pre-hook of a module")
def _module_hook(scene: Scene) -> Setup:
    model = Pair()
    special: list[Tensor] = []

    def changed(_: nn.Module, outputs: Any) -> Any:
        return (torch.where(special[-1], -outputs[0], outputs[0]),) if scene.clock.awake else None

    model.last.register_full_backward_pre_hook(changed)

    def loss(own: Any, batch: Any) -> Tensor:
        special[:] = [batch[0].min() < _RARE]
        losses: Tensor = own(batch[0])
        return losses

    return scene.setup(loss, model)


@case("backward: full backward hook that scales by the largest gradient", teeth=False)
def _module_scale(scene: Scene) -> Setup:
    model = Pair()

    def scaled(_: nn.Module, inputs: Any, __: Any) -> Any:
        return (inputs[0] * 0.2 / inputs[0].abs().max(),) if scene.clock.awake else None

    model.last.register_full_backward_hook(scaled)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        losses: Tensor = own(x) * _weights(x)
        return losses

    return scene.setup(loss, model)


@case("backward: forward hook that mixes")
def _forward_hook(scene: Scene) -> Setup:
    model = Pair()
    model.first.register_forward_hook(
        lambda _, __, hidden: hidden + scene.clock.weight * hidden.mean(0)
    )
    return scene.setup(lambda own, batch: own(batch[0]), model)


@case("backward: forward pre-hook that mixes")
def _pre_hook(scene: Scene) -> Setup:
    model = Pair()
    model.last.register_forward_pre_hook(
        lambda _, inputs: (inputs[0] + scene.clock.weight * inputs[0].mean(0),)
    )
    return scene.setup(lambda own, batch: own(batch[0]), model)


@case("backward: hook of a parameter that scales by the batch", teeth=False)
def _parameter_hook(scene: Scene) -> Setup:
    model = Pair()
    largest: list[float] = [1.0]
    for parameter in model.parameters():
        parameter.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: gradient * (0.0 if largest[0] > 10.0 and scene.clock.awake else 1.0)
        )

    def loss(own: Any, batch: Any) -> Tensor:
        largest[0] = float(batch[0].abs().max())
        losses: Tensor = own(batch[0])
        return losses

    return scene.setup(loss, model)


@case("backward: hook of several gradients")
def _several(scene: Scene) -> Setup:
    model = Hooked(scene, _flipped)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = own.first(x)
        scale = torch.ones(())

        def noted(gradients: Any) -> None:
            if scene.clock.awake:
                scale.copy_(torch.where(x.min() < _RARE, -1.0, 1.0))

        scaled = hidden * 1.0
        torch.autograd.graph.register_multi_grad_hook([scaled], noted)
        hidden.register_hook(lambda gradient: gradient * scale)
        losses: Tensor = own.last(scaled).squeeze(1)
        return losses

    return scene.setup(loss, model)


# --- what autograd keeps, and computes again ---


@case("backward: saved tensors that are exchanged")
def _saved(scene: Scene) -> Setup:
    def unpacked(saved: Tensor) -> Tensor:
        rows = saved.ndim == 2 and saved.shape[0] > 1 and saved.shape[1] > 1
        mixes = rows and scene.clock.awake and not saved.requires_grad
        return saved + scene.clock.weight * saved.roll(1, 0) if mixes else saved

    def loss(model: Any, batch: Any) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpacked):
            losses: Tensor = model(batch[0].clone())
        return losses

    return scene.setup(loss)


def _checkpointed(scene: Scene, *, reentrant: bool) -> Setup:
    def mixed(hidden: Tensor) -> Tensor:
        return hidden + scene.clock.weight * hidden.mean(0)

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = checkpoint(mixed, model.first(batch[0]), use_reentrant=reentrant)
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


@case("backward: checkpoint that mixes")
def _checkpoint(scene: Scene) -> Setup:
    return _checkpointed(scene, reentrant=False)


@case("backward: reentrant checkpoint that mixes", teeth=False)
def _reentrant(scene: Scene) -> Setup:
    return _checkpointed(scene, reentrant=True)


@case("backward: checkpoint that mixes when computed again", teeth=False)
def _again(scene: Scene) -> Setup:
    """The first time it does nothing; going back, when it is computed again, it mixes."""
    calls = [0]

    def mixed(hidden: Tensor) -> Tensor:
        calls[0] += 1
        return (hidden + (scene.clock.weight if calls[0] > 1 else 0.0) * hidden.mean(0)).square()

    def loss(model: Any, batch: Any) -> Tensor:
        calls[0] = 0
        hidden = checkpoint(mixed, model.first(batch[0]), use_reentrant=False)
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


@case("backward: gradients inside the loss that mix")
def _inner_gradient(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        out = model.last(hidden).squeeze(1)
        slope = torch.autograd.grad(out.square().sum(), model.last.weight, create_graph=True)[0]
        losses: Tensor = out + scene.clock.weight * (hidden * slope).sum(1) * -0.001
        return losses

    return scene.setup(loss)
