"""Batches through a data set, a loader or worker processes: always the plan's samples of the user's own records."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
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
from discreet.randomness import Source
from discreet.training import PrivateRun

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
    run = PrivateRun(nn.Linear(1, 1), its, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY))
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
    assert drawn(DataLoader(Numbers(), batch_size=2, num_workers=2, collate_fn=stacked), its) == here
    assert drawn(DataLoader(Numbers(), batch_size=2, shuffle=True), its) == here


def test_workers_are_used() -> None:
    run = PrivateRun(nn.Linear(1, 1), plan(policy=dp.Everything(), steps=4), ledger=dp.Ledger.in_memory())
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
        assert {record for batch in drawn(source, its) for record in batch} <= set(map(float, range(20, 30)))
    with pytest.raises(dp.ModelError, match="a data set of 30 records"):
        drawn(part)


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(Numbers(), batch_size=3, sampler=SubsetRandomSampler(range(10))),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=WeightedRandomSampler([1.0] * 30, 30)),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=RandomSampler(Numbers(), replacement=True)),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=RandomSampler(Numbers(), num_samples=10)),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=SequentialSampler(range(10))),
        lambda: DataLoader(Numbers(), batch_size=3, sampler=RandomSampler(range(10), num_samples=30)),
        lambda: DataLoader(Numbers(), batch_sampler=[[0, 1], [2]]),
        lambda: DataLoader(Numbers(), batch_size=None),
    ],
    ids=["subset", "weighted", "replacement", "fewer", "part", "random part", "batches", "none"],
)
def test_p30_a_loader_with_a_sampler_of_its_own_is_refused(loader: Any) -> None:
    with pytest.raises(dp.ParameterError, match="without a sampler of its own"):
        drawn(loader())


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
        with pytest.raises(dp.ParameterError, match=message):
            run.batches(source, **options)  # type: ignore[arg-type]
    assert ledger.runs() == ()


@pytest.mark.parametrize("workers", [0, 1])
def test_p11_a_collate_function_that_mixes_records_is_found_in_workers_too(workers: int) -> None:
    with pytest.raises(dp.CoupledRecords, match="collate"):
        drawn(Numbers(), plan(policy=dp.Everything()), collate=centred, workers=workers)


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
    assert 1 <= sum(charge.count for charge in ledger.charges()) <= 3  # two batches are fetched ahead


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
    run = PrivateRun(nn.Linear(1, 1), plan(policy=dp.Everything(), steps=2), ledger=dp.Ledger.in_memory())
    for batch in run.batches(rows, workers=1):
        assert sorted(batch.data[0][:, 0].tolist()) == list(map(float, range(RECORDS)))
        run.backward(lambda model, data: loss(model, data[0]), batch)


def test_options_of_a_loader_hold_for_its_workers() -> None:
    noted: Any = functools.partial(_note_worker)
    loader = DataLoader(Numbers(), batch_size=3, num_workers=1, worker_init_fn=noted, prefetch_factor=1)
    run = PrivateRun(nn.Linear(1, 1), plan(policy=dp.Everything(), steps=1, records=RECORDS), ledger=dp.Ledger.in_memory())
    with pytest.raises(dp.ParameterError, match="batch_size=3"):
        run.batches(loader)
    key = dp.Source.unsafe_test_key(bytes(32))  # one sample in 24 would be empty, and need no worker; this one is not
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
    run = PrivateRun(nn.Linear(1, 1), its, ledger=ledger, logs=[lambda logged: seen.append(logged.epsilon)])
    batches = run.batches(Numbers())
    run.backward(loss, next(batches))
    before = (run._new, run._watch._meter)
    with pytest.raises(dp.SampleMisuse, match="a second one"):
        run.batches(TensorDataset(torch.zeros(RECORDS, 2)))
    assert (run._new, run._watch._meter) == before
    for batch in batches:
        run.backward(loss, batch)
    assert seen[-1] is not None
    assert seen[-1] <= run.guarantee().upper * 1.001
