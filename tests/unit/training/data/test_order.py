"""What is kept from entry to entry is told by an experiment: a few entries in two orders."""

import functools
import itertools
import os
import random
import sqlite3
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from discreet.errors import CoupledRecords
from discreet.training.data import order
from discreet.training.data.collating import fetched_apart
from discreet.training.state import processes

WORDS = ["alpha", "beta", "gamma", "delta", "alpha", "zeta"]
NUMBERS: dict[str, int] = {}


class Texts(Dataset[Any]):
    """Entries by a function of their texts and of the data set."""

    def __init__(self, make: Callable[[Any, int], Any]) -> None:
        self.make = make
        self.kept: Any = {}
        self.count = 0

    def __len__(self) -> int:
        return len(WORDS)

    def __getitem__(self, index: int) -> Any:
        return self.make(self, index)


class Vocabulary:
    """Numbers words in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, int] = defaultdict(lambda: len(self.numbers))

    def __call__(self, word: str) -> int:
        return self.numbers[word]


def numbered(self: Texts, index: int) -> Any:
    return self.kept.setdefault(WORDS[index], len(self.kept))


def counted(self: Texts, _: int) -> Any:
    self.count += 1
    return self.count


def beside_the_last(self: Texts, index: int) -> Any:
    before, self.kept = self.kept or 0, index
    return torch.tensor([index, before])


def listed(self: Texts, index: int) -> Any:
    self.kept = self.kept or []
    if WORDS[index] not in self.kept:
        self.kept.append(WORDS[index])
    return self.kept.index(WORDS[index])


def global_(_: Texts, index: int) -> Any:
    return NUMBERS.setdefault(WORDS[index], len(NUMBERS))


def by_object() -> Callable[[Any, int], Any]:
    vocabulary = Vocabulary()
    return lambda _, index: vocabulary(WORDS[index])


@pytest.fixture(params=[True, False], ids=["copies", "here"])
def _anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the process cannot be copied."""
    if not request.param:
        monkeypatch.setattr(order, "can_copy", lambda: False)


def fetch(dataset: Any, collate: Any = default_collate) -> Any:
    return fetched_apart(dataset, np.arange(len(dataset)), collate, seed=3, look=True)


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize(
    "prepare",
    [
        lambda: numbered,
        lambda: counted,
        lambda: beside_the_last,
        lambda: listed,
        lambda: global_,
        by_object,
    ],
    ids=["dict", "counter", "last", "list", "global", "object"],
)
def test_t11_entries_that_depend_on_who_came_before_are_refused(prepare: Any) -> None:
    sources: list[Callable[[Any], Any]] = [
        Texts,
        lambda make: Subset(Texts(make), range(6)),
        lambda make: ConcatDataset([Texts(make), Texts(make)]),
    ]
    for source in sources:
        NUMBERS.clear()
        with pytest.raises(CoupledRecords, match="in another order"):
            fetch(source(prepare()))


@pytest.mark.usefixtures("_anywhere")
def test_t11_a_vocabulary_of_two_words_is_seen_too() -> None:
    """Wrong: an entry is fetched before the state is noted, and one word is left to be numbered."""
    dataset = Subset(Texts(numbered), [0, 1])
    with pytest.raises(CoupledRecords, match="in another order"):
        fetch(dataset)


@pytest.mark.usefixtures("_anywhere")
def test_t11_a_collate_function_that_numbers_words_is_refused() -> None:
    numbers: dict[str, int] = {}

    def collate(words: list[str], scale: float = 1.0) -> Tensor:
        known = [numbers.setdefault(word, len(numbers)) for word in words]
        return scale * torch.tensor(known)

    for function in (collate, functools.partial(collate, scale=2.0)):
        numbers.clear()
        with pytest.raises(CoupledRecords, match="in another order"):
            fetch(Texts(lambda _, index: WORDS[index]), function)


def cached(self: Texts, index: int) -> Any:
    if index not in self.kept:
        self.kept[index] = torch.full((2,), float(index))
    return self.kept[index]


def loaded(self: Texts, index: int) -> Any:
    self.kept = self.kept or list(range(6))
    return self.kept[index]


def statistics(self: Texts, index: int) -> Any:
    self.count += 1
    self.kept = Counter(self.kept) + Counter([WORDS[index]])
    return index


def own_generator() -> Callable[[Any, int], Any]:
    generator = np.random.default_rng(0)
    return lambda _, index: index + generator.random()


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize(
    "make",
    [
        cached,
        loaded,
        statistics,
        own_generator(),
        lambda self, index: index + random.random() + float(torch.rand(())),
        lambda self, index: index + np.random.default_rng().random(),
    ],
    ids=["cached", "loaded", "statistics", "generator", "seeded", "unseeded"],
)
def test_what_is_kept_and_changes_no_entry_is_served(make: Any) -> None:
    assert len(fetch(Texts(make))) == len(WORDS)


