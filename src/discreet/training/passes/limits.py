"""Parameters that cannot be trained here."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from discreet.errors import ModelError

__all__ = ["refuse_kinds"]

_KINDS = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})


def refuse_kinds(parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters whose gradients have no norm here: complex, quantised, without a shape.

    Args:
        parameters: that are to be trained, by leaf.

    Raises:
        ModelError: there is one; the message names it.
    """
    for leaf, parameter in parameters.items():
        if is_lazy(parameter) or parameter.dtype not in _KINDS:
            kind = "which has no shape yet" if is_lazy(parameter) else f"of {parameter.dtype}"
            raise ModelError(
                expected="trained parameters of real numbers, of known shape",
                got=f"{leaf}, {kind}",
                do="Run a lazy model once; keep complex numbers as pairs of real ones (torch.view_as_complex in the forward).",
            )
