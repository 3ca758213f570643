"""What lets a number of a record out to Python is seen, whatever it is called; what tells shapes is
not.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.doors import Doors, opened
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows

OUT: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0, 0]),
    "int": lambda x: int(x[0, 0]),
    "truth": lambda x: bool(x.any()),
    "if": lambda x: 1 if (x > 0).all() else 2,
    "index": lambda x: [1, 2, 3][x.argmax() % 3],
    "range": lambda x: range(x.long().abs().max() % 5),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "numpy function": np.sin,
    "repr": repr,
    "format": lambda x: f"{x.sum():.3f}",
    "equal": lambda x: torch.equal(x, x + 1),
    "allclose": lambda x: torch.allclose(x, x + 1),
    "contains": lambda x: 0.5 in x,
    "iteration to Python": lambda x: [float(entry) for row in x for entry in row],
    "data_ptr": lambda x: x.data_ptr(),
    "storage": lambda x: x.untyped_storage().tolist(),
    "dlpack": lambda x: x.__dlpack__(),
    "pickle": pickle.dumps,
    "save": lambda x: torch.save(x, io.BytesIO()),
    "deepcopy": copy.deepcopy,
    "apply_": lambda x: x.clone().apply_(lambda entry: entry),
    "map_": lambda x: x.clone().map_(x, lambda one, other: one + other),
    "torch.tensor": lambda x: torch.tensor([x[0, 0], x[0, 1]]),
    "new_tensor": lambda x: torch.zeros(2).new_tensor([x[0, 0]]),
    "tensor_split by a tensor": lambda x: torch.tensor_split(x, x.argmax(1)[:1].cpu()),
    "nonzero": lambda x: (x > 0).nonzero(),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: x.long().unique(),
    "repeat_interleave": lambda x: torch.repeat_interleave(
        torch.ones(12), (x.flatten() > 0).long()
    ),
    "one_hot of unknown classes": lambda x: functional.one_hot(x.long().abs()),
    "bincount": lambda x: x.long().abs().flatten().bincount(),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "split sizes": lambda x: torch.split(torch.ones(4), x.long().abs().sum(1).clamp(1, 2).tolist()),
    "poisson": lambda x: torch.poisson(x.abs()),
}

METADATA: dict[str, Callable[[Any], Any]] = {
    "shape": lambda x: (x.shape, x.size(0), x.dim(), x.numel(), len(x), x.stride()),
    "kind": lambda x: (
        x.dtype,
        x.device,
        x.is_floating_point(),
        x.is_contiguous(),
        x.requires_grad,
    ),
    "loop over rows": lambda x: [row.sum() for row in x.unbind(1)],
    "one_hot with classes": lambda x: functional.one_hot(x.long().clamp(0, 2), 3),
    "pad": lambda x: functional.pad(x, (0, 2)),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "mT": lambda x: x.mT,
    "as_tensor of a tensor": torch.as_tensor,
    "hash": lambda x: {x: 1}[x],
}


def looked_at(function: Callable[[Tensor], Any]) -> Proof:
    """What is left after a function of three records: the proof, failed or not."""
    proof = Proof(3)
    x = proof.begin(torch.tensor([[0.5, 2.0, -1.0, 3.0]]).repeat(3, 1), Rows(0))
    with proof, Doors(proof), suppress(OneByOne, RuntimeError, TypeError, ValueError):
        function(x)
    return proof


@pytest.mark.parametrize("name", OUT)
def test_p09_what_leaves_for_python_fails_the_pass(name: str) -> None:
    proof = looked_at(OUT[name])
    assert proof.failure is not None
    with pytest.raises(OneByOne):
        proof.check()


@pytest.mark.parametrize("name", METADATA)
def test_shapes_and_kinds_are_no_doors(name: str) -> None:
    assert looked_at(METADATA[name]).failure is None


@pytest.mark.parametrize(
    "name", ["item", "tolist", "repr", "numpy", "mask", "torch.tensor", "deepcopy"]
)
def test_public_tensors_may_leave(name: str) -> None:
    constant, proof = torch.tensor([[0.5, 2.0, -1.0, 3.0]]).repeat(3, 1), Proof(3)
    with proof, Doors(proof):
        OUT[name](constant)
    assert proof.failure is None


def test_functions_in_python_are_looked_into_without_their_guards() -> None:
    inside: Any = opened(functional.layer_norm)
    assert inside is not functional.layer_norm
    assert inside.__code__ is functional.layer_norm.__code__
    assert opened(functional.layer_norm) is inside
    x = torch.randn(2, 3)
    assert torch.equal(inside(x, (3,)), functional.layer_norm(x, (3,)))
    assert opened(torch.add) is None
    assert opened(lambda x: x) is None


def test_hooks_of_the_backward_pass_are_watched() -> None:
    proof = Proof(3)
    x = proof.begin(torch.ones(3, 2), Rows(0)).requires_grad_()
    seen: list[float] = []
    with proof, Doors(proof):
        y = x * 2
        y.register_hook(lambda gradient: seen.append(float(gradient.sum())))  # type: ignore[no-untyped-call]
        with pytest.raises((OneByOne, RuntimeError)):
            torch.autograd.grad((y * y).sum(), x)
    assert proof.failure is not None
    assert seen == []