@pytest.mark.usefixtures("_anywhere")
def test_what_was_kept_before_stays() -> None:
    """Caches and counters go on: what is put back is what the experiment itself has changed."""
    dataset = Texts(cached)
    dataset.kept[3] = first = torch.full((2,), 3.0)
    fetch(dataset)
    assert dataset.kept[3] is first
    assert set(dataset.kept) == set(range(6))


# --- what only a copy of the process puts back ---


def by_iterator() -> Callable[[Any, int], Any]:
    numbers: dict[str, int] = defaultdict(itertools.count().__next__)
    return lambda _, index: numbers[WORDS[index]]


def by_generator() -> Callable[[Any, int], Any]:
    numbers = (number for number in range(100))
    return lambda _, index: index + 10 * next(numbers)


def by_cache() -> Callable[[Any, int], Any]:
    count = itertools.count()
    number = functools.cache(lambda word: (word, next(count))[1])
    return lambda _, index: number(WORDS[index])


def by_tensor() -> Callable[[Any, int], Any]:
    mean = torch.zeros(())
    return lambda _, index: float(mean.mul_(0.5).add_(index))


def by_module() -> Callable[[Any, int], Any]:
    module = types.ModuleType("helper")
    module.count = 0  # type: ignore[attr-defined]

    def counted_there(_: Any, index: int) -> int:
        module.count += 1  # type: ignore[attr-defined]
        return index + 10 * module.count  # type: ignore[no-any-return]

    return counted_there


class Flagged:
    """Counts in an attribute of the class."""

    count = 0

    def __call__(self, _: Any, index: int) -> int:
        Flagged.count += 1
        return index + 10 * Flagged.count


def by_database() -> Callable[[Any, int], Any]:
    database = sqlite3.connect(":memory:")
    database.execute("create table words (id integer primary key autoincrement, word text unique)")

    def identity(_: Any, index: int) -> Any:
        word = (WORDS[index],)
        database.execute("insert or ignore into words (word) values (?)", word)
        return database.execute("select id from words where word = ?", word).fetchone()[0]

    return identity


def beside_new_numbers() -> Callable[[Any, int], Any]:
    count = itertools.count()
    return lambda _, index: {"noise": np.random.default_rng().random(), "at": index + next(count)}


@pytest.mark.parametrize(
    "prepare",
    [
        by_iterator,
        by_generator,
        by_cache,
        by_tensor,
        by_module,
        Flagged,
        by_database,
        beside_new_numbers,
    ],
)
def test_t11_a_state_that_nobody_can_put_back_is_seen(prepare: Any) -> None:
    """Wrong: what goes on from order to order is taken for random numbers, and excused."""
    with pytest.raises(CoupledRecords, match="in another order"):
        fetch(Texts(prepare()))


def test_t11_nothing_of_the_experiment_stays() -> None:
    count = itertools.count()
    fetched = fetch(Texts(lambda _, index: (index, next(count))[0]))
    assert fetched.tolist() == list(range(6))
    assert next(count) == 6


@pytest.mark.parametrize("number", [None, 0.5])
def test_a_copy_that_cannot_fetch_gives_way_to_this_process(number: float | None) -> None:
    """Such as a connection, which a copy does not have."""
    here = os.getpid()

    def connected(self: Texts, index: int) -> Any:
        if os.getpid() != here:
            raise ConnectionError("only in the process that has opened it")
        return numbered(self, index) if number is None else number

    if number is None:
        with pytest.raises(CoupledRecords, match="in another order"):
            fetch(Texts(connected))
    else:
        assert fetch(Texts(connected)).tolist() == [0.5] * 6


def test_a_copy_that_waits_for_a_thread_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here, forks = os.getpid(), []
    fork = processes._fork
    assert fork is not None

    def noted() -> int:
        forks.append(1)
        return fork()

    monkeypatch.setattr(processes, "_fork", noted)
    monkeypatch.setattr(order, "_PATIENCE", 0.3)
    monkeypatch.setattr(order, "_unanswered", set())

    def waiting(_: Texts, index: int) -> Any:
        if os.getpid() != here:
            time.sleep(60.0)
        return index

    counts = []
    for _ in range(2):
        assert fetch(Texts(waiting)).tolist() == list(range(6))
        counts.append(len(forks))
    assert counts[0] == counts[1] > 0  # as many at once as torch has threads
