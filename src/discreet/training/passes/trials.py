"""What trial passes need: they drop no numbers, and count what autograd keeps.

Functions that drop numbers at random keep all of them, so that a record can be compared with itself
in another pass.

What autograd keeps of a forward pass for the backward pass is measured on a small pass, not guessed
from shapes. Each tensor is counted with the call that it was kept for, so that one can tell what
has been given back when a backward pass has come to a certain call. Tensors that share memory count
once; what does not depend on records does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from discreet.training.factors.memory import Activations
from discreet.training.passes.contributions import Taped
from discreet.training.separation.marks import holds_records, no_functions

__all__ = ["SavedBytes", "TrialPass", "without_dropout"]

_DROPOUTS = frozenset(
    name + end
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    for end in ("", "_")
)
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_ATTENTION = "scaled_dot_product_attention"
_Arguments: TypeAlias = tuple[Sequence[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class TrialPass:
    """A pass that left no trace.

    Args:
        taped: as of a pass in earnest.
        activations: what autograd kept of each row; public.
        random: whether the pass drew random numbers, dropout aside; public.
        release: lets go of the graph of the pass.
    """

    taped: Taped
    activations: Activations
    random: bool
    release: Callable[[], None]


class SavedBytes:
    """Collects, during one proved pass, what is kept of records for the backward pass: bytes by the
    number of the call.

    Attributes:
        bytes: by the number of the call.
        draws: whether the loss drew random numbers of torch.
    """

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self.draws = False
        self._places: set[int] = set()

        # A graph that holds its own results would never be freed; what is in a box can be let go
        # of.
        self._boxes: list[list[Tensor]] = []

    @contextmanager
    def watching(self, now: Callable[[], int]) -> Iterator[None]:
        """For the time of a pass; `now` gives the number of the call that goes on."""

        def save(tensor: Tensor) -> list[Tensor]:
            self.hold(tensor, now())
            self._boxes.append([tensor])
            return self._boxes[-1]

        with saved_tensors_hooks(save, lambda box: box[0]):
            yield

    @contextmanager
    def noting_draws(self) -> Iterator[None]:
        """For the time of the loss: see whether it draws random numbers."""
        before = torch.get_rng_state()
        yield
        self.draws = not torch.equal(before, torch.get_rng_state())

    def hold(self, tensor: Tensor, call: int) -> None:
        """Count what is kept because of a call: by autograd, or by a rule, as plain training keeps
        the inputs of layers.
        """
        with no_functions():  # the pass that is watched must not count this call
            memory = tensor.untyped_storage()

            # Weights are there anyway, and views of one memory take its room once.
            if holds_records(tensor) and memory.data_ptr() not in self._places:
                self._places.add(memory.data_ptr())
                self.bytes[call] = self.bytes.get(call, 0) + memory.nbytes()

    def release(self) -> None:
        """Let go of the tensors: the graph of the pass is not needed any more."""
        # The graph holds the boxes, and would hold what is in them.
        for box in self._boxes:
            box.clear()

        self._boxes.clear()

    def activations(self, rows: int, calls: int) -> Activations:
        """For each of so many rows, after so many calls.

        >>> saved = SavedBytes()
        >>> saved.bytes = {0: 80, 1: 8}
        >>> saved.activations(2, 3)
        Activations(after=(44, 4, 0, 0), largest=40)
        """
        each = [self.bytes.get(call, 0) // max(1, rows) for call in range(calls + 1)]

        # Added up from the last call on, as a backward pass gives memory back.
        after = tuple(accumulate(reversed(each)))
        return Activations(tuple(reversed(after)), max(each))


def without_dropout(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> _Arguments:
    """The arguments with which a function of torch drops nothing."""
    # `train` is the third argument, by place or by name.
    if name in _DROPOUTS:
        if len(args) > 2:
            return (*args[:2], False), kwargs

        return (*args, False)[:2], kwargs | {"train": False}

    # The share that is dropped is the fifth argument; zero is what torch takes where it is missing.
    if name == _ATTENTION:
        if len(args) > 4:
            return (*args[:4], 0.0, *args[5:]), kwargs

        return args, kwargs | {"dropout_p": 0.0}

    if name in _RECURRENT:
        # The only float among the arguments is the share that is dropped.
        return tuple(0.0 if isinstance(argument, float) else argument for argument in args), kwargs

    return args, kwargs
