"""What a function of TorchScript may do: operations that the proof sees, and nothing else."""

from typing import Any

import pytest
import torch

from discreet.training.passes.scripted import unseen_in


def compiled(body: str) -> Any:
    """A function of one tensor, as TorchScript compiles it."""
    return torch.jit.CompilationUnit(f"def f(x: Tensor):\n    {body}\n").f


@pytest.mark.parametrize(
    "body",
    [
        "return x.relu().sum(1)",
        "return x if x.size(0) > 2 else x + 1",
        "return [x, x + 1][0]",
    ],
)
def test_operations_that_the_dispatcher_knows_are_allowed(body: str) -> None:
    assert unseen_in(compiled(body)) == ""


@pytest.mark.parametrize(
    "body",
    [
        "y: List[float] = x.flatten().tolist()\n    return y",
        "print(x)\n    return x",
        "return str(x)",
    ],
)
def test_nodes_that_nobody_sees_are_named(body: str) -> None:
    """They turn tensors into lists and texts without an operation."""
    assert "::" in unseen_in(compiled(body))


def test_what_is_called_is_looked_into_and_so_are_branches() -> None:
    unit = torch.jit.CompilationUnit(
        "def inner(x: Tensor):\n    print(x)\n    return x\n"
        "def outer(x: Tensor, flag: bool):\n    if flag:\n        x = inner(x)\n    return x\n"
    )
    assert unseen_in(unit.outer) == "prim::Print"


def test_a_function_is_looked_into_once() -> None:
    function = compiled("return x.relu()")
    assert unseen_in(function) == unseen_in(function) == ""
