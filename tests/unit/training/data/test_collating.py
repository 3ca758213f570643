"""Code before the batch never sees two records; what would need them is told by an experiment."""
# ruff: noqa: NPY002  (transforms draw from NumPy's global generator)

import functools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data import collating
from discreet.training.data.collating import fetched, fetched_apart
from discreet.training.data.trees import leaves, select

COUNT = 12
FLOATS = torch.arange(1.0, COUNT + 1.0).repeat(3, 1).T.contiguous()


class Entries(Dataset[Any]):
    """Some numbers for each record."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Tensor:
        return FLOATS[index].clone()


class Together(Entries):
    """Fetches entries together, by a function of their indices."""

    def __init__(self, function: Callable[[list[int]], list[Any]]) -> None:
        self.function = function

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return self.function(indices)


def fetch(dataset: Any, collate: Any = default_collate, *, seed: int = 3, look: bool = True) -> Any:
    chosen = np.arange(COUNT)[::-1].copy()
    return fetched_apart(dataset, chosen, collate, seed=seed, look=look)


def rows(indices: list[int]) -> Tensor:
    return FLOATS[indices]


# --- __getitems__ ---


def shuffled(indices: list[int]) -> list[Any]:
    return list(rows(indices)[torch.randperm(len(indices))])


def mixed_by_numpy(indices: list[int]) -> list[Any]:
    share = float(np.random.rand())
    return list(share * rows(indices) + (1.0 - share) * rows(indices).roll(1, 0))


def by_the_first(indices: list[int]) -> list[Any]:
    x = rows(indices)
    x[1:] += x[0]
    return list(x)


@pytest.mark.parametrize(
    "together",
    [
        lambda indices: list(rows(indices) - rows(indices).mean(0)),
        lambda indices: list(rows(indices) / rows(indices).max()),
        lambda indices: list(rows(indices) + rows(indices).roll(1, 0)),
        lambda indices: list(rows(indices).sort(0).values),
        lambda indices: [(x, max(indices)) for x in rows(indices)],
        lambda indices: [{"x": x, "text": str(sum(indices))} for x in rows(indices)],
        lambda indices: [x.numpy() - rows(indices).mean(0).numpy() for x in rows(indices)],
        lambda indices: [x[: 1 + min(indices) % 2] for x in rows(indices)],
        shuffled,
        mixed_by_numpy,
        by_the_first,
    ],
)
def test_p11_entries_that_depend_on_others_are_refused(together: Any) -> None:
    dataset = Together(together)
    for source in (
        dataset,
        Subset(dataset, range(COUNT)),
        Subset(Subset(dataset, range(COUNT)), range(COUNT)),
    ):
        with pytest.raises(CoupledRecords, match="__getitems__"):
            fetch(source)


@pytest.mark.parametrize(
    "together",
    [
        lambda indices: list(rows(indices)),
        lambda indices: [
            {"x": x, "text": "a", "nan": torch.tensor(torch.nan)} for x in rows(indices)
        ],
        lambda indices: list(rows(indices) + torch.rand(len(indices), 1)),
        lambda indices: [x + random.random() + np.random.rand() for x in rows(indices)],
        lambda indices: [x + np.random.default_rng().normal() for x in rows(indices)],
        lambda indices: list(rows(sorted(set(indices), key=indices.index))),
    ],
    ids=["rows", "nested", "torch", "others", "own generator", "no index twice"],
)
def test_entries_of_their_own_pass(together: Any) -> None:
    fetch(Together(together))


def test_a_single_record_that_changes_all_others_is_found_wherever_it_is() -> None:
    """Named wrong implementation: three entries are tried out, and the special one is not among
    them.
    """
    for special in range(COUNT):

        def scaled(indices: list[int], special: int = special) -> list[Any]:
            return list(rows(indices) * (0.1 if special in indices else 1.0))

        with pytest.raises(CoupledRecords, match="__getitems__"):
            fetch(Together(scaled))


def test_p11_entries_are_fetched_one_by_one_whatever_wakes_later() -> None:
    """Without an experiment: the same entries whoever else is fetched."""
    dataset = Together(lambda indices: list(rows(indices) - rows(indices).mean(0) + max(indices)))
    one, other = (
        fetched_apart(dataset, np.array([1, last]), default_collate, seed=1) for last in (2, 7)
    )
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], other[1])


def test_a_data_set_that_fills_the_same_memory_gives_the_right_entries() -> None:
    memory = torch.zeros(COUNT, 3)

    def filled(indices: list[int]) -> list[Any]:
        for row, index in enumerate(indices):
            memory[row] = FLOATS[index]
        return list(memory[: len(indices)])

    assert torch.equal(fetch(Together(filled)), FLOATS.flip(0))


# --- collate ---


def stacked(entries: list[Tensor]) -> Tensor:
    return torch.stack(entries)


def with_next(entries: list[Tensor]) -> Any:
    return stacked(entries), [float(entry[0]) for entry in entries[1:] + entries[:1]]


def mixed_up(entries: list[Tensor]) -> Tensor:
    share, x = random.random(), stacked(entries)
    return share * x + (1.0 - share) * x[torch.randperm(len(x))]


@pytest.mark.parametrize(
    "collate",
    [
        lambda entries: stacked(entries) - stacked(entries).mean(0),
        lambda entries: stacked(sorted(entries, key=lambda entry: float(entry[0]))),
        lambda entries: {"x": stacked(entries), "total": torch.stack(entries).sum()},
        lambda entries: (stacked(entries), float(torch.stack(entries).sum())),
        lambda entries: (stacked(entries), len(entries)),
        lambda entries: (stacked(entries), tuple(len(entries) * [float(entries[0][0])])),
        lambda entries: (stacked(entries), np.cumsum([float(entry[0]) for entry in entries])),
        lambda entries: torch.zeros(len(entries), int(max(entry[0] for entry in entries))),
        lambda entries: {str(int(entry[0])): stacked(entries) for entry in entries},
        with_next,
        mixed_up,
    ],
)
def test_p11_rows_that_depend_on_other_entries_are_refused(collate: Any) -> None:
    with pytest.raises(CoupledRecords, match="collate"):
        fetch(Entries(), collate)


@pytest.mark.parametrize(
    "collate",
    [
        stacked,
        lambda entries: {
            "x": stacked(entries),
            "names": ["a"] * len(entries),
            "scale": 2.0,
            "none": None,
        },
        lambda entries: (stacked(entries), tuple(str(entry) for entry in entries)),
        lambda entries: (stacked(entries), np.stack([entry.numpy() for entry in entries])),
        lambda entries: stacked(entries) + torch.rand(len(entries), 1),
        lambda entries: stacked([entry * random.random() * np.random.rand() for entry in entries]),
        lambda entries: stacked([entry.mul_(2.0) for entry in entries]),
        lambda entries: None,
    ],
)
def test_rows_of_their_own_entries_pass(collate: Any) -> None:
    fetch(Entries(), collate)


@pytest.mark.parametrize(
    "collate",
    [
        lambda entries: stacked(entries) - stacked(entries).mean(0) + entries[0],
        lambda entries: stacked(sorted(entries, key=lambda entry: float(entry[0]))),
        lambda entries: stacked(entries) / max(float(entry[0]) for entry in entries) + entries[0],
        lambda entries: {"x": stacked(entries), "texts": [str(entry) for entry in entries[::-1]]},
        mixed_up,
    ],
)
def test_p11_rows_are_made_one_by_one_whatever_wakes_later(collate: Any) -> None:
    """Without an experiment: the same rows whoever else is in the batch."""

    def batch(last: int) -> list[str]:
        its = fetched_apart(Entries(), np.array([3, last, 5]), collate, seed=1)
        return [str(select(its, torch.tensor([row]))) for row in range(3)]

    one, other = batch(2), batch(7)
    assert (one[0], one[2]) == (other[0], other[2])
    assert one[1] != other[1]


def test_what_stacks_as_torch_does_gives_the_same_batch_as_torch() -> None:
    class Mappings(Entries):
        """Tensors, numbers, texts and arrays."""

        def __getitem__(self, index: int) -> Any:
            return {
                "x": FLOATS[index],
                "label": index,
                "text": str(index),
                "pair": (1.5, np.ones(2)),
            }

    one_by_one = fetch(Mappings(), functools.partial(default_collate))
    together = fetch(Mappings())
    assert (
        str(one_by_one)
        == str(together)
        == str(fetched(Mappings(), np.arange(COUNT)[::-1], default_collate))
    )


def test_rows_of_different_sizes_do_not_fit_together() -> None:
    def ragged(entries: list[Tensor]) -> Tensor:
        longest = int(max(entry[0] for entry in entries))
        return torch.stack([nn.functional.pad(entry, (0, longest)) for entry in entries])

    with pytest.raises(CoupledRecords, match="Pad to a fixed length"):
        fetch(Entries(), ragged, look=False)


class Unlike(Entries):
    """Entries that torch cannot stack: of different lengths, or objects."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


