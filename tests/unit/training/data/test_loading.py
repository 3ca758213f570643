"""Batches through a data set, a loader or worker processes: always the plan's samples of the user's
own records.
"""
# ruff: noqa: NPY002  (transforms draw from NumPy's global generator)

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import discreet as dp
from discreet.aggregation.session import Session
from discreet.randomness import Source
from discreet.sampling import Sample
from discreet.training import PrivateRun
from discreet.training.data.loading import Loading
from discreet.training.separation.marks import holds_records

RECORDS = 30
KEY = bytes(range(32))


class Numbers(Dataset[Tensor]):
    """Record i is the number i, and tells on which process it was asked for."""

    def __init__(self, records: int = RECORDS) -> None:
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, index: int) -> Tensor:
        worker = torch.utils.data.get_worker_info()
        return torch.tensor([float(index), -1.0 if worker is None else float(worker.id)])


def stacked(entries: list[Tensor]) -> Tensor:
    return torch.stack(entries)


def centred(entries: list[Tensor]) -> Tensor:
    """Mixes records."""
    rows = torch.stack(entries)
    return rows - rows.mean(0)


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    out: Tensor = model(batch[:, :1]).squeeze(1)
    return out


def plan(*, policy: Any = None, steps: int = 12, records: int = RECORDS) -> dp.Plan:
    sampler = dp.Sampler(policy or dp.Poisson(0.1), records=records, steps=steps)
    return dp.Plan(sampler=sampler, mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}))


def drawn(dataset: Any, its: dp.Plan | None = None, **options: Any) -> list[list[float]]:
    """The records of all batches, with one key for all callers."""
    its = its or plan()
    run = PrivateRun(
        nn.Linear(1, 1), its, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY)
    )
    found = []
    for batch in run.batches(dataset, **options):
        assert (batch.data is None) == (len(batch.sample) == 0)
        found.append([] if batch.data is None else batch.data[:, 0].tolist())
        run.backward(loss, batch)
    return found


def test_workers_fetch_the_same_samples_and_empty_ones_come_in_their_place() -> None:
    its = plan(policy=dp.Poisson(2 / RECORDS), steps=24)
    here = drawn(Numbers(), its, collate=stacked)
    assert [] in here[1:]  # one in eight is empty, and the key is fixed
    assert drawn(Numbers(), its, collate=stacked, workers=2) == here
    assert (
        drawn(DataLoader(Numbers(), batch_size=2, num_workers=2, collate_fn=stacked), its) == here
    )
    assert drawn(DataLoader(Numbers(), batch_size=2, shuffle=True), its) == here


def test_workers_are_used() -> None:
    run = PrivateRun(
        nn.Linear(1, 1), plan(policy=dp.Everything(), steps=4), ledger=dp.Ledger.in_memory()
    )
    seen = set()
    for batch in run.batches(Numbers(), workers=2):
        seen |= set(batch.data[:, 1].tolist())
        run.backward(loss, batch)
    assert seen == {0.0, 1.0}


def test_samples_that_are_all_empty_need_no_worker() -> None:
    assert drawn(Numbers(), plan(policy=dp.Poisson(1e-9)), workers=1) == [[]] * 12


def test_p30_a_subset_stays_a_subset() -> None:
    part = Subset(Numbers(), range(20, 30))
    its = plan(records=10, policy=dp.Poisson(0.5))
    for source in (part, DataLoader(part, batch_size=5)):
        assert {record for batch in drawn(source, its) for record in batch} <= set(
            map(float, range(20, 30))
        )
    with pytest.raises(dp.errors.ModelError, match="a data set of 30 records"):
        drawn(part)


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(Numbers(), batch_size=3, sampler=SubsetRandomSampler(range(10))),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=WeightedRandomSampler([1.0] * 30, 30)),
        lambda: DataLoader(
            Numbers(), batch_size=3, sampler=RandomSampler(Numbers(), replacement=True)
        ),
        lambda: DataLoader(
            Numbers(), batch_size=3, sampler=RandomSampler(Numbers(), num_samples=10)
        ),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=SequentialSampler(range(10))),
        lambda: DataLoader(
            Numbers(), batch_size=3, sampler=RandomSampler(range(10), num_samples=30)
        ),
        lambda: DataLoader(Numbers(), batch_sampler=[[0, 1], [2]]),
        lambda: DataLoader(Numbers(), batch_size=None),
    ],
    ids=["subset", "weighted", "replacement", "fewer", "part", "random part", "batches", "none"],
)
def test_p30_a_loader_with_a_sampler_of_its_own_is_refused(loader: Any) -> None:
    with pytest.raises(dp.errors.ParameterError, match="without a sampler of its own"):
        drawn(loader())


