"""What a fourth group of attackers found: tensors that were kept, errors that decided, state that
moved on with every pass, and what was changed after it was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from .quiet import quiet
from .scenes import LATER, LONG, Scene, Setup, case

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
        if len(x) > 1 and scene.clock.awake:
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
