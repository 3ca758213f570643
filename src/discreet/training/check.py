"""Can this model train privately? All problems at once, each with where it is and how to mend it.

Nothing is released or charged. The model, its buffers, its gradients and torch's random numbers are left as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from discreet.errors import DiscreetError, ModelError
from discreet.training.alone import losses_of
from discreet.training.augmentation import Augmented
from discreet.training.culprit import CANNOT_BEAR, coupled_layer, keeping_statistics, over_the_batch, replacement
from discreet.training.engine import Engine, Loss, trained
from discreet.training.perturbation import another
from discreet.training.quiet import plain_forward
from discreet.training.rows import count_rows, select
from discreet.training.watching import Unclear

__all__ = ["Problem", "Problems", "check"]

_HALF = (torch.bfloat16, torch.float16)
_FEW = 3
_FUNCTIONAL = ("input", "running_mean", "running_var", "weight", "bias")  # arguments of batch_norm, in their two orders
_NATIVE = ("input", "weight", "bias", "running_mean", "running_var")
_OF_BATCH = {"batch_norm": "training", "instance_norm": "use_input_stats"}
_OWN_MEAN = 'Use reduction="none", and average over the positions of each record, not over records.'


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend, or (`refused` false) to know.

    Args:
        where: a layer, a parameter, the loss or the batch.
        what: is the matter.
        fix: what to do.
        refused: whether training would be refused.
    """

    where: str
    what: str
    fix: str
    refused: bool = True


