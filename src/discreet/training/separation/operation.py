"""What is fixed about an operation of ATen: names and defaults of its arguments, what it writes,
which rule it has.
"""

from __future__ import annotations

from typing import Any, final

import torch

from discreet.training.separation.marks import preserved
from discreet.training.separation.states import OneByOne
from discreet.training.separation.table import RULES
from discreet.training.separation.table.kinds import (
    BOUNDED,
    DRAWS_BY_VALUE,
    FILLS,
    GEOMETRY,
    IGNORED,
    RANDOM,
    SHAPE_ONLY,
    STATIC_SHAPE,
    UNDECLARED_WRITES,
    UNINITIALISED,
)
from discreet.training.separation.table.operands import Rule

__all__ = [
    "OPERATIONS",
    "TESTED",
    "Operation",
    "forget_operations",
    "operation_of",
    "require_tested_version",
]

TESTED = frozenset({"2.13.0"})
"""Versions of torch on which the table was tried with torch's own database of operators."""


@final
class Operation:
    """Facts of one overload, read off its schema once."""

    __slots__ = (
        "argument_names",
        "bounded",
        "composite",
        "custom",
        "defaults",
        "draws",
        "draws_by_value",
        "dynamic_shape",
        "fills",
        "full_name",
        "gives_tensors",
        "ignored",
        "is_geometry",
        "is_random",
        "is_view",
        "name",
        "only_shapes",
        "overload",
        "pointwise",
        "rule",
        "undeclared",
        "uninitialised",
        "written",
    )

    def __init__(self, func: Any) -> None:
        schema = func._schema  # noqa: SLF001  (how torch itself shows it)
        base = schema.name.split("::")[-1]

        self.overload: str = schema.overload_name or "default"
        self.full_name = f"{schema.name}.{self.overload}".removeprefix("aten::")
        self.argument_names: list[str] = [argument.name for argument in schema.arguments]
        self.defaults = _defaults(schema)
        self.written = _written(schema)

        # Custom operators have "library::" in their names, so that no list of torch's own names has
        # them.
        self.custom = not _is_aten(schema)
        if self.custom:
            base = self.name = str(schema.name)
        else:
            self.name = _functional_name(base, self.written)

        # In the lists an operation stands for all of its overloads, or each by itself; in-place
        # forms that change geometry keep their underscore.
        spellings = {self.name, f"{self.name}.{self.overload}", base}
        self.is_geometry = not spellings.isdisjoint(GEOMETRY)
        self.only_shapes = not spellings.isdisjoint(GEOMETRY | SHAPE_ONLY)
        self.is_random = not spellings.isdisjoint(RANDOM)

        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.draws_by_value = self.name in DRAWS_BY_VALUE
        self.fills = self.name in FILLS
        self.uninitialised = self.name in UNINITIALISED
        self.bounded = BOUNDED.get(self.name)
        self.ignored: tuple[str, ...] = IGNORED.get(self.name, ())
        self.undeclared: tuple[str, ...] = UNDECLARED_WRITES.get(self.name, ())

        # Each of these reads what was set before it.
        self.pointwise = not self.custom and _is_pointwise(func, self.name, self.overload)
        self.rule: Rule | None = self._listed_rule()
        self.composite = self._is_composite(func)
        self.gives_tensors = _gives_tensors(schema, self.written)
        self.dynamic_shape = (
            torch.Tag.dynamic_output_shape in func.tags and self.name not in STATIC_SHAPE
        )
        self.is_view = self._is_plain_view(schema)

    def _is_composite(self, func: Any) -> bool:
        """Whether torch can take it apart into operations that have rules of their own."""
        if self.rule is not None or self.only_shapes:
            return False

        try:
            return bool(func._can_decompose())  # noqa: SLF001  (the only way to ask)
        except RuntimeError:
            return False

    def _is_plain_view(self, schema: Any) -> bool:
        """Whether the only tensor argument is the first one, and all results are views of it, by
        schema.
        """
        # Of a plain view, memory alone tells whose numbers it shows: nothing else has to look.
        is_looked_at = any(
            (
                self.only_shapes,
                self.composite,
                self.dynamic_shape,
                self.written,
                self.rule is not None,
                not self.gives_tensors,
            )
        )
        if is_looked_at or not _gives_one_view(schema):
            return False

        types = [str(argument.type) for argument in schema.arguments]
        tensor_types = [name for name in types if "Tensor" in name]
        return types[:1] == ["Tensor"] == tensor_types

    def _listed_rule(self) -> Rule | None:
        """The rule of the table; for torch's own operations, also that of the tag.

        What a custom operator says of itself is not believed: it needs a rule
        (`register_separation`).
        """
        rule = RULES.get(f"{self.name}.{self.overload}") or RULES.get(self.name)
        if rule is None and self.pointwise:
            return RULES["pointwise"]

        return rule


