"""Ways by which an operation could let something of a record out of a pass, other than by its
results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from types import FrameType
from typing import Any

import numpy as np
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
    "keeps_records",
    "layer_of",
    "leak_of",
    "require_bounds",
    "targets_of",
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
    return _tensors_of(operation.written, arguments)


def undeclared_by(operation: Operation, arguments: Mapping[str, Any]) -> list[Tensor]:
    """Tensors that an operation writes although its schema does not say so: running statistics, in
    training.
    """
    # Kernels have one name or the other for it; one without either always writes.
    is_training = arguments.get("training", arguments.get("train", True))
    return _tensors_of(operation.undeclared, arguments) if is_training else []


def targets_of(operation: Operation, arguments: Mapping[str, Any]) -> list[Tensor]:
    """All tensors that an operation writes, whether its schema says so or not."""
    return [*written_by(operation, arguments), *undeclared_by(operation, arguments)]


def _tensors_of(names: Iterable[str], arguments: Mapping[str, Any]) -> list[Tensor]:
    """Tensors among the arguments of these names."""
    return [tensor for name in names for tensor in tensors_among(arguments.get(name))]


def leak_of(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> str | None:
    """What an operation on records lets out: a number, a shape, or how many random numbers are
    drawn; None for nothing.
    """
    if not operation.gives_tensors and not operation.is_geometry:
        return "lets what records made leave for Python"

    # Shapes are public: whatever Python decides by them must not follow a record.
    if operation.dynamic_shape or _is_sized_by_values(operation, arguments, states):
        return "makes a shape that depends on records"

    # Records that come later in the pass would be given other random numbers.
    if operation.draws_by_value:
        return "draws as many random numbers as records ask for"

    return None


def _is_sized_by_values(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> bool:
    """Whether numbers of records decide the size of a result, by how the operation is called."""
    if operation.name == "one_hot":  # by default, as many classes as the largest label asks for
        return bool(arguments.get("num_classes", -1) == -1)

    if operation.name in ("index", "index_put"):
        return _by_mask(arguments, states)

    return False


def _by_mask(arguments: Mapping[str, Any], states: Mapping[int, State]) -> bool:
    """Whether a tensor is indexed by truth values that depend on records."""
    indices = tensors_among(arguments.get("indices"))
    masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
    return not _are_public(masks, states)


def _are_public(tensors: Iterable[Tensor], states: Mapping[int, State]) -> bool:
    """Whether none of these tensors depends on a record."""
    return all(is_public(states.get(id(tensor), PUBLIC)) for tensor in tensors)


def require_bounds(operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Require of indices that a kernel believes that they name places that exist.

    They come from a forward kernel or were checked by it, but somebody may have written into them
    since, and the kernel would write into the gradients of other records.

    Raises:
        IndexError: a place does not exist; the forward kernel raises such an error too.
    """
    name, first, last = operation.bounded or ("", 0, 0)
    indices, scores = arguments.get(name), arguments.get("self")
    if indices is None or scores is None or not indices.numel():
        return

    # Scores of a single record have no axis but that of the classes.
    limit = prod(scores.shape[first:last]) if scores.ndim > 1 else scores.shape[0]

    with out_of_sight():
        # Nearly always all of them are places, which one number tells.
        if _largest(indices) < limit:
            return

        out_of_range = (indices < 0) | (indices >= limit)
        # One number, which may be negative, stands for no place at all.
        if "ignore_index" in arguments:
            out_of_range &= indices != arguments["ignore_index"]

        if bool(out_of_range.any()):
            raise IndexError(f"an index of {operation.full_name} is out of range")


def _largest(indices: Tensor) -> int:
    """The largest of some indices, of which those below zero count as larger than all others."""
    # Several times faster than torch finds the least and the largest of int64.
    if indices.device.type == "cpu" and indices.dtype is torch.int64:
        return int(indices.detach().numpy().view(np.uint64).max())

    smallest, largest = torch.aminmax(indices)
    return int(largest) if int(smallest) >= 0 else sys.maxsize


def targets_of_records(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> Iterator[Tensor]:
    """Tensors into which an operation writes what it computes from records, whether its schema says
    so or not.
    """
    # What is written over tells nothing by itself: `x.zero_()` writes no records.
    sources = [name for name in arguments if name not in operation.written]
    if _are_public(_tensors_of(sources, arguments), states):
        return

    yield from targets_of(operation, arguments)


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
        "values), and take statistics of the data set from a private query; detach() does not make "
        "a value public.",
    )


def keeps_records(what: str, where: str, layer: str) -> CoupledRecords:
    """The refusal of a write of records into memory from before the pass."""
    return CoupledRecords(
        expected="a pass that keeps nothing of its records",
        got=f"{what} what records made into {where}{layer}",
        do="Keep no running values, banks or caches of records (in buffers, frozen parameters or "
        "attributes): they would be released without noise. Normalisation layers: "
        "track_running_stats=False, or eval mode.",
    )


def layer_of(names: Mapping[int, str]) -> str:
    """The innermost module of these whose `forward` is running; empty if there is none."""
    # Only where something failed, for the message.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001

    while frame is not None:
        if frame.f_code.co_name == "forward":
            module = frame.f_locals.get("self")
            name = names.get(id(module)) if isinstance(module, nn.Module) else None
            if name is not None:
                return f"layer {name!r}" if name else "model"  # the model itself has no name

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

    # Lengths may also be numbers of Python, which hold nothing of a record.
    for name, limit in limits.items():
        if isinstance(arguments[name], Tensor) and limit >= 0:
            arguments[name] = arguments[name].clamp(0, limit)

    by_place = [arguments[name] for name in names[: len(args)]]
    by_name = {name: arguments[name] for name in kwargs}
    return [*by_place, *args[len(names) :]], by_name


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
