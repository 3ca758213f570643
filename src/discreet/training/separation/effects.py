"""What operations did to the marks on storages, remembered under everything that their rules could
read.

There is no rule here, and none can be forgotten here: an operation that is not known is judged by
its rule, and its effect is read off the marks. *Key*: the operation; names of keyword arguments;
static arguments, floats by type only; for each tensor the content of its storage, sizes and dtype,
and, unless it is public, strides and offset; the number of records. *Checked at each use*: before,
that what is written was made in this pass as then, in the same place of a storage of the same size,
and is shared with no other argument; after, that results are new, or an argument's, as then, with
the same geometry. *Not remembered*: what failed, what went by values of public tensors, what
changed geometry or was taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor

from discreet.training.separation.books import Books
from discreet.training.separation.marks import PLAIN_TENSORS, Content, Mark
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import FILLED, NOISE, PUBLIC

__all__ = ["Effect", "Effects", "Lookup", "can_be_repeated"]

_ATOMS = frozenset(
    {int, bool, str, complex, type(None)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
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

    def enter(self, args: Any, kwargs: dict[str, Any], books: Books) -> bool:
        """Enter all arguments into the key; whether they are of kinds that a key can tell apart."""
        things = (*args, *kwargs, *kwargs.values()) if kwargs else args
        try:
            return self.add(things, books.number, books.meet)
        except (NotImplementedError, RuntimeError):  # sparse and the like have no storage
            return False

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

            if kind in PLAIN_TENSORS:
                storage = thing.untyped_storage()
                mark: Mark | None = getattr(storage, "_separation", None)
                content = mark[1] if mark is not None and mark[0] == number else meet(storage, mark)
                tensors.append(thing)
                storages.append(storage)

                # Whose numbers a tensor of records shows follows from where it lies in its memory.
                # Of a public one rules see sizes; one that goes by more is not remembered.
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

            # Rules do not see floats (`Outcomes` hides them), so no key has to tell them apart.
            elif kind is float:
                key.append(kind)

            # Random numbers of a generator of the user's own are not secret.
            elif kind is Generator:
                self.secret_numbers = False
                return False

            elif kind is not list or not self._add_list(thing, number, meet):
                return False

        return True

    def _add_list(
        self, things: list[Any], number: int, meet: Callable[[Any, Mark | None], Content]
    ) -> bool:
        # The length tells where a list ends: [a, b], c is not [a], b, c.
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

        # Entry by entry, of what is alike everywhere comes what is alike, and of random numbers
        # come random numbers.
        if not operation.pointwise or not self.storages:
            return PUBLIC

        # A single number (without axes) meets all entries alike.
        if any(tensor.ndim for tensor in self._tensors_with(PUBLIC)):
            return PUBLIC

        noise = self._tensors_with(NOISE)
        return self._content_with(noise) if noise else FILLED

    def _tensors_with(self, content: Content) -> list[Tensor]:
        """Arguments whose storages hold this."""
        pairs = zip(self.tensors, self.storages, strict=True)
        return [tensor for tensor, storage in pairs if _content(storage) is content]

    def _content_with(self, noise: Sequence[Tensor]) -> Content:
        """What comes of random numbers and numbers that are the same everywhere.

        Random numbers that meet themselves in other places, or are repeated, are no longer each
        drawn by itself.
        """
        places = {(tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in noise}
        if len(places) > 1:
            return PUBLIC

        whole = noise[0].shape
        is_unrepeated = all(_fits_into(tensor.shape, whole) for tensor in self.tensors)
        return NOISE if is_unrepeated else PUBLIC

    @property
    def noise(self) -> bool:
        """Whether random numbers of this pass are among the arguments."""
        return NOISE in map(_content, self.storages)


def _fits_into(sizes: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a tensor of these sizes is broadcast to those of another, which stays as it is."""
    if len(sizes) > len(whole):
        return False

    # Axes are matched from the last one, as torch broadcasts.
    pairs = zip(reversed(sizes), reversed(whole), strict=False)
    return all(size in (1, full) for size, full in pairs)


def _content(storage: Any) -> Content:
    return storage._separation[1]  # noqa: SLF001  (our own mark)


def _are_shared(storages: Sequence[Any]) -> bool:
    """Whether two arguments lie in the same storage."""
    return len(set(map(id, storages))) < len(storages)


