"""Pitfalls of whole runs: precision of noise, subsets, accumulation, runs that end early, checkpoints, logs, users' objects.

Each test shows what the wrong implementation gives beside what a run does.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

import discreet as dp
from discreet.errors import CheckpointError
from discreet.randomness import Source
from discreet.training import PrivateRun
from discreet.training.logs import CsvLog, Logged
from unit.training.test_run import KEY, RECORDS, data, gradients, keyed, loss, network, plan

NOISY = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)})


def nothing(model: nn.Module, batch: Any) -> Tensor:
    return 0.0 * loss(model, batch)


def next_gradient(run: PrivateRun, model: nn.Module) -> Tensor:
    """Of a step whose records contribute nothing: noise alone."""
    model.zero_grad()
    run.backward(nothing, next(run.batches(data())))
    return gradients(model).clone()


def test_p18_no_key_is_in_a_checkpoint(tmp_path: Path) -> None:
    run = keyed(network(), plan(NOISY))
    run.backward(loss, next(run.batches(data())))
    run.save(tmp_path / "run.checkpoint")
    assert KEY not in (tmp_path / "run.checkpoint").read_bytes()
    torch.save({"key": torch.tensor(list(KEY), dtype=torch.uint8)}, tmp_path / "wrong")
    assert KEY in (tmp_path / "wrong").read_bytes()  # it would be seen


def test_p20_two_runs_from_one_checkpoint_share_no_noise_and_both_are_charged(tmp_path: Path) -> None:
    model, ledger = network(), dp.Ledger.in_memory()
    run = PrivateRun(model, plan(NOISY), ledger=ledger)
    batches = run.batches(data())
    run.backward(loss, next(batches))
    run.save(tmp_path / "run.checkpoint")
    batches.close()  # type: ignore[attr-defined]
    found = []
    for _ in range(2):
        run = PrivateRun(model, plan(NOISY), ledger=ledger)
        assert run.load(tmp_path / "run.checkpoint") == 1
        found.append(next_gradient(run, model))
    assert bool((found[0] != found[1]).any())
    assert sum(charge.count for charge in ledger.charges()) == 3  # one before, and one on each branch
    seeded = []
    for _ in range(2):  # a key that came with the checkpoint would give the same noise: the two subtract to nothing
        run = keyed(model, plan(NOISY))
        seeded.append(next_gradient(run, model))
    assert torch.equal(*seeded)


def test_p21_half_precision_is_noised_in_full_and_rounded_once() -> None:
    """The same key, once for a float32 and once for a bfloat16 model: the second gradient is the first, rounded."""
    its = plan(NOISY)
    full, half = network(), network().bfloat16()
    run = keyed(full, its)
    run.backward(nothing, next(run.batches(data())))
    run = keyed(half, its)
    run.backward(nothing, next(run.batches(TensorDataset(data().tensors[0].bfloat16(), data().tensors[1]))))
    assert torch.equal(gradients(half), gradients(full).bfloat16())
    in_half = (gradients(full) * its.expected_batch_size).bfloat16() / its.expected_batch_size  # noise of eight bits
    assert not torch.equal(in_half.bfloat16(), gradients(half))


def test_p30_a_subset_stays_a_subset() -> None:
    """Rows that were held out are never seen, also if every record is drawn; a plan for all rows is refused."""
    rows = TensorDataset(torch.arange(float(RECORDS)).repeat(6, 1).T, data().tensors[1])
    held_out = set(range(0, RECORDS, 2))
    train = Subset(rows, [row for row in range(RECORDS) if row not in held_out])
    run = keyed(network(), plan(NOISY, policy=dp.Everything(), records=len(train)))
    seen = set()
    for batch in run.batches(train):
        seen |= set(batch.data[0][:, 0].int().tolist())
        run.backward(loss, batch)
    assert seen == set(range(RECORDS)) - held_out
    assert set(range(len(train))) & held_out  # positions in the subset are not rows of what lies below it
    wrong = keyed(network(), plan(NOISY, records=RECORDS))  # and the rate of a plan for all rows
    with pytest.raises(dp.ModelError, match=f"{RECORDS} records"):
        next(wrong.batches(train))


def test_p30_a_loader_with_a_sampler_of_its_own_is_refused() -> None:
    """It would be ignored: all rows trained on, where it draws from the first half."""
    its, size = plan(NOISY), RECORDS // 2
    own = DataLoader(data(), batch_size=size, sampler=SubsetRandomSampler(range(size)))
    with pytest.raises(dp.ParameterError, match="sampler"):
        keyed(network(), its).batches(own)
    run = keyed(network(), its)
    run.backward(loss, next(run.batches(DataLoader(data(), batch_size=size, shuffle=True))))


def test_p31_accumulation_over_two_draws_is_two_steps() -> None:
    """An optimizer that steps after every second batch: six draws, six charges, not three."""
    model, ledger = network(), dp.Ledger.in_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = PrivateRun(model, plan(NOISY, steps=6), ledger=ledger)
    updates = 0
    for number, batch in enumerate(run.batches(data()), 1):
        run.backward(loss, batch)
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    (charge,) = ledger.charges()
    assert (charge.count, updates) == (6, 3)
    as_one = dp.account([(charge.step, updates)], delta=1e-5, adjacency=dp.Adjacency.ADD_OR_REMOVE)
    assert dp.account(ledger, delta=1e-5).lower > 1.2 * as_one.upper


@pytest.mark.parametrize("taken", [1, 3, 10])
def test_p41_what_ran_is_charged_and_not_what_was_planned(taken: int) -> None:
    """A loop that ends after `taken` of ten steps: the ledger says so. One that asks for more gets nothing."""
    its, ledger = plan(NOISY, steps=10), dp.Ledger.in_memory()
    run = PrivateRun(network(), its, ledger=ledger)
    batches = run.batches(data())
    for _ in range(taken):
        run.backward(loss, next(batches))
    if taken == its.steps:
        assert next(batches, None) is None
    batches.close()  # type: ignore[attr-defined]
    (charge,) = ledger.charges()
    assert (charge.count, charge.unsettled) == (taken, 0)
    with pytest.raises(dp.SampleMisuse):
        next(run.batches(data()))


def test_p42_logs_see_what_was_released_and_nothing_else(tmp_path: Path) -> None:
    """The raw accuracy of every batch is at hand while the loss is computed; no log is given it, nor the loss."""
    raw: list[float] = []
    seen: list[Logged] = []

    def with_accuracy(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        right = (model(batch[0]).argmax(1) == batch[1]).float()
        raw.append(float(right.mean()))
        return loss(model, batch), {"metric/right": right}

    groups = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "metric/*": dp.Gaussian(1.0, 5.0)})
    log = CsvLog(tmp_path / "log.csv")
    run = keyed(network(), plan(groups), statistics={"metric/right": 1}, logs=[seen.append, log])
    released = [float(run.backward(with_accuracy, batch).mean("metric/right")[0]) for batch in run.batches(data())]
    assert [float(one.means["metric/right"][0]) for one in seen] == released
    assert not set(released) & set(raw)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0] == "step,batch,epsilon,metric/right"
    assert [float(line.split(",")[3]) for line in lines[1:]] == released


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_p46_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    run = keyed(network(), plan(NOISY))
    torch.save({"objects": Payload(tmp_path / "ran")}, tmp_path / "run.checkpoint")
    with pytest.raises(CheckpointError):
        run.load(tmp_path / "run.checkpoint")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "run.checkpoint", weights_only=False)
    assert (tmp_path / "ran").exists()  # what an ordinary load does


def test_p47_optimizers_and_models_stay_what_they_were() -> None:
    """A deep copy of an optimizer in the midst of a run steps as the original does; no hook, no name is left behind."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    names, kind, step = list(model.state_dict()), type(optimizer), torch.optim.Adam.step
    run = PrivateRun(model, plan(NOISY), ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY))
    for batch in run.batches(data()):
        run.backward(loss, batch)
        other_model, other = copy.deepcopy((model, optimizer))
        pairs = list(zip(model.parameters(), other_model.parameters(), strict=True))
        for mine, theirs in pairs:
            theirs.grad = None if mine.grad is None else mine.grad.clone()  # torch copies parameters without their gradients
        for one in (optimizer, other):
            one.step()
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
        optimizer.zero_grad()
    assert type(optimizer) is kind
    assert torch.optim.Adam.step is step
    assert list(model.state_dict()) == names
    for module in model.modules():
        for kept in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            assert not getattr(module, kept)
    for parameter in model.parameters():
        assert not parameter._backward_hooks
        assert set(vars(parameter)) == set()
