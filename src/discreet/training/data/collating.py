"""From a sample's indices to a batch: one row for each entry, made from that entry alone.

Nothing can be proved of a user's code before the batch, which is plain Python over whatever entries
are. So it never sees two records: entries are fetched and collated one by one, and rows are joined
here. Only torch's own `default_collate`, which stacks, is given all of them, and only if they are
made of plain tensors, arrays, numbers and texts: other types may bring code along.

A function that needs the other entries would make something else of one than its author meant. So
in some batches it is tried out with all of them: half of the entries become others, and the other
half must stay. That is an experiment, to tell the user; privacy does not rest on it. What rests on
trust: that `__getitem__`, given one index, gives an entry of that record alone, and that nothing is
kept from call to call. Of the latter a second call with the first entry would show something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.seeding import Begin, SeedUse, derived, seeded
from discreet.training.data.signature import Signature
from discreet.training.data.trees import joined, leaves, mapped, select

__all__ = ["CANNOT_BEAR", "Collate", "NumberedRows", "at_once", "fetched", "fetched_apart"]

Collate: TypeAlias = Callable[[list[Any]], Any]
"""A list of entries to a batch with one row for each, in their order."""

CANNOT_BEAR = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a user's code may raise when it is given something unlike what it was written for."""

_SPLITS = 3
_PLAIN = frozenset({bool, bytes, complex, float, int, np.ndarray, str, Tensor, type(None)})

_Half: TypeAlias = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Whose entry each place gets, and which places keep their own."""


class NumberedRows(Protocol):
    """A data set: as many entries as the plan has records, found by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def fetched(dataset: NumberedRows, chosen: NDArray[np.int64], collate: Collate) -> Any:
    """The batch of these entries, as a loop without privacy has it: for looking at a model.

    Args:
        dataset: of the user; sensitive.
        chosen: indices of entries, at least one; sensitive.
        collate: of the user.
    """
    if at_once(dataset, collate):
        return _rows_of_tensors(dataset, chosen)
    return collate(_entries(dataset, chosen.tolist()))


def fetched_apart(
    dataset: NumberedRows,
    chosen: NDArray[np.int64],
    collate: Collate,
    *,
    seed: int,
    look: bool = False,
) -> Any:
    """The batch of these entries, each fetched and collated by itself.

    Args:
        dataset: of the user; sensitive.
        chosen: indices of entries, at least one; sensitive.
        collate: of the user.
        seed: of global generators, for what is drawn at random on the way; secret.
        look: whether to try out that it would be the same if entries were given together.

    Raises:
        CoupledRecords: it would not, or rows of single entries do not fit together.
        ModelError: torch's own collate function cannot stack them.
    """
    if at_once(dataset, collate):
        return _rows_of_tensors(dataset, chosen)
    indices = chosen.tolist()
    halves = _halves(len(indices), seed) if look and len(indices) > 1 else []
    with seeded(seed) as begin:
        if halves and _is_fetched_together(dataset):
            _refuse_mixed_entries(dataset, indices, begin, halves)
        begin(SeedUse.FETCHING)
        entries = _entries_apart(dataset, indices)
        if collate is default_collate and _is_torchs() and _is_plain(entries):
            return _stacked(entries)
        if halves:
            _refuse_mixed_rows(collate, entries, begin, halves)
        return _collated_apart(collate, entries, begin)


def at_once(dataset: NumberedRows, collate: Collate) -> bool:
    """Whether a batch is rows of tensors, in new memory; a subclass may give something else."""
    if type(dataset) is not TensorDataset or collate is not default_collate:
        return False
    return all(type(tensor) is Tensor for tensor in dataset.tensors)


def _is_torchs() -> bool:
    """Whether `default_collate` calls functions of torch only: users may register others."""
    return all(
        function.__module__ == default_collate.__module__
        for function in default_collate_fn_map.values()
    )


def _is_plain(entry: Any) -> bool:
    """Whether there is nothing in an entry whose class could decide how it is stacked."""
    kind = type(entry)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(map(_is_plain, entry)) and all(map(_is_plain, entry.values()))
    is_named_tuple = kind.__bases__ == (tuple,) and getattr(kind, "_fields", None) is not None
    if kind in (list, tuple) or is_named_tuple:
        return all(map(_is_plain, entry))
    return issubclass(kind, np.generic) and kind.__module__ == "numpy"


