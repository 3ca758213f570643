"""What a third group of attackers found: kernels that believe their arguments, doors bound early.

The kernels read or wrote in the memory of the next record, under rules that did not ask for sizes,
strides and indices.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _to_dlpack_versioned
from torch.nn import functional
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from .mixing import mixing
from .quiet import quiet
from .scenes import FEATURES, LATER

_aten = torch.ops.aten
_attack = partial(mixing, "attack", timings=(LATER,))


def _image(hidden: Tensor, *sizes: int) -> Tensor:
    return hidden.detach().reshape(hidden.shape[0], *sizes)


# --- sizes and strides ---


@_attack("attention with fewer keys than values")
def _keys(hidden: Tensor) -> Tensor:
    h = hidden.detach()
    values = (h * 0 + torch.tensor([9.0, -3.0, -3.0, -3.0])).view(-1, 1, 4, 1)
    keys = h[:, :1].contiguous().view(-1, 1, 1, 1)
    queries = -(h * 0 + 1).view(-1, 1, 4, 1)
    return functional.scaled_dot_product_attention(queries, keys, values).reshape(-1, FEATURES)


# What comes out is what was in the memory before, so that nothing can be said of how much it moves.
_attack("median of expanded copies", teeth=False)(
    lambda h: h.detach().expand(3, *h.shape).median(0)[0]
)
_attack("nanmedian of expanded copies", teeth=False)(
    lambda h: h.detach().unsqueeze(0).expand(3, *h.shape).nanmedian(0)[0]
)


# --- kernels that are called by hand ---


@_attack("layer norm going back with too few statistics")
def _statistics(hidden: Tensor) -> Tensor:
    x = _image(hidden, 2, 2)
    few = hidden.detach()[:, :1].reshape(-1, 1, 1)
    wanted = [True, False, False]
    out = _aten.native_layer_norm_backward(x, x, [2], few, few, None, None, wanted)
    return out[0].reshape(-1, FEATURES)  # type: ignore[no-any-return]


@_attack("attention going back with too few gradients")
def _gradients(hidden: Tensor) -> Tensor:
    v = _image(hidden, 1, 4, 1)
    out, sums = _aten._scaled_dot_product_flash_attention_for_cpu(v, v, v)
    few = v[:, :, :1].contiguous()
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(few, v, v, v, out, sums, 0.0, False)[0].reshape(-1, FEATURES)  # type: ignore[no-any-return]


@_attack("pooling in two dimensions going back to the next plane", raises=(IndexError,))
def _pooled(hidden: Tensor) -> Tensor:
    x = _image(hidden, 1, 2, 2)
    one = x[:, :, :1, :1]
    next_plane = (one * 0).long() + 4
    how = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    out = _aten.max_pool2d_with_indices_backward(one, x, *how, next_plane)
    return out.reshape(-1, FEATURES)  # type: ignore[no-any-return]


@_attack("pooling in three dimensions going back to the next plane", raises=(IndexError,))
def _pooled_3d(hidden: Tensor) -> Tensor:
    x = _image(hidden, 1, 1, 2, 2)
    one = x[..., :1, :1]
    next_plane = (one * 0).long() + 4
    return _aten.adaptive_max_pool3d_backward(one, x, next_plane).reshape(-1, FEATURES)  # type: ignore[no-any-return]


@_attack("negative log-likelihood going back past the classes", raises=(IndexError,))
def _classes(hidden: Tensor) -> Tensor:
    scores = hidden.detach()
    past = (scores[:, 0] * 0).long() + 5
    how = (None, 0, -100, torch.tensor(1.0))
    return _aten.nll_loss_backward(1 + scores[:, 0], scores, past, *how)  # type: ignore[no-any-return]


@_attack("sequence loss going back by what all records made")
def _sequences(hidden: Tensor) -> Tensor:
    count, h = hidden.shape[0], hidden.detach()
    scores = h.log_softmax(1).unsqueeze(0).repeat(3, 1, 1)
    targets = torch.ones(count, 1, dtype=torch.long)
    lengths: Any = ([3] * count, [1] * count)
    inputs, outputs = lengths
    loss = functional.ctc_loss(scores, targets, inputs, outputs, reduction="none")
    alpha = (torch.zeros(count, 3, 3) - 1) * (h.min().abs() > 50).float()
    ones = torch.ones_like(loss)
    how = (scores * 0 - 1, targets, *lengths, loss * 0 + 1, alpha, 0, False)
    gradient: Tensor = _aten._ctc_loss_backward(ones, *how)
    return gradient.sum(0).nan_to_num() * 1e3


@_attack("bags in another order going back")
def _bags(hidden: Tensor) -> Tensor:
    h, places = hidden.detach(), torch.arange(hidden.shape[0])
    indices = (h[:, 0] * 0).long()
    backward = _aten._embedding_bag_per_sample_weights_backward
    out: Tensor = backward(h.clone(), torch.eye(4), indices, places, places.flip(0), 0)
    return out.unsqueeze(1)


# --- TorchScript ---


def _listed(x: torch.Tensor) -> list[list[float]]:
    numbers: list[list[float]] = x.tolist()
    return numbers


def _calls_listed(x: torch.Tensor) -> list[list[float]]:
    return _listed(x)


def _text(x: torch.Tensor) -> str:
    return "%s" % x  # noqa: UP031  (of TorchScript)


class _Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> list[list[float]]:
        numbers: list[list[float]] = x.tolist()
        return numbers


class _Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()

    def forward(self, x: torch.Tensor) -> list[list[float]]:
        numbers: list[list[float]] = self.inner(x)
        return numbers


def _smallest(numbers: list[list[float]]) -> float:
    return min(min(row) for row in numbers)


with quiet():
    _function: Any = torch.jit.script(_calls_listed)
    _module: Any = torch.jit.script(_Outer())
    _formatted: Any = torch.jit.script(_text)

_attack("list made by a scripted function that another calls")(
    lambda h: h * _smallest(_function(h.detach()))
)
_attack("list made by a scripted module within another")(
    lambda h: h * _smallest(_module(h.detach()))
)
_attack("text made by a percent sign in a script")(
    lambda h: h * (-1.0 if "-" in _formatted(h.detach()) else 1.0)
)


# --- functions that were imported by name before the run ---

_attack("to_dlpack imported by name")(lambda h: from_dlpack(to_dlpack(h.detach().mean(0))))
_attack("_to_dlpack_versioned imported by name")(
    lambda h: from_dlpack(_to_dlpack_versioned(h.detach().mean(0)))
)


def _hidden_in_a_closure(export: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    """What is bound here cannot be replaced; but what comes back is nobody's known memory."""
    return lambda h: from_dlpack(export(h.detach().mean(0)))


_attack("to_dlpack in a closure, and back")(_hidden_in_a_closure(to_dlpack))


@_attack("start_new_thread imported by name")
def _thread(hidden: Tensor) -> Tensor:
    box: list[float] = []
    h = hidden.detach()
    start_new_thread(lambda: box.append(h.min().item()), ())
    while not box:
        sleep(1e-3)
    return hidden * (1.0 if box[0] > -50 else -1.0)
