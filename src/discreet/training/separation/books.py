"""What is known, in one pass, of the memory that its tensors lie in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final
from weakref import ref

import torch
from torch import Tensor

from discreet.training.separation.marks import (
    KEPT,
    Content,
    Mark,
    Memory,
    erase,
    fill_grown,
    is_whole,
    marked_part,
    memory_for,
    new_pass,
    out_of_sight,
    seen_in,
    storage_of,
)
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import (
    FILLED,
    NOISE,
    OWN,
    PUBLIC,
    Mixed,
    Rows,
    State,
    is_kept,
    is_public,
)
from discreet.training.separation.table.operands import uniform
from discreet.training.state.moved import Moved, refill

__all__ = ["Books"]

_MANY = 20  # reasons that are remembered
_NO_PLACE = Mixed.of("memory in which records cannot be told apart")
_NO_STORAGE = Mixed.of("a tensor that is sparse, nested or otherwise without plain memory")


@final
class Books:
    """The contents of storages in one pass, as marks on the storages themselves.

    Args:
        count: records of the pass.
        where: names the layer that is running, for reasons.
        on_shared: is called when random numbers turn out not to be the records' own.

    Attributes:
        number: of the pass.
        inner: rows of each record in the batch.
        reasons: where contents became `Mixed`, in order, with the layer. Public.
        news: reasons since this was last cleared, without layers.
        looked: whether values of a public tensor decided since this was last set to False.
        secret: storages that were made of records in this pass, as weak references.
        memory: storages from before the pass that it writes publicly, with copies of what they
            held; by `id`.
        generators: of the user's own that it draws from, with their states before; by `id`.
    """

    __slots__ = (
        "_known",
        "_noise",
        "_where",
        "count",
        "generators",
        "inner",
        "looked",
        "memory",
        "news",
        "number",
        "on_shared",
        "reasons",
        "secret",
    )

    def __init__(self, count: int, where: Callable[[], str], on_shared: Callable[[], None]) -> None:
        self.on_shared = on_shared
        self.count = count
        self.number = new_pass()
        self.inner = 1
        self.reasons: list[str] = []
        self.news: list[str] = []
        self._known: set[str] = set()  # reasons without layers
        self.looked = False
        self._noise: list[ref[Any]] = []  # storages of random numbers
        self.secret: list[ref[Any]] = []
        self.memory: dict[int, tuple[Any, Any]] = {}
        self.generators: dict[int, tuple[torch.Generator, Tensor]] = {}
        self._where = where

    # --- reading ---

    def content_of(self, storage: Any) -> Content:
        """What the storage itself holds, by its mark."""
        mark: Mark | None = getattr(storage, "_separation", None)
        if mark is not None and mark[0] == self.number:
            return mark[1]

        return self.meet(storage, mark)

    def meet(self, storage: Any, mark: Mark | None) -> Content:
        """Memory that was there before the pass, or was made where it could not be seen."""
        content: Content = PUBLIC

        # An earlier pass left records in it: whichever those are, they are not of this pass.
        if mark is not None and not is_public(mark[1]):
            content = mark[1] if is_kept(mark[1]) else KEPT

        storage._separation = (self.number, content, False)  # noqa: SLF001  (our own mark)
        return content

    def state(self, tensor: Tensor) -> State:
        """What a tensor depends on."""
        # As `marked_part` and `content_of`: asked for again and again in every pass.
        try:
            carrier: Any = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            carrier = tensor

        mark: Mark | None = getattr(carrier, "_separation", None)
        content = (
            mark[1] if mark is not None and mark[0] == self.number else self.meet(carrier, mark)
        )

        state: State = _seen(tensor, content) if type(content) is Memory else content
        return state

    def made_here(self, storage: Any) -> bool:
        """Whether a storage was made in this pass."""
        mark: Mark | None = getattr(storage, "_separation", None)
        return mark is not None and mark[0] == self.number and mark[2]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in memory of this pass."""
        return self.made_here(marked_part(tensor))

    def moves(self, tensors: Iterable[Tensor]) -> bool:
        """Whether one of these lies in public memory from before the pass that the pass writes
        into: it is put back when the pass ends.
        """
        # Most passes write into none.
        return bool(self.memory) and any(
            id(marked_part(tensor)) in self.memory for tensor in tensors
        )

    # --- reasons ---

    def mixed(self, why: str) -> Mixed:
        """The state of what is not known, with a reason that is remembered."""
        self.tell(why)
        return Mixed.of(why)

    def tell(self, why: str) -> None:
        """Remember a reason, and the layer that is running."""
        self._known.add(why)
        self.news.append(why)

        if len(self.reasons) < _MANY:
            self.reasons.append(why + self._where())

    def named(self, state: State, operation: str) -> State:
        """Name the first operation that met a tensor in which records are joined as its reason."""
        if not isinstance(state, Mixed) or state.kept:
            return state

        is_named = state.why in self._known
        return state if is_named else self.mixed(f"{operation}: {state.why}")

    def told(self, state: Mixed) -> str:
        """Why records were joined, with the layer in which that came up first."""
        return next((reason for reason in self.reasons if reason.startswith(state.why)), state.why)

    def cause_of(self, state: State) -> str:
        """Why a tensor is not rows of its records, and what began that in the pass."""
        because = "its records are in another place"
        if isinstance(state, Mixed):
            because = self.told(state)

        first = self.reasons[0] if self.reasons else because
        return because if because in first else f"{because} (first: {first})"

    # --- public state from before ---

    def save(self, targets: Iterable[Tensor]) -> None:
        """Before an operation writes what is public: copy memory that was there before the pass."""
        for target in targets:
            storage: Any = marked_part(target)
            is_from_before = storage is not target and not self.made_here(storage)

            # The first copy counts: it is what the pass has found.
            if is_from_before and id(storage) not in self.memory:
                with out_of_sight():
                    self.memory[id(storage)] = (storage, storage.clone())

    def save_generator(self, generator: torch.Generator) -> None:
        """Before an operation draws from a generator of the user's own: note its state."""
        # torch's own is not put back here: `draws.py` follows it, and the run seeds it.
        if generator is not torch.default_generator and id(generator) not in self.generators:
            self.generators[id(generator)] = (generator, generator.get_state())

    def put_back(self) -> Moved:
        """Memory and generators from before the pass are again what they were; what the pass made
        of them is returned.
        """
        moved = Moved()

        for storage, before in self.memory.values():
            moved.memory.append((storage, storage.clone()))
            refill(storage, before)

        for generator, state in self.generators.values():
            moved.generators.append((generator, generator.get_state()))
            generator.set_state(state)

        self.memory.clear()
        self.generators.clear()
        return moved

    # --- marks of results ---

    def set(self, storage: Any, content: Content) -> None:
        """Note the content of a storage that was made in this pass."""
        if content is NOISE:
            self._noise.append(ref(storage))

        storage._separation = (self.number, content, True)  # noqa: SLF001  (our own mark)

        # From the moment of its mark on, what was made of records can be erased, whoever holds it.
        if not is_public(content):
            self.secret.append(ref(storage))

    def erase(self) -> None:
        """Overwrite what this pass made of records, and somebody still holds."""
        for storage in _alive(self.secret):
            erase(storage)

        self.secret.clear()

    def set_new(self, tensor: Tensor, state: State) -> bool:
        """Note the state of a tensor in new memory; False if it has none, and is not public."""
        storage = storage_of(tensor)
        if storage is not None:
            self.set(storage, self._content_for(tensor, state))
            return True

        # Without plain memory there are no bytes to tell owners of: what is not public is `Mixed`.
        content = state if is_public(state) or is_kept(state) else _NO_STORAGE
        marked: Any = tensor
        marked._separation = (self.number, content, True)  # noqa: SLF001  (our own mark)
        return is_public(state)

    def fresh(self, result: Tensor, content: Content, operation: Operation) -> None:
        """Note a public result: of this pass, unless it is a view of something that was there
        before.

        Memory that nobody has written may hold anything, also records of earlier passes: it is
        filled with zeros.
        """
        storage = storage_of(result)
        if storage is None:
            return

        # New memory has no mark; with that of another pass it was there before this one.
        mark: Mark | None = getattr(storage, "_separation", None)
        if mark is None:
            self.set(storage, content)
            if operation.uninitialised:
                fill_grown([result], [(storage, 0)])

            if operation.name == "from_file":  # it outlives the pass
                storage._separation = (self.number, PUBLIC, False)  # noqa: SLF001
        elif mark[0] != self.number:
            self.meet(storage, mark)

    # --- writing ---

    def overwrite(self, target: Tensor, content: Content) -> None:
        """Public values were written into public memory: they are random, or alike, only where all
        was overwritten.
        """
        storage = target.untyped_storage()
        before = self.content_of(storage)

        # Memory from before the pass is put back after it, and is never random or alike.
        if not self.made_here(storage) or before is OWN:
            return

        if not is_public(before):  # an empty view of records, which the operation has made larger
            self.set(storage, self.mixed("constants written over records"))
        elif is_whole(target, storage):
            self.set(storage, content)
        else:
            self._find_noise(before, content)
            self.set(storage, PUBLIC)

    def write(
        self, target: Tensor, state: State, operation: str, constants: Tensor | None = None
    ) -> None:
        """An operation wrote values in this state into a view, which held these constants before if
        it was public.
        """
        storage = target.untyped_storage()
        before = self.content_of(storage)
        if is_kept(state):
            self.set(storage, state)

        # Nothing can be claimed of memory in which records were joined, whatever is written there.
        if isinstance(before, Mixed) or before is OWN:
            return

        if is_public(before):
            self.set(storage, self._after(target, before, state, operation, constants))
        elif not self._fits(target, _seen(target, before), state):
            self.set(storage, self.mixed(f"{operation} writes where other records are"))

    def _after(
        self,
        target: Tensor,
        before: Content,
        state: State,
        operation: str,
        constants: Tensor | None,
    ) -> Content:
        """The content of public memory after a write."""
        whole = is_whole(target, target.untyped_storage())
        if not whole:
            self._find_noise(before, state)

        if is_public(state):
            return state if whole else PUBLIC

        content = self._content_for(target, state)
        if whole or before is FILLED or not isinstance(content, Memory):
            return content

        # What is not written stays as it was: that must be the same for every record, or places
        # could be told apart. Values decide here, so this is not remembered.
        self.looked = True
        if constants is None or not _was_uniform(target, constants, content):
            return self.mixed(f"{operation} writes records beside constants")

        return content

    def _fits(self, target: Tensor, before: State, state: State) -> bool:
        """Whether records were written where they were before; or constants, the same for every
        record.
        """
        if not is_public(state):
            return before == state

        if not isinstance(before, Rows):
            return False

        # The values of constants decide, so this is not remembered.
        self._find_noise(state)
        self.looked = True
        return uniform(target, before, self.count)

    # --- random numbers ---

    def _find_noise(self, *contents: Content) -> None:
        """Random numbers among these are no longer each drawn by itself: they serve all."""
        if NOISE in contents:
            self.on_shared()

    def retype(self, storage: Any) -> None:
        """Memory is seen as numbers of another kind: its entries are no longer known to be alike,
        or drawn by themselves.
        """
        content = self.content_of(storage)
        self._find_noise(content)
        if content is NOISE or content is FILLED:
            self._make_public(storage)

    def assign_noise(self, tensors: Iterable[Tensor]) -> bool:
        """Count random numbers to records, where there is an axis for them: entry i belongs to
        record i from now on.

        They are drawn alike for all records, and a record takes its own along wherever it stands
        (docs/proofs/sums.md, section 3). Whether one of the tensors was assigned.
        """
        if self.count == 1:
            return False

        assigned = False
        length = self.count * self.inner
        for tensor in tensors:
            sizes = list(tensor.shape[:2])
            is_noise = self.content_of(tensor.untyped_storage()) is NOISE

            if is_noise and length in sizes:
                self.assign(tensor, Rows(sizes.index(length), self.inner))
                assigned = True

        return assigned

    def use_up_noise(self) -> None:
        """Random numbers were looked at as a whole: those that are there are known, place by place.

        Whoever compares them with what was read would tell places apart, and so records.
        """
        self.on_shared()

        for storage in _alive(self._noise):
            if self.content_of(storage) is NOISE:
                self.set(storage, PUBLIC)

        self._noise.clear()

    def assign(self, tensor: Tensor, rows: Rows) -> None:
        """Random numbers met records along an axis: from now on they belong to these records, and
        to no others.
        """
        storage = tensor.untyped_storage()
        if self.content_of(storage) is NOISE:
            self.set(storage, self._placed(tensor, rows))

    def share(self, tensor: Tensor) -> None:
        """Random numbers met records, the same ones for all: they belong to nobody, and later to
        none of them.
        """
        storage = tensor.untyped_storage()
        content = self.content_of(storage)

        if content is NOISE:
            self.on_shared()
            self._make_public(storage)
        elif isinstance(content, Memory):
            self.set(storage, self.mixed("random numbers that one record has, and all of them"))

    def publish(self, tensor: Tensor) -> None:
        """Random numbers that serve all records of all passes of a step are like any constant."""
        self._make_public(tensor.untyped_storage())

    def _make_public(self, storage: Any) -> None:
        """Note that memory is public, wherever it was made."""
        storage._separation = (self.number, PUBLIC, self.made_here(storage))  # noqa: SLF001

    # --- places ---

    def _content_for(self, tensor: Tensor, state: State) -> Content:
        """The content of a storage in which a tensor is to have this state."""
        return self._placed(tensor, state) if isinstance(state, Rows) else state

    def _placed(self, tensor: Tensor, rows: Rows) -> Content:
        """The owners of the bytes of a new storage; read back, to see that the claim holds."""
        if not tensor.numel():
            return PUBLIC

        if rows.dim >= tensor.ndim or tensor.shape[rows.dim] != rows.fold * self.count:
            return self.mixed("a rule that does not fit its result")

        # In an expanded tensor, for one, records lie on top of each other.
        memory = memory_for(rows, tensor.stride(), tensor.element_size(), self.count)
        if memory is None or _seen(tensor, memory) != rows:
            return _NO_PLACE

        return memory


def _alive(references: Iterable[ref[Any]]) -> list[Any]:
    """What weak references still refer to."""
    things = [reference() for reference in references]
    # An empty storage counts as false, and is alive.
    return [thing for thing in things if thing is not None]


def _seen(tensor: Tensor, memory: Memory) -> State:
    offset, strides = tensor.storage_offset(), tensor.stride()
    return seen_in(memory, offset, tensor.shape, strides, tensor.element_size())


def _was_uniform(target: Tensor, constants: Tensor, memory: Memory) -> bool:
    """Whether a storage had the same bytes for every record before these constants in it were
    overwritten.
    """
    with out_of_sight():
        empty = torch.empty(0, dtype=target.dtype, device=target.device)
        entries = empty.set_(target.untyped_storage()).clone()
        entries.as_strided(target.shape, target.stride(), target.storage_offset()).copy_(constants)

        # All of the storage is compared, and not the view alone: later views may show the rest.
        each = memory.step // entries.element_size()
        if memory.step % entries.element_size() or entries.numel() % (each * memory.count):
            return False

        return uniform(entries.view(-1, memory.count, each), Rows(1), memory.count)
