"""Real trainings, killed at random moments and resumed: nothing is released that the ledger does
not cover.

For every training that came to its end in spite of the kills:
  charged >= drawn     the ledger counts every step whose noise was drawn, also those that a
                       resumed process took again
  distinct noise       no two releases share their noise, in whichever process they happened (P20)
and, as the ledger is held to
  an odometer          count == planned: the model went through exactly the planned number of
                       optimizer steps
  a list               charged <= planned, and the guarantee is that of the plan: steps that a kill
                       lost are lost
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.ledger.run import block_size
from discreet.training import PrivateRun
from support import training_child as child


class Nursery:
    """A process with torch imported, which forks a training for every line."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def train(self, terms: str, folder: Path, killer: "Killer | None") -> int:
        """The training's exit code; minus the signal if it was killed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{terms} {folder}\n")
        self.process.stdin.flush()
        word, pid = self._line().split()
        assert word == "started"
        if killer is not None:
            killer.follow(int(pid), folder / "drawn")
        word, status = self._line().split()
        assert word == "ended"
        return int(status)


@dataclass(frozen=True)
class Killer:
    """Kills a training: so long after it was started, or after so many of its steps and a moment
    more.
    """

    steps: int
    moment: float  # seconds

    @classmethod
    def by(cls, chance: random.Random) -> "Killer":
        """One in four while it starts; the others anywhere between its first step and its last."""
        if chance.random() < 0.25:
            return cls(0, chance.uniform(0.0, 0.5))
        return cls(chance.randrange(1, child.STEPS), chance.uniform(0.0, 0.005))

    def follow(self, pid: int, drawn: Path) -> None:
        """Wait for the moment; a training that ends first is left alone."""
        goal = size(drawn) + self.steps
        with suppress(ProcessLookupError):  # it ended by itself
            while size(drawn) < goal:
                os.kill(pid, 0)
                time.sleep(0.001)
            time.sleep(self.moment)
            os.kill(pid, signal.SIGKILL)


@contextmanager
def nursery() -> Iterator[Nursery]:
    its = Nursery()
    try:
        yield its
    finally:
        assert its.process.stdin is not None
        assert its.process.stdout is not None
        its.process.stdin.close()
        its.process.wait(timeout=60)
        its.process.stdout.close()


def kill_and_resume(folder: Path, terms: str, kills: int, seed: int) -> int:
    """Kill trainings so many times, each up to four times, and bring every one to its end. Returns
    how many there were.
    """
    chance = random.Random(seed)
    done = killed = 0
    with nursery() as its:
        while killed < kills:
            here = folder / str(done)
            here.mkdir()
            died = 0
            while killed < kills and died < 4:
                status = its.train(terms, here, Killer.by(chance))
                assert status in (0, -signal.SIGKILL)
                if status == 0:
                    break
                killed, died = killed + 1, died + 1
                check_so_far(here)
            else:
                assert its.train(terms, here, None) == 0
            check_finished(terms, here, died)
            sys.stdout.write(
                f"killed {died} times: {size(here / 'drawn')} steps drawn, {charged(here)} "
                "charged\n"
            )
            done += 1
    return done


def charged(here: Path) -> int:
    with dp.Ledger.open(here / "ledger", "r") as ledger:
        return sum(charge.count for charge in ledger.verify().charges())


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_so_far(here: Path) -> None:
    """After a kill: the ledger, if it came to be, is whole and covers everything."""
    drawn = size(here / "drawn")
    assert drawn == 0 if not (here / "ledger").exists() else charged(here) >= drawn


def check_finished(terms: str, here: Path, died: int) -> None:
    drawn = size(here / "drawn")
    noise = np.frombuffer(
        (here / "noise").read_bytes()[: size(here / "noise") // child.NOISE * child.NOISE]
    ).reshape(-1, 2)
    assert drawn - died <= len(noise) <= drawn
    assert len(np.unique(noise)) == noise.size
    if terms == "list":
        check_list(here, died)
    else:
        assert child.STEPS <= drawn <= charged(here) <= drawn + died * block_size(child.STEPS)
        check_model(here)


def check_list(here: Path, died: int) -> None:
    """All of the list is charged, nothing else, and the guarantee is that of the plan."""
    drawn = size(here / "drawn")
    assert drawn <= charged(here) == child.STEPS <= drawn + died * block_size(child.STEPS)
    with dp.Ledger.open(here / "ledger", "r") as ledger:
        assert (
            dp.account(ledger, delta=child.DELTA).upper
            == dp.account(child.plan(), delta=child.DELTA).upper
        )


def check_model(here: Path) -> None:
    """The last checkpoint is that of the planned number of steps."""
    model, count = child.network(), child.Count()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, child.STEPS)
    with PrivateRun(
        model, child.plan(), ledger=here / "ledger", statistics={"metric/nothing": 2}
    ) as run:
        step = run.load(
            here / "checkpoint", optimizer=optimizer, scheduler=scheduler, others={"count": count}
        )
        assert step == count.steps == scheduler.last_epoch == child.STEPS
        assert list(run.batches(child.data())) == []
        assert 0.0 < run.guarantee().upper < float("inf")
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert model(child.data().tensors[0]).shape == (child.RECORDS, 2)


@pytest.mark.parametrize("terms", [pytest.param("odometer", marks=pytest.mark.full), "list"])
def test_p20_p41_five_kills(tmp_path: Path, terms: str) -> None:
    assert kill_and_resume(tmp_path, terms, kills=5, seed=1) >= 1


@pytest.mark.full
@pytest.mark.parametrize("terms", ["odometer", "list"])
def test_p20_p41_a_hundred_kills(tmp_path: Path, terms: str) -> None:
    assert kill_and_resume(tmp_path, terms, kills=100, seed=2) >= 25


@pytest.mark.parametrize("terms", ["odometer", "list"])
def test_a_training_that_nobody_kills_is_charged_exactly(tmp_path: Path, terms: str) -> None:
    with nursery() as its:
        assert its.train(terms, tmp_path, None) == 0
    assert charged(tmp_path) == size(tmp_path / "drawn") == child.STEPS
    check_finished(terms, tmp_path, 0)
    check_model(tmp_path)