def test_weights_of_a_sampler_belong_into_the_loss() -> None:
    with pytest.raises(dp.errors.ParameterError, match=r"return weight \* loss"):
        drawn(DataLoader(Numbers(), batch_size=3, sampler=WeightedRandomSampler([1.0] * 30, 30)))


class Stream(IterableDataset[Tensor]):
    """No numbers, no samples."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter([torch.zeros(2)])


class Doubled(DataLoader[Tensor]):
    """Does something to batches."""

    def __iter__(self) -> Any:
        return (2.0 * batch for batch in super().__iter__())


def test_what_cannot_be_meant_is_refused_before_anything_is_charged() -> None:
    ledger = dp.Ledger.in_memory()
    for source, options, message in (
        (Stream(), {}, "IterableDataset"),
        (DataLoader(Stream(), batch_size=3), {}, "IterableDataset"),
        (ConcatDataset([Numbers(15), Subset(Numbers(), [0] * 15)]), {}, "several times"),
        (DataLoader(Numbers(), batch_size=4), {}, "batch_size=4"),
        (DataLoader(Numbers(), batch_size=3), {"collate": stacked}, "left to the loader"),
        (DataLoader(Numbers(), batch_size=3), {"workers": 1}, "left to the loader"),
        (Numbers(), {"workers": -1}, "workers"),
        (Numbers(), {"collate": 3}, "collate"),
        (Numbers(), {"until_budget": True}, "a ledger that nothing limits yet"),
        (Doubled(Numbers(), batch_size=3), {}, "Doubled"),
        (iter([torch.zeros(2)]), {}, "a data set with len"),
        (None, {}, "a data set with len"),
        (Subset(Numbers(), [*range(29), 3]), {}, "several times"),
        (DataLoader(Subset(Numbers(), [*range(29), 3]), batch_size=3), {}, "several times"),
    ):
        run = PrivateRun(nn.Linear(1, 1), plan(), ledger=ledger)
        with pytest.raises(dp.errors.ParameterError, match=message):
            run.batches(source, **options)  # type: ignore[arg-type]
    assert ledger.runs() == ()


@pytest.mark.parametrize("workers", [0, 1])
def test_p11_a_collate_function_that_mixes_records_is_found_in_workers_too(workers: int) -> None:
    with pytest.raises(dp.errors.CoupledRecords, match="collate"):
        drawn(Numbers(), plan(policy=dp.Everything()), collate=centred, workers=workers)


class OfDifferentLengths(Numbers):
    """Entries that torch cannot stack."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(97 + index)


@pytest.mark.parametrize("workers", [0, 1])
def test_records_of_different_lengths_are_refused_in_workers_too(workers: int) -> None:
    with pytest.raises(dp.errors.ModelError, match="Pass a collate function"):
        drawn(OfDifferentLengths(), plan(policy=dp.Everything()), workers=workers)


class Failing(Numbers):
    """Some record cannot be read."""

    def __getitem__(self, index: int) -> Tensor:
        if index == 7:
            raise OSError("unreadable")
        return super().__getitem__(index)


def test_an_error_in_a_worker_reaches_the_user_and_what_was_drawn_is_charged() -> None:
    ledger = dp.Ledger.in_memory()
    run = PrivateRun(nn.Linear(1, 1), plan(policy=dp.Everything(), steps=9), ledger=ledger)
    with pytest.raises(OSError, match="unreadable"):
        _ = next(run.batches(Failing(), workers=1)).data
    assert (
        1 <= sum(charge.count for charge in ledger.charges()) <= 3
    )  # two batches are fetched ahead


def test_a_budget_that_ends_while_workers_fetch_ahead_loses_no_batch(tmp_path: Path) -> None:
    its = plan(policy=dp.Everything(), steps=40)
    budget = dp.Budget(epsilon=12.0, delta=1e-5)
    counts = []
    for workers in (0, 1):
        path = tmp_path / f"{workers}.ledger"
        with PrivateRun(nn.Linear(1, 1), its, ledger=path, budget=budget) as run:
            for batch in run.batches(Numbers(), workers=workers, until_budget=True):
                run.backward(loss, batch)
            counts.append((run.step, sum(charge.count for charge in run.ledger.charges())))
            assert run.guarantee().upper <= 12.0
    assert counts[0] == counts[1]
    assert 0 < counts[0][0] == counts[0][1] < 40


def test_rows_of_tensors_are_taken_at_once_whatever_the_workers() -> None:
    rows = TensorDataset(torch.arange(RECORDS, dtype=torch.float32).unsqueeze(1))
    run = PrivateRun(
        nn.Linear(1, 1), plan(policy=dp.Everything(), steps=2), ledger=dp.Ledger.in_memory()
    )
    for batch in run.batches(rows, workers=1):
        assert sorted(batch.data[0][:, 0].tolist()) == list(map(float, range(RECORDS)))
        run.backward(lambda model, data: loss(model, data[0]), batch)