@pytest.mark.parametrize(
    "make",
    [
        lambda index: torch.ones(97 + index),
        lambda index: (object(), torch.ones(3)),
        lambda index: {str(index): 1.0},
    ],
    ids=["lengths", "objects", "keys"],
)
def test_what_torch_cannot_stack_is_refused_without_a_number_of_the_records(make: Any) -> None:
    with pytest.raises(ModelError, match="Pass a collate function") as refusal:
        fetch(Unlike(make), look=False)
    assert "97" not in str(refusal.value)
    # Nor in what torch said.
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


def test_numbers_of_each_record_beside_the_rows_do_not_fit_together() -> None:
    with pytest.raises(CoupledRecords, match="first, at batch\\[1\\]"):
        fetch(Entries(), lambda entries: (stacked(entries), float(entries[0][0])), look=False)


def test_an_error_of_a_collate_function_says_how_it_is_called() -> None:
    with pytest.raises(IndexError) as error:
        fetch(Entries(), lambda entries: entries[0] - entries[1], look=False)
    assert "one entry at a time" in error.value.__notes__[0]


def test_entries_that_a_collate_function_takes_apart_are_tried_out_all_the_same() -> None:
    class Mappings(Entries):
        """Entries with a label to take out."""

        def __getitem__(self, index: int) -> Any:
            return {"x": FLOATS[index], "label": index}

    def popped(entries: list[Any]) -> Any:
        labels = torch.tensor([entry.pop("label") for entry in entries])
        return default_collate(entries)["x"], labels

    fetch(Mappings(), popped)
    with pytest.raises(CoupledRecords, match="collate"):
        fetch(Mappings(), lambda entries: popped(entries)[0].cumsum(0))


