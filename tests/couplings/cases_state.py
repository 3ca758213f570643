"""State in the model: what a pass leaves behind, and what a later pass finds of it.

Nothing computed from a record may be in the model, nor in the run's checkpoint; and what one batch
left must not decide what the records of the next one contribute.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .scenes import FEATURES
from .stateful import Stateful, stateful

# --- tensors of the model ---


class _InBuffer(Stateful):
    total: Tensor

    def prepare(self) -> None:
        self.register_buffer("total", torch.zeros(FEATURES))

    def kept(self) -> Any:
        return self.total


@stateful("buffer that adds up")
class _Adding(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        self.total += rows.sum(0)


@stateful("buffer that is copied into")
class _Copied(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        self.total.copy_(rows.amin(0))


@stateful("buffer that is assigned")
class _Assigned(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        self.total = rows.amin(0)


@stateful("buffer that averages")
class _Averaged(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        self.total.lerp_(rows.mean(0), 0.5)


@stateful("buffer that is written through an alias")
class _Alias(_InBuffer):
    def prepare(self) -> None:
        super().prepare()
        self.views = [self.total.view(2, 2)]

    def keep(self, rows: Tensor) -> None:
        self.views[0].copy_(rows.amin(0).view(2, 2))


@stateful("buffer as the result of an operation")
class _Out(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        torch.amin(rows, 0, out=self.total)


@stateful("buffer that is not saved")
class _NotSaved(_InBuffer):
    def prepare(self) -> None:
        self.register_buffer("total", torch.zeros(FEATURES), persistent=False)

    def keep(self, rows: Tensor) -> None:
        self.total.copy_(rows.amin(0))


@stateful("buffer that appears in a pass")
class _Registered(Stateful):
    def keep(self, rows: Tensor) -> None:
        self.register_buffer("late", rows.amin(0))

    def kept(self) -> Any:
        return getattr(self, "late", torch.zeros(FEATURES))


@stateful("buffer that only counts what is rare")
class _Rare(_InBuffer):
    def keep(self, rows: Tensor) -> None:
        self.total -= (rows < -10.0).sum(0)


@stateful("bank of prototypes in a frozen parameter")
class _Prototypes(Stateful):
    def prepare(self) -> None:
        self.bank = nn.Parameter(torch.zeros(3, FEATURES), requires_grad=False)

    def keep(self, rows: Tensor) -> None:
        order = rows.sum(1).argsort()[torch.arange(3) % len(rows)]
        self.bank.copy_(rows[order])

    def kept(self) -> Any:
        return self.bank[0]


@stateful("frozen parameter whose data are exchanged")
class _FrozenData(Stateful):
    def prepare(self) -> None:
        self.bank = nn.Parameter(torch.zeros(FEATURES), requires_grad=False)

    def keep(self, rows: Tensor) -> None:
        self.bank.data = rows.amin(0)

    def kept(self) -> Any:
        return self.bank


@stateful("gradient of a frozen parameter")
class _FrozenGradient(Stateful):
    def prepare(self) -> None:
        self.bank = nn.Parameter(torch.zeros(FEATURES), requires_grad=False)

    def keep(self, rows: Tensor) -> None:
        self.bank.grad = rows.amin(0)

    def kept(self) -> Any:
        return 0.0 if self.bank.grad is None else self.bank.grad


@stateful("gradient of a trained parameter", teeth=False)
class _TrainedGradient(Stateful):
    def keep(self, rows: Tensor) -> None:
        self.last.weight.grad = rows.amin(0, keepdim=True)


@stateful("trained parameter whose data are exchanged", teeth=False)
class _TrainedData(Stateful):
    def keep(self, rows: Tensor) -> None:
        self.last.weight.data = self.last.weight.data + 0.001 * rows.amin(0)


@stateful("trained parameter that is written into", teeth=False)
class _Written(Stateful):
    def keep(self, rows: Tensor) -> None:
        with torch.no_grad():
            self.last.weight.add_(0.001 * rows.amin(0))


@stateful("frozen layer that is written through its data")
class _FrozenLayer(Stateful):
    def prepare(self) -> None:
        self.middle = nn.Linear(FEATURES, FEATURES, bias=True).requires_grad_(requires_grad=False)
        nn.init.zeros_(self.middle.bias)

    def keep(self, rows: Tensor) -> None:
        self.middle.bias.data.copy_(rows.amin(0))

    def kept(self) -> Any:
        return self.middle.bias


# --- attributes ---


@stateful("plain attribute")
class _Attribute(Stateful):
    def prepare(self) -> None:
        self.centre = torch.zeros(FEATURES)

    def keep(self, rows: Tensor) -> None:
        self.centre = rows.amin(0)

    def kept(self) -> Any:
        return self.centre


@stateful("attribute that is only kept", teeth=False)
class _OnlyKept(Stateful):
    """For the eye: it never meets a record again, but the model is saved with it."""

    def keep(self, rows: Tensor) -> None:
        self.last_rows = rows


@stateful("list of an attribute")
class _List(Stateful):
    def prepare(self) -> None:
        self.queue: list[Tensor] = []

    def keep(self, rows: Tensor) -> None:
        self.queue.append(rows.amin(0))

    def kept(self) -> Any:
        return self.queue[-1] if self.queue else 0.0


@stateful("queue of a memory bank")
class _Queue(Stateful):
    def prepare(self) -> None:
        self.queue: deque[Tensor] = deque(maxlen=4)

    def keep(self, rows: Tensor) -> None:
        self.queue.append(rows)

    def kept(self) -> Any:
        return torch.cat([*self.queue]).amin(0) if self.queue else 0.0


@stateful("dictionary of an attribute")
class _Dictionary(Stateful):
    def prepare(self) -> None:
        self.cache: dict[str, Tensor] = {}

    def keep(self, rows: Tensor) -> None:
        self.cache["rows"] = rows

    def kept(self) -> Any:
        return self.cache["rows"].amin(0) if self.cache else 0.0


class _Holder:
    """An object of the user."""

    content: Any = None


@stateful("object of an attribute")
class _Object(Stateful):
    def prepare(self) -> None:
        self.holder = _Holder()

    def keep(self, rows: Tensor) -> None:
        self.holder.content = rows.amin(0)

    def kept(self) -> Any:
        return 0.0 if self.holder.content is None else self.holder.content


@stateful("weak dictionary")
class _Weak(Stateful):
    def prepare(self) -> None:
        self.keys = [_Holder()]
        self.cache: weakref.WeakKeyDictionary[_Holder, Tensor] = weakref.WeakKeyDictionary()

    def keep(self, rows: Tensor) -> None:
        self.cache[self.keys[0]] = rows.amin(0)

    def kept(self) -> Any:
        return self.cache.get(self.keys[0], torch.zeros(FEATURES))


@stateful("NumPy array of an attribute")
class _Array(Stateful):
    def prepare(self) -> None:
        self.centre = np.zeros(FEATURES, dtype=np.float32)

    def keep(self, rows: Tensor) -> None:
        self.centre[:] = rows.amin(0).numpy()

    def kept(self) -> Any:
        return torch.tensor(self.centre)


@stateful("Python number of an attribute")
class _Number(Stateful):
    def prepare(self) -> None:
        self.smallest = 0.0

    def keep(self, rows: Tensor) -> None:
        self.smallest = min(self.smallest, rows.min().item())

    def kept(self) -> Any:
        return self.smallest


@stateful("Python number that is only kept", teeth=False)
class _OnlyNumber(Stateful):
    def prepare(self) -> None:
        self.smallest = 0.0

    def keep(self, rows: Tensor) -> None:
        self.smallest = min(self.smallest, rows.min().item())


@stateful("running threshold")
class _Threshold(Stateful):
    def prepare(self) -> None:
        self.threshold = 0.0

    def forward(self, x: Tensor) -> Tensor:
        losses = super().forward(x)
        threshold = self.threshold
        self.threshold = 5.0 * float(losses.detach().abs().mean()) * float(self._clock.awake)
        return losses * (1.0 if threshold < 50.0 else -1.0)


@stateful("attribute of the class")
class _OfClass(Stateful):
    centre: Tensor = torch.zeros(FEATURES)

    def prepare(self) -> None:
        type(self).centre = torch.zeros(FEATURES)

    def keep(self, rows: Tensor) -> None:
        type(self).centre = rows.amin(0)

    def kept(self) -> Any:
        return type(self).centre


@stateful("hidden state of a recurrent layer")
class _Recurrent(Stateful):
    """Carried from batch to batch, as in language models that read on."""

    def prepare(self) -> None:
        self.cell = nn.RNNCell(FEATURES, FEATURES, nonlinearity="relu")
        for parameter in self.cell.parameters():
            nn.init.constant_(parameter.requires_grad_(False), 0.2)
        self.hidden = torch.zeros(1, FEATURES)

    def keep(self, rows: Tensor) -> None:
        self.hidden = self.cell(-rows.amin(0, keepdim=True), self.hidden).detach()

    def kept(self) -> Any:
        return -self.hidden[0]


@stateful("attribute of a parameter")
class _OnParameter(Stateful):
    def keep(self, rows: Tensor) -> None:
        self.last.weight.centre = rows.amin(0)  # type: ignore[attr-defined]

    def kept(self) -> Any:
        return getattr(self.last.weight, "centre", 0.0)
