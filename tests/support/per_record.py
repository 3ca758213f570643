"""The batch-of-one oracle: torch's own gradients, one record at a time, and a comparison of the
engine with them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discreet.training.data.trees import select
from discreet.training.engine import Engine, Loss
from discreet.training.factors.factors import Factor
from discreet.training.passes.contributions import Contributions
from discreet.training.rounding.precision import most_spread

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 4e-3}
"""Of norms and sums, relative to the largest leaf of the record."""


def computed(
    engine: Engine, loss: Loss, batch: Any, records: int, present: int | None = None
) -> list[tuple[Contributions, dict[str, Tensor]]]:
    """Copies of what the passes of an engine contribute, which erases it afterwards."""
    count = records if present is None else present
    return [copy.deepcopy(pair) for pair in engine.passes(loss, batch, records, count)]


def oracle(model: nn.Module, loss: Loss, batch: Any, records: int) -> dict[str, Tensor]:
    """Gradients of every record by itself, (m, *shape) float64, by leaf."""
    parameters = {f"grad/{name}": p for name, p in model.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {leaf: [] for leaf in parameters}
    for row in range(records):
        result = loss(model, select(batch, torch.tensor([row])))
        losses = result[0] if isinstance(result, tuple) else result
        gradients = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
        for (leaf, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            value = torch.zeros_like(parameter) if gradient is None else gradient
            found[leaf].append((value.to_dense() if value.is_sparse else value).double())
    return {leaf: torch.stack(rows) for leaf, rows in found.items()}


def squares(gradients: Tensor) -> Tensor:
    """|G_i|^2."""
    return gradients.reshape(gradients.shape[0], math.prod(gradients.shape[1:])).square().sum(1)


def sums(contributions: Contributions, leaf: str, numel: int, weights: Tensor) -> Tensor:
    """sum_i w_i G_i of one leaf, flat."""
    total = torch.zeros(numel, dtype=torch.float64)
    for piece in contributions.pieces.get(leaf, ()):
        piece.factor.add_to(
            piece.place_in(total), weights, most_spread(max(1, piece.factor.positions))
        )
    return total


def assert_factor(factor: Factor, gradients: Tensor, tolerance: float) -> None:
    """Norms, spreads, sums and the dense form of a factor are those of the gradients (m, *shape),
    float64.
    """
    true = squares(gradients)
    norms, spreads = factor.measured()
    assert (factor.records, norms.dtype, norms.shape) == (
        len(gradients),
        torch.float64,
        (len(gradients),),
    )
    assert torch.all(norms >= true * (1 - 1e-14))
    assert torch.all(norms <= spreads * (1 + 1e-12))
    assert torch.all(
        norms - true <= tolerance * spreads + 1e-30
    )  # zeros may have a bound above zero
    weights = torch.linspace(0.2, 1.0, len(gradients), dtype=torch.float64)
    total = torch.zeros(gradients.shape[1:], dtype=torch.float64)
    factor.add_to(total.view(factor.shape), weights, most_spread(max(1, factor.positions)))
    assert torch.all(
        (total - torch.tensordot(weights, gradients, 1)).abs()
        <= tolerance * spreads.sqrt().sum() + 1e-300
    )
    dense = factor.dense().values.double().reshape(gradients.shape)
    assert torch.all(squares(dense - gradients) <= tolerance**2 * spreads + 1e-300)


@dataclass(frozen=True)
class Compared:
    """How a comparison went."""

    engine: Engine
    contributions: Contributions
    gradients: dict[str, Tensor]


def compare(
    model: nn.Module, loss: Loss, batch: Any, *, form: str | None = None, loop: bool | None = False
) -> Compared:
    """The engine gives what the oracle gives, in two passes (the second with forms chosen and uses
    counted).

    Args:
        model: on the CPU.
        loss: one value for each record.
        batch: sensitive.
        form: of factors; None for the fastest.
        loop: whether records must be computed one by one; None: may be.
    """
    records = _rows(batch)
    engine = Engine(model, form=form)
    want = oracle(model, loss, batch, records)
    kinds = {parameter.dtype for parameter in engine.parameters.values()}
    tolerance = max(TOLERANCE[kind] for kind in kinds)
    for _ in range(2):
        passes = computed(engine, loss, batch, records)
        if loop is not None:
            assert (engine.one_by_one is not None) == loop, engine.one_by_one
        if engine.one_by_one is None:
            ((contributions, _),) = passes
            check_contributions(engine, contributions, want, tolerance)
        else:
            assert len(passes) == records
            for row, (one, _) in enumerate(passes):
                check_contributions(
                    engine, one, {leaf: g[row : row + 1] for leaf, g in want.items()}, tolerance
                )
    return Compared(engine, passes[0][0], want)


def check_contributions(
    engine: Engine, found: Contributions, want: dict[str, Tensor], tolerance: float
) -> None:
    """Squared norms and weighted sums of every leaf.

    A leaf whose gradient is zero in truth (a key bias) holds rounding noise in both, so everything
    is relative to the largest leaf norm of the record. What the oracle itself rounds is a few units
    of its precision. A norm that is computed without the gradient may be above the truth by about 2
    (p + q + T) u S^2, S the spread; written out, it may not.
    """
    records = next(iter(want.values())).shape[0]
    true = torch.stack([squares(want[leaf]) for leaf in engine.leaves], 1)
    norms, spreads = found.measured(engine.leaves)
    largest = true.max(1, keepdim=True).values
    unit = tolerance * largest + 1e-30
    assert torch.all(torch.isfinite(norms))
    assert torch.all(true - norms <= unit), _worst(engine.leaves, (true - norms) / unit)
    assert torch.all(norms - true <= 100 * unit + 4 * tolerance * spreads), _worst(
        engine.leaves, (norms - true) / unit
    )
    formed = torch.stack([_formed(found, leaf) for leaf in engine.leaves], 1)
    assert torch.all((formed - true).abs() <= unit), _worst(engine.leaves, (formed - true) / unit)
    weights = torch.linspace(0.3, 1.0, records, dtype=torch.float64)
    for leaf, parameter in engine.parameters.items():
        total = sums(found, leaf, parameter.numel(), weights)
        expected = torch.tensordot(weights, want[leaf], 1).reshape(-1)
        error = (total - expected).norm().item() / (largest.sqrt().sum().item() * tolerance + 1e-30)
        assert error <= 1.0, (leaf, error)


def _formed(found: Contributions, leaf: str) -> Tensor:
    """Squared norms of the gradients, written out."""
    rows = [one.factor.dense().values.double() for one in found.pieces.get(leaf, ())]
    return (
        torch.stack([squares(row) for row in rows]).sum(0)
        if rows
        else torch.zeros(found.records, dtype=torch.float64)
    )


def _worst(leaves: Iterable[str], ratios: Tensor) -> str:
    return ", ".join(
        f"{leaf} {ratio:.3g}"
        for leaf, ratio in zip(leaves, ratios.max(0).values.tolist(), strict=True)
    )


def _rows(batch: Any) -> int:
    first = batch
    while not isinstance(first, Tensor):
        first = next(iter(first.values() if isinstance(first, dict) else first))
    return first.shape[0]
