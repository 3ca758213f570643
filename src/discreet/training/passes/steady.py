"""Functions that drop numbers at random keep all of them, so that a record can be compared with itself in another pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = ["without_dropout"]

_DROPOUTS = frozenset(
    name + end for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout") for end in ("", "_")
)
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_ATTENTION = "scaled_dot_product_attention"
_Arguments: TypeAlias = tuple[Sequence[Any], dict[str, Any]]


def without_dropout(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> _Arguments:
    """The arguments with which a function of torch drops nothing."""
    if name in _DROPOUTS:
        return (*args[:2], False)[: max(2, len(args))], kwargs | ({} if len(args) > 2 else {"train": False})
    if name == _ATTENTION:
        args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
        return args, kwargs | ({"dropout_p": 0.0} if "dropout_p" in kwargs else {})
    if name in _RECURRENT:
        # The only float among the arguments is the share that is dropped.
        return tuple(0.0 if isinstance(argument, float) else argument for argument in args), kwargs
    return args, kwargs
