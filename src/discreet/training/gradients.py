"""Gradients that no release wrote are refused while a run is open.

In a private run autograd never adds to the gradient of a trained parameter: `run.backward` computes
gradients without it, and writes the noised average. So whatever autograd adds there is a
`backward()` that was left in the loop, a closure of LBFGS, or a wrapper that exchanges gradients
itself: unclipped gradients of records, which an optimizer would put into the weights.

    the net             a hook of torch on every trained parameter, called where autograd added
    before backward     a gradient in a parameter is none, zeros, or what a release wrote
    at optimizer.step   the same, and no GradScaler, which would divide noised gradients

Changing a released gradient in place, as clipping its norm does, is post-processing, and allowed.
Not seen: foreign numbers that are added to it in place, and optimizers that are not torch's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from discreet.errors import ModelError
from discreet.training.passes.hooks import OwnHook
from discreet.training.separation.marks import holds_records, preserved
from discreet.training.state.reach import modules_of

__all__ = ["GradientWatch", "refuse_parallel"]

_PUBLIC = (
    "For gradients of public data: with run.public_gradients(). For gradients of inputs: "
    "torch.autograd.grad."
)
_SCALING = frozenset(
    # Frames to look for.
    {
        torch.amp.GradScaler.step.__code__,
        torch.amp.GradScaler._maybe_opt_step.__code__,  # noqa: SLF001
    }
)
_FRAMES = 8  # between the step of an optimizer and that of a scaler, schedulers' wrappers included
_PARALLEL = ("torch.nn.parallel.", "torch.distributed.")


@final
class GradientWatch:
    """Sees to it that gradients of trained parameters are those that a run wrote.

    Args:
        parameters: that are trained, by leaf.

    >>> layer = nn.Linear(2, 1)
    >>> watch = GradientWatch({"grad/weight": layer.weight, "grad/bias": layer.bias})
    >>> with watch.watching():
    ...     layer(torch.ones(1, 2)).sum().backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    discreet.errors.ModelError: Expected gradients that run.backward wrote. Got a backward() ...
    >>> with watch.watching(), watch.public():
    ...     layer(torch.ones(1, 2)).sum().backward()
    """

    __slots__ = ("_handles", "_leaves", "_parameters", "_public")

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = {
            leaf.removeprefix("grad/"): parameter for leaf, parameter in parameters.items()
        }
        # By identity: optimizers know parameters, and not their names.
        self._leaves = {id(parameter): leaf for leaf, parameter in self._parameters.items()}
        self._handles: list[RemovableHandle] = []
        # Contexts for public gradients that are open; they may be nested.
        self._public = 0

    # --- while a run is open ---

    @contextmanager
    def watching(self) -> Iterator[None]:
        """For the time of a run, gradients that it did not write are refused."""
        self.open()
        try:
            yield
        finally:
            self.close()

    def open(self) -> None:
        """Begin to watch; a second time does nothing."""
        if self._handles:
            return

        self._handles.append(register_optimizer_step_pre_hook(self._before_step))
        for leaf, parameter in self._parameters.items():
            hook = OwnHook(self._accumulated, leaf)
            register: Any = parameter.register_post_accumulate_grad_hook
            self._handles.append(register(hook))

    def close(self) -> None:
        """End to watch; without a beginning it does nothing."""
        while self._handles:
            self._handles.pop().remove()

    @contextmanager
    def public(self) -> Iterator[None]:
        """For the time of a block, gradients may come from elsewhere: from public data.

        Nothing checks that the data are public. What is in the gradients at the end of the block
        counts as written by the run, and later releases are added to it.
        """
        self._public += 1
        try:
            yield
        finally:
            # Also after an error: what is there was meant to be public.
            self._public -= 1
            self.note_written()

    # --- around a release ---

    def check(self) -> None:
        """Refuse gradients that no release wrote. It is to be called before every `backward`.

        Raises:
            ModelError: there is one; the message names its parameter.
        """
        _refuse_foreign(
            self._parameters.items(),
            expected="gradients that a release wrote, zeros, or none",
            got="another gradient in {}, to which the release would be added",
            do=f"Call optimizer.zero_grad() before run.backward. {_PUBLIC}",
        )

    def note_written(self) -> None:
        """Note that the gradients as they are were released. It is to be called after a release."""
        for parameter in self._parameters.values():
            if parameter.grad is not None:
                _mark(parameter.grad)

    # --- hooks ---

    def _accumulated(self, leaf: str, parameter: Tensor) -> None:
        """Called by torch where autograd has added to a gradient."""
        if self._public:
            return

        # What a release wrote was added to in place, and cannot be told from the rest any more.
        parameter.grad = None
        raise ModelError(
            expected="gradients that run.backward wrote",
            got=f"a backward() that adds to the gradient of {leaf}, unclipped and without noise",
            do="Leave out loss.backward() and closures that call it: run.backward computes "
            f"gradients itself. {_PUBLIC} After the last batch, call run.close().",
        )

    def _before_step(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        """Called by torch before the step of any optimizer."""
        trained = [
            (self._leaves[id(parameter)], parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._leaves
        ]
        # Optimizers of other models, and steps with public gradients, are let through.
        if not trained or self._public:
            return

        if isinstance(optimizer, torch.optim.LBFGS):
            raise ModelError(
                expected="an optimizer that takes one gradient for each step",
                got="LBFGS, which computes the loss again and again within a step",
                do="Use SGD or Adam: each look at the data is a release, and is charged.",
            )

        if _is_scaled():
            raise ModelError(
                expected="noised gradients as they were released",
                got="a GradScaler, which divides them by the scale of a loss that it never saw",
                do="Call optimizer.step() itself, without a GradScaler; bfloat16 needs none.",
            )

        # A loss that sets a learning rate from its batch would put records into the weights.
        if any(map(holds_records, _tensors_of(optimizer))):
            raise ModelError(
                expected="an optimizer whose settings and state come from released values",
                got="a tensor in it that holds what a pass computed from its records",
                do=(
                    "A loss must leave the optimizer alone: set learning rates in the loop, from "
                    "released values."
                ),
            )

        _refuse_foreign(
            trained,
            expected="an optimizer step with gradients that a release wrote",
            got="another gradient in {}",
            do="Change released gradients in place (parameter.grad.mul_(...)), or write "
            f"what you make of them within `with run.public_gradients()`. {_PUBLIC}",
        )


def _refuse_foreign(
    parameters: Iterable[tuple[str, Tensor]], *, expected: str, got: str, do: str
) -> None:
    """Refuse a gradient that no release wrote; `got` has a place for the name of its parameter."""
    for leaf, parameter in parameters:
        if parameter.grad is not None and _is_foreign(parameter.grad):
            raise ModelError(expected=expected, got=got.format(leaf), do=do)


def _tensors_of(optimizer: Any) -> list[Tensor]:
    """In the settings and the state of an optimizer, parameters aside."""
    registers = [*optimizer.param_groups, *optimizer.state.values()]
    settings = [register.values() for register in registers if isinstance(register, dict)]
    return [entry for entry in chain.from_iterable(settings) if isinstance(entry, Tensor)]


def _mark(gradient: Tensor) -> None:
    _owner(gradient)._discreet_written = True  # noqa: SLF001  (our own mark)


def _is_foreign(gradient: Tensor) -> bool:
    """Whether a gradient holds something that neither a release nor the user's word put there."""
    if getattr(_owner(gradient), "_discreet_written", False):
        return False

    # Without marks that last, the hooks on parameters are the only net.
    return preserved() and bool(gradient.detach().to_dense().any())