def test_state_between_batches_is_refused() -> None:
    """A running mean over all that was ever collated couples records of different batches."""
    seen: list[Tensor] = []

    def running(entries: list[Tensor]) -> Tensor:
        seen.append(torch.stack(entries).mean(0))
        return stacked(entries) - torch.stack(seen).sum(0)

    with pytest.raises(CoupledRecords, match="no state between calls"):
        fetch(Entries(), running, look=False)


def test_generators_that_nobody_seeds_in_secret_are_refused() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(CoupledRecords, match="global generators"):
        fetch(Entries(), lambda entries: stacked(entries) * generator.random(), look=False)


def test_a_collate_function_that_fills_the_same_memory_gives_the_right_rows() -> None:
    memory = torch.zeros(COUNT, 3)

    def filled(entries: list[Tensor]) -> Tensor:
        return torch.stack(entries, out=memory[: len(entries)])

    assert torch.equal(fetch(Entries(), filled), FLOATS.flip(0))
    assert torch.equal(fetch(Entries(), filled, look=False), FLOATS.flip(0))


def test_what_cannot_bear_an_entry_twice_is_not_judged() -> None:
    def picky(entries: list[Tensor]) -> Tensor:
        if len({float(entry[0]) for entry in entries}) < len(entries):
            raise ValueError("twice")
        return stacked(entries)

    assert torch.equal(fetch(Entries(), picky), FLOATS.flip(0))


