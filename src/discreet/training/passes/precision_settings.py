"""Numbers that bounds are proved for: kinds of parameters, and settings under which float32 is not
computed as float32.

Bounds on rounding hold for float32 (docs/proofs/sums.md). torch and the libraries below it can be
told to compute products, convolutions and recurrent layers of float32 in a shorter format. Each of
these settings is read, and refused by its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from discreet.errors import ModelError, NumericsError

__all__ = ["full_precision", "refuse_kinds", "refuse_short_formats", "without_autocast"]

# Values under which float32 is float32; "none": as the setting above it, which is read as well.
_LONG = (False, "highest", "ieee", "none")
_VARIABLES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
_STRICT = ("", "STRICT")
_AS_IT_IS = nullcontext()
_KINDS = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})
# What the attributes read, in a tenth of their time; torch before 2.9 has neither.
_read_precision: Any = getattr(torch._C, "_get_fp32_precision_getter", None)  # noqa: SLF001


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Compute float32 as float32: autocast is off, and settings for shorter formats are refused.

    Args:
        device: on which is computed; public.

    Raises:
        NumericsError: a setting lets float32 be computed in a shorter format, whose rounding no
            bound here covers; the message names it.
    """
    refuse_short_formats(device)
    return without_autocast(device)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Autocast is off; for the time between a pass and its sums, before which settings are read."""
    # Entered only where it changes something: it is asked for in every pass.
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)

    return _AS_IT_IS


def refuse_short_formats(device: torch.device) -> None:
    """Refuse settings that let float32 be computed in a shorter format on a device.

    Raises:
        NumericsError: there is such a setting; the message names it.
    """
    # Read in every step (T13): a setting may change while a run goes on. Of most nothing is asked
    # but their value.
    readers = _readers_for(device.type)
    if all(read() in _LONG for read in readers):
        return

    settings = _settings_for(device.type)
    short = [setting for setting in settings if setting.read() not in _LONG]
    if short:
        names = ", ".join(setting.name for setting in short)
        remedies = "; ".join(setting.remedy for setting in short)
        raise NumericsError(
            expected="products, convolutions and recurrent layers of float32 in float32",
            got=f"settings that let them be computed in a shorter format: {names}",
            do=f"Before the run begins: {remedies}.",
        )


@final
@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting that decides how precisely float32 is computed, of torch or of a library below.

    Args:
        name: as the user writes it.
        remedy: what the user should write.
        read: its value; any other than those of `_LONG` lets float32 be computed in a shorter
            format.
    """

    name: str
    remedy: str
    read: Callable[[], object]


@cache
def _settings_for(device_type: str) -> Sequence[_Setting]:
    """The settings that matter on a device. The processor's always do: some work is done there."""
    settings = [
        _Setting(
            "torch.set_float32_matmul_precision",
            'torch.set_float32_matmul_precision("highest")',
            _precision_of_products,
        ),
        _precision("torch.backends", "generic", "all"),
        _precision("torch.backends.mkldnn", "mkldnn", "all"),
        _precision("torch.backends.mkldnn.matmul", "mkldnn", "matmul"),
        _precision("torch.backends.mkldnn.conv", "mkldnn", "conv"),
        _precision("torch.backends.mkldnn.rnn", "mkldnn", "rnn"),
    ]

    if device_type == "cuda":
        settings += _cuda_settings()

    if device_type == "xpu":
        settings.append(_flag("torch.backends.mkldnn.allow_tf32", "_get_onednn_allow_tf32"))

    # What this version of torch does not have cannot be set.
    return [*filter(None, settings), *map(_variable, _VARIABLES)]


@cache
def _readers_for(device_type: str) -> Sequence[Callable[[], object]]:
    """What reads each of these settings."""
    return [setting.read for setting in _settings_for(device_type)]


def _cuda_settings() -> list[_Setting | None]:
    matmul, cudnn = "torch.backends.cuda.matmul", "torch.backends.cudnn"

    # Sums of half precision in half precision: parameters may be of that type.
    half = [f"allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")]
    settings = [
        _precision(matmul, "cuda", "matmul"),
        _precision(cudnn, "cuda", "all"),
        _precision(f"{cudnn}.conv", "cuda", "conv"),
        _precision(f"{cudnn}.rnn", "cuda", "rnn"),
        *(_flag(f"{matmul}.{name}", f"_get_cublas_{name}") for name in half),
        _flag(f"{matmul}.allow_fp16_accumulation", "_get_cublas_allow_fp16_accumulation"),
    ]

    # Where both exist, torch cannot answer one after the other was set.
    if _read_precision is None:
        settings += [
            _flag(f"{matmul}.allow_tf32", "_get_cublas_allow_tf32"),
            _flag(f"{cudnn}.allow_tf32", "_get_cudnn_allow_tf32"),
        ]

    return settings


@cache
def _variable(name: str) -> _Setting:
    """A variable of the environment, by which oneDNN goes."""
    remedy = f"start Python without the variable {name}"
    return _Setting(name, remedy, lambda: os.environ.get(name, "").upper() not in _STRICT)


def _precision_of_products() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch cannot say: it was set to a shorter format by the other interface
        return "mixed"


def _precision(owner: str, backend: str, operation: str) -> _Setting | None:
    """An attribute `fp32_precision`; None where this version of torch has none."""
    read = _read_precision
    if read is None:
        return None

    name = f"{owner}.fp32_precision"
    return _Setting(name, f'{name} = "ieee"', partial(read, backend, operation))


def _flag(name: str, getter: str) -> _Setting | None:
    """An attribute that is true or false; None where this version of torch has none."""
    read = getattr(torch._C, getter, None)  # noqa: SLF001  (see `_read_precision`)
    return None if read is None else _Setting(name, f"{name} = False", lambda: _is_true(read()))


def _is_true(value: Any) -> bool:
    return bool(value[0] if isinstance(value, tuple) else value)  # with a flag for splitting sums


def refuse_kinds(parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters whose gradients have no norm here: complex, quantised, without a shape.

    Args:
        parameters: that are to be trained, by leaf.

    Raises:
        ModelError: there is one; the message names it.
    """
    for leaf, parameter in parameters.items():
        # A lazy parameter has no dtype to trust and no dimension to charge for.
        if is_lazy(parameter) or parameter.dtype not in _KINDS:
            kind = "which has no shape yet" if is_lazy(parameter) else f"of {parameter.dtype}"

            raise ModelError(
                expected="trained parameters of real numbers, of known shape",
                got=f"{leaf}, {kind}",
                do=(
                    "Run a lazy model once; keep complex numbers as pairs of real ones "
                    "(torch.view_as_complex in the forward)."
                ),
            )