def test_options_of_a_loader_hold_for_its_workers() -> None:
    noted: Any = functools.partial(_note_worker)
    loader = DataLoader(
        Numbers(), batch_size=3, num_workers=1, worker_init_fn=noted, prefetch_factor=1
    )
    run = PrivateRun(
        nn.Linear(1, 1),
        plan(policy=dp.Everything(), steps=1, records=RECORDS),
        ledger=dp.Ledger.in_memory(),
    )
    with pytest.raises(dp.errors.ParameterError, match="batch_size=3"):
        run.batches(loader)
    key = dp.randomness.Source.unsafe_test_key(
        bytes(32)
    )  # one sample in 24 would be empty, and need no worker; this one is not
    its = plan(policy=dp.Poisson(0.1), steps=1)
    run = PrivateRun(nn.Linear(1, 1), its, ledger=dp.Ledger.in_memory(), source=key)
    with pytest.raises(RuntimeError, match="worker_init_fn was called"):
        _ = next(run.batches(loader)).data


def _note_worker(number: int) -> None:
    raise RuntimeError("worker_init_fn was called", number)


def test_a_second_pass_is_refused_and_changes_nothing_for_the_first() -> None:
    """Also what it says of epsilon, and of where batches lie."""
    seen: list[float | None] = []
    its, ledger = plan(steps=6), dp.Ledger.in_memory()
    run = PrivateRun(
        nn.Linear(1, 1), its, ledger=ledger, logs=[lambda logged: seen.append(logged.epsilon)]
    )
    batches = run.batches(Numbers())
    run.backward(loss, next(batches))
    before = run._watch._meter
    with pytest.raises(dp.errors.SampleMisuse, match="a second one"):
        run.batches(TensorDataset(torch.zeros(RECORDS, 2)))
    assert run._watch._meter == before
    for batch in batches:
        run.backward(loss, batch)
    assert seen[-1] is not None
    assert seen[-1] <= run.guarantee().upper * 1.001


# --- random numbers ---


def loaded(dataset: Any, key: bytes = KEY, *, public: Any = (), **options: Any) -> list[Any]:
    """What all batches hold, by a session alone: full batches, and one key unless another is
    said.
    """
    bound = plan(policy=options.pop("policy", dp.Everything()), steps=options.pop("steps", 3))
    session = Session(
        bound.for_leaves({"grad/weight": 1}),
        ledger=dp.Ledger.in_memory(),
        numerics=dp.Numerics.CERTIFIED,
        source=Source.unsafe_test_key(key),
    )
    settings = {"collate": None, "workers": None, "expected_batch_size": RECORDS, **options}
    loading = Loading.of(dataset, **settings)

    def choose(sample: Sample) -> Any:
        return sample.indices[session.order(sample)], None

    return [
        batch.data
        for batch in loading.batches(session.samples(), choose, session.entries_seed, public)
    ]


class Noisy(Numbers):
    """Changed at random, by all three generators."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, float(torch.rand(())), np.random.rand(), random.random()])


def noisy(entries: list[Tensor]) -> Tensor:
    rows = torch.stack(entries)
    return torch.cat(
        [rows, torch.rand(len(rows), 1), torch.full((len(rows), 1), random.random())], 1
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_p18_transforms_draw_from_the_secret_source(workers: int) -> None:
    """The same in workers: what is drawn belongs to a sample, not to the process that fetches
    it.
    """
    batches = []
    for public, key in ((1, KEY), (2, KEY), (1, bytes(32))):
        torch.manual_seed(public)
        np.random.seed(public)
        random.seed(public)
        state = torch.get_rng_state()
        batches.append(torch.stack(loaded(Noisy(), key, collate=noisy, workers=workers)))
        assert torch.equal(torch.get_rng_state(), state)
        assert random.Random(public).random() == random.random()
        assert np.random.RandomState(public).rand() == np.random.rand()
    here, again, other = batches
    assert torch.equal(here, again)
    assert not bool((here[..., 1:] == other[..., 1:]).any())
    assert torch.equal(here, torch.stack(loaded(Noisy(), collate=noisy)))
    random_numbers = here[..., 1:5].flatten()
    assert len(set(random_numbers.tolist())) == len(random_numbers)


class Own(Numbers):
    """Has a generator of its own in each worker, as torch's manual advises."""

    generator: np.random.Generator

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index), self.generator.random()])


