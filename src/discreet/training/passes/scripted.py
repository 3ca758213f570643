"""What a function of TorchScript may do during a pass: a list of what is allowed.

The interpreter of TorchScript calls operations of torch, which the proof sees, and nodes of its
own, which nobody sees: some turn tensors into lists and texts, others count in attributes. So a
function is looked into, with all that it calls, before it runs. Allowed are operations that the
dispatcher knows, nodes that move values around or tell metadata, and what works on numbers alone: a
number was public, or was read by an operation that the proof sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch

from discreet.training.separation.doors import is_kernel, reads_by_itself

__all__ = ["unseen_in"]


def _nodes_of(namespace: str, names: str) -> frozenset[str]:
    return frozenset(f"{namespace}::{name}" for name in names.split())


_NODES = _nodes_of(
    "prim",
    """
    Constant If Loop Uninitialized unchecked_cast unchecked_unwrap_optional RaiseException GetAttr
    CreateObject ListConstruct ListUnpack TupleConstruct TupleUnpack TupleIndex TupleSlice
    DictConstruct isinstance NumToTensor device dtype layout type index requires_grad grad_fn
    is_cuda is_cpu is_sparse is_nested is_meta data min max abs rangelist EnumName EnumValue
    ModuleContainerIndex StringIndex
    """,
)
"""Nodes that move values around, or tell metadata."""

_MOVES = _nodes_of(
    "aten",
    """
    __getitem__ _set_item append extend insert pop clear reverse list dict keys values items len
    Delete get setdefault update popitem __is__ __isnot__ size dim numel device is_floating_point
    Int Float Bool Complex IntImplicit FloatImplicit ComplexImplicit ScalarImplicit item
    """,
)
"""Operations of TorchScript alone that take tensors and do not look into them, or ask the
dispatcher for numbers.
"""

_CREATED = _nodes_of("prim", "CreateObject DictConstruct ListConstruct rangelist") | _nodes_of(
    "aten", "dict items keys list values"
)
"""Nodes that make a container or an object, which a function may then change as it likes."""

_OPAQUE = ("Tensor", "Any", "__torch__", "Future", "RRef", "PyObject", "Capsule")
"""In the names of types whose values may hold tensors."""

_found: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def unseen_in(function: Any) -> str:
    """The first node of a scripted function, or of what it calls, that is not allowed; empty if
    there is none.
    """
    # A graph does not change once it is compiled: it is looked into once, not in every pass.
    known = _found.get(function)
    if known is None:
        graph = function.graph.copy()
        torch._C._jit_pass_inline(graph)  # noqa: SLF001  (functions and modules that it calls)

        unseen = (node.kind() for node in _nodes(graph) if not _is_allowed(node))
        known = _found[function] = next(unseen, "")

    return known


def _nodes(block: Any) -> Iterator[Any]:
    """All nodes of a block, those within branches and loops included."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_allowed(node: Any) -> bool:
    kind: str = node.kind()
    namespace, _, name = kind.partition("::")

    # What the interpreter does by itself, and is not in the list, is not believed.
    if namespace == "prim":
        return kind in _NODES or (kind == "prim::SetAttr" and _is_created_here(node))

    # The proof sees it and has a rule, or none. Of torch's own operations some read numbers below
    # the dispatcher, and others trust their arguments: they are no more allowed than from Python.
    schema: str = node.schema()
    if kind not in _MOVES and schema.partition("(")[0] in _dispatched():
        return namespace != "aten" or not (is_kernel(name) or reads_by_itself(name))

    # What writes into something else than a tensor, by its schema.
    if "!" in schema and not _is_created_here(node):
        return False

    # Arithmetic of numbers and texts: where no tensor goes in, no record does.
    is_arithmetic = namespace == "aten" and not any(map(_may_hold_tensors, node.inputs()))
    return kind in _MOVES or is_arithmetic


def _is_created_here(node: Any) -> bool:
    """Whether what a node changes was made in the same call.

    Attributes of scripted modules are out of Python's sight. What they count would move with every
    pass, and how many passes a step has depends on its sample.
    """
    return next(node.inputs()).node().kind() in _CREATED


def _may_hold_tensors(value: Any) -> bool:
    # In the whole name of the type: lists, tuples and optional values of tensors count, too.
    kind: str = value.type().str()
    return any(word in kind for word in _OPAQUE)


@cache
def _dispatched() -> frozenset[str]:
    """Names of all operations that the dispatcher knows, with overloads."""
    return frozenset(torch._C._dispatch_get_all_op_names())  # noqa: SLF001
