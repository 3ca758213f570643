"""A pass in which dropout drops nothing, so that a record can be compared with itself in another place, or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from discreet.training.opened import is_python
from discreet.training.watching import Watching

__all__ = ["Steady", "random_state"]

_DROPOUTS = frozenset(
    name + end for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout") for end in ("", "_")
)
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_ATTENTION = "scaled_dot_product_attention"
_LOOKED_AT = _DROPOUTS | _RECURRENT | {_ATTENTION, "batch_norm"}  # batch normalisation is looked after in `Watching`


@final
class Steady(Watching):
    """While it is entered, every function of torch that drops numbers at random keeps all of them."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.__name__ not in _LOOKED_AT and not is_python(func):  # nearly all; it sees what the engine computes, too
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del number
        name = func.__name__
        if name in _DROPOUTS:
            args, kwargs = (*args[:2], False)[: max(2, len(args))], kwargs | ({} if len(args) > 2 else {"train": False})
        elif name == _ATTENTION:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = kwargs | ({"dropout_p": 0.0} if "dropout_p" in kwargs else {})
        elif name in _RECURRENT:
            args = tuple(0.0 if isinstance(one, float) else one for one in args)  # the share that is dropped
        return func(*args, **kwargs)


def random_state() -> list[Tensor]:
    """Of torch's own generators; equal before and after what draws nothing."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *cuda]
