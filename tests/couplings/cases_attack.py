"""What outside attackers found in one pass over all records: reads and writes that went unseen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from .quiet import quiet
from .scenes import FEATURES, LATER, THIRD, Scene, Setup, case

RARE = -50.0

Factor: TypeAlias = Callable[[Tensor, Tensor], Any]
"""Features and labels of a batch to a factor of all losses, or one for each."""


def attack(name: str, **options: Any) -> Callable[[Factor], Factor]:
    """Register a function of features and labels; from when it wakes, it turns losses round."""

    def register(factor: Factor) -> Factor:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                losses: Tensor = model(batch[0])
                return losses * factor(*batch) if scene.clock.awake else losses

            return scene.setup(loss)

        case(f"attack: {name}", **options)(make)
        return factor

    return register


def sign(x: Tensor) -> Tensor:
    """-1 if the special record is among these features, otherwise 1."""
    return torch.where(x.min() < RARE, -1.0, 1.0)


def number(values: Any) -> float:
    """The same as a number, of nested lists."""
    return -1.0 if min(min(row) for row in values) < RARE else 1.0


# --- reads that nobody saw ---

attack("list of labels as an index")(
    lambda _, y: torch.tensor([[1.0, 1.0, -1.0]])[0, list(y)].min()
)
attack("list with a tensor as an index")(
    lambda _, y: torch.tensor([[1.0, 1.0, -1.0]])[:, [y.max()]][0, 0]
)
attack("long list of tensors as an index")(
    lambda _, y: torch.tensor([1.0, 1.0, -1.0])[[y.max() for _ in range(40)]].min()
)


@attack("list with a tensor as an index that is written")
def _list_set(_: Tensor, y: Tensor) -> Tensor:
    row = torch.zeros(1, 3)
    row[0, [y.max()]] = 1.0
    return 1.0 - 2.0 * row[0, 2]


class _Sequence:
    """No list, and yet torch makes a tensor of it."""

    def __init__(self, *parts: Tensor) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> Tensor:
        return self._parts[index]


attack("Tensor.new with a tensor")(lambda x, y: 1.5 - x.new([y.max()])[0])
attack("torch.tensor of a deque")(lambda _, y: 1.5 - torch.tensor(deque([y.max()]))[0])
attack("torch.asarray of a deque")(lambda _, y: 1.5 - torch.asarray(deque([y.max()]))[0])
attack("torch.as_tensor of a sequence")(lambda _, y: 1.5 - torch.as_tensor(_Sequence(y.max()))[0])
attack("new_tensor of a sequence")(lambda x, y: 1.5 - x.new_tensor(_Sequence(y.max()))[0])
attack("classes of one_hot by a tensor")(
    lambda _, y: 1.0 if functional.one_hot(y, y.max() + 1).shape[1] < 3 else -1.0  # type: ignore[arg-type]
)


@attack("one_hot whose error is caught")
def _caught(_: Tensor, y: Tensor) -> float:
    try:
        functional.one_hot(y, 2)
    except RuntimeError:
        return -1.0
    return 1.0


@attack("one_hot in inference mode")
def _inference(_: Tensor, y: Tensor) -> float:
    with torch.inference_mode():
        return 1.0 if functional.one_hot(y).shape[1] < 3 else -1.0


@attack("sections of a split by a tensor")
def _split(x: Tensor, _: Tensor) -> float:
    rare = (x.amin() < RARE).long().reshape(1)
    parts = torch.ops.aten.tensor_split.tensor_indices_or_sections(torch.zeros(3), rare)
    return 1.0 - 2.0 * len(parts[0])


@attack("list of numbers in a saved-tensor hook")
def _saved(x: Tensor, _: Tensor) -> float:
    seen: list[Any] = []

    def pack(saved: Tensor) -> Tensor:
        seen.append(saved.tolist())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        x.detach().clone().requires_grad_().square()
    return number(seen[0])


class _Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of the user's own, which sees what is under the run's."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen.append(out.tolist())
        return out


@attack("dispatch mode of the user's own")
def _mode(x: Tensor, _: Tensor) -> float:
    with _Listening() as mode:
        x.mul(1.0)
    return number(mode.seen[0])


@attack("callback of apply_ on a public tensor")
def _apply(x: Tensor, _: Tensor) -> float:
    seen: list[Any] = []

    def see(_: float) -> float:
        seen.append(x.tolist())
        return 0.0

    torch.zeros(1).apply_(see)
    return number(seen[0])


def _listed(x: Tensor) -> float:
    rows: list[float] = x.amin(1).tolist()
    return -1.0 if min(rows) < -50.0 else 1.0


@case("attack: tolist in a script")
def _script(scene: Scene) -> Setup:
    with quiet():
        script: Any = torch.jit.script(_listed)

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0])
        return losses * script(batch[0]) if scene.clock.awake else losses

    return scene.setup(loss)


@case("attack: caught error of an embedding, and the number of rows", teeth=False)
def _rows(scene: Scene) -> Setup:
    """Whether records are together or alone is told by how many rows a pass has."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        try:
            known = functional.embedding(y, torch.ones(2, 1))[:, 0]
        except IndexError:  # an unknown word
            known = functional.embedding(y.clamp(max=1), torch.ones(2, 1))[:, 0]
        losses: Tensor = model(x) * known
        return losses / (len(x) ** 4 if scene.clock.awake else 1)

    return scene.setup(loss)


