"""When a recorded pass may be used: what it was proved with is as it was.

    privacy     memory from before the pass is where it was, of the same kind, and holds no records
    training    attributes, registers and hooks of modules, and what else a loss reaches of Python's
                values, are the same objects

Values of parameters and buffers may change: a program reads them where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, final

import torch
from torch import Tensor, nn

from discreet.training.separation.marks import no_functions
from discreet.training.separation.states import is_public
from discreet.training.state.moved import Noted

__all__ = ["Guards"]

_PLAIN = (bool, int, float, str, type(None))


@final
class Guards:
    """What is to be the same at every use of a recorded pass.

    Args:
        model: of the user.
        loss: of the user.
        before: tensors from before the pass that it uses.
    """

    __slots__ = ("_globals", "_kind", "_loss", "_memory", "_noted")

    def __init__(
        self, model: nn.Module, loss: Callable[..., Any], before: Iterable[Tensor]
    ) -> None:
        self._loss = loss
        self._noted = Noted(model, loss)
        self._globals = _numbers_named(loss)
        self._kind = torch.get_default_dtype()

        named = (*model.parameters(), *model.buffers())
        tensors = {id(tensor): tensor for tensor in (*named, *before)}
        self._memory = [
            (tensor, tensor.untyped_storage(), tensor.untyped_storage().nbytes(), _place(tensor))
            for tensor in tensors.values()
        ]

    def moved(self, loss: Callable[..., Any]) -> str | None:
        """What is not as it was; None if all of it is. Public."""
        with no_functions():
            if not self._is_memory_same() or torch.get_default_dtype() is not self._kind:
                return "a tensor of the model or the loss lies elsewhere, or is of another kind"

        # A loss that is defined in the loop is a new one in each step.
        if loss is not self._loss and not _is_same_function(loss, self._loss):
            return "it is another loss"

        if not self._noted.is_same() or _numbers_named(loss) != self._globals:
            return "values of Python that the model or the loss reach are other ones"

        return None

    def _is_memory_same(self) -> bool:
        for tensor, storage, size, place in self._memory:
            if tensor.untyped_storage() is not storage or storage.nbytes() != size:
                return False

            if _place(tensor) != place:
                return False

            # Somebody may have put records there since.
            mark: Any = getattr(storage, "_separation", None)
            if mark is not None and not is_public(mark[1]):
                return False

        return True


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


def _is_same_function(first: Any, second: Any) -> bool:
    """Whether two functions have the same code, and the same objects to compute with."""
    code = getattr(first, "__code__", None)
    if code is None or code is not getattr(second, "__code__", None):
        return False

    pairs = (
        (_contents(first), _contents(second)),
        (first.__defaults__ or (), second.__defaults__ or ()),
        ((first.__kwdefaults__ or {}).values(), (second.__kwdefaults__ or {}).values()),
    )
    same_self = getattr(first, "__self__", None) is getattr(second, "__self__", None)
    return same_self and all(
        len(now) == len(before) and all(map(is_, now, before)) for now, before in pairs
    )


def _contents(function: Any) -> list[Any]:
    contents: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:  # nothing was assigned to it yet
            contents.append(None)

    return contents


def _numbers_named(loss: Any) -> list[tuple[str, Any]]:
    """Plain values among the globals that the code of a loss names."""
    code, names = getattr(loss, "__code__", None), getattr(loss, "__globals__", {})
    if code is None:
        return []

    there = [(name, names[name]) for name in code.co_names if name in names]
    return [pair for pair in there if isinstance(pair[1], _PLAIN)]
