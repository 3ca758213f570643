"""A run may end whenever it likes: all that it planned counts,
unless a public reason was declared.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.training import PrivateRun

RECORDS, STEPS, TAKEN, DELTA = 24, 100, 10, 1e-5
RESERVED = 32  # what a killed run of a few steps leaves behind: its first block
PLAN = dp.Plan.dpsgd(records=RECORDS, sampling_probability=0.5, steps=STEPS, noise_multiplier=4.0)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, 1)


def data() -> TensorDataset:
    return TensorDataset(torch.ones(RECORDS, 3))


def loss(model: nn.Module, batch: Any) -> Tensor:
    losses: Tensor = model(batch[0]).squeeze(1)
    return losses


def epsilon(steps: int) -> float:
    """Of so many steps that were fixed in advance."""
    return dp.account([(PLAN.step, steps)], delta=DELTA, adjacency=PLAN.adjacency).upper


def charged(ledger: dp.Ledger) -> int:
    return ledger.snapshot().steps


def train(run: PrivateRun, **options: Any) -> int:
    """Steps taken."""
    taken = 0
    for batch in run.batches(data(), **options):
        run.backward(loss, batch)
        taken += 1
    return taken


class Broken(Exception):
    """Something went wrong in the user's loop."""


def stopped_by(error: type[BaseException] | None, run: PrivateRun) -> None:
    """Ten steps, then the loop ends: by this error, or by `break`."""
    for batch in run.batches(data()):
        run.backward(loss, batch)
        if run.step == TAKEN:
            if error is None:
                break
            raise error


ENDS: dict[str, Callable[[PrivateRun], None]] = {
    "break": lambda run: stopped_by(None, run),
    "exception": lambda run: stopped_by(Broken, run),
    "Ctrl-C": lambda run: stopped_by(KeyboardInterrupt, run),
}


def ended(how: str, ledger: dp.Ledger) -> PrivateRun:
    """A run of ten steps that ended in this way."""
    run = PrivateRun(network(), PLAN, ledger=ledger, label="digits")
    try:
        ENDS[how](run)
    except (Broken, KeyboardInterrupt):
        assert how != "break"
    return run


# --- the end of a loop ---


@pytest.mark.parametrize("how", ENDS)
def test_however_a_loop_ends_the_whole_plan_counts_and_the_guarantee_says_so(how: str) -> None:
    ledger = dp.Ledger.in_memory()
    run = ended(how, ledger)
    assert charged(ledger) == TAKEN
    claim = run.guarantee(DELTA)
    assert claim.upper == dp.account(PLAN, delta=DELTA).upper > 2.0 * epsilon(TAKEN)
    assert f"{STEPS} steps" in claim.basis
    assert f"{TAKEN} were charged, and all count" in claim.basis
    assert claim.basis in str(claim)
    assert not any("public reason" in text for text in claim.assumptions)


@pytest.mark.parametrize("how", ENDS)
def test_for_a_public_reason_the_steps_that_were_taken_count_and_the_reason_is_named(
    how: str,
) -> None:
    ledger = dp.Ledger.in_memory()
    run = ended(how, ledger)
    run.stop("the machine was needed for something else")
    claim = run.guarantee(DELTA)
    assert claim.upper == epsilon(TAKEN)
    words = "run 'digits' ended after 10 of 100 planned steps for a public reason, as was declared"
    assert any(
        words in text and "the machine was needed for something else" in text
        for text in claim.assumptions
    )
    assert "public reason" in claim.basis
    assert "the machine was needed for something else" in str(claim)


def test_a_run_that_stopped_for_a_public_reason_takes_no_more_steps() -> None:
    ledger = dp.Ledger.in_memory()
    ended("break", ledger).stop("power failure")
    again = PrivateRun(network(), PLAN, ledger=ledger)
    with pytest.raises(dp.errors.BudgetExceeded, match="of which 0 fit"):
        again.batches(data())
    assert train(again, until_budget=True) == 0
    assert (charged(ledger), again.guarantee(DELTA).upper) == (TAKEN, epsilon(TAKEN))