@pytest.mark.parametrize("count", range(2, 40))
def test_every_entry_is_left_out_and_every_other_is_not(count: int) -> None:
    ways = list(collating._halves(count, 7))
    for (_, same), (_, others) in zip(ways[::2], ways[1::2], strict=True):
        assert np.array_equal(same, ~others)
    for sources, same in ways:
        assert 0 < same.sum() < count
        assert np.array_equal(sources[same], np.arange(count)[same])
        assert set(sources) == set(np.arange(count)[same])


# --- entries that decide for all ---


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda odd: {"x": FLOATS[0], "time": 37.5 if odd else 37}, r"batch\['time'\]"),
        (lambda odd: (FLOATS[0], 1 if odd else True), r"batch\[1\]"),
        (lambda odd: torch.tensor(1 if odd else True), "batch"),
        (lambda odd: np.full(4, 200, np.int32 if odd else np.uint8), "batch"),
        (lambda odd: np.int64(1) if odd else np.int32(1), "batch"),
        (lambda odd: FLOATS[0].double() if odd else FLOATS[0], "batch"),
        (lambda odd: {"x": FLOATS[0]} | ({} if odd else {"flip": 1.0}), "batch"),
        (lambda odd: {"x": 1.0, "y": 1.0} if odd else {"y": 1.0, "x": 1.0}, "batch"),
        (lambda odd: {1: 1.0} if odd else {True: 1.0}, "batch"),
        (lambda odd: [1.0, 2.0] if odd else [1.0, 2], r"batch\[1\]"),
    ],
    ids=["float", "bool", "tensor", "array", "number", "wider", "keys", "order", "key", "list"],
)
@pytest.mark.parametrize("first", [False, True])
def test_t11_what_one_entry_has_decides_no_row_of_another(
    make: Callable[[bool], Any], place: str, first: bool
) -> None:
    """Wrong: default_collate promotes all entries to the type of one, and takes the keys of the
    first.
    """
    odd = COUNT - 1 if first else 4
    with pytest.raises(CoupledRecords, match=rf"at {place}\. Pass a coll.*float\(x\)"):
        fetch(Unlike(lambda index: make(index == odd)))
    assert len(leaves(fetch(Unlike(lambda index: make(True)))))


def test_entries_whose_rows_are_alike_may_come_in_different_classes() -> None:
    """A tuple or a list, a number of Python or of NumPy: torch makes the same rows of them."""
    batch = fetch(Unlike(lambda index: (FLOATS[index], index) if index % 3 else [*odd(index)]))
    assert torch.equal(batch[0], FLOATS.flip(0))
    assert batch[1].tolist() == list(range(COUNT))[::-1]


def odd(index: int) -> Any:
    return FLOATS[index].numpy(), np.int64(index)


def test_gradients_that_one_entry_asks_for_are_not_asked_of_all() -> None:
    def leaf(index: int) -> Tensor:
        return FLOATS[index].clone().requires_grad_(index == 2)

    assert not fetch(Unlike(leaf)).requires_grad
    assert not fetch(Unlike(leaf), stacked).requires_grad
    parts = [TensorDataset(FLOATS[:6].clone().requires_grad_(flag)) for flag in (False, True)]
    assert not fetch(ConcatDataset(parts))[0].requires_grad


@pytest.mark.filterwarnings("ignore")  # of torch: quantization is moving
def test_rows_that_are_scaled_differently_do_not_fit_together() -> None:
    """Wrong: joined, all quantized rows are read with the scale of the first."""

    def quantized(index: int) -> Tensor:
        return torch.quantize_per_tensor(FLOATS[index], 0.1 + (index == 4), 0, torch.qint8)

    for collate in (default_collate, stacked):
        with pytest.raises(ModelError):
            fetch(Unlike(quantized), collate, look=False)


class Summing(tuple[Tensor, ...]):
    """A tuple with names for its fields, whose constructor mixes records."""

    __slots__ = ()
    _fields = ("x", "y")

    def __new__(cls, x: Tensor, y: Tensor) -> Any:
        return super().__new__(cls, (x - x.mean(0), y))


