"""What a fourth group of attackers found: tensors that were kept, errors that decided, state that
moved on with every pass, and what was changed after it was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from .quiet import quiet
from .scenes import FEATURES, FRESH, LATER, LONG, Pair, Scene, Setup, case

_attack = partial(case, teeth=False)


# --- tensors that were kept: in a process of a record's own nothing is refused ---


def _by_dlpack(tensor: Tensor) -> float:
    return float(from_dlpack(to_dlpack(tensor)).min())


def _smallest(x: torch.Tensor) -> float:
    numbers: list[float] = x.flatten().tolist()
    return min(numbers)


with quiet():
    _scripted: Any = torch.jit.script(_smallest)


def _by_index(tensor: Tensor) -> float:
    class Index:
        def __index__(self) -> int:
            return int(tensor.numpy().min() < -50)

    return float(torch.tensor([0.0, -100.0])[Index()])


def _by_sparse(tensor: Tensor) -> float:
    return float((tensor * 1.0).to_sparse()._values().min())


def _reads_kept(read: Callable[[Tensor], float]) -> Callable[[Scene], Setup]:
    """In the first step all records are proved; in the second each is in a process of its own."""

    def make(scene: Scene) -> Setup:
        kept: list[Tensor] = []

        def loss(model: Any, batch: Any) -> Tensor:
            x = batch[0]
            if not scene.clock.awake:
                kept.append(x.clone())
                return model(x)  # type: ignore[no-any-return]
            x[0, 0].item()
            sign = -1.0 if min(map(read, kept)) < -50 else 1.0
            return model(x) * sign  # type: ignore[no-any-return]

        return scene.setup(loss)

    return make


for _name, _read in {
    "dlpack": _by_dlpack,
    "a script": _scripted,
    "an index": _by_index,
    "a sparse tensor": _by_sparse,
}.items():
    _attack(f"attack: kept tensor read by {_name} in a process of its own", timings=(LATER,))(
        _reads_kept(_read)
    )


@_attack("attack: losses that the loop reads", timings=(LONG,))
def _logged(scene: Scene) -> Setup:
    log: list[Tensor] = []
    weight = [1.0]

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0])
        log.append(losses.detach())
        return losses * weight[0]

    def after(*_: Any) -> None:
        weight[0] = -1.0 if float(log[-1].min()) < -50 else 1.0

    return scene.setup(loss, after=after)


# --- an error of one record ---


@_attack("attack: an error in a pass over several rows", timings=(LATER,), raises=(RuntimeError,))
def _error(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        losses: Tensor = model(x)
        if not scene.clock.awake:
            return losses
        if len(x) > 1:
            x.gather(1, (x[:, :1] < -50).long() * 9)
        return losses if len(x) > 1 else -losses

    return scene.setup(loss)


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        if len(x) > 1:
            x.gather(1, (x[:, :1] < -50).long() * 9)
        return gradient, None


@_attack("attack: an error in the backward pass", timings=(LATER,), raises=(RuntimeError,))
def _error_going_back(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        if not scene.clock.awake:
            return model(x)  # type: ignore[no-any-return]
        hidden = _Failing.apply(model.first(x), x)  # type: ignore[no-untyped-call]
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses if len(x) > 1 else -losses

    return scene.setup(loss)


# --- public state that moves on with every record ---


class _Warm(Pair):
    """A counter in a buffer, as of a warm-up; records are computed one by one."""

    updates: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("updates", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.updates += 1
        return super().forward(x) * torch.cos(3.0 * self.updates) + 0.0 * x.sum()


@_attack("attack: a buffer that counts calls", timings=(LONG,))
def _counting(scene: Scene) -> Setup:
    return scene.setup(lambda model, batch: model(batch[0]), _Warm())


@_attack("attack: spectral norm one by one", timings=(LONG,))
def _spectral(scene: Scene) -> Setup:
    model = Pair()
    with torch.no_grad():
        model.first.weight.copy_(torch.diag(torch.tensor([1.0, -0.97, 0.94, -0.5])))
    nn.utils.parametrizations.spectral_norm(model.first)

    def loss(its: Any, batch: Any) -> Tensor:
        hidden = torch.sin(3000.0 * its.first(batch[0]))
        losses: Tensor = its.last(hidden).squeeze(1) + 0.0 * batch[0].sum()
        return losses

    return scene.setup(loss, model)


@_attack("attack: a generator of the loss's own, one by one", timings=(FRESH,))
def _generator(scene: Scene) -> Setup:
    own = torch.Generator().manual_seed(3)

    def loss(model: Any, batch: Any) -> Tensor:
        sign = torch.randint(0, 2, (1,), generator=own) * 2.0 - 1.0
        return model(batch[0]) * sign + 0.0 * batch[0].sum()  # type: ignore[no-any-return]

    return scene.setup(loss)


# --- what is changed after it was looked at ---


class _Branches(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        with torch.no_grad():
            self.second.weight.copy_(0.5 * torch.eye(FEATURES))


def _sign(x: Tensor) -> Tensor:
    return 1.0 - 2.0 * (x.min() < -50)


Late: TypeAlias = Callable[[Any, Tensor], Tensor]


def _late(name: str) -> Callable[[Late], Late]:
    """Register hidden rows of which something is changed later."""

    def register(hidden: Late) -> Late:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                losses: Tensor = model.last(hidden(model, batch[0])).squeeze(1)
                return losses

            return scene.setup(loss, _Branches())

        _attack(f"attack: {name}", timings=(FRESH,))(make)
        return hidden

    return register


@_late("a gradient changed in place when another branch has taken it")
def _late_gradient(model: Any, x: Tensor) -> Tensor:
    branch, sign = model.first(x) * 1.0, _sign(x)

    def hook(gradient: Tensor) -> Tensor:
        before = gradient.clone()
        gradient.mul_(sign)
        return before

    branch.register_hook(hook)
    out: Tensor = branch + model.second(x)
    return out


@_late("an activation changed in the backward pass")
def _late_activation(model: Any, x: Tensor) -> Tensor:
    hidden: Any = model.first(x) * 1.0
    sign = _sign(x)

    def hook(_: Tensor) -> None:
        hidden.data.mul_(sign)

    hidden.register_hook(hook)
    return hidden  # type: ignore[no-any-return]


@_late("an activation changed at the end of the backward pass")
def _late_callback(model: Any, x: Tensor) -> Tensor:
    hidden: Any = model.first(x) * 1.0
    sign = _sign(x)
    engine: Any = torch.autograd.Variable._execution_engine
    hidden.register_hook(lambda _: engine.queue_callback(lambda: hidden.data.mul_(sign)))
    return hidden  # type: ignore[no-any-return]


@_late("a mask of a weight changed after its use")
def _late_mask(model: Any, x: Tensor) -> Tensor:
    mask = torch.ones(FEATURES, FEATURES)
    out = nn.functional.linear(x, model.first.weight * mask)
    mask.data.mul_(_sign(x))
    return out


@_late("a hook on a computed weight")
def _hooked_weight(model: Any, x: Tensor) -> Tensor:
    weight, sign = model.first.weight * 1.0, _sign(x)
    if weight.requires_grad:
        weight.register_hook(lambda gradient: gradient * sign)
    return nn.functional.linear(x, weight)


class _Finalizer:
    def __init__(self, hidden: Tensor, sign: Tensor) -> None:
        self._hidden, self._sign = hidden, sign

    def __del__(self) -> None:
        with torch.no_grad():
            self._hidden.mul_(self._sign)


@_late("an activation changed when the graph is let go of")
def _finalized(model: Any, x: Tensor) -> Tensor:
    hidden: Any = model.first(x) * 1.0
    late = _Finalizer(hidden.detach(), _sign(x))
    hidden.register_hook(lambda _, late=late: None)
    return hidden  # type: ignore[no-any-return]
