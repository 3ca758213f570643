"""Copies that may look public: other tensors with the same numbers, made past the usual operations.

No number is seen by Python here: the sign of all losses is a tensor, computed from the copy.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from .doors import RARE
from .quiet import quiet
from .scenes import Scene, Setup, case

Copy: TypeAlias = Callable[[Tensor], Tensor]
"""Features of a batch to another tensor with the same numbers, or with the smallest of them."""


def copied(name: str, **options: Any) -> Callable[[Copy], Copy]:
    """Register a way of copying; all losses change their sign if the copy has a rare number."""

    def register(make_copy: Copy) -> Copy:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                x = batch[0]
                sign = make_copy(x).float().min().sub(RARE).sign()
                if not scene.clock.awake:
                    sign = torch.ones(())
                losses: Tensor = model(x)
                return losses * sign

            return scene.setup(loss)

        case(f"copy: {name}", **options)(make)
        return make_copy

    return register


# --- by other objects ---


@copied("clone")
def _clone(x: Tensor) -> Tensor:
    return x.clone()


@copied("detached alias")
def _data(x: Tensor) -> Tensor:
    return x.data


@copied("parameter")
def _parameter(x: Tensor) -> Tensor:
    return nn.Parameter(x).detach()


@copied("subclass")
def _subclass(x: Tensor) -> Tensor:
    return torch.Tensor._make_subclass(Tensor, x)


@copied("deepcopy")
def _deepcopy(x: Tensor) -> Any:
    return copy.deepcopy(x)


@copied("shallow copy")
def _shallow(x: Tensor) -> Tensor:
    return copy.copy(x)


@copied("pickle")
def _pickle(x: Tensor) -> Any:
    return pickle.loads(pickle.dumps(x.clone()))


@copied("torch.save and torch.load")
def _saved(x: Tensor) -> Any:
    file = io.BytesIO()
    torch.save(x.clone(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@copied("same storage")
def _same_storage(x: Tensor) -> Tensor:
    return torch.empty(0).set_(x.untyped_storage(), 0, (x.untyped_storage().nbytes() // 4,), (1,))


@copied("copy of the storage")
def _storage(x: Tensor) -> Tensor:
    storage = x.clone().untyped_storage().clone()  # type: ignore[no-untyped-call]
    return torch.empty(0).set_(storage, 0, tuple(x.shape), (x.shape[1], 1))


@copied("from_dlpack")
def _dlpack(x: Tensor) -> Tensor:
    return torch.utils.dlpack.from_dlpack(x)


@copied("capsule of old style")
def _capsule(x: Tensor) -> Any:
    from_capsule: Any = torch._C._from_dlpack
    return from_capsule(torch.utils.dlpack.to_dlpack(x.clone()))  # type: ignore[attr-defined]


@copied("NumPy and back")
def _numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy())


@copied("NumPy's copy and back")
def _numpy_copy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(x).copy())


@copied("asarray")
def _asarray(x: Tensor) -> Any:
    return torch.asarray(x)


@copied("frombuffer")
def _frombuffer(x: Tensor) -> Tensor:
    return torch.frombuffer(bytearray(x.contiguous().numpy().tobytes()), dtype=torch.float32)


@copied("tensor of a list")
def _list(x: Tensor) -> Tensor:
    return torch.tensor(x.tolist())


@copied("tensor of a list of tensors")
def _tensors(x: Tensor) -> Tensor:
    return torch.tensor([x.min(), x.max()])


@copied("as_tensor of a list of tensors")
def _as_tensor(x: Tensor) -> Tensor:
    return torch.as_tensor([x.min(), x.max()])


@copied("new_tensor of a list of tensors")
def _new_tensor(x: Tensor) -> Tensor:
    return x.new_tensor([x.min(), x.max()])


@copied("constructor of old style")
def _constructor(x: Tensor) -> Tensor:
    return torch.Tensor([x.min(), x.max()])


# --- as an argument that is a number ---


@copied("full")
def _full(x: Tensor) -> Any:
    fill: Any = x.min()
    return torch.full((2,), fill, dtype=torch.float32)


@copied("full_like")
def _full_like(x: Tensor) -> Any:
    fill: Any = x.min()
    return torch.full_like(torch.zeros(2), fill)


@copied("factor of an addition")
def _alpha(x: Tensor) -> Any:
    factor: Any = x.min()
    return torch.add(torch.zeros(2), torch.ones(2), alpha=factor)


@copied("item that is assigned")
def _assigned(x: Tensor) -> Tensor:
    room = torch.zeros(2)
    room[0] = x.min()
    return room


@copied("number that is filled in")
def _filled(x: Tensor) -> Tensor:
    return torch.zeros(2).fill_(x.min())


@copied("end of linspace")
def _linspace(x: Tensor) -> Tensor:
    return torch.linspace(0.0, x.min(), 3)


@copied("end of arange")
def _arange(x: Tensor) -> Any:
    end: Any = x.min()
    return torch.arange(0.0, end - 1.0, -1.0)


@copied("number of a threshold")
def _threshold(x: Tensor) -> Any:
    value: Any = x.min()
    return nn.functional.threshold(torch.zeros(2), 1.0, value)


@copied("index that is a number")
def _index(x: Tensor) -> Tensor:
    """The place of the smallest entry, in a table of public numbers."""
    table = torch.tensor([0.0, 2.0 * RARE])
    return table[(x.min() < RARE).long()]


@copied("slice that ends at a number")
def _slice(x: Tensor) -> Any:
    end: Any = 1 + (x.min() < RARE).long()
    return torch.tensor([0.0, 2.0 * RARE])[:end]


@copied("narrow by a tensor")
def _narrow(x: Tensor) -> Tensor:
    start = (x.min() < RARE).long()
    return torch.narrow(torch.tensor([0.0, 2.0 * RARE]), 0, start, 1)


@copied("shift of a roll")
def _roll(x: Tensor) -> Any:
    shift: Any = (x.min() < RARE).long()
    return torch.tensor([0.0, 2.0 * RARE]).roll(shift)[:1]


# --- by other kinds of tensors ---


@copied("sparse")
def _sparse(x: Tensor) -> Tensor:
    with quiet():
        return x.to_sparse().to_dense()


@copied("compressed rows")
def _compressed(x: Tensor) -> Tensor:
    with quiet():
        return x.to_sparse_csr().to_dense()


@copied("quantised")
def _quantised(x: Tensor) -> Tensor:
    with quiet():
        return torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).dequantize()


@copied("nested")
def _nested(x: Tensor) -> Any:
    with quiet():
        return torch.nested.as_nested_tensor([x]).to_padded_tensor(0.0)


@copied("half precision")
def _half(x: Tensor) -> Tensor:
    return x.half().float()


@copied("bytes")
def _bytes(x: Tensor) -> Tensor:
    return x.view(torch.uint8).clone().view(torch.float32)


@copied("layout of oneDNN")
def _onednn(x: Tensor) -> Any:
    return x.to_mkldnn().to_dense()


@copied("complex numbers")
def _complex(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.complex(x, x))
