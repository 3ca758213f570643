"""Where batches come from: a data set, in this process or in the worker processes of torch's
`DataLoader`.

The plan's sampler alone decides which records are drawn. A user's `DataLoader` is asked for its
data set, its collate function and its workers; one with a sampler of its own is refused, because it
would be ignored (P30). What is drawn at random on the way to a batch follows from the run's secret
source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)

from discreet import _validate as check
from discreet.errors import ModelError, ParameterError
from discreet.sampling import Sample
from discreet.training.data.batch import Batch
from discreet.training.data.collating import Collate, NumberedRows, at_once, fetched_apart
from discreet.training.data.datasets import Marking, map_style
from discreet.training.data.seeding import SeedUse, derived
from discreet.training.data.signature import Signature
from discreet.training.data.trees import Portion

__all__ = ["Choice", "Loading", "Seed"]

Choice: TypeAlias = Callable[[Sample], tuple[NDArray[np.int64], NDArray[np.int64] | None]]
"""Which entries to fetch for a sample, in random order, and for each record its row among them."""

Seed: TypeAlias = Callable[[Sample], int]
"""A secret seed of a sample's own, for what is drawn at random while its entries are fetched."""

_OWNER = "PrivateRun.batches"
_END = object()
_OF_WORKERS = ("pin_memory", "timeout", "multiprocessing_context", "prefetch_factor")


