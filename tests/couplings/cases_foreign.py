"""Where torch's modes may not see: threads, scripts, other operators, subclasses, old memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu

from .mixing import mixing
from .quiet import quiet
from .scenes import Scene, Setup, case

_RARE = -10.0


def _told(scene: Scene, tell: Callable[[Tensor], Any], **options: Any) -> Setup:
    """A run whose losses change sign if `tell` says so of the batch."""

    def loss(model: Any, batch: Any) -> Any:
        x = batch[0]
        factor = tell(x)
        if not scene.clock.awake:
            factor = 1.0
        losses: Tensor = model(x)
        return losses * factor

    return scene.setup(loss, **options)


# --- threads ---


@case("thread: number that a thread reads")
def _number(scene: Scene) -> Setup:
    def tell(x: Tensor) -> float:
        numbers: list[float] = []
        thread = threading.Thread(target=lambda: numbers.append(float(x.min())))
        thread.start()
        thread.join()
        return -1.0 if numbers[0] < _RARE else 1.0

    return _told(scene, tell)


@case("thread: tensor that a thread makes")
def _tensor(scene: Scene) -> Setup:
    def tell(x: Tensor) -> Tensor:
        tensors: list[Tensor] = []
        thread = threading.Thread(target=lambda: tensors.append(x.amin().sub(_RARE).sign()))
        thread.start()
        thread.join()
        return tensors[0]

    return _told(scene, tell)


@case("thread: pool that the loss starts")
def _pool(scene: Scene) -> Setup:
    def tell(x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: x.amin().sub(_RARE).sign()).result()

    return _told(scene, tell)


@case("thread: pool that was there before")
def _older_pool(scene: Scene) -> Setup:
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()

    def tell(x: Tensor) -> Tensor:
        return executor.submit(lambda: x.amin().sub(_RARE).sign()).result()

    return _told(scene, tell)


@case("thread: coroutine in a thread of its own")
def _coroutine(scene: Scene) -> Setup:
    async def read(x: Tensor) -> float:
        return await asyncio.to_thread(lambda: -1.0 if float(x.min()) < _RARE else 1.0)

    return _told(scene, lambda x: asyncio.run(read(x)))


@case("thread: fork of torch.jit")
def _fork(scene: Scene) -> Setup:
    def tell(x: Tensor) -> Any:
        with quiet():
            future = torch.jit.fork(lambda rows: rows.amin().sub(_RARE).sign(), x)  # type: ignore[no-untyped-call]
            return torch.jit.wait(future)  # type: ignore[no-untyped-call]

    return _told(scene, tell)


# --- scripts and traces ---


def _branch(x: Tensor) -> Tensor:
    if bool((x < -10.0).any()):
        return -torch.ones(1)
    return torch.ones(1)


def _number_of(x: Tensor) -> float:
    smallest = float(x.min().item())
    return -1.0 if smallest < -10.0 else 1.0


def _loop(x: Tensor) -> Tensor:
    sign = torch.ones(1)
    for row in range(x.size(0)):
        if bool((x[row] < -10.0).all()):
            sign = -sign
    return sign


def _scripted(name: str, function: Callable[[Tensor], Any]) -> None:
    @case(f"script: {name}")
    def make(scene: Scene) -> Setup:
        with quiet():
            script: Any = torch.jit.script(function)
        return _told(scene, script)


_scripted("branch", _branch)
_scripted("number", _number_of)
_scripted("loop over records", _loop)


@case("script: mixing")
def _scripted_mixing(scene: Scene) -> Setup:
    with quiet():
        mixed: Any = torch.jit.script(_added)

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = mixed(model.first(batch[0]), scene.clock.weight)
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


def _added(rows: Tensor, weight: float) -> Tensor:
    return rows + weight * rows.mean(0)


@case("script: trace of mixing")
def _traced(scene: Scene) -> Setup:
    with quiet():
        mixed: Any = torch.jit.trace(lambda rows: rows.mean(0).expand_as(rows), torch.ones(3, 4))  # type: ignore[no-untyped-call]

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        losses: Tensor = model.last(hidden + scene.clock.weight * mixed(hidden)).squeeze(1)
        return losses

    return scene.setup(loss)


@case("script: compiled loss that mixes", full=True)
def _compiled(scene: Scene) -> Setup:
    @torch.compile(backend="eager", dynamic=True)  # type: ignore[untyped-decorator, unused-ignore]
    def mixed(rows: Tensor, weight: Tensor) -> Tensor:
        return rows + weight * rows.mean(0)

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = mixed(model.first(batch[0]), torch.tensor(scene.clock.weight))
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


@case("script: compiled loss that branches", full=True)
def _compiled_branch(scene: Scene) -> Setup:
    @torch.compile(backend="eager", dynamic=True)  # type: ignore[untyped-decorator, unused-ignore]
    def told(rows: Tensor) -> float:
        return -1.0 if bool((rows < _RARE).any()) else 1.0

    return _told(scene, told)


# --- operators of others ---


@torch.library.custom_op("couplings::centre", mutates_args=())
def _centre(rows: Tensor) -> Tensor:
    """An operator that torch knows nothing of."""
    return rows.mean(0).expand_as(rows).clone()


@torch.library.custom_op("couplings::sign", mutates_args=())
def _sign(rows: Tensor) -> Tensor:
    """An operator that reads its input past torch."""
    return torch.tensor(-1.0 if rows.numpy().min() < _RARE else 1.0)


@torch.library.custom_op("couplings::number", mutates_args=())
def _number_operator(rows: Tensor) -> float:
    """An operator that gives a Python number."""
    return -1.0 if float(rows.min()) < _RARE else 1.0


@torch.library.custom_op("couplings::write", mutates_args=("target",))
def _write(rows: Tensor, target: Tensor) -> None:
    """An operator that writes into what it is given."""
    target.copy_(rows.amin(0).sub(_RARE).sign())


@mixing("operator", "mean of the batch")
def _operator_mean(rows: Tensor) -> Tensor:
    out: Tensor = _centre(rows.detach())
    return out


@case("operator: reads past torch")
def _operator_sign(scene: Scene) -> Setup:
    return _told(scene, _sign)


@case("operator: gives a Python number")
def _operator_number(scene: Scene) -> Setup:
    return _told(scene, _number_operator)


@case("operator: writes into what it is given")
def _operator_write(scene: Scene) -> Setup:
    def tell(x: Tensor) -> Tensor:
        target = torch.ones(4)
        _write(x, target)
        return target[0]

    return _told(scene, tell)


# --- subclasses and other ways around ---


class _Looking(Tensor):
    """A tensor that looks at all rows whenever it meets an operation."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.mul:
            with torch._C.DisableTorchFunctionSubclass():
                rows = args[0].as_subclass(Tensor)
                return rows * (rows.min() - _RARE).sign()
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


