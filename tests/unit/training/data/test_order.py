"""What is kept from entry to entry is told by an experiment: a few entries in two orders."""

import functools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from discreet.errors import CoupledRecords
from discreet.training.data.collating import fetched_apart

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


def fetch(dataset: Any, collate: Any = default_collate) -> Any:
    return fetched_apart(dataset, np.arange(len(dataset)), collate, seed=3, look=True)


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


def test_t11_a_vocabulary_of_two_words_is_seen_too() -> None:
    """Wrong: an entry is fetched before the state is noted, and one word is left to be numbered."""
    dataset = Subset(Texts(numbered), [0, 1])
    with pytest.raises(CoupledRecords, match="in another order"):
        fetch(dataset)


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


def test_what_was_kept_before_stays() -> None:
    """Caches and counters go on: what is put back is what the experiment itself has changed."""
    dataset = Texts(cached)
    dataset.kept[3] = first = torch.full((2,), 3.0)
    fetch(dataset)
    assert dataset.kept[3] is first
    assert set(dataset.kept) == set(range(6))