@dataclass(frozen=True, slots=True, eq=False)
class Loading:
    """How the records of samples are fetched and collated.

    Args:
        dataset: map-style: `len()` and numbers from 0; sensitive.
        collate: a list of entries to a batch with a row for each.
        workers: processes that fetch ahead; 0 fetches in this one.
        like: the user's loader, whose further options hold for the workers.
    """

    dataset: NumberedRows
    collate: Collate
    workers: int = 0
    like: DataLoader[Any] | None = None

    @classmethod
    def of(
        cls,
        source: NumberedRows | DataLoader[Any],
        *,
        collate: Collate | None,
        workers: int | None,
        expected_batch_size: float,
    ) -> Loading:
        """Read a data set, or a loader that samples as torch does by default.

        Raises:
            ParameterError: a data set without numbers or with repetitions, a loader with a sampler
                of its own or another batch size.
        """
        if isinstance(source, DataLoader):
            if collate is not None or workers is not None:
                raise ParameterError(
                    owner=_OWNER,
                    name="collate and workers",
                    expected="left to the loader, which has its own",
                    got="given with a DataLoader",
                )

            dataset = map_style(source.dataset)
            _refuse_its_own_sampling(source, expected_batch_size)
            return cls(dataset, source.collate_fn, source.num_workers, source)

        count = 0 if workers is None else check.whole(_OWNER, "workers", workers, least=0)
        function: object = collate
        if function is not None and not callable(function):
            raise ParameterError(
                owner=_OWNER,
                name="collate",
                expected="a function of a list of entries",
                got=type(function).__name__,
            )

        return cls(map_style(source), default_collate if collate is None else collate, count)

    @property
    def is_rows(self) -> bool:
        """Whether a batch is rows of tensors and nothing else: no code of the user's makes it."""
        return at_once(self.dataset, self.collate)

    def fetch(self, entries: NDArray[np.int64]) -> Any:
        """These entries of the data set, collated in this process; for shapes and types only.

        Sensitive. Random numbers are those of a public seed.
        """
        return fetched_apart(self.dataset, entries, self.collate, seed=0, look=True)

    def batches(
        self,
        samples: Iterator[Sample],
        choose: Choice,
        seed: Seed,
        public: Iterable[Tensor] = (),
    ) -> Generator[Batch]:
        """The batches of samples, in their order.

        With workers, samples are drawn ahead, and so are charged.

        Args:
            samples: charged and drawn, as `Session.samples`.
            choose: which entries to fetch for a sample, as `Planted.chosen`.
            seed: of a sample, as `Session.entries_seed`; asked for once, and not where nothing is
                drawn.
            public: tensors of the model, which no pass is refused, also if the data set holds them
                too.

        Raises:
            CoupledRecords: code before the batch mixes records, or batches have different
                signatures.
        """
        marking = Marking(self.dataset, public)
        marking.renew()
        # Rows of tensors need no worker: nothing of the user's runs to select them.
        runs_code = not self.is_rows
        load = self._ahead if self.workers and runs_code else self._here

        # All batches must be like the first that has records: an empty sample has no structure.
        signature: Signature | None = None
        with closing(load(samples, choose, seed)) as loaded:
            for batch in loaded:
                if batch.portion is not None:
                    signature = signature or Signature.of(batch.portion.batch)
                    signature.check(batch.portion.batch)
                    # What was loaded to fetch these entries; workers load in memory of their own.
                    if runs_code and not self.workers:
                        marking.renew()

                yield batch

    def _here(self, samples: Iterator[Sample], choose: Choice, seed: Seed) -> Generator[Batch]:
        """Batches that are fetched when they are asked for."""
        looks = _Looks()
        for sample in samples:
            entries, rows = choose(sample)
            portion = self._portion(entries, sample, seed, looks) if entries.size else None
            yield Batch(sample, portion, rows)

    def _portion(
        self, entries: NDArray[np.int64], sample: Sample, seed: Seed, looks: _Looks
    ) -> Portion:
        # Rows of tensors are fetched by the passes, each into its own places: once, and into memory
        # that a loss may write into. Nothing is drawn at random there.
        if self.is_rows:
            dataset: Any = self.dataset
            return Portion(list(dataset.tensors), torch.from_numpy(entries))

        look, own_seed = looks.due(entries.size), seed(sample)
        return Portion(fetched_apart(self.dataset, entries, self.collate, seed=own_seed, look=look))

    def _ahead(self, samples: Iterator[Sample], choose: Choice, seed: Seed) -> Generator[Batch]:
        """Batches that workers have fetched before they are asked for."""
        first = next(samples, None)
        if first is None:
            return

        orders = _Orders(first, seed(first), samples, choose, seed)
        loaded = iter(self._loader(orders))
        while True:
            data = next(loaded, _END)

            # Samples without entries were not ordered: their turn comes before the next that was.
            while orders.waiting and not orders.waiting[0].fetched:
                empty = orders.waiting.popleft()
                yield Batch(empty.sample, None, empty.rows)

            if data is _END:
                break

            if isinstance(data, ModelError):
                raise data

            waited = orders.waiting.popleft()
            yield Batch(waited.sample, Portion(data), waited.rows)

        # What stopped the drawing of samples, after all batches that came before it.
        if orders.failure is not None:
            raise orders.failure

    def _loader(self, orders: _Orders) -> DataLoader[Any]:
        """Workers that are seeded in secret, and are given one order after the other."""
        fetching: Any = _Fetching(self.dataset, self.collate)
        like = self.like
        options: dict[str, Any] = {}
        if like is not None:
            options = {name: getattr(like, name) for name in _OF_WORKERS}

        # Torch seeds its workers from this generator; without it, from the global one.
        own_seed = derived(orders.first_seed, SeedUse.WORKERS).generate_state(1, np.uint64)
        return DataLoader(
            fetching,
            batch_size=None,
            sampler=orders,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_Beginning(None if like is None else like.worker_init_fn),
            generator=torch.Generator().manual_seed(int(own_seed[0])),
            **options,
        )


# --- what workers are asked for ---


class _Order(NamedTuple):
    """Entries to fetch. Sensitive and secret."""

    entries: NDArray[np.int64]
    seed: int
    look: bool


class _Waiting(NamedTuple):
    """A sample whose entries were ordered; `fetched` is false if it has none. Sensitive."""

    sample: Sample
    rows: NDArray[np.int64] | None
    fetched: bool