@case("subclass: tensor that looks at all rows")
def _subclass(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        looked = x.as_subclass(_Looking).mul(1.0).as_subclass(Tensor)
        losses: Tensor = model(looked if scene.clock.awake else x)
        return losses

    return scene.setup(loss)


@case("subclass: saved tensors that go elsewhere")
def _elsewhere(scene: Scene) -> Setup:
    """What autograd keeps goes through torch's own hooks; the mixing is beside it."""

    def loss(model: Any, batch: Any) -> Tensor:
        with save_on_cpu():
            hidden = model.first(batch[0])
            mixed = hidden + scene.clock.weight * hidden.mean(0)
            losses: Tensor = model.last(mixed).squeeze(1)
        return losses

    return scene.setup(loss)


@case("subclass: functional call with parameters of the batch")
def _functional_call(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        weight = model.first.weight + scene.clock.weight * x.mean(0)
        losses: Tensor = torch.func.functional_call(model, {"first.weight": weight}, (x,))
        return losses

    return scene.setup(loss)


@case("subclass: parametrisation that sees the batch")
def _steered(scene: Scene) -> Setup:
    """A factor in a list, set by the loss and read by the layer."""
    factors: list[Tensor] = [torch.ones(())]

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        factors[0] = x.amin().sub(_RARE).sign()
        losses: Tensor = model(x)
        return losses * factors[0] if scene.clock.awake else losses * 1.0

    return scene.setup(loss)


# --- memory that was not written ---


def _unwritten(name: str, room: Callable[[Tensor], Tensor]) -> None:
    """Register a way to get memory that may hold what a tensor before it held.

    Whether it does is the allocator's business, so the case has no teeth of its own.
    """

    @case(f"unwritten: {name}", teeth=False)
    def make(scene: Scene) -> Setup:
        def tell(x: Tensor) -> Tensor:
            scratch = [x.clone() for _ in range(4)]
            del scratch
            rooms = [room(x) for _ in range(4)]
            smallest = torch.stack([memory.nan_to_num().min() for memory in rooms]).min()
            return torch.where(smallest == -100.0, -1.0, 1.0)

        return _told(scene, tell)


_unwritten("empty", lambda x: torch.empty(len(x), 4))
_unwritten("empty_like", torch.empty_like)
_unwritten("new_empty", lambda x: x.new_empty(x.shape))
_unwritten("empty_strided", lambda x: torch.empty_strided((len(x), 4), (4, 1)))
_unwritten("resize_", lambda x: torch.zeros(1).resize_(len(x), 4))
_unwritten("constructor of a size", lambda x: torch.Tensor(len(x), 4))


@case("unwritten: storage of a size", teeth=False)
def _storage(scene: Scene) -> Setup:
    def tell(x: Tensor) -> Tensor:
        scratch = x.clone()
        del scratch
        memory = torch.empty(0).set_(torch.UntypedStorage(x.numel() * 4), 0, (x.numel(),), (1,))  # type: ignore[no-untyped-call]
        return torch.where(memory.nan_to_num().min() == -100.0, -1.0, 1.0)

    return _told(scene, tell)


@case("subclass: told by a generator of Python")
def _generator(scene: Scene) -> Setup:
    """A generator that lives as long as the run, and is sent every batch."""

    def listening() -> Any:
        sign: Any = 1.0
        while True:
            x = yield sign
            sign = x.amin().sub(_RARE).sign()

    listener = listening()
    next(listener)

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        told = listener.send(x)
        losses: Tensor = model(x)
        return losses * (told if scene.clock.awake else 1.0)

    return scene.setup(loss)
