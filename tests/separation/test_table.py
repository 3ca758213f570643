"""What the table names exists in torch, and what torch newly tags as pointwise is named."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest
import torch

from discreet.training.separation.table import RULES, kinds

POINTWISE = Path(__file__).parent / "pointwise-2.13.txt"
MODULES = (
    "along",
    "convolution",
    "elementwise",
    "embedding",
    "indexing",
    "joining",
    "losses",
    "normalisation",
    "products",
    "sequences",
)
pinned = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="names of operations in torch 2.13"
)


def _operations() -> dict[str, list[str]]:
    """Overloads of each operation of ATen."""
    names: dict[str, list[str]] = {}
    for full_name in torch._C._dispatch_get_all_op_names():
        if full_name.startswith("aten::"):
            base, _, overload = full_name.removeprefix("aten::").partition(".")
            names.setdefault(base, []).append(overload or "default")
    return names


def _exists(name: str, operations: dict[str, list[str]]) -> bool:
    """Whether a functional name, perhaps with an overload, is that of an operation."""
    base, _, overload = name.partition(".")
    overloads = [*operations.get(base, []), *operations.get(f"{base}_", [])]
    return overload in overloads if overload else bool(overloads)


def _tagged() -> set[str]:
    """Overloads that torch tags as working entry by entry."""
    return {
        f"{base}.{overload}"
        for base, overloads in _operations().items()
        for overload in overloads
        if torch.Tag.pointwise in getattr(getattr(torch.ops.aten, base), overload).tags
    }


def test_operations_that_torch_newly_tags_as_pointwise_are_named() -> None:
    """They get the rule `pointwise` at once: see that each works entry by entry, then list it."""
    new = sorted(_tagged() - set(POINTWISE.read_text().splitlines()))
    assert new == [], f"new in torch {torch.__version__}: {new}"


@pinned
def test_every_rule_is_of_an_operation() -> None:
    operations = _operations()
    unknown = [name for name in RULES if name != "pointwise" and not _exists(name, operations)]
    assert unknown == []


@pinned
def test_every_special_operation_exists() -> None:
    operations = _operations()
    for kind in kinds.__all__:
        names = getattr(kinds, kind)
        unknown = [name for name in names if not _exists(name, operations)]
        assert unknown == [], kind


@pytest.mark.parametrize("kind", ["RANDOM", "SHAPE_ONLY"])
def test_of_a_tensor_only_the_shape_is_taken(kind: str) -> None:
    """No overload takes another tensor, whose values could matter."""
    operations = _operations()
    for name in getattr(kinds, kind):
        base, _, only = name.partition(".")
        for form in (base, f"{base}_"):
            for overload in operations.get(form, []):
                schema = getattr(getattr(torch.ops.aten, form), overload)._schema
                tensors = [
                    argument.name
                    for argument in schema.arguments
                    if "Tensor" in str(argument.type) and argument.name != "out"
                ]
                assert overload != (only or overload) or len(tensors) <= 1, schema


def test_no_operation_has_two_rules() -> None:
    package = "discreet.training.separation.table"
    modules = [importlib.import_module(f"{package}.{name}") for name in MODULES]
    times = Counter(name for module in modules for name in module.RULES)
    assert [name for name, count in times.items() if count > 1] == []
    assert set(times) == set(RULES)