def _is_aten(schema: Any) -> bool:
    is_core: bool = schema.name.startswith("aten::")
    return is_core


def _defaults(schema: Any) -> dict[str, Any]:
    """Values of the arguments that need not be given, by name."""
    optional = [argument for argument in schema.arguments if argument.has_default_value()]
    return {argument.name: argument.default_value for argument in optional}


def _written(schema: Any) -> list[str]:
    """Names of the arguments that are written, as the schema says."""
    return [argument.name for argument in schema.arguments if argument.is_write]


def _gives_tensors(schema: Any, written: list[str]) -> bool:
    """Whether all that comes of an operation is in tensors: a number would leave for Python."""
    has_results = bool(schema.returns or written)
    return has_results and all("Tensor" in str(returned.type) for returned in schema.returns)


def _gives_one_view(schema: Any) -> bool:
    """Whether the one result is in the memory of an argument, and nothing is written there."""
    if len(schema.returns) != 1:
        return False

    alias = schema.returns[0].alias_info
    return alias is not None and not alias.is_write


def _functional_name(base: str, written: list[str]) -> str:
    """The name of the form that writes nothing: `add` for `add_`, `__and__` for `__iand__`."""
    # With `out=` an operation has the name of the form that writes nothing already.
    if written != ["self"]:
        return base

    if base.startswith("__i") and base.endswith("__"):
        return "__" + base[3:]

    return base if base.endswith("__") else base.removesuffix("_")


def _is_pointwise(func: Any, name: str, overload: str) -> bool:
    """Whether torch tags it so. In-place forms mostly lack the tag; the form that writes nothing
    has it.
    """
    # Names that are no operation of torch, and forms without this overload, have no tags.
    functional = getattr(getattr(torch.ops.aten, name, None), overload, None)
    tags = [*func.tags, *getattr(functional, "tags", ())]
    return torch.Tag.pointwise in tags


OPERATIONS: dict[Any, Operation] = {}
"""Those that were met, by what an overload calls (`_op`), which hashes faster than the overload
itself.
"""


def operation_of(func: Any) -> Operation:
    """The facts of an overload."""
    key = func._op  # noqa: SLF001
    operation = OPERATIONS.get(key)
    if operation is None:
        operation = OPERATIONS[key] = Operation(func)

    return operation


def forget_operations() -> None:
    """Read the table again: a rule was added to it. Not during a pass."""
    OPERATIONS.clear()


def require_tested_version() -> None:
    """On another version nothing is proved: an operation may have changed its meaning.

    Raises:
        OneByOne: the operator database was not run on this version, or it does not keep marks on
            storages.
    """
    version = torch.__version__.split("+")[0]
    if version not in TESTED:
        tested = ", ".join(sorted(TESTED))
        raise OneByOne(
            f"the separation of records was not tested on torch {version}, only on {tested}"
        )

    if not preserved():
        raise OneByOne(
            "this torch does not keep the Python objects of storages, on which the proof rests"
        )
