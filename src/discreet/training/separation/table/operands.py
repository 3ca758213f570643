"""One call of an operation, as the rules of the table see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, Protocol, TypeAlias, final

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
    "Witness",
    "axes_of",
    "overlaps",
    "require",
    "rules_for",
    "same_for_all",
    "same_rank",
    "tensors_among",
    "uniform",
    "witnessed",
]

SUM = Mixed.of("a sum over records")
INSIDE = Mixed.of("what an operation keeps for itself, not told apart by record")


class Unknown(Exception):
    """An operation is used in a way that its rule does not know; the reason, in words. Public."""


def require(condition: bool, why: str) -> None:  # noqa: FBT001  (no switch: what a rule rests on)
    """Raise `Unknown`, with this reason, unless a condition of a rule holds."""
    if not condition:
        raise Unknown(why)


def tensors_among(thing: Any) -> list[Tensor]:
    """Tensors among arguments or results, also inside of lists and dictionaries, in their order."""
    if isinstance(thing, Tensor):
        return [thing]

    if not isinstance(thing, (list, tuple, dict)):
        return []

    tensors: list[Tensor] = []
    for part in thing.values() if isinstance(thing, dict) else thing:
        # Most parts are tensors and plain numbers, which need no call of their own.
        if isinstance(part, Tensor):
            tensors.append(part)
        elif isinstance(part, (list, tuple, dict)):
            tensors += tensors_among(part)

    return tensors


def same_rank(tensors: Iterable[Tensor]) -> bool:
    """Whether tensors have equally many axes, so that axes with the same number meet."""
    return len({tensor.ndim for tensor in tensors}) <= 1


def axes_of(dim: int | Sequence[int] | None, ndim: int) -> frozenset[int]:
    """Axes as an argument names them, counted from 0; none named stands for all."""
    named = (dim,) if isinstance(dim, int) else dim
    if not named:
        return frozenset(range(ndim))

    return frozenset(axis % ndim for axis in named)


def overlaps(tensor: Tensor) -> bool:
    """Whether two entries of a tensor may be in the same place of its memory, as those of an
    expanded one are.
    """
    # From the narrowest axis on: `reach` is how far from the first entry the axes so far get. A
    # stride beyond it leads to places where none of their entries lies.
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True

        reach += stride * (size - 1)

    return False


class Witness(Protocol):
    """Is told which values of public tensors decide in a pass."""

    def read(self, tensor: Tensor) -> None:
        """A rule reads these numbers."""

    def compared(self, tensor: Tensor, rows: Rows, count: int, *, alike: bool) -> None:
        """It was asked whether a tensor is the same for all records, as in `uniform`."""


_witnesses: list[Witness] = []


@contextmanager
def witnessed(witness: Witness) -> Iterator[None]:
    """For the time of a pass, a witness is told which values decide."""
    _witnesses.append(witness)
    try:
        yield
    finally:
        _witnesses.remove(witness)


def uniform(tensor: Tensor, rows: Rows, count: int) -> bool:
    """Whether a public tensor has the same bits for every record, or none for single records."""
    alike = same_for_all(tensor, rows, count)
    for witness in _witnesses:
        witness.compared(tensor, rows, count, alike=alike)

    return alike


def same_for_all(tensor: Tensor, rows: Rows, count: int) -> bool:
    """As `uniform`, of values that a witness knows: they follow from others that were read."""
    dim = rows.dim
    has_entry_each = dim < tensor.ndim and tensor.shape[dim] == rows.fold * count
    if count == 1 or not has_entry_each:
        return True

    # All records have the same memory, as along an expanded axis, or there is nothing to compare.
    if tensor.stride(dim) == 0 or not tensor.numel():
        return True

    with out_of_sight():
        before, after = tensor.shape[:dim], tensor.shape[dim + 1 :]
        values = tensor.detach().reshape(*before, rows.outer, count, rows.inner, *after)

        # By bits: 0.0 and -0.0 are equal, and not the same; a NaN does not equal itself.
        if values.is_floating_point() or values.is_complex():
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
        # Random numbers that meet records, and along which axis.
        self.assigned: list[tuple[Tensor, Rows]] = []
        # Whether values of public tensors decided. They are not in the key under which an effect is
        # remembered, so such an outcome is not remembered.
        self.looked = False
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
        tensor = self.arguments.get(thing) if isinstance(thing, str) else thing
        return self._states.get(id(tensor), PUBLIC) if isinstance(tensor, Tensor) else PUBLIC

    def tensors(self, names: Iterable[str] | None = None) -> list[Tensor]:
        """Tensors among the arguments of these names, or among all but `out`."""
        # An operation writes to `out`; what was there before does not matter to it.
        chosen = filter("out".__ne__, self.arguments) if names is None else names
        return tensors_among(list(map(self.arguments.get, chosen)))

    def rows(self, thing: Any) -> Rows | None:
        """Where the records are in a tensor; None if it is public."""
        state = self.state(thing)
        return state if isinstance(state, Rows) else None

    def require_rows(self, *things: Any) -> Rows:
        """Where the records are in the first of these that has some, by name or as tensors."""
        for rows in map(self.rows, things):
            if rows is not None:
                return rows

        raise Unknown("no records where they were expected")

    def has_records_along(self, dim: int, things: Iterable[Any]) -> bool:
        """Whether this axis is that of the records in one of these, by name or as tensors."""
        return any(rows is not None and rows.dim == dim for rows in map(self.rows, things))

    def require_public(self, *names: str, why: str = "an argument that depends on records") -> None:
        """Raise `Unknown` unless the tensors of these arguments depend on no record."""
        require(all(is_public(self.state(tensor)) for tensor in self.tensors(names)), why)

    def require_others_public(self, *names: str) -> None:
        """Raise `Unknown` unless all tensor arguments but these depend on no record."""
        exempt = (*names, "out")
        self.require_public(*(name for name in self.arguments if name not in exempt))

    def require_known(self, *names: str, public: Iterable[str] = ()) -> None:
        """Raise `Unknown` if other arguments have tensors, or those in `public` secret ones.

        For rules that look at every tensor: one that they do not know of might have an axis for
        records.
        """
        public = tuple(public)
        known = set(map(id, self.tensors((*names, *public))))
        complete = known.issuperset(map(id, self.tensors()))
        require(complete, "an argument that its rule does not know")
        self.require_public(*public)

    def values(self, tensor: Tensor) -> Tensor:
        """The numbers of a public tensor, which may decide. The outcome is not remembered."""
        require(is_public(self.state(tensor)), "a value that depends on records")
        self.looked = True
        before = self._before(tensor)
        for witness in _witnesses:
            witness.read(before)

        with out_of_sight():
            return before.detach().clone()

    def aligned(self, tensors: Iterable[Tensor], ndim: int) -> Rows:
        """Where the records are in the common shape of tensors that are broadcast to `ndim` axes.

        Raises:
            Unknown: they have their records in different places; or a public tensor has other
                values for other records.
        """
        return self.agreed((tensor, ndim - tensor.ndim) for tensor in tensors)

    def matched(self, tensors: Iterable[Tensor]) -> Rows:
        """Find common rows like `aligned`, for tensors that meet from their first axis on."""
        return self.agreed((tensor, 0) for tensor in tensors)

    def matched_along_first(self, tensors: Iterable[Tensor]) -> Rows:
        """Find common rows like `matched`, which must lie along the first axis: the batch."""
        rows = self.matched(tensors)
        require(rows.dim == 0, "records in another place than the first axis")
        return rows

    def agreed(self, placed: Iterable[tuple[Tensor, int]]) -> Rows:
        """Find common rows like `aligned`, for (tensor, shift): axis k of the tensor is axis k +
        shift of the common shape.
        """
        pairs = list(placed)
        of_tensors = [(self.rows(tensor), shift) for tensor, shift in pairs]
        places = {rows.at(rows.dim + shift) for rows, shift in of_tensors if rows is not None}

        # Two places: in some entry of the common shape, numbers of two records would meet.
        require(len(places) < 2, "records meet other records")
        require(len(places) > 0, "no records where they were expected")
        (common,) = places

        # What is public may stand beside records, if it is alike for all of them.
        for tensor, shift in pairs:
            self.require_records(tensor, common.at(common.dim - shift))

        return common

    def require_records(
        self, tensor: Tensor, rows: Rows, why: str = "records meet other records"
    ) -> None:
        """Raise `Unknown` unless a tensor has its records there, or is public and alike for all."""
        of_tensor = self.rows(tensor)
        if of_tensor is None:
            self.require_uniform(tensor, rows)
        else:
            require(of_tensor == rows, why)

    def require_uniform(self, tensor: Tensor, rows: Rows) -> None:
        """Raise `Unknown` unless a public tensor has the same values for every record.

        Otherwise what happens to a record would depend on its place. Random numbers, each drawn by
        itself, may differ; and a tensor may have no axis for records.

        Args:
            tensor: that meets records; public.
            rows: where the records would be in it; a negative axis is one that it does not have.
        """
        dim, state = rows.dim, self.state(tensor)
        tells_apart = 0 <= dim < tensor.ndim and tensor.shape[dim] != 1
        if not tells_apart or state is FILLED:
            return

        # Each number was drawn by itself and alike: a record may take its own along (section 4 of
        # the proof).
        if state is NOISE:
            self._assign(tensor, rows)
            return

        fits = tensor.shape[dim] == rows.fold * self.count
        require(fits, "a constant that does not fit the records")
        self.looked = True
        if not uniform(self._before(tensor), rows, self.count):
            raise Unknown("a constant with other values for other places of a batch")

    def _assign(self, tensor: Tensor, rows: Rows) -> None:
        """Random numbers meet records along an axis: each must be one record's alone, in all views
        of them.
        """
        offset, shape = tensor.storage_offset(), tuple(tensor.shape)
        stride, size = tensor.stride(), tensor.element_size()
        memory = memory_for(rows, stride, size, self.count)

        # Read back from memory: with overlapping windows, or a stride of 0, a number would be at
        # places of several records.
        if memory is None or seen_in(memory, offset, shape, stride, size) != rows:
            # Strides of what is public are not in the key of what is remembered.
            self.looked = True
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
        overwritten = any(result.untyped_storage() is storage for result in self.results)
        require(not overwritten, "a constant that was overwritten through another view")
        return tensor

    def kept(self, rows: Rows, result: Tensor, dim: int | None = None) -> Rows:
        """Place these records in a result, along an axis that must have as many entries."""
        moved = rows if dim is None else rows.at(dim)
        require(self._fits(moved, result), "the record axis has another length")
        return moved

    def in_all(self, rows: Rows) -> list[State]:
        """Place these records along the same axis of every result."""
        return [self.kept(rows, result) for result in self.results]

    def where_fitting(self, rows: Rows) -> list[State]:
        """Place these records like `in_all`; a result of another length holds what an operation
        keeps inside.
        """
        return [rows if self._fits(rows, result) else INSIDE for result in self.results]

    def gradients(self, rows: Rows) -> list[State]:
        """Place these records in the gradient of the input, the first of a layer that has weights.

        Gradients of its weights are sums over records. There are those that were asked for.
        """
        return [SUM if number else self.kept(rows, self.result) for number in self.asked]

    @property
    def asked(self) -> list[int]:
        """Numbers of the gradients that were asked for; others are not among the results."""
        mask: Sequence[bool] = self.arguments["output_mask"]
        return list(compress(range(len(mask)), mask))

    def _fits(self, rows: Rows, result: Tensor) -> bool:
        """Whether a result has the axis of these records, with as many entries."""
        has_axis = 0 <= rows.dim < result.ndim
        return has_axis and result.shape[rows.dim] == rows.fold * self.count


Rule: TypeAlias = Callable[[Operands], "State | Sequence[State]"]
"""From a call to the state of its results: one for all of them, or one for each.

Raises `Unknown` where it does not know."""


def rules_for(names: str, rule: Rule) -> dict[str, Rule]:
    """One rule for several operations, whose names are separated by blanks."""
    return dict.fromkeys(names.split(), rule)
