"""Where batches come from: a data set, in this process or in the worker processes of torch's `DataLoader`.

The plan's sampler alone decides which records are drawn. A user's `DataLoader` is asked for its data set, its collate function
and its workers; one with a sampler of its own is refused, because it would be ignored (P30).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from discreet import _validate as check
from discreet.errors import CoupledRecords, ParameterError
from discreet.sampling import Sample
from discreet.training.batch import Batch
from discreet.training.fetching import Collate, Rows, at_once, collated, fetched

__all__ = ["Loading"]

_OWNER = "PrivateRun.batches"
_Choice: TypeAlias = Callable[[Sample], tuple[NDArray[np.int64], NDArray[np.int64] | None]]
_END = object()


@dataclass(frozen=True, slots=True, eq=False)
class Loading:
    """How the records of samples are fetched and collated.

    Args:
        dataset: map-style: `len()` and numbers from 0; sensitive.
        collate: a list of entries to a batch with a row for each.
        workers: processes that fetch ahead; 0 fetches in this one.
        like: the user's loader, whose further options hold for the workers.
    """

    dataset: Rows
    collate: Collate
    workers: int = 0
    like: DataLoader[Any] | None = None

    @classmethod
    def of(
        cls, source: Rows | DataLoader[Any], *, collate: Collate | None, workers: int | None, expected_batch_size: float
    ) -> Loading:
        """Of a data set, or of a loader that samples as torch does by default.

        Raises:
            ParameterError: a data set without numbers, a loader with a sampler of its own or another batch size.
        """
        if isinstance(source, DataLoader):
            if collate is not None or workers is not None:
                expected, got = "left to the loader, which has its own", "given with a DataLoader"
                raise ParameterError(owner=_OWNER, name="collate and workers", expected=expected, got=got)
            _refuse_its_own_sampling(source, expected_batch_size)
            return cls(_map_style(source.dataset), source.collate_fn, source.num_workers, source)
        count = 0 if workers is None else check.whole(_OWNER, "workers", workers, least=0)
        given: object = collate
        if given is not None and not callable(given):
            raise ParameterError(
                owner=_OWNER, name="collate", expected="a function of a list of entries", got=type(given).__name__
            )
        return cls(_map_style(source), default_collate if collate is None else collate, count)

    @property
    def in_new_memory(self) -> bool:
        """Whether batches share no memory with the data set, nor with each other."""
        return at_once(self.dataset, self.collate)

    def fetch(self, entries: NDArray[np.int64]) -> Any:
        """These entries of the data set, collated in this process; sensitive."""
        return fetched(self.dataset, entries, self.collate, look=False)

    def batches(self, samples: Iterator[Sample], choose: _Choice) -> Generator[Batch]:
        """The batches of samples, in their order. With workers, samples are drawn ahead, and so are charged.

        Args:
            samples: charged and drawn, as `Session.samples`.
            choose: which entries to fetch for a sample, in random order, as `Planted.chosen`.
        """
        if self.workers and not self.in_new_memory:
            yield from self._ahead(samples, choose)
            return
        seen = 0
        for sample in samples:
            chosen, rows = choose(sample)
            seen += bool(chosen.size)
            data = fetched(self.dataset, chosen, self.collate, look=_at_powers(seen)) if chosen.size else None
            yield Batch(sample, data, rows)

    def _ahead(self, samples: Iterator[Sample], choose: _Choice) -> Iterator[Batch]:
        waiting: deque[tuple[Batch, bool]] = deque()  # without data, and whether there will be any
        failed: list[Exception] = []  # a refused charge must not take away the batches before it

        def chosen() -> Iterator[list[int]]:
            try:
                for sample in samples:
                    entries, rows = choose(sample)
                    waiting.append((Batch(sample, None, rows), bool(entries.size)))
                    if entries.size:
                        yield entries.tolist()
            except Exception as error:  # noqa: BLE001  (raised below, when its turn has come)
                failed.append(error)

        loaded = iter(self._loader(chosen()))
        while True:
            data = next(loaded, _END)
            while waiting and not waiting[0][1]:
                yield waiting.popleft()[0]
            if data is _END:
                break
            if isinstance(data, CoupledRecords):
                raise data
            waited = waiting.popleft()[0]
            yield Batch(waited.sample, data, waited.rows)
        for error in failed:
            raise error

    def _loader(self, chosen: Iterator[list[int]]) -> DataLoader[Any]:
        dataset: Any = self.dataset
        batches: Any = chosen  # torch asks for a list, and iterates once
        looking = _Looking(self.collate)
        like = self.like
        if like is None:
            return DataLoader(dataset, batch_sampler=batches, num_workers=self.workers, collate_fn=looking)
        return DataLoader(
            dataset,
            batch_sampler=batches,
            num_workers=self.workers,
            collate_fn=looking,
            pin_memory=like.pin_memory,
            timeout=like.timeout,
            worker_init_fn=like.worker_init_fn,
            multiprocessing_context=like.multiprocessing_context,
            generator=like.generator,
            prefetch_factor=like.prefetch_factor,
        )


class _Looking:
    """Collates in a worker, and looks now and then that rows do not mix. What it finds comes back as a value."""

    def __init__(self, collate: Collate) -> None:
        self._collate = collate
        self._seen = 0

    def __call__(self, entries: list[Any]) -> Any:
        self._seen += 1
        try:
            return collated(entries, self._collate, look=_at_powers(self._seen))
        except CoupledRecords as found:
            return found


def _at_powers(number: int) -> bool:
    """At 1, 2, 4, 8, ..."""
    return not number & (number - 1)


def _map_style(dataset: Any) -> Rows:
    if isinstance(dataset, IterableDataset):
        raise ParameterError(
            owner=_OWNER,
            name="dataset",
            expected="one whose records have numbers, from which samples can be drawn",
            got="an IterableDataset",
            do="A stream cannot be sampled. Make it a map-style data set with __len__ and __getitem__.",
        )
    if not (callable(getattr(dataset, "__len__", None)) and callable(getattr(dataset, "__getitem__", None))):
        expected = "a data set with len() and entries found by number, or a DataLoader of one"
        raise ParameterError(owner=_OWNER, name="dataset", expected=expected, got=type(dataset).__name__)
    if isinstance(dataset, Subset) and len(set(map(int, dataset.indices))) < len(dataset.indices):
        raise ParameterError(
            owner=_OWNER,
            name="dataset",
            expected="a Subset that has every record at most once: a record is what is protected",
            got="one with records that occur several times",
            do="Leave the repetitions out; a record that counts more can have a larger loss, which is clipped.",
        )
    rows: Rows = dataset
    return rows


def _refuse_its_own_sampling(loader: DataLoader[Any], expected_batch_size: float) -> None:
    if type(loader) is not DataLoader:
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected="torch's own DataLoader: what another class does to batches would be ignored",
            got=type(loader).__name__,
            do="Pass its data set, with collate and workers.",
        )
    sampler, dataset = loader.sampler, loader.dataset
    usual = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == _length(dataset)
    )
    usual = usual and sampler.data_source is dataset  # type: ignore[attr-defined]
    if not usual or type(loader.batch_sampler) is not BatchSampler:
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected="one without a sampler of its own: the plan says how samples are drawn",
            got=f"{type(sampler).__name__} and {type(loader.batch_sampler).__name__}",
            do="Pass the data set; for a part of it, a torch.utils.data.Subset and a plan with as many records.",
        )
    if loader.batch_size != round(expected_batch_size):
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected=f"one with the plan's expected batch size, {round(expected_batch_size)}",
            got=f"batch_size={loader.batch_size}",
            do="Change one of the two: the plan's is what is executed and accounted.",
        )


def _length(dataset: Any) -> int:
    return -1 if isinstance(dataset, IterableDataset) else len(dataset)
