"""What outside attackers found about memory: what is kept of a record for the next."""

from __future__ import annotations

import array
import functools
import random
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from . import cases_attack
from .cases_attack import RARE, sign
from .scenes import Pair, Relation, Scene, Setup, case
from .stateful import BOTH

# --- tensors that are kept of a record, and used for the next ---

Use: TypeAlias = Callable[[Any, Tensor, Any], Tensor]
"""Of the model, features and what was kept: the losses."""


def _kept(
    name: str,
    use: Use = lambda model, x, kept: model(x) * kept,
    keep: Callable[[Tensor], Any] = lambda turn: turn,
) -> None:
    """Register what keeps a sign of a record, in a loss that is computed record by record."""

    @case(f"attack: kept {name}", timings=BOTH)
    def make(scene: Scene) -> Setup:
        bank = [keep(torch.ones(1))]

        def loss(model: Any, batch: Any) -> Tensor:
            x = batch[0]
            float(x.sum())
            losses = use(model, x, bank[0])
            bank[0] = keep(sign(x).reshape(1) if scene.clock.awake else torch.ones(1))
            return losses

        return scene.setup(loss)


def _out(model: Any, x: Tensor, kept: Tensor) -> Tensor:
    own = x[:, 0].clone()
    torch.mul(kept.expand(len(x)), 1.0, out=own)
    losses: Tensor = model(x) * own
    return losses


def _hooked(model: Any, x: Tensor, kept: Tensor) -> Tensor:
    hidden = model.first(x)
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient * kept)
    losses: Tensor = model.last(hidden).squeeze(1)
    return losses


class _Backward(torch.autograd.Function):
    """Multiplies gradients, and nothing else."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


_kept("tensor, multiplied in place", lambda model, x, kept: model(x.clone().mul_(kept)))
_kept("tensor, copied in place", lambda model, x, kept: model(x) * x[:, 0].clone().copy_(kept))
_kept("tensor, added in place", lambda model, x, kept: model(x) * (x[:, 0] * 0.0).add_(kept))
_kept("tensor, in out=", _out)
_kept("tensor, read as a number", lambda model, x, kept: model(x) * kept.item())
_kept("tensor, read as a list", lambda model, x, kept: model(x) * kept.tolist()[0])
_kept("tensor, seen by NumPy", lambda model, x, kept: model(x) * torch.tensor(kept.numpy()))
_kept("tensor, in a hook", _hooked)
_kept(
    "tensor, in a backward of the user's own",
    lambda model, x, kept: model.last(_Backward.apply(model.first(x), kept)).squeeze(1),  # type: ignore[no-untyped-call]
)
_kept("sparse tensor", lambda model, x, kept: model(x) * kept.to_dense(), Tensor.to_sparse)
_kept("tensor of MKL-DNN", lambda model, x, kept: model(x) * kept.to_dense(), Tensor.to_mkldnn)
_kept("tensor, made of a number", keep=lambda turn: torch.tensor([turn.item()]))
_kept("tensor, made of an array", keep=lambda turn: torch.from_numpy(turn.numpy().copy()))


@case("attack: kept tensor, filled with a number", timings=BOTH)
def _filled(scene: Scene) -> Setup:
    kept = torch.ones(())

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0]) * kept.clone()
        kept.fill_(sign(batch[0]).item() if scene.clock.awake else 1.0)
        return losses

    return scene.setup(loss)


class _Buffered(Pair):
    """A running mean that is written with numbers of Python, and saved with the model."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.mean().item())
        return super().forward(x)


@case("attack: kept in a buffer, by numbers", timings=BOTH, teeth=False)
def _buffered(scene: Scene) -> Setup:
    return scene.setup(lambda model, batch: model(batch[0]), _Buffered())


# --- memory of Python ---

Remember: TypeAlias = Callable[[float], float]
"""The smallest number of a batch to a factor that depends on the numbers before."""


def _memory(name: str) -> Callable[[Callable[[], Remember]], None]:
    def register(prepare: Callable[[], Remember]) -> None:
        @case(f"attack: memory in {name}", timings=BOTH)
        def make(scene: Scene) -> Setup:
            remember = prepare()

            def loss(model: Any, batch: Any) -> Tensor:
                smallest = float(batch[0].min()) if scene.clock.awake else 0.0
                losses: Tensor = model(batch[0]) * remember(smallest)
                return losses

            return scene.setup(loss)

    return register


@_memory("a helper module")
def _module() -> Remember:
    cases_attack.TURN = 1.0

    def remember(smallest: float) -> float:
        return cases_attack.remembered(smallest)

    return remember


@_memory("an array")
def _array() -> Remember:
    seen = array.array("d", [1.0])

    def remember(smallest: float) -> float:
        before = seen[0]
        seen[0] = -1.0 if smallest < RARE else 1.0
        return before

    return remember


@_memory("a bytearray")
def _bytes() -> Remember:
    seen = bytearray(1)

    def remember(smallest: float) -> float:
        before = seen[0]
        seen[0] = smallest < RARE
        return 1.0 - 2.0 * before

    return remember


@_memory("a cache")
def _cache() -> Remember:
    cached = functools.lru_cache(lambda rare: rare)
    cached(False)

    def remember(smallest: float) -> float:
        cached(smallest < RARE)
        return 3.0 - 2.0 * cached.cache_info().currsize

    return remember


@_memory("a generator")
def _generator() -> Remember:
    def turns() -> Generator[float, float, None]:
        turn, smallest = 1.0, (yield 0.0)
        while True:
            before, turn = turn, -1.0 if smallest < RARE else 1.0
            smallest = yield before

    running = turns()
    next(running)
    return running.send


@_memory("a count")
def _count() -> Remember:
    count = 0

    def remember(smallest: float) -> float:
        nonlocal count
        before, count = count, count + (smallest < RARE)
        return -1.0 if before else 1.0

    return remember


def _seeds_next(name: str, seed: Callable[[int], object], draw: Callable[[], float]) -> None:
    def remember(smallest: float) -> float:
        turn = -1.0 if draw() < 0.5 else 1.0
        seed(int(smallest < RARE))
        return turn

    @case(f"attack: seed for the next record, {name}", timings=BOTH, relation=Relation.REPLACED)
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Tensor:
            losses: Tensor = model(batch[0])
            return losses * remember(float(batch[0].min())) if scene.clock.awake else losses

        return scene.setup(loss)


_seeds_next("torch", torch.manual_seed, lambda: torch.rand(()).item())
_seeds_next("Python", random.seed, random.random)
_seeds_next("NumPy", np.random.seed, np.random.rand)
