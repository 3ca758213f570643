"""What operations did to the marks on storages, remembered under everything that their rules could
read.

There is no rule here, and none can be forgotten here: an operation that is not known is judged by
its rule, and its effect is read off the marks. *Key*: the operation; names of keyword arguments;
static arguments, floats by type only; for each tensor the content of its storage, sizes and dtype,
and, unless it is public, strides and offset; the number of records. *Checked at
each use*: before, that what is written was made in this pass as then, in the same place of a
storage of the same size, and is shared with no other argument; after, that results are new, or an
argument's, as then, with the same geometry. *Not remembered*: what failed, what went by values of
public tensors, what changed geometry or was taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor, nn

from discreet.training.separation.marks import Content, Mark
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import FILLED, NOISE, PUBLIC

__all__ = ["Effect", "Effects", "Lookup"]

_TENSORS = frozenset({Tensor, nn.Parameter, nn.Buffer})
_ATOMS = frozenset(
    {
        int,
        bool,
        str,
        complex,
        type(None),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)
_PUBLIC = frozenset({PUBLIC, NOISE, FILLED})
_LIMIT = 50_000  # effects that are remembered for one number of records
_SIZES = 64  # numbers of records for which effects are remembered


@final
class Lookup:
    """The key of a call, and the tensors that were met on the way.

    Attributes:
        key: everything that a rule could read.
        tensors: among the arguments, in their order.
        storages: theirs.
        secret: whether one of them is not public.
        secret_numbers: whether random numbers come from torch's own generator, which a run seeds
            from its secret source, and not from one of the user's, which others may know.
    """

    __slots__ = ("key", "secret", "secret_numbers", "storages", "tensors")

    def __init__(self, operation: Any) -> None:
        self.key: list[Any] = [operation]
        self.tensors: list[Tensor] = []
        self.storages: list[Any] = []
        self.secret = False
        self.secret_numbers = True

    def add(
        self, things: Iterable[Any], number: int, meet: Callable[[Any, Mark | None], Content]
    ) -> bool:
        """Add arguments to the key; False if one of them is of a kind that is not remembered.

        This runs for every operation of every pass: it is written for speed.

        Args:
            things: arguments.
            number: of the pass.
            meet: gives the content of a storage that has no mark of this pass.
        """
        key, tensors, storages = self.key, self.tensors, self.storages
        for thing in things:
            kind = type(thing)
            if kind in _TENSORS:
                storage = thing.untyped_storage()
                mark: Mark | None = getattr(storage, "_separation", None)
                content = mark[1] if mark is not None and mark[0] == number else meet(storage, mark)
                tensors.append(thing)
                storages.append(storage)
                if content in _PUBLIC:
                    key += (content, thing.shape, thing.dtype)
                else:
                    self.secret = True
                    key += (
                        content,
                        thing.shape,
                        thing.stride(),
                        thing.storage_offset(),
                        thing.dtype,
                    )
            elif kind in _ATOMS:
                key.append(thing)
            elif kind is float:  # rules do not see floats
                key.append(kind)
            elif kind is Generator:
                self.secret_numbers = False
                return False
            elif kind is not list or not self._add_list(thing, number, meet):
                return False
        return True

    def _add_list(
        self, things: list[Any], number: int, meet: Callable[[Any, Mark | None], Content]
    ) -> bool:
        self.key.append(len(things))
        return self.add(things, number, meet)

    def public_content(self, operation: Operation) -> Content:
        """What the results of a public call hold: random numbers, the same number everywhere, or
        anything public.
        """
        if operation.is_random:
            return NOISE if self.secret_numbers else PUBLIC
        if operation.fills:
            return FILLED
        if not operation.pointwise or not self.storages:
            return PUBLIC
        pairs = list(zip(map(_content, self.storages), self.tensors, strict=True))
        if any(content is PUBLIC and tensor.ndim for content, tensor in pairs):
            return PUBLIC
        noise = [tensor for content, tensor in pairs if content is NOISE]
        return self._content_with(noise) if noise else FILLED

    def _content_with(self, noise: Sequence[Tensor]) -> Content:
        """What comes of random numbers and numbers that are the same everywhere.

        Random numbers that meet themselves in other places, or are repeated, are no longer each
        drawn by itself.
        """
        places = {(tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in noise}
        repeated = any(not _fits_into(tensor.shape, noise[0].shape) for tensor in self.tensors)
        return NOISE if len(places) == 1 and not repeated else PUBLIC

    @property
    def noise(self) -> bool:
        """Whether random numbers of this pass are among the arguments."""
        return any(_content(storage) is NOISE for storage in self.storages)


def _fits_into(sizes: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a tensor of these sizes is broadcast to those of another, which stays as it is."""
    pairs = zip(reversed(sizes), reversed(whole), strict=False)
    return len(sizes) <= len(whole) and all(size in (1, full) for size, full in pairs)


def _content(storage: Any) -> Content:
    return storage._separation[1]  # noqa: SLF001  (our own mark)


