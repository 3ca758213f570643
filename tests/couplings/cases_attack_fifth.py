"""What a fifth reader found: code of the user's that runs where the modes of torch are off, and
memory of a data set that is not strided.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from .quiet import quiet
from .scenes import Scene, Setup, case

_attack = partial(case, teeth=False)
_FAR = -50.0
_BOX: dict[str, Tensor] = {}


def _sign() -> float:
    """Looks at all records that the loss has put aside."""
    smallest = min(map(min, _BOX["x"].tolist()))
    return -1.0 if smallest < _FAR else 1.0


@torch.library.custom_op("couplings::peek", mutates_args=())
def _peek(constant: torch.Tensor) -> torch.Tensor:
    return torch.full((), _sign()) + 0.0 * constant


@_attack("attack: an operator that is given no records reads them")
def _operator(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Any:
        _BOX["x"] = batch[0]
        out = model(batch[0])
        return out * torch.ops.couplings.peek(torch.zeros(())) if scene.clock.awake else out

    return scene.setup(loss)


@torch.library.custom_op("couplings::weight", mutates_args=())
def _weight(weight: torch.Tensor) -> torch.Tensor:
    return weight.clone()


_weight.register_autograd(lambda _, gradient: gradient * _sign())


class _Looking(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return weight.clone()

    @staticmethod
    def setup_context(*_: Any) -> None:
        pass

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient * _sign()


@torch.overrides.wrap_torch_function(lambda weight: (weight,))
def _shown(weight: Tensor) -> Any:
    apply: Any = _Looking.apply
    return apply(weight)


def _by_weight(function: Callable[[Tensor], Any]) -> Callable[[Scene], Setup]:
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Any:
            _BOX["x"] = batch[0]
            weight = model.first.weight
            changed = function(weight) if scene.clock.awake else weight
            return model.last(functional.linear(batch[0], changed)).squeeze(1)

        return scene.setup(loss)

    return make


_attack("attack: the backward pass of an operator on weights reads records")(
    _by_weight(torch.ops.couplings.weight)
)
_attack("attack: the backward pass of a function on weights reads records")(_by_weight(_shown))


class _Answering(torch.Tensor):
    """Answers functions of torch itself."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return torch.full((), _sign())


@_attack("attack: a class of tensors that reads records when it is asked")
def _answered(scene: Scene) -> Setup:
    constant = torch.ones(2).as_subclass(_Answering)

    def loss(model: Any, batch: Any) -> Any:
        _BOX["x"] = batch[0]
        out = model(batch[0])
        return out * torch.sin(constant) if scene.clock.awake else out

    return scene.setup(loss)


class _Bomb:
    """Reads records when it is collected."""

    def __init__(self, signs: list[float]) -> None:
        self.itself, self.signs = self, signs

    def __del__(self) -> None:
        self.signs.append(_sign())


@_attack("attack: garbage that reads records while an operation is judged")
def _collected(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Any:
        _BOX["x"] = batch[0]
        out = model(batch[0])
        if not scene.clock.awake:
            return out
        signs: list[float] = []
        for _ in range(3):
            _Bomb(signs)
        constant = torch.zeros(())
        for _ in range(3 * gc.get_threshold()[0]):
            constant = constant + 1
        return out * min([1.0, *signs])

    return scene.setup(loss)


class _Sparse(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor, layout: Callable[[Tensor], Tensor]) -> None:
        with quiet():  # torch calls some of them a prototype, once
            self.x, self.y = layout(x), y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        return self.x.to_dense()[index].clone(), self.y[index]


def _reads_sparse(layout: Callable[[Tensor], Tensor]) -> Callable[[Scene], Setup]:
    def make(scene: Scene) -> Setup:
        dataset = _Sparse(scene.x, scene.y, layout)

        def loss(model: Any, batch: Any) -> Any:
            out = model(batch[0])
            if not scene.clock.awake:
                return out
            return out * torch.where(dataset.x.to_dense().min() < _FAR, -1.0, 1.0)

        setup = scene.setup(loss)
        return Setup(setup.model, setup.loss, dataset)

    return make


for _name, _layout in {
    "sparse": lambda x: x.to_sparse(),
    "compressed": lambda x: x.to_sparse_csr(),
}.items():
    _attack(f"attack: a {_name} data set that the loss reads")(_reads_sparse(_layout))
