"""From a sample's indices to a batch: one row for each entry, made from that entry alone.

Nothing can be proved of a user's code before the batch, which is plain Python over whatever entries
are. So it never sees two records: entries are fetched and collated one by one, and rows are joined
here. Only torch's own `default_collate`, which stacks, is given all of them, and only if they are
made of plain tensors, arrays, numbers and texts, of the same types and sizes: other types may bring
code along, and what differs would decide for all.

Memory is an entry's own, too: a data set may decode every record into the same buffer. So entries
are copied as they are fetched; what cannot be copied, such as an object of the user, is collated
before the next one is fetched.

A function that needs the other entries would make something else of one than its author meant. So
in some batches it is tried out with all of them: half of the entries become others, and the other
half must stay. That is an experiment, to tell the user; privacy does not rest on it. What rests on
trust: that `__getitem__`, given one index, gives an entry of that record alone, and that nothing is
kept from call to call on which other entries depend. Of the latter a second call with the first
entry shows something, and some entries that are fetched in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, compress, starmap
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.entries import NotPlain, are_alike, is_in_fixed_memory, plain_copy
from discreet.training.data.order import refuse_other_order
from discreet.training.data.seeding import Begin, SeedUse, derived, seeded
from discreet.training.data.signature import Signature
from discreet.training.data.trees import joined, leaves, mapped, select

__all__ = ["CANNOT_BEAR", "Collate", "NumberedRows", "at_once", "fetched", "fetched_apart"]

Collate: TypeAlias = Callable[[list[Any]], Any]
"""A list of entries to a batch with one row for each, in their order."""

CANNOT_BEAR = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a user's code may raise when it is given something unlike what it was written for."""

_SPLITS = 3
_IN_BOTH_ORDERS = 8  # entries that are fetched in two orders
_STACKED = "entries of the same structure, keys, sizes and types, which default_collate stacks"
_CONVERT = (
    "Pass a collate function that pads every record to a fixed length and gives tensors: "
    "run.batches(dataset, collate). Or convert in __getitem__: float(x) where numbers are whole "
    "for some records only, one dtype for all tensors and arrays, the same keys in the same order."
)

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

    # Of a single entry there are no others that could be exchanged.
    indices = chosen.tolist()
    halves = _halves(len(indices), seed) if look and len(indices) > 1 else []
    with seeded(seed) as begin:
        if halves:
            _try_fetching(dataset, indices, collate, begin, halves)

        begin(SeedUse.FETCHING)
        entries = _plain_entries(dataset, indices)
        # Torch's own function makes of entries that are alike what it makes of each alone: it may
        # have them all at once. What it makes of others needs no experiment to be refused.
        if entries is not None and _stacks_plainly(collate):
            if are_alike(entries):
                return _stacked(entries)
        elif halves:
            together = _entries_apart(dataset, indices) if entries is None else entries
            _refuse_mixed_rows(collate, list(together), begin, halves)

        # Fetched again, one by one, with the same random numbers.
        if entries is None:
            begin(SeedUse.FETCHING)
            return _collated_apart(collate, _entries_apart(dataset, indices), begin)

        return _collated_apart(collate, entries, begin)


def at_once(dataset: NumberedRows, collate: Collate) -> bool:
    """Whether a batch is rows of tensors, in new memory; a subclass may give something else."""
    is_rows = type(dataset) is TensorDataset and collate is default_collate
    return is_rows and set(map(type, dataset.tensors)) <= {Tensor}  # type: ignore[attr-defined]


def _stacks_plainly(collate: Collate) -> bool:
    """Whether it is `default_collate` and calls torch's functions only: users may register more."""
    home = {default_collate.__module__}
    return collate is default_collate and home.issuperset(
        function.__module__ for function in default_collate_fn_map.values()
    )


def _rows_of_tensors(dataset: Any, chosen: NDArray[np.int64]) -> list[Tensor]:
    return list(select(dataset.tensors, torch.from_numpy(chosen)))


