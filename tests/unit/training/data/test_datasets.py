"""Data sets: no record twice, through whatever nesting; their memory is marked, and nobody
else's.
"""

import functools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)

from discreet.errors import ParameterError
from discreet.training.data.datasets import Marking, map_style, mark_tensors_of, tensors_of
from discreet.training.separation import marks
from discreet.training.separation.marks import forget, holds_records
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Mixed


class Numbers(Dataset[int]):
    """Record i is the number i."""

    def __init__(self, records: int = 10) -> None:
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, index: int) -> int:
        return range(self.records)[index]


TEN = Numbers()
ROWS = torch.arange(10.0)
TABLE = torch.arange(40.0).view(10, 4)
ONES = torch.ones(1).expand(5)


# --- repetitions ---


@pytest.mark.parametrize(
    "dataset",
    [
        Subset(TEN, [0, 1, 0]),
        Subset(TEN, [9, -1]),
        Subset(TEN, torch.tensor([3, 3])),  # type: ignore[arg-type]
        Subset(TEN, [torch.tensor(3), 3]),  # type: ignore[list-item]
        Subset(Subset(TEN, [1, 2, 1]), [0, 2]),
        Subset(Subset(TEN, [1, 1]), range(2)),
        ConcatDataset([TEN, TEN]),
        ConcatDataset([TEN, Numbers(), TEN]),
        ConcatDataset([TEN, Subset(TEN, [4])]),
        ConcatDataset([Subset(TEN, range(5)), Subset(TEN, range(4, 10))]),
        Subset(ConcatDataset([TEN, TEN]), [3, 13]),
        Subset(ConcatDataset([TEN, Numbers()]), [19, -1]),
        ConcatDataset([ConcatDataset([TEN, Numbers()]), Subset(ConcatDataset([TEN]), [0])]),
        ConcatDataset([TensorDataset(ROWS), TensorDataset(ROWS)]),
        ConcatDataset([TensorDataset(ROWS[:6]), TensorDataset(ROWS[4:])]),
        ConcatDataset([TensorDataset(TABLE[:6], ROWS[:6]), TensorDataset(TABLE[5:], ROWS[5:])]),
        ConcatDataset([TensorDataset(TABLE[:6]), TensorDataset(TABLE[5:, :2])]),
        ConcatDataset([TensorDataset(ONES, ROWS[:5]), TensorDataset(ONES, ROWS[4:9])]),
        TEN + TEN,
    ],
)
def test_p30_a_record_that_occurs_twice_is_refused(dataset: Any) -> None:
    with pytest.raises(ParameterError, match="several times"):
        map_style(dataset)


@pytest.mark.parametrize(
    "dataset",
    [
        TEN,
        [1, 1, 1],
        Subset(TEN, range(10)),
        Subset(Subset(TEN, [1, 1, 2]), [0, 2]),  # what is left out does not count
        Subset(ConcatDataset([TEN, TEN]), [0, 11]),
        ConcatDataset([Subset(TEN, range(5)), Subset(TEN, range(5, 10))]),
        ConcatDataset([Numbers(), Numbers()]),
        ConcatDataset([TensorDataset(ROWS[:5]), TensorDataset(ROWS[5:])]),
        ConcatDataset([TensorDataset(ROWS[::2]), TensorDataset(ROWS[1::2])]),
        ConcatDataset(
            [TensorDataset(TABLE[:5], ROWS[:5]), TensorDataset(TABLE[5:], ROWS[:5])]
        ),  # labels may be shared
        ConcatDataset([TensorDataset(ONES, ROWS[:5]), TensorDataset(ONES, ROWS[5:])]),
        Subset(TensorDataset(ONES), range(5)),
        Subset(TEN, []),
        TensorDataset(ROWS.to_sparse()),
        ConcatDataset([TensorDataset(ROWS.to_sparse()), TEN]),
    ],
)
def test_other_data_sets_are_taken(dataset: Any) -> None:
    assert map_style(dataset) is dataset


def test_a_million_entries_take_a_moment() -> None:
    many = Numbers(1_000_000)
    halves = [Subset(many, range(500_000)), Subset(many, list(range(500_000, 1_000_000)))]
    before = time.process_time()
    map_style(Subset(ConcatDataset(halves), range(1_000_000)))
    assert time.process_time() - before < 5.0  # a fraction of a second on any machine