def test_t11_a_constructor_of_the_user_sees_one_entry_alone() -> None:
    one, other = (rows_beside(Made(lambda x: Summing(x * x.cumsum(0), x)), last) for last in (2, 7))
    assert (one[0], one[2]) == (other[0], other[2])


# --- memory that a data set fills again ---


class Buffer(Entries):
    """Decodes every record into the same memory, and gives it in some form."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        self.memory = torch.zeros(3)
        self.entry = form(self.memory)

    def __getitem__(self, index: int) -> Any:
        self.memory.copy_(FLOATS[index])
        return self.entry


class Image:
    """An object of the user."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels


@pytest.mark.parametrize(
    ("form", "collate", "taken"),
    [
        (lambda x: x, default_collate, lambda batch: batch),
        (lambda x: x.numpy(), default_collate, lambda batch: batch),
        (lambda x: {"a": [(x, 1)]}, default_collate, lambda batch: batch["a"][0][0]),
        (lambda x: x.as_subclass(Plain), default_collate, lambda batch: batch),
        (lambda x: x, stacked, lambda batch: batch),
        (lambda x: x.numpy(), lambda entries: torch.tensor(np.stack(entries)), lambda batch: batch),
    ],
    ids=["tensor", "array", "nested", "subclass", "collated", "collated-array"],
)
@pytest.mark.parametrize("look", [False, True])
def test_t11_a_data_set_that_decodes_into_one_buffer_gives_the_right_entries(
    form: Any, collate: Any, taken: Any, look: bool
) -> None:
    """Wrong: entries are fetched one after the other and stacked afterwards, when all of them are
    the last one.
    """
    assert torch.equal(taken(fetch(Buffer(form), collate, look=look)), FLOATS.flip(0))
    of_subset = fetch(Subset(Buffer(form), range(COUNT)), collate, look=look)
    assert torch.equal(taken(of_subset), FLOATS.flip(0))


def test_t11_objects_that_are_used_again_give_no_row_of_another_record() -> None:
    """Nobody can copy them: they are collated before the next is fetched, or refused."""

    def pixels(entries: list[Image]) -> Tensor:
        return torch.stack([entry.pixels for entry in entries])

    with pytest.raises(CoupledRecords, match="a new object for each record"):
        fetch(Buffer(Image), pixels, look=False)
    batch = fetch(Made(Image), pixels, look=False)
    assert torch.equal(batch, FLOATS.flip(0))


def test_rows_of_tensors_are_not_copied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collating, "plain_copy", None)
    rows = TensorDataset(FLOATS)
    sources: list[Any] = [Subset(rows, range(COUNT)), ConcatDataset([rows, rows])]
    for dataset in sources:
        assert torch.equal(fetch(dataset)[0], FLOATS.flip(0))


# --- types that bring code along ---


class Plain(Tensor):
    """A subclass that changes nothing."""


class Picture:
    """No tensor."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels


class Mixing(Tensor):
    """A tensor that mixes records wherever it is joined with others."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        joins = func in (torch.stack, torch.cat, Tensor.index_select)
        return result - result.mean(0) + result[:1] if joins else result


class MixingArray(np.ndarray):
    """An array that mixes records where it is joined with others."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        return result - result.mean() if func is np.concatenate else result


class Wide(float):
    """A number, for which a function may be registered."""


def less_their_mean(entries: list[Any], *, collate_fn_map: Any = None) -> Tensor:
    x = torch.stack([torch.as_tensor(getattr(entry, "pixels", entry)) for entry in entries])
    return x - x.mean(0) + x[0]


class Made(Entries):
    """Entries by a function of their numbers."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(FLOATS[index].clone())


class Pair(NamedTuple):
    x: Tensor
    y: Any


def rows_beside(dataset: Any, last: int, collate: Any = default_collate) -> list[str]:
    batch = fetched_apart(dataset, np.array([3, last, 5]), collate, seed=1)
    return [str(select(batch, torch.tensor([row]))) for row in range(3)]