class _Orders:
    """Draws samples when a worker is free, and remembers which batches are on their way.

    Args:
        first: sample; it was drawn so that workers can be seeded.
        first_seed: of it; secret.
        samples: the others.
        choose: as for `Loading.batches`.
        seed: as for `Loading.batches`.
    """

    def __init__(
        self, first: Sample, first_seed: int, samples: Iterator[Sample], choose: Choice, seed: Seed
    ) -> None:
        self._first, self._samples = first, samples
        self._choose, self._seed = choose, seed
        self.first_seed = first_seed
        self.waiting: deque[_Waiting] = deque()
        self.failure: Exception | None = None  # it must not take away the batches before it

    def __iter__(self) -> Iterator[_Order]:
        looks = _Looks()
        try:
            for number, sample in enumerate(chain([self._first], self._samples)):
                entries, rows = self._choose(sample)
                self.waiting.append(_Waiting(sample, rows, bool(entries.size)))
                if entries.size:
                    # Asked for once: the first was asked for already, to seed the workers.
                    seed = self._seed(sample) if number else self.first_seed
                    yield _Order(entries, seed, looks.due(entries.size))
        # A budget that is used up, for example: batches that were charged before are still due.
        except Exception as error:  # noqa: BLE001  (raised when its turn has come)
            self.failure = error


class _Looks:
    """Tells in which batches to try out that records do not mix.

    In batches 1, 2, 4, 8, ... of those with several entries.
    """

    def __init__(self) -> None:
        self._seen = 0

    def due(self, entries: int) -> bool:
        """Whether it is one of them; once for each batch."""
        if entries < 2:
            return False

        # A power of two has one binary digit.
        self._seen += 1
        return not self._seen & (self._seen - 1)


# --- in a worker ---


@dataclass(frozen=True, slots=True)
class _Fetching:
    """A data set of batches, found by what is ordered. A refusal comes back as a value."""

    dataset: NumberedRows
    collate: Collate

    def __getitem__(self, order: _Order) -> Any:
        try:
            return fetched_apart(
                self.dataset, order.entries, self.collate, seed=order.seed, look=order.look
            )
        # Raised in a worker, torch would wrap it in an error of its own.
        except ModelError as refusal:
            return refusal


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Begins a worker with the user's own function, which finds the user's data set where torch
    puts it.
    """

    function: Callable[[int], None] | None

    def __call__(self, number: int) -> None:
        info = get_worker_info()
        # What torch tells a worker is frozen, but for the user.
        if info is not None and isinstance(info.dataset, _Fetching):
            object.__setattr__(info, "dataset", info.dataset.dataset)

        if self.function is not None:
            self.function(number)


def _as_it_is(batch: Any) -> Any:
    return batch


# --- what is refused of a loader ---

_ADVICE: dict[type, str] = {
    WeightedRandomSampler: "Weigh losses: return weight * loss for each record; that is clipped.",
    DistributedSampler: "A run is one process, and draws from all records: leave the sampler out.",
}
_USUAL_ADVICE = (
    "Pass the data set; for a part of it, a torch.utils.data.Subset and a plan with as many "
    "records."
)


def _refuse_its_own_sampling(loader: DataLoader[Any], expected_batch_size: float) -> None:
    if type(loader) is not DataLoader:
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected="torch's own DataLoader: what another class does to batches would be ignored",
            got=type(loader).__name__,
            do="Pass its data set, with collate and workers.",
        )

    # What `shuffle=False` and `shuffle=True` make of this data set: no choice of the user's own.
    sampler, dataset = loader.sampler, loader.dataset
    is_shuffled = (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(dataset)  # type: ignore[arg-type]
    )
    is_usual = is_shuffled or type(sampler) is SequentialSampler
    is_usual = is_usual and sampler.data_source is dataset  # type: ignore[attr-defined]
    if not is_usual or type(loader.batch_sampler) is not BatchSampler:
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected="one without a sampler of its own: the plan says how samples are drawn",
            got=f"{type(sampler).__name__} and {type(loader.batch_sampler).__name__}",
            do=_ADVICE.get(type(sampler), _USUAL_ADVICE),
        )

    if loader.batch_size != round(expected_batch_size):
        raise ParameterError(
            owner=_OWNER,
            name="loader",
            expected=f"one with the plan's expected batch size, {round(expected_batch_size)}",
            got=f"batch_size={loader.batch_size}",
            do="Change one of the two: the plan's is what is executed and accounted.",
        )