def _owner(gradient: Tensor) -> Any:
    """What carries the mark: the memory, so that views and changes in place have it too."""
    try:
        return gradient.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse gradients have no memory of their own
        return gradient


def _is_scaled() -> bool:
    """Whether the step of a GradScaler that is switched on calls the step of an optimizer."""
    frame = sys._getframe(1)  # noqa: SLF001  (the scaler tells the optimizer nothing)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return False

        frame = frame.f_back

        # A scaler that is switched off calls the optimizer's step as well, and changes nothing.
        if frame.f_code in _SCALING:
            return bool(frame.f_locals["self"].is_enabled())

    return False


def refuse_parallel(model: nn.Module) -> None:
    """Refuse several processes or devices at once. It is to be called before anything is charged.

    Raises:
        ModelError: the model is wrapped for it, or this is one of several processes.
    """
    for module in modules_of(model):
        wrapper = next(
            (kind for kind in type(module).__mro__ if f"{kind.__module__}.".startswith(_PARALLEL)),
            None,
        )
        if wrapper is not None:
            raise ModelError(
                expected="a model for one process and one device",
                got=f"{wrapper.__name__}, which exchanges gradients before they are noised",
                do="Pass the model without the wrapper (model.module); one process for now.",
            )

    processes = _processes()
    if processes > 1:
        raise ModelError(
            expected="one process",
            got=f"one of {processes}: each would draw, be charged and train a model of its own",
            do=(
                "Start the script with python in place of torchrun, or unset WORLD_SIZE: one "
                "process for now."
            ),
        )


def _processes() -> int:
    """The number of processes that torch.distributed has, or that the environment announces."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())

    # torchrun sets both for each of its processes; WORLD_SIZE alone announces nothing.
    announced = os.environ.get("WORLD_SIZE", "1") if "RANK" in os.environ else "1"
    return int(announced) if announced.isdigit() else 1
