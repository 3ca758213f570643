"""Circumstances of a pass: compiled models run as written, checkpointing is off, and a trial pass leaves no trace."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from discreet.errors import ModelError, NumericsError

__all__ = ["full_precision", "plain_forward", "seeded"]


class _Straight:
    """In the place of a checkpoint: run the function once, and keep what it makes. Memory is bounded by microbatches."""

    @staticmethod
    def apply(function: Any, _preserve: bool, *args: Any) -> Any:  # noqa: FBT001  (torch's own signature)
        return function(*args)


_straight: Any = lambda *_, **__: (None for _ in (0,))  # noqa: E731  (takes what torch's own takes, and does nothing)


@contextmanager
def plain_forward(model: nn.Module, *, restore: bool = True, trained: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """For the time of a pass. `restore`: buffers and torch's random numbers are afterwards what they were.

    `trained`: the parameters that require a gradient, where they are known.

    Raises:
        ModelError: the pass wrote into a parameter or its gradient, past clipping and noise; gradients are put back.
    """
    held = _Held({name: one for name, one in model.named_parameters() if one.requires_grad} if trained is None else trained)
    own = [(module, *one) for module in model.modules() for one in module.named_buffers(recurse=False)] if restore else []
    buffers = [(module, name, buffer, buffer.clone()) for module, name, buffer in own]
    kept = (checkpoint.CheckpointFunction, checkpoint._checkpoint_without_reentrant_generator)  # noqa: SLF001
    checkpoint.CheckpointFunction = _Straight  # type: ignore[misc, assignment]
    checkpoint._checkpoint_without_reentrant_generator = _straight  # noqa: SLF001
    try:
        with torch.random.fork_rng() if restore else nullcontext(), _uncompiled():
            yield
    finally:
        checkpoint.CheckpointFunction, checkpoint._checkpoint_without_reentrant_generator = kept  # type: ignore[misc]  # noqa: SLF001
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                setattr(module, name, buffer)
                if not torch.equal(buffer, before):  # a graph that is still needed may hold those that have not changed
                    buffer.copy_(before)
        written = held.written()
    if written:
        raise ModelError(
            expected="a loss that leaves parameters and their gradients alone",
            got=f"one that writes into {', '.join(written)}, past clipping and noise",
            do="Return the losses; leave out backward() and optimizer steps: the run computes gradients itself.",
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """For the time of a pass, torch's own random numbers follow from a secret seed; afterwards they go on as before."""
    if torch.accelerator.is_available():
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
        return
    # Where there is only the processor, torch.manual_seed would remember a call for devices that never come, with its stack.
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def _uncompiled() -> AbstractContextManager[object]:
    """Compiled functions run as they are written. Where nothing was compiled, there is nothing to do."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


class _Held:
    """Parameters at the beginning of a pass, and their gradients, which are set aside until its end."""

    def __init__(self, trained: Mapping[str, Tensor]) -> None:
        self._before = [(name, one, _state(one), one.grad) for name, one in trained.items()]
        for _, parameter, _, gradient in self._before:
            if gradient is not None:
                parameter.grad = None

    def written(self) -> list[str]:
        """Names of those that were written to; gradients are afterwards what they were."""
        found = []
        for name, parameter, state, gradient in self._before:
            if parameter.grad is not None or _state(parameter) != state:
                found.append(name.removeprefix("grad/"))
            if parameter.grad is not gradient:
                parameter.grad = gradient
        return found


def _state(tensor: Tensor) -> tuple[int, int]:
    """Where it is, and how often it was changed."""
    return tensor.data_ptr(), tensor._version  # noqa: SLF001  (what autograd itself goes by)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Products of float32 are products of float32: autocast is off, and shorter formats are refused.

    Raises:
        NumericsError: torch is set to compute float32 products in a shorter format, whose rounding no bound here covers.
    """
    try:
        short = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # set by more than one of torch's interfaces: torch itself cannot say
        short = True
    if short or (device.type == "cuda" and torch.backends.cudnn.allow_tf32):
        raise NumericsError(
            expected="products of float32 in float32",
            got="a setting of torch that lets them be computed in a shorter format",
            do='Call torch.set_float32_matmul_precision("highest") and set torch.backends.cudnn.allow_tf32 = False.',
        )
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            yield
    else:
        yield
