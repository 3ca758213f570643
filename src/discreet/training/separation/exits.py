"""Ways by which an operation could let something of a record out of a pass, other than by its
results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords, ModelError
from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import PUBLIC, State, is_public
from discreet.training.separation.table.operands import tensors_among

__all__ = [
    "MENDED",
    "arguments_of",
    "caught_error",
    "depends_on_kept",
    "is_within_bounds",
    "keeps_records",
    "layer_of",
    "leak_of",
    "targets_of_records",
    "undeclared_by",
    "written_by",
]


def arguments_of(operation: Operation, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, with defaults."""
    return {
        **operation.defaults,
        **dict(zip(operation.argument_names, args, strict=False)),
        **kwargs,
    }


def written_by(operation: Operation, arguments: Mapping[str, Any]) -> list[Tensor]:
    """Tensors that an operation writes, by its schema."""
    return [tensor for name in operation.written for tensor in tensors_among(arguments.get(name))]


def undeclared_by(operation: Operation, arguments: Mapping[str, Any]) -> list[Tensor]:
    """Tensors that an operation writes although its schema does not say so: running statistics, in
    training.
    """
    if not arguments.get("training", arguments.get("train", True)):
        return []
    return [
        tensor for name in operation.undeclared for tensor in tensors_among(arguments.get(name))
    ]


def leak_of(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> str | None:
    """What an operation on records lets out: a number, a shape, or how many random numbers are
    drawn; None for nothing.
    """
    if not operation.gives_tensors and not operation.is_geometry:
        return "lets what records made leave for Python"
    if operation.name == "one_hot" and arguments.get("num_classes", -1) == -1:
        return "makes a shape that depends on records"
    if operation.dynamic_shape or (
        operation.name in ("index", "index_put") and _by_mask(arguments, states)
    ):
        return "makes a shape that depends on records"
    if operation.draws_by_value:
        return "draws as many random numbers as records ask for"
    return None


def is_within_bounds(operation: Operation, arguments: Mapping[str, Any]) -> bool:
    """Whether indices that a kernel believes name places that exist; the one number that stands for
    none is allowed.

    They come from a forward kernel or were checked by it, but somebody may have written into them
    since.
    """
    name, first, last = operation.bounded or ("", 0, 0)
    indices, scores = arguments.get(name), arguments.get("self")
    if indices is None or scores is None or not indices.numel():
        return True
    limit = prod(scores.shape[first:last]) if scores.ndim > 1 else scores.shape[0]
    with out_of_sight():
        out_of_range = (indices < 0) | (indices >= limit)
        if "ignore_index" in arguments:
            out_of_range &= indices != arguments["ignore_index"]
        return not bool(out_of_range.any())


def _by_mask(arguments: Mapping[str, Any], states: Mapping[int, State]) -> bool:
    """Whether a tensor is indexed by truth values that depend on records."""
    return any(
        tensor.dtype in (torch.bool, torch.uint8) and not is_public(states.get(id(tensor), PUBLIC))
        for tensor in tensors_among(arguments.get("indices"))
    )


def targets_of_records(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> Iterator[Tensor]:
    """Tensors into which an operation writes what it computes from records, whether its schema says
    so or not.
    """
    sources = [
        tensor
        for name, value in arguments.items()
        if name not in operation.written
        for tensor in tensors_among(value)
    ]
    if all(is_public(states.get(id(tensor), PUBLIC)) for tensor in sources):
        return
    yield from written_by(operation, arguments)
    yield from undeclared_by(operation, arguments)


def caught_error(operation: str) -> ModelError:
    """The refusal of a loss that went on after an error."""
    return ModelError(
        expected="a loss that does not catch errors of operations on records",
        got=f"one that caught an error of {operation}, which a record may have caused",
        do=(
            "Make every entry valid before the run begins (labels and indices in range), or use "
            "clamp and where."
        ),
    )


def depends_on_kept(why: str) -> CoupledRecords:
    """The refusal of what depends on an earlier pass, or on the data set."""
    return CoupledRecords(
        expected="a loss that depends on the records of its own batch, and on released values",
        got=f"one that depends on {why}",
        do="Keep nothing that was computed from records between passes (caches, banks, running "
        "values), and take statistics of "
        "the data set from a private query; detach() does not make a value public.",
    )


def keeps_records(what: str, where: str, layer: str) -> CoupledRecords:
    """The refusal of a write."""
    return CoupledRecords(
        expected="a pass that keeps nothing of its records",
        got=f"{what} what records made into {where}{layer}",
        do="Keep no running values, banks or caches of records (in buffers, frozen parameters or "
        "attributes): they would be "
        "released without noise. Normalisation layers: track_running_stats=False, or eval mode.",
    )


def layer_of(names: Mapping[int, str]) -> str:
    """The innermost module of these whose `forward` is running; empty if there is none."""
    # Only where something failed, for the message.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == "forward":
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and id(module) in names:
                return f"layer {names[id(module)]!r}" if names[id(module)] else "model"
        frame = frame.f_back
    return ""


def _within_bounds(
    args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments of a sequence loss with labels and lengths that exist.

    For others torch's kernel writes out of bounds, into the gradients of other records, or ends the
    process.
    """
    names = ("log_probs", "targets", "input_lengths", "target_lengths")
    arguments = dict(zip(names, args, strict=False)) | kwargs
    scores, targets = arguments["log_probs"], arguments["targets"]
    limits = {"targets": scores.shape[-1] - 1, "input_lengths": scores.shape[0]}
    if targets.ndim > 1:
        limits["target_lengths"] = targets.shape[1]
    bounded = {
        name: arguments[name].clamp(0, limit)
        for name, limit in limits.items()
        if isinstance(arguments[name], Tensor) and limit >= 0
    }
    return [bounded.get(name, arguments[name]) for name in names[: len(args)]] + list(
        args[len(names) :]
    ), kwargs | {name: value for name, value in bounded.items() if name in kwargs}


def _in_own_places(
    args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments of a median without entries that share their memory.

    torch's kernel sorts a copy that has the strides of its argument: of an expanded tensor come
    entries of neighbours, or what was in the memory before.
    """
    if args:
        return (args[0].contiguous(), *args[1:]), kwargs
    name = "self" if "self" in kwargs else "input"
    return args, kwargs | {name: kwargs[name].contiguous()}


MENDED = {"ctc_loss": _within_bounds, "median": _in_own_places, "nanmedian": _in_own_places}
"""Functions whose kernels need other arguments, or they would reach into memory of other records.
"""