class _Result(NamedTuple):
    """A result in new memory."""

    content: Content
    shape: torch.Size
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def fits(self, result: Tensor) -> bool:
        """Whether a result is in new memory, and has the geometry that it had then."""
        return (
            getattr(result.untyped_storage(), "_separation", None) is None
            and result.shape == self.shape
            and result.stride() == self.strides
            and result.storage_offset() == self.offset
            and result.dtype is self.dtype
        )


class _Target(NamedTuple):
    """An argument that is written: its number, whether its memory was made in the pass, and where
    in it.
    """

    place: int
    made: bool
    strides: tuple[int, ...]
    offset: int
    nbytes: int


@final
class Effect:
    """What one call did to the marks.

    Args:
        results: for each result None, if it is in an argument's memory, or what it is.
        targets: what was written.
        writes: number of an argument and the content of its storage afterwards, where that changed.
        reasons: why something became `Mixed`, without layers; told again each time.
    """

    __slots__ = ("reasons", "results", "simple", "targets", "writes")

    def __init__(
        self,
        results: list[_Result | None],
        targets: list[_Target],
        writes: list[tuple[int, Content]],
        reasons: list[str],
    ) -> None:
        self.results = results
        self.targets = targets
        self.writes = writes
        self.reasons = reasons
        # One new result and nothing written: nearly all operations.
        self.simple = results[0] if len(results) == 1 and not targets and not reasons else None

    @classmethod
    def observed(
        cls,
        lookup: Lookup,
        before: Sequence[Mark],
        results: Sequence[Tensor],
        written: Sequence[Tensor],
        reasons: list[str],
    ) -> Effect | None:
        """Read off the marks after a call; None if the key is not enough to repeat it."""
        outcomes = _results(lookup, results)
        if outcomes is None:
            return None
        targets = _targets(lookup, before, written)
        writes = [
            (place, storage._separation[1])  # noqa: SLF001  (our own mark)
            for place, storage in enumerate(lookup.storages)
            if storage._separation[1] is not before[place][1]  # noqa: SLF001
        ]
        shared = len({id(storage) for storage in lookup.storages}) < len(lookup.storages)
        places = {target.place for target in targets}
        if (targets and shared) or not {place for place, _ in writes} <= places:
            return None
        return cls(outcomes, targets, writes, reasons)

    def applies(self, lookup: Lookup, made_here: Callable[[Any], bool]) -> bool:
        """Whether what is written is as it was then."""
        if len({id(storage) for storage in lookup.storages}) < len(lookup.storages):
            return False
        for target in self.targets:
            tensor, storage = lookup.tensors[target.place], lookup.storages[target.place]
            now = (made_here(storage), tensor.stride(), tensor.storage_offset(), storage.nbytes())
            if now != target[1:]:
                return False
        return True

    def fits(self, results: Sequence[Tensor], storages: Sequence[Any]) -> bool:
        """Whether results have the geometry that they had then, and are new where they were new."""
        if len(results) != len(self.results):
            return False
        for result, expected in zip(results, self.results, strict=True):
            if expected is None:
                storage = result.untyped_storage()
                if not any(storage is known for known in storages):
                    return False
            elif not expected.fits(result):
                return False
        return True


def _results(lookup: Lookup, results: Sequence[Tensor]) -> list[_Result | None] | None:
    outcomes: list[_Result | None] = []
    new: list[Any] = []
    for result in results:
        if type(result) not in _TENSORS or result.layout is not torch.strided or result.is_nested:
            return None
        storage = result.untyped_storage()
        if any(storage is known for known in lookup.storages):
            outcomes.append(None)
            continue
        mark: Mark | None = getattr(storage, "_separation", None)
        if mark is None or not mark[2] or any(storage is known for known in new):
            return None
        new.append(storage)
        outcomes.append(
            _Result(
                mark[1], result.shape, result.stride(), int(result.storage_offset()), result.dtype
            )
        )
    return outcomes


def _targets(lookup: Lookup, before: Sequence[Mark], written: Sequence[Tensor]) -> list[_Target]:
    numbers = {id(tensor) for tensor in written}
    return [
        _Target(
            place,
            before[place][2],
            tensor.stride(),
            int(tensor.storage_offset()),
            lookup.storages[place].nbytes(),
        )
        for place, tensor in enumerate(lookup.tensors)
        if id(tensor) in numbers
    ]


@final
class Effects:
    """Remembered effects for one number of records. They hold nothing of a model or a pass, and
    serve all.

    Attributes:
        by_key: effects by the key of their `Lookup`.
    """

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], Effect] = {}

    @staticmethod
    def of(count: int) -> Effects:
        """Those for this number of records."""
        if count not in _effects and len(_effects) >= _SIZES:
            _effects.clear()
        return _effects.setdefault(count, Effects())

    @staticmethod
    def forget() -> None:
        """Drop everything: the table of rules is another one. Not during a pass."""
        _effects.clear()

    def remember(self, lookup: Lookup, effect: Effect) -> None:
        """Remember an effect for later calls with the same key."""
        if len(self.by_key) >= _LIMIT:
            self.by_key.clear()
        self.by_key[tuple(lookup.key)] = effect


_effects: dict[int, Effects] = {}