def test_a_reason_given_while_batches_are_held_ends_the_loop() -> None:
    """Somebody keeps the iterator: nothing more is to be had from it."""
    ledger = dp.Ledger.in_memory()
    run = PrivateRun(network(), PLAN, ledger=ledger)
    batches = run.batches(data())
    for _ in range(TAKEN):
        run.backward(loss, next(batches))
    run.stop("power failure")
    assert list(batches) == []
    assert charged(ledger) == TAKEN
    assert run.guarantee(DELTA).upper == epsilon(TAKEN)


def test_a_reason_is_declared_once_and_of_a_run_that_began() -> None:
    run = PrivateRun(network(), PLAN, ledger=dp.Ledger.in_memory())
    with pytest.raises(dp.errors.SampleMisuse, match="a run that began"):
        run.stop("power failure")
    stopped_by(None, run)
    with pytest.raises(dp.errors.ParameterError, match="reason"):
        run.stop("")
    run.stop("power failure")
    with pytest.raises(dp.errors.LedgerMisuse):
        run.stop("another reason")


def test_all_steps_of_a_list_count_for_a_second_run_too() -> None:
    """An early stop leaves room on the list; whoever takes it pays nothing that was not claimed
    before.
    """
    ledger = dp.Ledger.in_memory()
    before = ended("break", ledger).guarantee(DELTA).upper
    again = PrivateRun(network(), PLAN, ledger=ledger)
    with pytest.raises(dp.errors.BudgetExceeded, match=f"of which {STEPS - TAKEN} fit"):
        again.batches(data())
    assert train(again, until_budget=True) == STEPS - TAKEN
    assert charged(ledger) == STEPS
    assert again.guarantee(DELTA).upper == before


# --- a killed process ---

_KILLED = """
import os, signal, sys, torch
import discreet as dp
from discreet.training import PrivateRun
from unit.training.test_early_stop import DELTA, PLAN, TAKEN, data, loss, network

torch.set_num_threads(1)
limit = dp.Budget(epsilon=float(sys.argv[1]), delta=DELTA)
for name, budget in {"list": None, "limit": limit, "odometer": dp.Odometer(delta=DELTA)}.items():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, name
        continue
    os.mkdir(name)
    run = PrivateRun(network(), PLAN, ledger=f"{name}/a.ledger", budget=budget, label="digits")
    for batch in run.batches(data()):
        run.backward(loss, batch)
        if run.step == TAKEN:
            run.save(f"{name}/a.checkpoint")
        if run.step == TAKEN + 2:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of a ledger and a checkpoint at step 10, left by processes that were killed after
    step 12.
    """
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", _KILLED, repr(1.001 * epsilon(STEPS))]
    subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True
    )
    return folder


def resumed(killed: Path, tmp_path: Path, terms: str = "list", **options: Any) -> PrivateRun:
    """On a copy, so that every test finds what the killed process left."""
    shutil.copytree(killed / terms, tmp_path, dirs_exist_ok=True)
    run = PrivateRun(network(), PLAN, ledger=tmp_path / "a.ledger", label="digits")
    assert run.load(tmp_path / "a.checkpoint", **options) == TAKEN
    return run


def test_of_a_killed_run_the_whole_plan_counts(killed: Path) -> None:
    with dp.Ledger.open(killed / "list" / "a.ledger", "r") as ledger:
        assert charged(ledger) == RESERVED >= TAKEN + 2
        claim = dp.account(ledger, delta=DELTA)
    assert claim.upper == epsilon(STEPS)
    assert f"{RESERVED} were charged, and all count" in claim.basis