def _rows_of_tensors(dataset: Any, chosen: NDArray[np.int64]) -> list[Tensor]:
    return list(select(dataset.tensors, torch.from_numpy(chosen)))


def _entries(dataset: NumberedRows, indices: list[int]) -> list[Any]:
    """Entries by torch's own convention for fetching several at once, or one by one."""
    several = getattr(dataset, "__getitems__", None)
    return list(several(indices)) if callable(several) else [dataset[index] for index in indices]


def _entries_apart(dataset: NumberedRows, indices: list[int]) -> list[Any]:
    """Entries one by one, in memory of their own where a data set may fill the same again."""
    if not _is_fetched_together(dataset):
        return [dataset[index] for index in indices]
    return [_copy(entry) for index in indices for entry in _entries(dataset, [index])]


def _is_fetched_together(dataset: Any) -> bool:
    """Whether the user's own code fetches several indices; torch's `Subset` only hands them on."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


def _stacked(entries: list[Any]) -> Any:
    """What torch's own collate function makes of entries.

    Raises:
        ModelError: it cannot stack them. Torch's own message would show sizes of records.
    """
    try:
        return default_collate(entries)
    except CANNOT_BEAR:
        raise ModelError(
            expected=(
                "entries of the same structure, sizes and types, which torch's default_collate "
                "stacks"
            ),
            got="others, such as records of different lengths, or objects",
            do="Pass a collate function that pads every record to a fixed length and gives "
            "tensors: run.batches(dataset, collate).",
        ) from None


def _collated_apart(collate: Collate, entries: list[Any], begin: Begin) -> Any:
    """Rows of single entries, joined.

    Raises:
        CoupledRecords: they have different structures, types or sizes, or the function has a state.
    """
    spare = _copy(entries[0])
    begin(SeedUse.COLLATING)
    parts = [_collated_alone(collate, entry) for entry in entries]
    signature = Signature.of(parts[0])
    for part in parts[1:]:
        signature.check(part)
    begin(SeedUse.COLLATING)
    if _differ(parts[0], _collated_alone(collate, spare)):
        raise CoupledRecords(
            expected="a collate function that makes the same of the same entry and random numbers",
            got="something else at another call",
            do="Keep no state between calls, and draw from global generators of torch, NumPy or "
            "Python, which the run seeds in secret.",
        )
    return joined(parts)


def _collated_alone(collate: Collate, entry: Any) -> Any:
    """The batch of one entry, in memory of its own."""
    if collate is default_collate and _is_torchs():
        return mapped(_stacked([entry]), _without_class)
    try:
        return mapped(collate([entry]), _without_class)
    except Exception as error:
        error.add_note("In a private run `collate` is given one entry at a time.")
        raise


# --- experiments ---


def _refuse_mixed_entries(
    dataset: NumberedRows, indices: list[int], begin: Begin, halves: list[_Half]
) -> None:
    """Fetch all entries together, and others in the place of half of them; compare the rest."""

    def fetched_together(chosen: list[int]) -> list[Any]:
        begin(SeedUse.FETCHING)
        return [_copy(entry) for entry in _entries(dataset, chosen)]

    try:
        entries = fetched_together(indices)
        if any(map(_differ, entries, fetched_together(indices))):
            return  # generators or state of its own: nothing can be compared
        for sources, same in halves:
            exchanged = fetched_together([indices[source] for source in sources])
            if len(exchanged) != len(indices):
                return  # it leaves out what is asked for twice
            if any(_differ(entries[place], exchanged[place]) for place in same.nonzero()[0]):
                raise CoupledRecords(
                    expected="a data set whose __getitems__ makes each entry from its own index",
                    got="other entries that change when some of the indices do",
                    do="Use nothing of the batch there, and draw as many random numbers for every "
                    "entry; or leave __getitems__ out.",
                )
    except CANNOT_BEAR:  # it cannot bear an index twice
        return


def _refuse_mixed_rows(
    collate: Collate, entries: list[Any], begin: Begin, halves: list[_Half]
) -> None:
    """Collate all entries together, and others in the place of half of them; compare the rest."""

    def collated_together(chosen: Iterable[Any]) -> Any:
        copies = [_copy(entry) for entry in chosen]
        begin(SeedUse.COLLATING)
        return _copy(collate(copies))

    try:
        batch = collated_together(entries)
        if Signature.of(batch) != Signature.of(collated_together(entries[:1])):
            raise _mixed_rows()
        for sources, same in halves:
            exchanged = collated_together(entries[source] for source in sources)
            if _differ(batch, exchanged, same):
                raise _mixed_rows()
    except CANNOT_BEAR:  # it cannot bear an entry twice
        return


def _mixed_rows() -> CoupledRecords:
    return CoupledRecords(
        expected="a collate function that makes each row from the entry in its place",
        got="other rows, or numbers for the whole batch, that change when entries are others",
        do="Mix nothing between records, do not sort them, pad to a fixed length, leave out totals "
        "of the batch, and draw as many random numbers for every entry.",
    )


def _halves(count: int, seed: int) -> list[_Half]:
    """Ways to leave half of the entries out, at random.

    Of two that follow each other every entry is left out in one, so that nobody's presence goes
    unseen.
    """
    generator = np.random.default_rng(derived(seed, SeedUse.TRIALS))
    halves = []
    for _ in range(_SPLITS):
        half = np.isin(np.arange(count), generator.permutation(count)[: count // 2])
        for same in (half, ~half):
            sources = np.arange(count)
            sources[~same] = np.resize(sources[same], count - int(same.sum()))
            halves.append((sources, same))
    return halves


# --- comparisons ---


def _copy(structure: Any) -> Any:
    """Copy a structure into memory of its own."""
    return mapped(structure, _cloned)


def _without_class(leaf: Any) -> Any:
    """A copy whose class cannot decide how it is joined with others."""
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  (torch has no other name for it)
        if isinstance(leaf, Tensor):
            return leaf.as_subclass(Tensor).clone()
    return np.array(leaf) if isinstance(leaf, np.ndarray) else _cloned(leaf)


def _cloned(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.clone()
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return list(leaf) if isinstance(leaf, list) else leaf


def _differ(batch: Any, counterpart: Any, rows: NDArray[np.bool_] | None = None) -> bool:
    """Whether two structures differ: in these rows or in what has no rows, or anywhere."""
    if Signature.of(batch) != Signature.of(counterpart):
        return True
    return any(
        not _same(*pair, rows) for pair in zip(leaves(batch), leaves(counterpart), strict=True)
    )


def _same(leaf: Any, counterpart: Any, rows: NDArray[np.bool_] | None) -> bool:
    """Whether two leaves of one kind agree: in these rows, or in all if rows are other things."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        if leaf.shape != counterpart.shape:
            return False
        if rows is None or leaf.shape[:1] != rows.shape:
            return _same_numbers(leaf, counterpart)
        places = rows.nonzero()[0].tolist()
        return _same_numbers(leaf[places], counterpart[places])
    if isinstance(leaf, (list, tuple)):
        chosen = rows if rows is not None and len(rows) == len(leaf) else np.ones(len(leaf), bool)
        pairs = zip(leaf, counterpart, chosen, strict=False)
        return len(leaf) == len(counterpart) and all(
            _equal(*pair) for *pair, compared in pairs if compared
        )
    return _equal(leaf, counterpart)


def _same_numbers(values: Any, counterparts: Any) -> bool:
    """Whether two tensors or arrays of one type and shape have the same numbers; all that are not
    numbers are the same.
    """
    if isinstance(values, Tensor):
        unequal = values != counterparts
        return not bool((unequal & ~(values.isnan() & counterparts.isnan())).any())
    return np.array_equal(values, counterparts, equal_nan=values.dtype.kind in "fc")


def _equal(thing: Any, counterpart: Any) -> bool:
    """Whether two texts, numbers or objects are equal; objects that cannot be compared count as
    equal.
    """
    kind: Any = type(thing)
    if kind.__eq__ is object.__eq__:
        return True
    try:
        return bool(thing == counterpart) or repr(thing) == repr(counterpart) == "nan"
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ):  # such as a dataclass of tensors, whose comparison is no truth value
        return True