def _is_among(storage: Any, storages: Iterable[Any]) -> bool:
    """Whether a storage is one of these: itself, not one that is equal to it."""
    return any(storage is known for known in storages)


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
        is_simple = len(results) == 1 and not targets and not reasons
        self.simple = results[0] if is_simple else None

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
        if targets and _are_shared(lookup.storages):
            return None

        # Of an argument that was not written and has another mark (random numbers that met records)
        # neither the key nor `applies` says where it lies.
        contents = list(enumerate(map(_content, lookup.storages)))
        writes = [entry for entry in contents if entry[1] is not before[entry[0]][1]]
        places = {target.place for target in targets}
        if not places.issuperset(place for place, _ in writes):
            return None

        return cls(outcomes, targets, writes, reasons)

    def applies(self, lookup: Lookup, made_here: Callable[[Any], bool]) -> bool:
        """Whether what is written is as it was then."""
        if _are_shared(lookup.storages):
            return False

        # What was learned of memory of a pass does not hold for memory from before it, which
        # records must not be written into.
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
            # None: then it was in the memory of an argument.
            if expected is None and not _is_among(result.untyped_storage(), storages):
                return False

            if expected is not None and not expected.fits(result):
                return False

        return True

    def put(self, results: Sequence[Tensor], lookup: Lookup, books: Books) -> None:
        """Put the marks that the call left then on its results, and on what it wrote."""
        for result, expected in zip(results, self.results, strict=True):
            if expected is not None:
                books.set(result.untyped_storage(), expected.content)

        for place, content in self.writes:
            books.set(lookup.storages[place], content)

        for why in self.reasons:
            books.tell(why)


def _results(lookup: Lookup, results: Sequence[Tensor]) -> list[_Result | None] | None:
    """What the results of a call are; None if there is one that cannot be told again."""
    outcomes: list[_Result | None] = []
    new: list[Any] = []

    for result in results:
        is_strided = result.layout is torch.strided and not result.is_nested
        if type(result) not in PLAIN_TENSORS or not is_strided:
            return None

        storage = result.untyped_storage()
        if _is_among(storage, lookup.storages):
            outcomes.append(None)
            continue

        # Two results in one new storage: the mark of the second would replace that of the first.
        mark: Mark | None = getattr(storage, "_separation", None)
        if mark is None or not mark[2] or _is_among(storage, new):
            return None

        new.append(storage)
        offset = int(result.storage_offset())
        outcomes.append(_Result(mark[1], result.shape, result.stride(), offset, result.dtype))

    return outcomes


def _targets(lookup: Lookup, before: Sequence[Mark], written: Sequence[Tensor]) -> list[_Target]:
    """Where those arguments lie that the call has written."""
    targets: list[_Target] = []
    numbers = set(map(id, written))

    for place, tensor in enumerate(lookup.tensors):
        if id(tensor) in numbers:
            offset, nbytes = int(tensor.storage_offset()), lookup.storages[place].nbytes()
            targets.append(_Target(place, before[place][2], tensor.stride(), offset, nbytes))

    return targets


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
    def of(count: int, *, shown: bool = False) -> Effects:
        """Those for this number of records.

        Args:
            count: of records.
            shown: whether Python may see the numbers of the pass. What was learned then says
                nothing about passes in which it must not: they stop where numbers leave.
        """
        # Whoever has passes of more sizes begins again, and loses nothing but time.
        kind = (count, shown)
        if kind not in _effects and len(_effects) >= _SIZES:
            _effects.clear()

        return _effects.setdefault(kind, Effects())

    @staticmethod
    def forget() -> None:
        """Drop everything: the table of rules is another one. Not during a pass."""
        _effects.clear()

    def learn(
        self,
        lookup: Lookup,
        before: Sequence[Mark],
        results: Sequence[Tensor],
        written: Sequence[Tensor],
        reasons: list[str],
    ) -> None:
        """Remember what a call did, if that can be repeated, for later calls with the same key.

        Args:
            lookup: of the call.
            before: the marks of its storages before it ran.
            results: of the call.
            written: arguments that it wrote.
            reasons: why something became `Mixed`, without layers.
        """
        effect = Effect.observed(lookup, before, results, written, reasons)
        if effect is None:
            return

        # None of them is worth more than the next one, and all of them are soon learned again.
        if len(self.by_key) >= _LIMIT:
            self.by_key.clear()

        self.by_key[tuple(lookup.key)] = effect


_effects: dict[tuple[int, bool], Effects] = {}


def can_be_repeated(operation: Operation) -> bool:
    """Whether what an operation does to marks follows from the key of its call."""
    return not any(
        (
            operation.composite,  # its parts have run under the mode
            operation.is_geometry,  # it tells or changes how a tensor lies in memory
            not operation.gives_tensors,  # it tells Python something, which is looked at each time
            operation.uninitialised,  # its memory is filled with zeros each time
            operation.custom,  # the rule of a user may go by floats
        )
    )
