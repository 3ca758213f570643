"""What is after a pass as it was before: parameters, gradients, buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from discreet.training.state.reach import modules_of

__all__ = ["Buffers", "Untouched"]


@final
class Untouched:
    """Trained parameters, and their gradients, which are set aside until the end of a pass.

    Args:
        parameters: by leaf.
    """

    __slots__ = ("_before",)

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._before = [
            (leaf, parameter, _state(parameter), parameter.grad)
            for leaf, parameter in parameters.items()
        ]

        # Else a loss would see gradients, and what it adds could not be told from them.
        for _, parameter, _, _ in self._before:
            parameter.grad = None

    def written(self) -> list[str]:
        """Names of parameters that were written to; gradients are afterwards what they were."""
        names = []
        for leaf, parameter, state, gradient in self._before:
            if parameter.grad is not None or _state(parameter) != state:
                names.append(leaf.removeprefix("grad/"))

            parameter.grad = gradient

        return names


def _state(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor is, and how often it was changed."""
    return tensor.data_ptr(), tensor._version  # noqa: SLF001  (what autograd itself goes by)


@final
class Buffers:
    """Buffers of a model, and copies of them, for trials: a proof puts back what it has seen."""

    __slots__ = ("_before",)

    def __init__(self, model: nn.Module) -> None:
        self._before = [
            (module, name, buffer, buffer.clone())
            for module in modules_of(model)
            for name, buffer in module.named_buffers(recurse=False)
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Buffers are what they were. One that has not changed is not written to.

        A graph that is still needed may hold it.
        """
        for module, name, buffer, copy in self._before:
            setattr(module, name, buffer)  # a pass may have put another tensor there
            if not torch.equal(buffer, copy):
                buffer.copy_(copy)