def _entries(dataset: NumberedRows, indices: list[int]) -> list[Any]:
    """Entries by torch's own convention for fetching several at once, or one by one."""
    several = getattr(dataset, "__getitems__", None)
    return list(several(indices)) if callable(several) else [dataset[index] for index in indices]


def _entries_apart(dataset: NumberedRows, indices: list[int]) -> Iterator[Any]:
    """Entries one by one, each fetched when it is asked for."""
    # One index at a time, so that code which fetches several never sees two records.
    several = _is_fetched_together(dataset)
    for index in indices:
        yield from _entries(dataset, [index]) if several else (dataset[index],)


def _plain_entries(dataset: NumberedRows, indices: list[int]) -> list[Any] | None:
    """Entries in memory of their own; None if one is not plain, and so cannot be copied."""
    entries = _entries_apart(dataset, indices)
    if is_in_fixed_memory(dataset):
        return list(entries)

    # Each before the next is fetched: a data set may fill the same memory again.
    try:
        return list(map(plain_copy, entries))
    except NotPlain:
        return None


def _is_fetched_together(dataset: Any) -> bool:
    """Whether the user's own code fetches several indices; torch's `Subset` only hands them on."""
    # A subclass of `Subset` may do more than hand indices on.
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
            expected=_STACKED,
            got="others, such as records of different lengths, or objects",
            do=_CONVERT,
        ) from None


def _collated_apart(collate: Collate, entries: Iterable[Any], begin: Begin) -> Any:
    """Rows of single entries, joined. Each is collated before the next is asked for.

    Raises:
        CoupledRecords: they have different structures, types or sizes, or the function has a state.
    """
    later = iter(entries)
    first = next(later)
    # For a second call below: the function may change what it is given.
    spare = _copy(first)
    begin(SeedUse.COLLATING)
    parts = [_collated_alone(collate, entry) for entry in chain([first], later)]
    _refuse_unlike(collate, parts)

    # The same random numbers again: what is different now comes from a state.
    begin(SeedUse.COLLATING)
    if _differ(parts[0], _collated_alone(collate, spare)):
        raise CoupledRecords(
            expected="a collate function that makes the same of the same entry and random numbers",
            got="something else at another call",
            do="Keep no state between calls, draw from global generators of torch, NumPy or "
            "Python, which the run seeds in secret, and fetch a new object for each record.",
        )

    return joined(parts)


def _refuse_unlike(collate: Collate, parts: list[Any]) -> None:
    """Refuse rows that do not fit together.

    Raises:
        CoupledRecords: one has another structure, type or size than the first.
    """
    signature = Signature.of(parts[0])
    for part in parts[1:]:
        place = signature.difference(part) if _stacks_plainly(collate) else None
        if place is not None:
            got = f"others than in the first, at {place}"
            raise CoupledRecords(expected=_STACKED, got=got, do=_CONVERT)

        signature.check(part)


def _collated_alone(collate: Collate, entry: Any) -> Any:
    """The batch of one entry, in memory of its own."""
    if _stacks_plainly(collate):
        return mapped(_stacked([entry]), _without_class)

    try:
        return mapped(collate([entry]), _without_class)
    except Exception as error:
        error.add_note("In a private run `collate` is given one entry at a time.")
        raise


# --- experiments ---


def _try_fetching(
    dataset: NumberedRows, indices: list[int], collate: Collate, begin: Begin, halves: list[_Half]
) -> None:
    """Fetch entries together if the data set can, and some of them in another order."""
    if _is_fetched_together(dataset):
        _refuse_mixed_entries(dataset, indices, begin, halves)

    _refuse_other_order(dataset, indices, collate, begin)