def test_a_resumed_run_that_no_longer_fits_its_list_is_refused_and_nothing_is_charged(
    killed: Path, tmp_path: Path
) -> None:
    with resumed(killed, tmp_path) as run:
        head = run.ledger.head()
        with pytest.raises(
            dp.errors.BudgetExceeded, match=f"of which {STEPS - RESERVED} fit"
        ) as refused:
            run.batches(data())
        assert "until_budget=True" in str(refused.value)
        assert run.ledger.head() == head


def test_until_budget_takes_what_is_left_and_the_total_never_exceeds_the_plan(
    killed: Path, tmp_path: Path
) -> None:
    with resumed(killed, tmp_path) as run:
        assert train(run, until_budget=True) == STEPS - RESERVED
        assert charged(run.ledger) == STEPS
        assert run.guarantee(DELTA).upper == epsilon(STEPS)
        assert run.ledger.runs()[-1].continues == run.ledger.runs()[0].number
    with PrivateRun(network(), PLAN, ledger=tmp_path / "a.ledger") as third:
        third.load(tmp_path / "a.checkpoint")
        assert train(third, until_budget=True) == 0
        assert charged(third.ledger) == STEPS


def test_for_a_public_reason_lost_steps_are_taken_again_and_the_guarantee_names_it(
    killed: Path, tmp_path: Path
) -> None:
    with resumed(killed, tmp_path, lost="power failure") as run:
        assert train(run) == STEPS - TAKEN
        assert run.step == STEPS
        total = RESERVED + STEPS - TAKEN
        assert charged(run.ledger) == total
        claim = run.guarantee(DELTA)
    assert claim.upper == epsilon(total) > epsilon(STEPS)
    assert any(
        "the list of steps grew" in text and "power failure" in text for text in claim.assumptions
    )
    assert "power failure" in str(claim)


def test_a_resumed_run_that_fits_needs_no_reason_and_none_is_written(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        first = ended("break", ledger)
        first.save(tmp_path / "a.checkpoint")
    with PrivateRun(network(), PLAN, ledger=tmp_path / "a.ledger") as run:
        run.load(tmp_path / "a.checkpoint", lost="power failure")
        assert train(run) == STEPS - TAKEN
        claim = run.guarantee(DELTA)
    assert claim.upper == epsilon(STEPS)
    assert "power failure" not in str(claim)


def test_no_reason_lets_a_list_grow_beyond_its_budget(killed: Path, tmp_path: Path) -> None:
    with resumed(killed, tmp_path, "limit", lost="power failure") as run:
        with pytest.raises(dp.errors.BudgetExceeded):
            run.batches(data())
        assert charged(run.ledger) == RESERVED
        assert run.guarantee().upper == pytest.approx(epsilon(STEPS), rel=1e-3)


def test_under_an_odometer_a_resumed_run_counts_as_more(killed: Path, tmp_path: Path) -> None:
    with resumed(killed, tmp_path, "odometer") as run:
        before = run.guarantee()
        assert train(run) == STEPS - TAKEN
        claim = run.guarantee()
        assert charged(run.ledger) == RESERVED + STEPS - TAKEN
    assert claim.upper > before.upper
    assert claim.upper > epsilon(STEPS)
    assert claim.if_fixed == pytest.approx(epsilon(RESERVED + STEPS - TAKEN), rel=1e-3)
    assert "whatever decided" in claim.basis


# --- the ledger of a checkpoint ---


def test_a_checkpoint_whose_ledger_is_not_there_is_refused(killed: Path, tmp_path: Path) -> None:
    """A path that is wrong makes an empty ledger, on which everything would seem to be unspent."""
    with PrivateRun(network(), PLAN, ledger=tmp_path / "other.ledger") as run:
        with pytest.raises(
            dp.errors.CheckpointError, match="no ledger was at that path"
        ) as refused:
            run.load(killed / "list" / "a.checkpoint")
        assert "Give the path of the ledger" in str(refused.value)
        assert run.step == 0
