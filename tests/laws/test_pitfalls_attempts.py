"""What a sixth attack found: state before the first records, losses that take turns, modes around a
loop, what a record's process prints, what was learned where Python may look.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import ModelError, SampleMisuse
from discreet.randomness import Source
from discreet.training import PrivateRun
from discreet.training.separation import effects
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows
from discreet.training.state.processes import in_a_copy

KEY = bytes(range(32))
PASS = 5


class Warm(nn.Module):
    """Counts steps and rows in buffers, as a warm-up does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.steps: Tensor
        self.rows: Tensor
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.rows += len(x)
        out: Tensor = self.layer(x)
        return out


def squares(model: Any, batch: Any) -> Tensor:
    losses: Tensor = model(batch[0]).square().sum(1)
    return losses


def begun(model: nn.Module, policy: Any, steps: int = 3, **options: Any) -> PrivateRun:
    plan = dp.Plan(
        sampler=dp.Sampler(policy, records=4, steps=steps),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}),
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
    )
    source = Source.unsafe_test_key(KEY)
    return PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), source=source, **options)


def rows(labels: Tensor | None = None) -> TensorDataset:
    return TensorDataset(torch.randn(4, 3), torch.zeros(4).long() if labels is None else labels)


@pytest.mark.parametrize("microbatch", [PASS, None])
@pytest.mark.parametrize("looks", [False, True])
def test_t09_an_empty_first_sample_moves_state_as_any_other(
    looks: bool, microbatch: int | None
) -> None:
    """Wrong: without a pass before it nothing moves, or by as many rows as a rehearsal has."""
    counted = []
    for policy in (dp.Poisson(2.0**-30), dp.Poisson(0.9)):  # none of them, nearly all of them
        model = Warm()
        run = begun(model, policy, microbatch=microbatch)
        for batch in run.batches(rows()):
            if looks:
                _ = batch.data
            run.backward(squares, batch)
        counted.append((float(model.steps), float(model.rows)))
    assert counted[0][0] == counted[1][0] == 3.0
    if microbatch is not None:
        assert counted[0][1] == counted[1][1] == 3.0 * microbatch