class Stream(IterableDataset[Tensor]):
    """No numbers."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter([ROWS])


@pytest.mark.parametrize(
    ("dataset", "message"), [(Stream(), "A stream"), (iter([]), "len"), (None, "len")]
)
def test_what_has_no_numbers_is_refused(dataset: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        map_style(dataset)


# --- memory ---


class Holding(Dataset[Any]):
    """Holds something."""

    def __init__(self, **things: Any) -> None:
        vars(self).update(things)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return index


class Wrapped:
    """A data set of another kind, without a base class."""

    def __init__(self, dataset: Any) -> None:
        self.base = dataset

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        return self.base[index]


class Slots:
    """Something in a private slot of a base class."""

    __slots__ = ("__own",)

    def __init__(self, thing: Any) -> None:
        self.__own = thing


class More(Slots):
    __slots__ = ("more",)


class Shift:
    """A transform that is no function."""

    def __init__(self, thing: Any) -> None:
        self.shift = thing

    def __call__(self, x: Tensor) -> Any:
        return x + self.shift


def enclosing(tensor: Tensor) -> Any:
    """A data set whose methods take their rows from a closure."""

    class Closed(Holding):
        def __getitem__(self, index: int) -> Any:
            return tensor[index]

    return Closed()


def of_a_class(tensor: Tensor) -> Any:
    class Shared(Holding):
        rows = tensor

    return Shared()


def somewhere(tensor: Tensor) -> list[Any]:
    """Data sets that hold a tensor."""
    rows = TensorDataset(tensor)
    return [
        More(tensor),
        Holding(records=[SimpleNamespace(x=tensor)]),
        Holding(records=deque([More(tensor)])),
        Holding(transform=lambda x: x - tensor),
        Holding(transform=lambda x, shift=tensor: x - shift),
        Holding(transform=functools.partial(torch.add, tensor)),
        Holding(transform=Shift(tensor)),
        Holding(transform=Shift(tensor).__call__),
        Holding(transform=SimpleNamespace(transforms=[lambda x: x, Shift(Shift(tensor))])),
        enclosing(tensor),
        of_a_class(tensor),
        rows,
        Subset(rows, [0]),
        Subset(Subset(ConcatDataset([TEN, rows]), range(11)), range(11)),
        StackDataset(rows),
        Holding(images=tensor),
        Holding(entries=[(1, tensor), (2, None)]),
        Holding(tables={"train": {"x": tensor}}),
        Holding(inner=Subset(Holding(x=tensor), [0])),
        Wrapped(Wrapped(Holding(x=tensor))),
        [tensor],
    ]


@pytest.mark.parametrize("number", range(21))
def test_memory_of_a_data_set_is_marked_wherever_it_is(number: int) -> None:
    memory = torch.zeros(4, 2)
    mark_tensors_of(somewhere(memory[1:])[number])
    assert holds_records(memory)
    assert not holds_records(memory[torch.tensor([0])])  # rows that are selected are new memory


def test_memory_of_the_model_is_left_out() -> None:
    model = nn.Linear(2, 2)
    frozen = nn.Linear(3, 3)
    own = torch.zeros(2)
    dataset = Holding(
        x=own, weight=model.weight.detach(), model=frozen, table=model.weight[0].detach()
    )
    mark_tensors_of(dataset, [*model.parameters(), torch.zeros(2).to_sparse()])
    assert holds_records(own)
    assert not holds_records(model.weight)
    assert not holds_records(frozen.weight)
    forget(own)


def test_texts_numbers_and_arrays_are_passed_over() -> None:
    assert list(tensors_of(Holding(text="a", numbers=[1, 2], array=ROWS.numpy()))) == []


@pytest.mark.filterwarnings("ignore")  # of torch: prototypes
@pytest.mark.parametrize(
    ("made", "part"),
    [
        (lambda: torch.eye(2).to_sparse(), lambda x: x._values()),
        (lambda: torch.eye(2).to_sparse_csr(), lambda x: x.col_indices()),
        (lambda: torch.eye(2).to_sparse_csc(), lambda x: x.values()),
        (
            lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
            lambda x: x.values(),
        ),
    ],
    ids=["coordinates", "rows", "columns", "jagged"],
)
def test_t11_tensors_that_are_not_strided_are_marked_and_so_are_their_parts(
    made: Callable[[], Tensor], part: Callable[[Any], Tensor]
) -> None:
    tensor = made()
    mark_tensors_of(Holding(x=tensor))
    for marked in (tensor, part(tensor)):
        state = Proof(2).state(marked)
        assert isinstance(state, Mixed)
        assert state.kept


def test_data_sets_that_hold_themselves_come_to_an_end() -> None:
    dataset = Holding()
    vars(dataset).update(me=dataset, all=[dataset, ROWS])
    assert [tensor is ROWS for tensor in tensors_of(dataset)] == [True]


def test_a_closure_that_is_not_filled_yet_holds_nothing() -> None:
    def transform(x: Tensor) -> Any:
        return x + later

    assert not list(tensors_of(Holding(transform=transform)))
    later = 1.0
    assert transform(ROWS)[0] == later


# --- what is loaded later ---


def lazily() -> list[tuple[Holding, Callable[[Tensor], None]]]:
    """Data sets, and how each puts a tensor somewhere when an entry is first asked for."""
    attribute = Holding(x=None)
    cache: dict[int, Tensor] = {}
    many: dict[int, Tensor] = dict.fromkeys(range(5000), ROWS)
    places: list[Any] = [None] * 5000
    rows: list[dict[str, Any]] = [{"x": "path"} for _ in range(5000)]
    mixed: list[Any] = [("path", 1), *(Holding(x="path") for _ in range(5000))]
    return [
        (attribute, lambda x: vars(attribute).update(x=x)),
        (Holding(cache=cache), lambda x: cache.update({3: x})),
        (Holding(cache=many), lambda x: many.update({5001: x})),
        (Holding(cache=many), lambda x: many.update({7: x})),
        (Holding(places=places), lambda x: places.__setitem__(7, x)),
        (Holding(rows=rows), lambda x: rows[9].update(x=x)),
        (Holding(rows=mixed), lambda x: vars(mixed[9]).update(x=x)),
        (Holding(rows=mixed), lambda x: mixed.__setitem__(0, (x, 1))),
    ]


@pytest.mark.parametrize("number", range(8))
def test_t11_what_a_data_set_loads_later_is_marked(number: int) -> None:
    dataset, load = lazily()[number]
    marking = Marking(dataset)
    for _ in range(3):
        marking.renew()
        loaded = torch.zeros(2)
        load(loaded)
        marking.renew()
        assert holds_records(loaded)


def test_rows_that_are_known_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Holding(rows=[(torch.zeros(1), 1) for _ in range(5000)])
    marking = Marking(dataset)
    marking.renew()
    monkeypatch.setattr(marks, "mark_dataset", None)
    marking.renew()


def test_what_a_cache_drops_is_free_again() -> None:
    cache = {number: torch.zeros(1) for number in range(5000)}
    marking = Marking(Holding(cache=cache))
    marking.renew()
    dropped = weakref.ref(cache.pop(0))
    marking.renew()
    assert dropped() is None