@final
@dataclass(frozen=True, slots=True)
class Problems:
    """Everything that was found, what is refused first.

    >>> print(Problems(()))
    Ready for private training.
    """

    found: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether training would start."""
        return not any(problem.refused for problem in self.found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        refused = [problem for problem in self.found if problem.refused]
        head = f"{len(refused)} to mend before private training:" if refused else "Ready for private training."
        lines = [head]
        for problem in self.found:
            mark = "-" if problem.refused else "  note:"
            lines.append(f"{mark} {problem.where}: {problem.what}\n    {problem.fix}")
        return "\n".join(lines)


def check(model: nn.Module, batch: Any, loss: Loss) -> Problems:
    """List what keeps a model, a loss and a batch from private training.

    Looked at: layers that normalise over the batch or keep statistics of records; whether one record changes what another
    contributes (tried on three records; a coupling upstream hides those downstream of it); shape of the loss and of the
    batch; parameters that are not real numbers, not used or not trained; what has to be computed record by record.

    Args:
        model: in the mode it will train in.
        batch: a few records, at least two that differ; sensitive. No number of it appears in the list.
        loss: (model, batch) to one loss for each record.

    >>> model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    >>> print(check(model, torch.eye(2), lambda model, x: model(x).mean()))
    2 to mend before private training:
    - layer '1': BatchNorm1d uses statistics of the whole batch, so every record changes all others
        model.set_submodule("1", torch.nn.GroupNorm(1, 4)); or put it in eval mode, or plan a group "bn/*".
    - the loss: one number for the whole batch, not one for each record
        Use reduction="none", and average over the positions of each record, not over records.
    """
    found = [*_of_layers(model), *_of_parameters(model), *_of_rows(batch)]
    parameters = trained(model)
    counts = count_rows(batch)
    if parameters and len(counts) == 1 and counts != {0} and not any(map(torch.is_complex, parameters.values())):
        found += _of_passes(model, batch, loss)
    return Problems(tuple(sorted(found, key=lambda problem: not problem.refused)))


def _of_layers(model: nn.Module) -> Iterator[Problem]:
    for name, layer in over_the_batch(model).items():
        what = f"{type(layer).__name__} uses statistics of the whole batch, so every record changes all others"
        instead = replacement(name, int(layer.num_features)) if name else "Use GroupNorm"  # type: ignore[arg-type]
        kept = '; or put it in eval mode, or plan a group "bn/*"' if layer.running_mean is not None else ""
        yield Problem(_layer(name), what, f"{instead}{kept}.")
    for name, layer in keeping_statistics(model).items():
        what = f"{type(layer).__name__} writes statistics of the records into its buffers, without noise"
        yield Problem(_layer(name), what, "Use track_running_stats=False.")
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse and layer.weight.requires_grad:
            what = "sparse gradients would show which rows were looked up; private gradients are dense"
            yield Problem(_layer(name), what, "Use an optimizer for dense gradients, and sparse=False.", refused=False)


def _of_parameters(model: nn.Module) -> Iterator[Problem]:
    parameters = trained(model)
    if not parameters:
        yield Problem("the model", "no parameter requires a gradient", "Call requires_grad_() on what is to be trained.")
    for leaf, parameter in parameters.items():
        if parameter.is_complex():
            yield Problem(_name(leaf), "complex numbers", "Hold real and imaginary part as two real parameters.")
    half = [_name(leaf) for leaf, parameter in parameters.items() if parameter.dtype in _HALF]
    if half:
        what = "half precision: clipping, sums and noise are computed in float32 and float64, then rounded to these parameters"
        yield Problem(_some(half), what, "Prefer float32 parameters with autocast: small steps are not lost.", refused=False)


def _of_rows(batch: Any) -> Iterator[Problem]:
    counts = count_rows(batch)
    if len(counts) != 1:
        what = "tensors with different numbers of rows" if counts else "no tensor with rows"
        yield Problem("the batch", what, "Collate one row for each record; keep constants out of the batch.")
    elif counts == {0}:
        yield Problem("the batch", "no records", "Pass a batch with a few records.")


def _of_passes(model: nn.Module, batch: Any, loss: Loss) -> list[Problem]:
    """What the passes show, with batch normalisation set aside so that the rest is seen too."""
    (records,) = count_rows(batch)
    few = select(batch, torch.arange(max(_FEW, min(records, 8))) % records)

    def eased(network: Any, rows: Any) -> Any:
        with _SetAside():
            return one(network, rows)

    one = loss.loss if isinstance(loss, Augmented) else loss
    its: Loss = replace(loss, loss=eased) if isinstance(loss, Augmented) else eased
    try:
        with plain_forward(model):
            result = its(model, few)
    except DiscreetError as error:
        return [Problem("the loss", error.got, error.do)]
    except CANNOT_BEAR as error:
        return [Problem("the loss", f"raises {type(error).__name__}", "Run loss(model, batch) by itself first.")]
    wrong = _of_shape(losses_of(result), next(iter(count_rows(few))))
    return wrong + _of_forward(model, few, its) if wrong else _of_engine(model, few, its)


def _of_shape(losses: Any, records: int) -> list[Problem]:
    if not isinstance(losses, Tensor):
        return [Problem("the loss", f"{type(losses).__name__}, not a tensor", _OWN_MEAN)]
    if not losses.ndim:
        return [Problem("the loss", "one number for the whole batch, not one for each record", _OWN_MEAN)]
    if losses.shape != (records,):
        return [Problem("the loss", f"{losses.ndim} axes, or another number of values than records", _OWN_MEAN)]
    if not losses.requires_grad:
        return [Problem("the loss", "does not depend on a trained parameter", "Use the model in it, and do not detach it.")]
    return []


def _of_forward(model: nn.Module, few: Any, loss: Loss) -> list[Problem]:
    """Without losses to compare, only layers: whether a result moves for records that did not."""
    engine = Engine(model)
    rows = select(few, torch.arange(_FEW))
    try:
        structure = engine.learn(loss, few, next(iter(count_rows(few))))
        error = coupled_layer(engine, loss, structure, (rows, [another(rows, few, row) for row in range(_FEW)]))
    except (DiscreetError, Unclear, *CANNOT_BEAR):
        return []
    return [] if error is None else [Problem("one record and another", error.got, error.do)]


def _of_engine(model: nn.Module, few: Any, loss: Loss) -> list[Problem]:
    engine, found = Engine(model), []
    count = next(iter(count_rows(few)))
    try:
        with plain_forward(model):
            for _ in engine.passes(loss, few, count, count):
                pass
    except ModelError as error:
        found.append(Problem("one record and another", error.got, error.do))
    except CANNOT_BEAR as error:
        found.append(Problem("the model", f"raises {type(error).__name__} in a pass over few records", "Please report it."))
    if engine.loop_because is not None:
        what = f"records are computed one by one: {engine.loop_because}"
        found.append(Problem("speed", what, "It is exact, and slow. Use layers of torch.nn where you can.", refused=False))
    unused = _unused(model, few, loss)
    if unused:
        what = "the loss does not depend on it: it would receive noise alone"
        found.append(Problem(_some(unused), what, "Freeze it with requires_grad_(False), or use it.", refused=False))
    return found


def _unused(model: nn.Module, few: Any, loss: Loss) -> list[str]:
    parameters = trained(model)
    with plain_forward(model), torch.enable_grad():
        total = losses_of(loss(model, few)).sum()
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return [_name(leaf) for leaf, gradient in zip(parameters, gradients, strict=True) if gradient is None]


def _layer(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


def _name(leaf: str) -> str:
    return leaf.removeprefix("grad/")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class _SetAside(TorchFunctionMode):
    """Batch normalisation without statistics of the batch, and instance normalisation that keeps none."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("batch_norm", "instance_norm") and (args[5] if len(args) > 5 else named.get(_OF_BATCH[name], True)):
            names = _FUNCTIONAL if func.__module__ == "torch.nn.functional" else _NATIVE
            given = dict(zip(names, args, strict=False)) | named
            x = given["input"]
            return _scaled(
                x if name == "batch_norm" else nn.functional.instance_norm(x), given.get("weight"), given.get("bias")
            )
        return func(*args, **named)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """What is left of the layer: its scales, which are used."""
    ones = (1,) * (x.ndim - 2)
    x = x * 1.0 if weight is None else x * weight.view(1, -1, *ones)
    return x if bias is None else x + bias.view(1, -1, *ones)