@pytest.mark.parametrize("label", [0, 9])
def test_t14_a_batch_on_which_an_operation_failed_is_used_no_more(label: int) -> None:
    """Wrong: a loop that falls back to another loss, or tries again with another setting, lets one
    record decide for all.
    """

    def classified(model: Any, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    run = begun(nn.Linear(3, 2), dp.Everything())
    batch = next(run.batches(rows(torch.tensor([0, 1, 0, label]))))
    if label == 0:
        run.backward(classified, batch)
        return

    with pytest.raises(IndexError):
        run.backward(classified, batch)
    for loss in (classified, squares):
        with pytest.raises(SampleMisuse, match="perhaps because of a record"):
            run.backward(loss, batch)


def _catching(model: Any, batch: Any) -> Tensor:
    with suppress(IndexError):
        nn.functional.one_hot(batch[1], 2)
    return squares(model, batch)


def _dropping(model: Any, batch: Any) -> Tensor:
    losses = squares(model, batch)
    return losses[:0] if float(batch[1].max()) > 1 else losses


def _refusing(model: Any, batch: Any) -> Tensor:
    if float(batch[1].max()) > 1:
        raise ModelError(expected="a rare record", got="one", do="Nothing.")
    return squares(model, batch)


@pytest.mark.parametrize("loss", [_catching, _dropping, _refusing])
def test_t14_after_a_refusal_that_a_record_may_have_caused_there_is_no_other_loss(
    loss: Any,
) -> None:
    """Wrong: every refusal by name counts as public."""
    run = begun(nn.Linear(3, 2), dp.Everything())
    batch = next(run.batches(rows(torch.tensor([0, 1, 0, 9]))))
    with pytest.raises((ModelError, RuntimeError)):
        run.backward(loss, batch)
    with pytest.raises(SampleMisuse, match="perhaps because of a record"):
        run.backward(squares, batch)


def test_a_loss_that_looks_at_records_says_nothing_of_later_steps() -> None:
    """An error of a later step, in which Python saw nothing, may be mended as always."""
    run = begun(nn.Linear(3, 2), dp.Everything())
    batches = run.batches(rows())
    run.backward(_dropping, next(batches))
    batch = next(batches)

    def averaged(model: Any, batch: Any) -> Tensor:
        return squares(model, batch).mean()

    with pytest.raises(ModelError, match="one loss for each record"):
        run.backward(averaged, batch)
    run.backward(squares, batch)


def test_a_loss_that_was_refused_by_name_may_be_mended() -> None:
    def averaged(model: Any, batch: Any) -> Tensor:
        return squares(model, batch).mean()

    run = begun(nn.Linear(3, 2), dp.Everything())
    batch = next(run.batches(rows()))
    with pytest.raises(ModelError, match="one loss for each record"):
        run.backward(averaged, batch)
    run.backward(squares, batch)


class Watching(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Following(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Watching, Following])
def test_t15_a_mode_around_the_loop_is_refused_by_name(mode: Any) -> None:
    model = nn.Linear(3, 2)
    run = begun(model, dp.Everything())
    batch = next(run.batches(rows()))
    with mode(), pytest.raises(ModelError, match=mode.__name__):
        run.backward(squares, batch)
    assert model.weight.grad is None
    run.backward(squares, batch)


def test_a_default_device_is_no_such_mode() -> None:
    run = begun(nn.Linear(3, 2), dp.Everything())
    batch = next(run.batches(rows()))
    with torch.device("cpu"):
        run.backward(squares, batch)


def test_p42_a_process_of_a_record_prints_and_logs_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("tests.attempts")
    handler = logging.FileHandler(tmp_path / "log")
    log.addHandler(handler)
    log.propagate = False

    def task() -> float:
        print("secret")  # noqa: T201  (as losses do)
        log.warning("secret")
        return 1.5

    assert in_a_copy(task) == 1.5
    log.removeHandler(handler)
    handler.close()
    assert (tmp_path / "log").read_text() == ""
    assert capfd.readouterr().out == ""


def test_t07_what_was_learned_where_python_may_look_serves_no_other_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a door that stood open for a made-up record is not seen in earnest."""
    monkeypatch.setattr(effects, "_effects", {})
    for shown in (True, False):
        proof = Proof(1, shown=shown)
        record = proof.begin(torch.randn(1, 4), Rows(0))
        with proof:
            mask = record > 0
            if shown:
                _ = record[mask]
            else:
                with pytest.raises(OneByOne, match="shape"):
                    _ = record[mask]


def test_t08_another_name_for_a_memory_leaves_it_as_it_is() -> None:
    """Wrong: what a tensor is set to is taken for memory that has grown, and filled with zeros."""
    model = nn.Linear(3, 2)
    weight = model.weight.detach().clone()

    def aliased(model: Any, batch: Any) -> Tensor:
        with torch.no_grad():
            torch.empty(0).set_(model.weight.data)
            view = torch.zeros(3)
            view.set_(batch[0])
        return squares(model, (view,))

    run = begun(model, dp.Everything(), steps=1)
    for batch in run.batches(rows()):
        run.backward(aliased, batch)
    assert torch.equal(model.weight, weight)
    assert run.engine.one_by_one is None


def test_losses_with_outputs_are_refused_by_name() -> None:
    def with_outputs(model: Any, batch: Any) -> Any:
        out = model(batch[0])
        return out.square().sum(1), out

    run = begun(nn.Linear(3, 2), dp.Everything())
    with pytest.raises(ModelError, match="losses and a Tensor"):
        run.backward(with_outputs, next(run.batches(rows())))


def test_a_process_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.training.state.processes._PATIENCE", 0.2)
    with pytest.raises(ModelError, match="took longer than"):
        in_a_copy(lambda: time.sleep(60))