def begin_own(_: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.generator = np.random.default_rng(info.seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_p18_workers_are_seeded_from_the_secret_source(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def batches(key: bytes) -> Tensor:
        loader = DataLoader(
            Own(), batch_size=RECORDS, num_workers=1, worker_init_fn=begin_own, generator=generator
        )
        return torch.stack(loaded(loader, key))

    assert torch.equal(batches(KEY), batches(KEY))
    assert not torch.equal(batches(KEY)[..., 1], batches(bytes(32))[..., 1])


def test_rows_of_tensors_need_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Session, "entries_seed")
    monkeypatch.setattr(Session, "entries_seed", None, raising=False)
    assert len(loaded(TensorDataset(torch.zeros(RECORDS, 2)), workers=1)) == 3


# --- signatures ---


def to_the_longest(entries: list[Tensor]) -> Tensor:
    """As long as the largest number of the batch."""
    longest = int(max(entry[0] for entry in entries))
    return torch.stack([nn.functional.pad(entry, (0, longest)) for entry in entries])


class Growing(Numbers):
    """Entries that become longer from fetch to fetch."""

    fetches = 0

    def __getitem__(self, index: int) -> Tensor:
        self.fetches += 1
        # In two batches; what is fetched in another order is fetched in copies of the process.
        return torch.zeros(3 if self.fetches > 2 * RECORDS else 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_p11_batches_of_other_sizes_are_refused(workers: int) -> None:
    with pytest.raises(dp.errors.CoupledRecords, match="collate"):
        loaded(Numbers(), collate=to_the_longest, workers=workers)
    with pytest.raises(dp.errors.CoupledRecords, match="fixed length"):
        loaded(Growing(), workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_empty_samples_have_no_signature(workers: int) -> None:
    batches = loaded(
        Numbers(), collate=stacked, workers=workers, policy=dp.Poisson(1 / RECORDS), steps=30
    )
    assert batches[0] is None
    assert None in batches[5:]
    assert any(batch is not None for batch in batches)


# --- what is done when batches begin ---


class Centred(Numbers):
    """Mixes entries."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        rows = torch.stack([self[index] for index in indices])
        return list(rows - rows.mean(0))


@pytest.mark.parametrize("workers", [0, 1])
def test_p11_entries_that_are_mixed_are_found_in_workers_too(workers: int) -> None:
    with pytest.raises(dp.errors.CoupledRecords, match="__getitems__"):
        loaded(Centred(), workers=workers)


def test_the_memory_of_the_data_set_is_marked() -> None:
    """So that a loss cannot reach past what it is given, which is a copy of the batch."""
    x, table = torch.zeros(RECORDS, 2), torch.zeros(4)
    (batch,) = loaded(TensorDataset(x), steps=1)
    assert holds_records(x)
    assert holds_records(batch[0])
    loaded(Subset(TensorDataset(table.expand(RECORDS, 4)), range(RECORDS)), public=[table])
    assert not holds_records(table)


def test_batches_are_tried_out_at_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(entries: list[Tensor]) -> Tensor:
        calls.append(len(entries))
        return torch.stack(entries)

    loaded(Numbers(), collate=counted, steps=9)
    together = 1 + 2 * 3  # the batch; half of it others, three times and both ways
    assert calls.count(RECORDS) == 4 * together
    # Eight in two orders as well: in copies of the process.
    assert calls.count(1) == 4 + 9 * (RECORDS + 1)


def everything(steps: int = 2) -> dp.Plan:
    sampler = dp.Sampler(dp.Everything(), records=RECORDS, steps=steps)
    return dp.Plan(sampler=sampler, mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}))


@pytest.mark.parametrize("rows", [None, 4])
def test_t11_a_loss_that_reaches_for_the_whole_batch_past_what_it_is_given_is_refused(
    rows: int | None,
) -> None:
    """Wrong: only the memory of the data set is marked, and the loop's own variable is taken for a
    constant.
    """
    run = PrivateRun(nn.Linear(1, 1), everything(), ledger=dp.Ledger.in_memory(), microbatch=rows)
    for batch in run.batches(TensorDataset(torch.randn(RECORDS, 1))):
        whole = batch.data[0]

        def centred(model: nn.Module, data: Any, whole: Tensor = whole) -> Tensor:
            out: Tensor = (model(data[0]) - whole.mean()).square().sum(1)
            return out

        with pytest.raises(dp.errors.CoupledRecords, match="of its batches"):
            run.backward(centred, batch)
        break


def test_a_loss_may_write_into_the_batch_that_it_is_given() -> None:
    """Wrong: the batch is lent to the pass, and whoever computes it again finds it changed."""

    def halved(model: nn.Module, data: Any) -> Tensor:
        out: Tensor = model(data[0].mul_(0.5)).square().sum(1)
        return out

    run = PrivateRun(nn.Linear(1, 1), everything(), ledger=dp.Ledger.in_memory())
    for batch in run.batches(TensorDataset(torch.randn(RECORDS, 1))):
        before = batch.data[0].clone()
        run.backward(halved, batch)
        assert torch.equal(batch.data[0], before)
    assert run.engine.one_by_one is None