def _refuse_mixed_entries(
    dataset: NumberedRows, indices: list[int], begin: Begin, halves: list[_Half]
) -> None:
    """Fetch all entries together, and others in the place of half of them; compare the rest."""

    def fetched_together(chosen: list[int]) -> list[Any]:
        begin(SeedUse.FETCHING)
        return [_copy(entry) for entry in _entries(dataset, chosen)]

    try:
        entries = fetched_together(indices)
        # Generators or state of its own: nothing can be compared.
        if any(map(_differ, entries, fetched_together(indices))):
            return

        for sources, same in halves:
            exchanged = fetched_together([indices[source] for source in sources])
            # It leaves out what is asked for twice.
            if len(exchanged) != len(indices):
                return

            if any(_differ(entries[place], exchanged[place]) for place in same.nonzero()[0]):
                raise CoupledRecords(
                    expected="a data set whose __getitems__ makes each entry from its own index",
                    got="other entries that change when some of the indices do",
                    do="Use nothing of the batch there, and draw as many random numbers for every "
                    "entry; or leave __getitems__ out.",
                )
    # It cannot bear an index twice.
    except CANNOT_BEAR:
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
        # A size or a number that all entries have a say in is another one for a single entry.
        if Signature.of(batch) != Signature.of(collated_together(entries[:1])):
            raise _mixed_rows()

        for sources, same in halves:
            exchanged = collated_together(entries[source] for source in sources)
            if _differ(batch, exchanged, same):
                raise _mixed_rows()
    # It cannot bear an entry twice.
    except CANNOT_BEAR:
        return


def _refuse_other_order(
    dataset: NumberedRows, indices: list[int], collate: Collate, begin: Begin
) -> None:
    """Make rows of a few entries in two orders, from the same state of the code; compare."""
    if is_in_fixed_memory(dataset) and _stacks_plainly(collate):
        return

    def row_of(index: int) -> Any:
        # The same random numbers for each, whenever its turn is.
        begin(SeedUse.TRIALS)
        (entry,) = _entries_apart(dataset, [index])
        return _collated_alone(collate, entry)

    # It cannot bear a single entry: what is wrong shows when the batch is made.
    with suppress(*CANNOT_BEAR):
        sample = list(dict.fromkeys(indices))[:_IN_BOTH_ORDERS]
        refuse_other_order(row_of, sample, (dataset, collate), _differ)


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

        # Once the one half stays, once the other; what stays is repeated in the place of the rest.
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
    # With functions of the subclass switched off: they could give anything for a copy.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  (torch has no other name for it)
        if isinstance(leaf, Tensor):
            return leaf.as_subclass(Tensor).detach().clone()

    return np.array(leaf) if isinstance(leaf, np.ndarray) else _cloned(leaf)


def _cloned(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()

    # An entry of a structured array is a view of it.
    if isinstance(leaf, (np.ndarray, np.void)):
        return leaf.copy()

    # Texts, numbers and tuples of them cannot be changed.
    return list(leaf) if isinstance(leaf, list) else leaf


def _differ(batch: Any, counterpart: Any, rows: NDArray[np.bool_] | None = None) -> bool:
    """Whether two structures differ: in these rows or in what has no rows, or anywhere."""
    if Signature.of(batch) != Signature.of(counterpart):
        return True

    pairs = zip(leaves(batch), leaves(counterpart), strict=True)
    return not all(_same(*pair, rows) for pair in pairs)


def _same(leaf: Any, counterpart: Any, rows: NDArray[np.bool_] | None) -> bool:
    """Whether two leaves of one kind agree: in these rows, or in all if rows are other things."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        if leaf.shape != counterpart.shape:
            return False

        if rows is not None and leaf.shape[:1] == rows.shape:
            places = rows.nonzero()[0].tolist()
            leaf, counterpart = leaf[places], counterpart[places]

        return _same_numbers(leaf, counterpart)

    if isinstance(leaf, (list, tuple)):
        chosen = rows if rows is not None and len(rows) == len(leaf) else np.ones(len(leaf), bool)
        compared = compress(zip(leaf, counterpart, strict=False), chosen)
        return len(leaf) == len(counterpart) and all(starmap(_equal, compared))

    return _equal(leaf, counterpart)


def _same_numbers(values: Any, counterparts: Any) -> bool:
    """Whether two tensors or arrays of one type and shape have the same numbers; all that are not
    numbers are the same.
    """
    if isinstance(values, Tensor):
        unequal = values != counterparts
        # A NaN is unequal to itself; here it counts as the same.
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
    # Such as a dataclass of tensors, whose comparison is no truth value.
    except (RuntimeError, TypeError, ValueError):
        return True