@pytest.mark.parametrize(
    ("registered", "make"),
    [
        (Picture, Picture),
        (Picture, lambda x: {"a": [(x, Picture(x))]}),
        (Wide, lambda x: Pair(x, Wide(x[0]))),
        (float, lambda x: (x, float(x[0]))),
        (None, lambda x: x.as_subclass(Mixing)),
        (None, lambda x: Pair(x, {"b": x.as_subclass(Mixing)})),
    ],
)
def test_p11_types_that_bring_code_along_are_collated_one_by_one(
    registered: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if registered is not None:
        of_torch = dict(default_collate_fn_map)
        for kind in of_torch:  # the first that fits is called: the user's own
            monkeypatch.delitem(default_collate_fn_map, kind)
        for kind, function in (
            {registered: less_their_mean} | of_torch | {registered: less_their_mean}
        ).items():
            monkeypatch.setitem(default_collate_fn_map, kind, function)
    one, other = rows_beside(Made(make), 2), rows_beside(Made(make), 7)
    assert (one[0], one[2]) == (other[0], other[2])
    assert one[1] != other[1]


def test_p11_rows_have_no_class_that_could_mix_them() -> None:
    """Neither where a function of the user makes them, nor where a data set holds them."""
    arrays = lambda entries: torch.stack(entries).numpy().view(MixingArray)  # noqa: E731
    tensors = TensorDataset(FLOATS.as_subclass(Mixing))
    for dataset, collate in ((Entries(), arrays), (tensors, default_collate)):
        one, other = rows_beside(dataset, 2, collate), rows_beside(dataset, 7, collate)
        assert (one[0], one[2]) == (other[0], other[2])
    batch = fetched_apart(
        Made(lambda x: x.as_subclass(Mixing)), np.arange(3), default_collate, seed=1
    )
    assert type(batch) is Tensor


def test_plain_entries_are_collated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(collating, "_collated_alone", fail)
    fetch(
        Made(
            lambda x: (
                Pair(x, 1),
                {"a": [x.numpy(), np.float32(1.0), np.int64(2)], "b": "text"},
                True,
                1.0,
                b"c",
            )
        )
    )


# --- random numbers and costs ---


def test_p18_what_is_drawn_follows_from_the_seed_and_not_from_the_look() -> None:
    class Noisy(Entries):
        """Changed at random, by all three generators."""

        def __getitem__(self, index: int) -> Tensor:
            return FLOATS[index] + torch.rand(()) + np.random.rand() + random.random()

    def noisy(entries: list[Tensor]) -> Tensor:
        return stacked(entries) * torch.rand(len(entries), 1) * np.random.rand()

    batches = []
    for public in (1, 2):
        torch.manual_seed(public)
        np.random.seed(public)
        random.seed(public)
        batches += [fetch(Noisy(), noisy, look=look) for look in (True, False)]
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert not bool((fetch(Noisy(), noisy, seed=4) == batches[0]).any())


def test_for_looking_at_a_model_entries_come_together_as_ever() -> None:
    chosen = np.array([4, 2])
    centred = fetched(
        Entries(), chosen, lambda entries: stacked(entries) - stacked(entries).mean(0)
    )
    assert centred[:, 0].tolist() == [1.0, -1.0]
    together = Together(lambda indices: list(rows(indices) + len(indices)))
    assert fetched(together, chosen, stacked)[:, 0].tolist() == [7.0, 5.0]


def test_how_often_a_collate_function_is_called() -> None:
    calls: list[int] = []

    def counted(entries: list[Tensor]) -> Tensor:
        calls.append(len(entries))
        return stacked(entries)

    fetch(Entries(), counted, look=False)
    assert calls == [1] * (COUNT + 1)  # once more for a state
    fetched_apart(Entries(), np.array([4]), counted, seed=3, look=True)
    assert calls == [1] * (COUNT + 3)
    fetch(Entries(), counted)
    # In two orders as well: in copies of the process.
    together = [COUNT, 1] + [COUNT] * 6
    assert calls[COUNT + 3 :] == together + [1] * (COUNT + 1)


def test_rows_of_tensors_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collating, "seeded", None)
    (batch,) = fetch(TensorDataset(FLOATS))
    assert torch.equal(batch, FLOATS.flip(0))
    assert batch.data_ptr() != FLOATS.data_ptr()
