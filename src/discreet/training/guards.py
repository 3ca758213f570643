"""What a forward pass must not do: couple records, write records into buffers, change parameters, shuffle records.

Every function that a pass calls goes by here, in every pass: a layer may be put into another mode at any time. What these
names do not show is found by perturbing records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from discreet.errors import CoupledRecords, ModelError
from discreet.training.structure import CallAxes

__all__ = ["GUARDED", "changes_in_place", "refuse_change", "refuse_coupling", "refuse_kinds", "refuse_shuffling"]

_KINDS = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})
_HARMLESS = frozenset({"requires_grad_", "share_memory_"})

GUARDED = frozenset({"instance_norm", "randperm"})
"""Names that `refuse_coupling` and `refuse_shuffling` look at; `refuse_change` looks at those that `changes_in_place`."""


def changes_in_place(name: str) -> bool:
    """Whether the function of this name changes its first argument."""
    if name.endswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return name.endswith("_") and name not in _HARMLESS


def refuse_kinds(parameters: Mapping[str, Tensor]) -> None:
    """Parameters whose gradients have no norm here: complex, quantised, without a shape yet."""
    for leaf, parameter in parameters.items():
        if is_lazy(parameter) or parameter.dtype not in _KINDS:
            raise ModelError(
                expected="trained parameters of real numbers, of known shape",
                got=f"{leaf}, " + ("which has no shape yet" if is_lazy(parameter) else f"of {parameter.dtype}"),
                do="Run a lazy model once; keep complex numbers as pairs of real ones (torch.view_as_complex in the forward).",
            )


def refuse_coupling(name: str, args: Sequence[Any]) -> None:
    """Layers that keep what they saw. Batch normalisation is looked after in `batch_norm`."""
    if name == "instance_norm" and len(args) > 5 and args[3] is not None and args[5]:
        raise CoupledRecords(
            expected="layers that keep nothing of the records they see",
            got="instance normalisation that updates running statistics, which would be released without noise",
            do="Use track_running_stats=False, or put the layer in eval mode.",
        )


def refuse_change(name: str, args: Sequence[Any], parameters: Mapping[str, Tensor]) -> None:
    """A function that writes into a parameter, also through `detach` and `data`: past clipping, past noise."""
    if not changes_in_place(name) or not args or not isinstance(args[0], Tensor):
        return
    memory = args[0].untyped_storage().data_ptr()
    for leaf, parameter in parameters.items():
        if memory and parameter.untyped_storage().data_ptr() == memory:
            raise ModelError(
                expected="a forward pass that leaves the parameters as they are",
                got=f"{name}, which changes {leaf}",
                do="Leave out max_norm of embeddings; change parameters between steps, not in the forward pass.",
            )


def refuse_shuffling(axes: CallAxes) -> None:
    """A random permutation of the records, as for mixing neighbours."""
    if axes.name == "randperm" and axes.outputs and axes.outputs[0] is not None:
        raise CoupledRecords(
            expected="a forward pass in which every record keeps its place",
            got="a random permutation of the records",
            do="Mix or contrast within a record, or before the sample is drawn.",
        )