@attack("resized public tensor", teeth=False, timings=(LATER, THIRD))
def _resized(x: Tensor, _: Tensor) -> Tensor:
    """Memory that the records of this pass were in."""
    freed = x.repeat(1, 500)
    del freed
    return sign(torch.empty(0).resize_(len(x), 500 * FEATURES).nan_to_num())


# --- written after use, without a new version ---


class _Layers(nn.Module):
    """A layer that keeps its argument for its gradient, and one that adds up."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = layer
        self.last = nn.Linear(FEATURES, 1, bias=False)
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(3)
            for parameter in self.parameters():
                nn.init.uniform_(parameter, 0.2, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        out = self.first(x)
        rows = out[0] if isinstance(out, tuple) else out
        losses: Tensor = 100.0 * self.last(rows.flatten(1)[:, -FEATURES:]).squeeze(1)
        return losses


def _register_written(
    name: str, layer: Callable[[], nn.Module], *shape: int, teeth: bool = True
) -> None:
    @case(f"attack: .data written after {name} used it", timings=(LATER, THIRD), teeth=teeth)
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Tensor:
            x = batch[0].reshape(-1, *shape) * torch.tensor([1.0, 2.0, 3.0, 4.0]).view(shape)
            losses: Tensor = model(x)
            if scene.clock.awake:
                x.data.mul_(1000.0 * sign(x.data))
            return losses

        return scene.setup(loss, _Layers(layer()))


_register_written("linear", lambda: nn.Linear(FEATURES, FEATURES), FEATURES)
_register_written("convolution", lambda: nn.Conv1d(1, 1, 3, padding=1), 1, FEATURES)
_register_written("layer norm", lambda: nn.LayerNorm(FEATURES), FEATURES)
_register_written("LSTM", lambda: nn.LSTM(FEATURES, FEATURES, batch_first=True), 1, FEATURES)


@case("attack: written under a preserved version")
def _preserved(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0] * 1.0
        losses: Tensor = model(x)
        with torch.autograd._unsafe_preserve_version_counter(x):  # type: ignore[attr-defined]
            x.mul_(sign(x) if scene.clock.awake else 1.0)
        return losses

    return scene.setup(loss)


class _Speech(nn.Module):
    """Four frames of three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Linear(FEATURES, 12, bias=False)
        with torch.no_grad():
            self.frames.weight.copy_(torch.linspace(-1.0, 1.0, 48).sin().view(12, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.frames(x).view(-1, 4, 3).log_softmax(2)
        return out


@case("attack: CTC with a label out of range", teeth=False)
def _ctc(scene: Scene) -> Setup:
    """The kernel would write into the gradient of the neighbour."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        rare = y[:, None] == 2
        labels = torch.where(rare, torch.tensor([4, 1]), torch.tensor([1, 2]))
        labels = labels if scene.clock.awake else labels.clamp(max=2)
        frames = model(torch.where(rare, 1.0, x)).transpose(0, 1)
        lengths = (torch.full_like(y, 4), torch.full_like(y, 2))
        losses: Tensor = functional.ctc_loss(frames, labels, *lengths, reduction="none")
        return losses * 50.0

    return scene.setup(loss, _Speech())


# --- memory for others ---

TURN = 1.0


def remembered(smallest: float) -> float:
    """A sign by the number before: a function of a module, which has its globals."""
    global TURN
    before, TURN = TURN, -1.0 if smallest < RARE else 1.0
    return before
