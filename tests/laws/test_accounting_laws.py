"""Laws of every accountant, over every event that it accepts."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from discreet.accounting.accountant import Accountant
from support.examples import INFO

SAMPLINGS: list[dp.ledger.Sampling] = [
    dp.Everything(),
    dp.Poisson(0.02),
    dp.ledger.TruncatedPoisson(0.02, 40, 1000),
    dp.FixedSize(20, 1000),
    dp.ledger.Shuffled(50),
    dp.ledger.BallsInBins(50),
]
QUERIES: list[dp.ledger.Query] = [
    dp.ledger.GaussianSum("g", 1.0, 1.3),
    dp.ledger.LaplaceSum("g", 1.0, 4.0),
    dp.ledger.ExponentialChoice("g", 1.0, 8.0),
    dp.ledger.RandomizedResponse("g", 3, 0.45),
    dp.ledger.CorrelatedGaussianSum("g", 1.0, 2.0, 1.5, rounds=10, participations=2, separation=5),
]
ACCOUNTANTS: list[Accountant] = ["tight", "rdp"]
DELTA = 1e-6


def accepted() -> Iterator[tuple[dp.ledger.Step, dp.Adjacency]]:
    """Every combination that has an analysis; a refusal must be typed."""
    for sampling in SAMPLINGS:
        for query in QUERIES:
            for adjacency in dp.Adjacency:
                step = dp.ledger.Step(sampling, query)
                try:
                    dp.account([(step, 1)], delta=DELTA, adjacency=adjacency, accountant="rdp")
                except dp.errors.AccountingError:
                    continue
                yield step, adjacency


ACCEPTED = list(accepted())
each = pytest.mark.parametrize(("step", "adjacency"), ACCEPTED, ids=lambda value: str(value)[:60])
both = pytest.mark.parametrize("accountant", ACCOUNTANTS)


def epsilon(
    pairs: list[tuple[dp.ledger.Step, int]], adjacency: dp.Adjacency, accountant: Accountant
) -> tuple[float, float]:
    found = dp.account(pairs, delta=DELTA, adjacency=adjacency, accountant=accountant)
    return found.lower, found.upper


def test_enough_is_accepted_to_mean_something() -> None:
    """Gaussian sums under every policy, every query on the full batch."""
    assert {type(step.sampling) for step, _ in ACCEPTED} == {
        type(sampling) for sampling in SAMPLINGS
    }
    assert {type(step.queries[0]) for step, _ in ACCEPTED} == {type(query) for query in QUERIES}
    assert len(ACCEPTED) == 26


@both
@each
def test_k_times_a_step_is_k_steps(
    step: dp.ledger.Step, adjacency: dp.Adjacency, accountant: Accountant
) -> None:
    """P33: a count is never dropped, whatever the event."""
    at_once = epsilon([(step, 6)], adjacency, accountant)
    assert at_once == epsilon([(step, 1)] * 6, adjacency, accountant)
    assert at_once == epsilon([(step, 2), (step, 0), (step, 4)], adjacency, accountant)
    assert at_once[1] > epsilon([(step, 1)], adjacency, accountant)[1]


@both
@pytest.mark.parametrize("adjacency", dp.Adjacency)
def test_the_order_of_events_changes_no_digit(
    adjacency: dp.Adjacency, accountant: Accountant
) -> None:
    mixture = [(step, count) for count, (step, its) in enumerate(ACCEPTED, 1) if its is adjacency]
    mixture = [
        pair for pair in mixture if not isinstance(pair[0].sampling, dp.ledger.BallsInBins)
    ]  # slow in company
    expected = epsilon(mixture, adjacency, accountant)
    for seed in range(3):
        random.Random(seed).shuffle(mixture)
        assert epsilon(mixture, adjacency, accountant) == expected


@both
@each
def test_replaying_a_ledger_says_what_the_live_steps_said(
    step: dp.ledger.Step, adjacency: dp.Adjacency, accountant: Accountant, tmp_path: Path
) -> None:
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        run = ledger.begin(replace(INFO, groups=step.groups, adjacency=adjacency), [(step, 7)])
        for _ in run.steps(step, 7, block=3):
            pass
        live = dp.account(ledger, delta=DELTA, accountant=accountant)
        ledger.export(tmp_path / "a.jsonl")
    assert (live.lower, live.upper) == epsilon([(step, 7)], adjacency, accountant)
    assert (
        dp.account(dp.Ledger.open(tmp_path / "a.ledger", "r"), delta=DELTA, accountant=accountant)
        == live
    )
    assert (
        dp.account(dp.Ledger.load(tmp_path / "a.jsonl"), delta=DELTA, accountant=accountant) == live
    )


@each
def test_tight_is_never_above_renyi(step: dp.ledger.Step, adjacency: dp.Adjacency) -> None:
    for count in (1, 50):
        lower, upper = epsilon([(step, count)], adjacency, "tight")
        assert lower <= upper <= epsilon([(step, count)], adjacency, "rdp")[1]


def test_the_number_of_threads_changes_no_digit() -> None:
    script = (
        "import discreet as dp\n"
        "for q, z, k in ((.01, 1., 10_000), (1e-3, .7, 200), (.2, 3., 1000)):\n"
        "    g = dp.account([(dp.ledger.Step(dp.Poisson(q), dp.ledger.GaussianSum('g', 1, z)), "
        "k)], delta=1e-7,\n"
        "                   adjacency=dp.Adjacency.ADD_OR_REMOVE)\n"
        "    print(g.lower.hex(), g.upper.hex(), g.estimate.hex())\n"
    )
    said = set()
    for threads in ("1", "2", "4"):
        limits = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads
        )
        result = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | limits,
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(result.stdout)
    assert len(said) == 1
