"""One call of an operation, as the rules of the table see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Tensor

from discreet.training.separation.marks import memory_for, out_of_sight, seen_in
from discreet.training.separation.states import FILLED, NOISE, PUBLIC, Mixed, Rows, State, is_public

__all__ = [
    "INSIDE",
    "SUM",
    "Operands",
    "Rule",
    "Unknown",
    "axes_of",
    "overlaps",
    "rules_for",
    "tensors_among",
    "uniform",
]

SUM = Mixed.of("a sum over records")
INSIDE = Mixed.of("what an operation keeps for itself, not told apart by record")


class Unknown(Exception):
    """An operation is used in a way that its rule does not know; the reason, in words. Public."""


def tensors_among(thing: Any) -> list[Tensor]:
    """Tensors among arguments or results, also inside of lists and dictionaries, in their order."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, (list, tuple)):
        return [tensor for part in thing for tensor in tensors_among(part)]
    if isinstance(thing, dict):
        return [tensor for part in thing.values() for tensor in tensors_among(part)]
    return []


def axes_of(dim: int | Sequence[int] | None, ndim: int) -> frozenset[int]:
    """Axes as an argument names them, counted from 0; none named stands for all."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return frozenset(range(ndim))
    several = (dim,) if isinstance(dim, int) else dim
    return frozenset(axis % ndim for axis in several)


def overlaps(tensor: Tensor) -> bool:
    """Whether two entries of a tensor may be in the same place of its memory, as those of an
    expanded one are.
    """
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def uniform(tensor: Tensor, rows: Rows, count: int) -> bool:
    """Whether a public tensor has the same bits for every record, or none for single records."""
    dim = rows.dim
    if count == 1 or dim >= tensor.ndim or tensor.shape[dim] != rows.fold * count:
        return True
    if tensor.stride(dim) == 0 or not tensor.numel():
        return True
    with out_of_sight():
        before, after = tensor.shape[:dim], tensor.shape[dim + 1 :]
        values = tensor.detach().reshape(*before, rows.outer, count, rows.inner, *after)
        if (
            values.is_floating_point() or values.is_complex()
        ):  # by bits: 0.0 and -0.0 are equal, and not the same
            whole = values.contiguous()
            values = whole.view(torch.uint8).reshape(*whole.shape, whole.element_size())
        return bool((values == values.narrow(dim + 1, 0, 1)).all())


@final
class Operands:
    """Arguments, their states, and results of one call.

    No argument is `Mixed`; at least one is `Rows`.

    Args:
        name: of the operation, without its overload, and without the underscore of in-place forms.
        overload: of the operation.
        arguments: by name, with defaults filled in; a float is replaced by NaN, because no rule may
            go by it.
        states: of the tensors among the arguments, by `id`.
        results: what the operation returned, in its order; for shapes only.
        count: records of the pass, at least 2.
        constants: what public arguments held before the operation wrote into them, by `id`.
    """

    __slots__ = (
        "_constants",
        "_states",
        "arguments",
        "assigned",
        "count",
        "looked",
        "name",
        "overload",
        "results",
    )

    def __init__(
        self,
        name: str,
        overload: str,
        arguments: Mapping[str, Any],
        states: Mapping[int, State],
        results: Sequence[Tensor],
        count: int,
        constants: Mapping[int, Tensor],
    ) -> None:
        self.name = name
        self.overload = overload
        self.arguments = arguments
        self.results = results
        self.count = count
        self.assigned: list[
            tuple[Tensor, Rows]
        ] = []  # random numbers that meet records, and along which axis
        self.looked = False  # whether values of public tensors decided: that is not remembered
        self._states = states
        self._constants = constants

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def has(self, name: str) -> bool:
        """Whether the operation has an argument of this name."""
        return name in self.arguments

    @property
    def result(self) -> Tensor:
        """The first result; for its shape only."""
        return self.results[0]

    def state(self, thing: Any) -> State:
        """The state of a tensor, given itself or by name; what is no tensor is public."""
        thing = self.arguments.get(thing) if isinstance(thing, str) else thing
        return self._states.get(id(thing), PUBLIC) if isinstance(thing, Tensor) else PUBLIC

    def tensors(self, names: Iterable[str] | None = None) -> list[Tensor]:
        """Tensors among the arguments of these names, or among all but `out`."""
        chosen = [name for name in self.arguments if name != "out"] if names is None else names
        return [tensor for name in chosen for tensor in tensors_among(self.arguments.get(name))]

    def rows(self, thing: Any) -> Rows | None:
        """Where the records are in a tensor; None if it is public."""
        state = self.state(thing)
        return state if isinstance(state, Rows) else None

    def require_rows(self, name: str) -> Rows:
        """Where the records are in an argument that must have some."""
        rows = self.rows(name)
        if rows is None:
            raise Unknown("no records where they were expected")
        return rows

    def require_public(self, *names: str, why: str = "an argument that depends on records") -> None:
        """Raise `Unknown` unless the tensors of these arguments depend on no record."""
        if not all(is_public(self.state(tensor)) for tensor in self.tensors(names)):
            raise Unknown(why)

    def require_others_public(self, *names: str) -> None:
        """Raise `Unknown` unless all tensor arguments but these depend on no record."""
        remaining = (name for name in self.arguments if name not in names and name != "out")
        self.require_public(*remaining)

    def require_known(self, *names: str, public: Iterable[str] = ()) -> None:
        """Raise `Unknown` if other arguments have tensors, or those in `public` secret ones.

        For rules that look at every tensor: one that they do not know of might have an axis for
        records.
        """
        public = tuple(public)
        known = {id(tensor) for tensor in self.tensors((*names, *public))}
        if any(id(tensor) not in known for tensor in self.tensors()):
            raise Unknown("an argument that its rule does not know")
        self.require_public(*public)

    def values(self, tensor: Tensor) -> Tensor:
        """The numbers of a public tensor, which may decide. The outcome is not remembered."""
        if not is_public(self.state(tensor)):
            raise Unknown("a value that depends on records")
        self.looked = True
        with out_of_sight():
            return self._before(tensor).detach().clone()

    def aligned(self, tensors: Iterable[Tensor], ndim: int) -> Rows:
        """Where the records are in the common shape of tensors that are broadcast to `ndim` axes.

        Raises:
            Unknown: they have their records in different places; or a public tensor has other
                values for other records.
        """
        several = list(tensors)
        return self.agreed((tensor, ndim - tensor.ndim) for tensor in several)

    def agreed(self, placed: Iterable[tuple[Tensor, int]]) -> Rows:
        """Find common rows like `aligned`, for (tensor, shift): axis k of the tensor is axis k +
        shift of the common shape.
        """
        pairs = list(placed)
        settled: Rows | None = None
        for tensor, shift in pairs:
            rows = self.rows(tensor)
            if rows is None:
                continue
            moved = rows.at(rows.dim + shift)
            if settled is not None and settled != moved:
                raise Unknown("records meet other records")
            settled = moved
        if settled is None:
            raise Unknown("no records where they were expected")
        for tensor, shift in pairs:
            if self.rows(tensor) is None:
                self.require_uniform(tensor, settled.at(settled.dim - shift))
        return settled

    def require_uniform(self, tensor: Tensor, rows: Rows) -> None:
        """Raise `Unknown` unless a public tensor has the same values for every record.

        Otherwise what happens to a record would depend on its place. Random numbers, each drawn by
        itself, may differ; and a tensor may have no axis for records.

        Args:
            tensor: that meets records; public.
            rows: where the records would be in it; a negative axis is one that it does not have.
        """
        dim = rows.dim
        if dim < 0 or dim >= tensor.ndim or tensor.shape[dim] == 1:
            return
        if self.state(tensor) is NOISE:
            self._assign(tensor, rows)
            return
        if self.state(tensor) is FILLED:
            return
        if tensor.shape[dim] != rows.fold * self.count:
            raise Unknown("a constant that does not fit the records")
        self.looked = True
        if not uniform(self._before(tensor), rows, self.count):
            raise Unknown("a constant with other values for other places of a batch")

    def _assign(self, tensor: Tensor, rows: Rows) -> None:
        """Random numbers meet records along an axis: each must be one record's alone, in all views
        of them.
        """
        memory = memory_for(rows, tensor.stride(), tensor.element_size(), self.count)
        place = (
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.element_size(),
        )
        if memory is None or seen_in(memory, *place) != rows:
            self.looked = True  # strides of what is public are not in the key of what is remembered
            raise Unknown("random numbers that several records share")
        self.assigned.append((tensor, rows))

    def _before(self, tensor: Tensor) -> Tensor:
        """A public argument as the operation found it: rules are asked after it has run, and it may
        have written there.
        """
        before = self._constants.get(id(tensor))
        if before is not None:
            return before
        storage = tensor.untyped_storage()
        if any(result.untyped_storage() is storage for result in self.results):
            raise Unknown("a constant that was overwritten through another view")
        return tensor

    def kept(self, rows: Rows, result: Tensor, dim: int | None = None) -> Rows:
        """Place these records in a result, along an axis that must have as many entries."""
        place = rows.dim if dim is None else dim
        if not 0 <= place < result.ndim or result.shape[place] != rows.fold * self.count:
            raise Unknown("the record axis has another length")
        return rows.at(place)

    def in_all(self, rows: Rows) -> list[State]:
        """Place these records along the same axis of every result."""
        return [self.kept(rows, result) for result in self.results]

    def where_fitting(self, rows: Rows) -> list[State]:
        """Place these records like `in_all`; a result of another length holds what an operation
        keeps inside.
        """
        states: list[State] = []
        for result in self.results:
            fits = rows.dim < result.ndim and result.shape[rows.dim] == rows.fold * self.count
            states.append(rows if fits else INSIDE)
        return states


Rule: TypeAlias = Callable[[Operands], "State | Sequence[State]"]
"""From a call to the state of its results: one for all of them, or one for each.

Raises `Unknown` where it does not know."""


def rules_for(names: str, rule: Rule) -> dict[str, Rule]:
    """One rule for several operations, whose names are separated by blanks."""
    return dict.fromkeys(names.split(), rule)
