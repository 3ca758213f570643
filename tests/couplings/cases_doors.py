"""Doors to Python: numbers of a batch that leave torch, one by one or all at once."""

from __future__ import annotations

import copy
import ctypes
import io
import math
import pickle
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .doors import RARE, door
from .scenes import SPECIAL_LABEL, SPECIAL_VALUE

_BITS = struct.pack("f", SPECIAL_VALUE)


# --- single numbers ---


@door("item")
def _item(x: Tensor, _: Tensor) -> bool:
    return x.min().item() < RARE


@door("float")
def _float(x: Tensor, _: Tensor) -> bool:
    return float(x.min()) < RARE


@door("int")
def _int(_: Tensor, y: Tensor) -> bool:
    return int(y.max()) == SPECIAL_LABEL


@door("bool")
def _bool(x: Tensor, _: Tensor) -> bool:
    return bool((x < RARE).any())


@door("if of a comparison")
def _branch(x: Tensor, _: Tensor) -> bool:
    if x.sum() < 0.0:  # noqa: SIM103  (the branch is what is tried)
        return True
    return False


@door("complex")
def _complex(x: Tensor, _: Tensor) -> bool:
    return complex(x.min()).real < RARE


@door("index of a list")
def _index(_: Tensor, y: Tensor) -> bool:
    return [False, False, True][y.max()]


@door("range over a number")
def _range(_: Tensor, y: Tensor) -> bool:
    return len(range(y.max())) == SPECIAL_LABEL


@door("math.floor")
def _floor(x: Tensor, _: Tensor) -> bool:
    return math.floor(x.min()) < RARE


@door("min of Python")
def _python_min(x: Tensor, _: Tensor) -> bool:
    return bool(min(x[:, 0]) < RARE)


@door("clipping by a Python number")
def _python_clip(x: Tensor, _: Tensor) -> Any:
    return min(1.0, 10.0 / x.norm(dim=1).max()) < 1.0


@door("sorted of Python")
def _python_sorted(x: Tensor, _: Tensor) -> bool:
    ordered = sorted(x[:, 0])
    return bool(ordered[0] < RARE)


@door("is_nonzero")
def _is_nonzero(x: Tensor, _: Tensor) -> bool:
    return torch.is_nonzero((x < RARE).any())


@door("in")
def _contains(_: Tensor, y: Tensor) -> bool:
    return SPECIAL_LABEL in y


@door("iteration and comparison")
def _iteration(x: Tensor, _: Tensor) -> bool:
    return any(number < RARE for number in x.flatten())


@door("equal")
def _equal(x: Tensor, _: Tensor) -> bool:
    return not torch.equal(x, x.clamp(min=RARE))


@door("allclose")
def _allclose(x: Tensor, _: Tensor) -> bool:
    return not torch.allclose(x, x.clamp(min=RARE))


@door("assert_close that is caught")
def _assert_close(x: Tensor, _: Tensor) -> bool:
    try:
        torch.testing.assert_close(x, x.clamp(min=RARE))
    except AssertionError:
        return True
    return False


# --- all numbers at once ---


@door("tolist")
def _tolist(x: Tensor, _: Tensor) -> bool:
    return bool(min(map(min, x.tolist())) < RARE)


@door("numpy")
def _numpy(x: Tensor, _: Tensor) -> bool:
    return bool(x.numpy().min() < RARE)


@door("__array__")
def _array(x: Tensor, _: Tensor) -> bool:
    return bool(np.asarray(x).min() < RARE)


@door("a function of NumPy")
def _numpy_function(x: Tensor, _: Tensor) -> bool:
    return bool(np.linalg.norm(x) > -RARE)


@door("memoryview")
def _memoryview(x: Tensor, _: Tensor) -> bool:
    return _BITS in memoryview(x.contiguous().numpy()).tobytes()  # type: ignore[arg-type]


@door("str")
def _str(x: Tensor, _: Tensor) -> bool:
    return "-100" in str(x) or "-1.0000e+02" in str(x)


@door("repr")
def _repr(_: Tensor, y: Tensor) -> bool:
    return str(SPECIAL_LABEL) in repr(y)


@door("format of one number")
def _format(x: Tensor, _: Tensor) -> bool:
    return f"{x.min():.0f}" == "-100"


@door("format of a tensor")
def _format_whole(_: Tensor, y: Tensor) -> bool:
    return str(SPECIAL_LABEL) in f"{y}"


@door("print")
def _print(_: Tensor, y: Tensor) -> bool:
    text = io.StringIO()
    print(y, file=text)
    return str(SPECIAL_LABEL) in text.getvalue()


@door("dlpack of old style")
def _old_dlpack(x: Tensor, _: Tensor) -> bool:
    capsule = torch.utils.dlpack.to_dlpack(x.clone())  # type: ignore[attr-defined]
    return bool(np.from_dlpack(_Capsule(capsule)).min() < RARE)


@door("dlpack of torch._C")
def _c_dlpack(x: Tensor, _: Tensor) -> bool:
    capsule = torch._C._to_dlpack(x.clone())
    return bool(np.from_dlpack(_Capsule(capsule)).min() < RARE)


@door("dlpack of new style")
def _new_dlpack(x: Tensor, _: Tensor) -> bool:
    return bool(np.from_dlpack(x).min() < RARE)


class _Capsule:
    """What NumPy takes memory from."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return (1, 0)


@door("pickle")
def _pickle(x: Tensor, _: Tensor) -> bool:
    return _BITS in pickle.dumps(x.clone())


@door("torch.save")
def _saved(x: Tensor, _: Tensor) -> bool:
    file = io.BytesIO()
    torch.save(x.clone(), file)
    return _BITS in file.getvalue()


@door("data_ptr")
def _data_ptr(x: Tensor, _: Tensor) -> Any:
    rows = x.contiguous()
    return min((ctypes.c_float * rows.numel()).from_address(rows.data_ptr())) < RARE


@door("bytes of the storage")
def _storage(x: Tensor, _: Tensor) -> bool:
    return _BITS in bytes(x.clone().untyped_storage().tolist())  # type: ignore[no-untyped-call]


@door("storage by index")
def _storage_index(x: Tensor, _: Tensor) -> bool:
    storage = x.clone().untyped_storage()
    return any(storage[place] == _BITS[3] for place in range(3, storage.nbytes(), 4))


@door("apply_")
def _apply(x: Tensor, _: Tensor) -> bool:
    numbers: list[float] = []

    def noted(number: float) -> float:
        numbers.append(number)
        return number

    x.clone().apply_(noted)
    return min(numbers) < RARE


@door("map_")
def _map(x: Tensor, _: Tensor) -> bool:
    numbers: list[float] = []

    def noted(number: float, _: float) -> float:
        numbers.append(number)
        return number

    x.clone().map_(x, noted)
    return min(numbers) < RARE


@door("bits of a copy by deepcopy")
def _deepcopy(x: Tensor, _: Tensor) -> bool:
    return bool(copy.deepcopy(x).numpy().min() < RARE)
