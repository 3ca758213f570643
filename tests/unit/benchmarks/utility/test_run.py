"""What a series of runs writes down is what the ledgers say, not what the recipes believe."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.utility.recipe import Goal, Recipe
from benchmarks.utility.results import Results
from benchmarks.utility.run import Series, charge_words
from rich.console import Console

import discreet as dp
from discreet.errors import AccountingError, BudgetExceeded, LedgerNotFound, ParameterError
from discreet.plan import Target
from discreet.randomness import Source

DELTA = 1e-5


def spend(ledger: Path, plan: dp.Plan, source: Source | None = None) -> None:
    """Execute a plan on numbers that do not matter."""
    with dp.Ledger.open(ledger) as book:
        aggregator = dp.Aggregator(plan.for_leaves({"grad/w": 2}), ledger=book, source=source)
        for sample in aggregator.samples():
            aggregator.release(sample, {"grad/w": np.ones((len(sample), 2))})


def honest(
    prepared: int, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    if target is not None:
        plan = dp.Plan.dpsgd(
            records=prepared,
            sampling_probability=0.5,
            steps=3,
            epsilon=target.epsilon,
            delta=target.delta,
        )
        spend(ledger, plan, source)
    return 0.75


def twice(
    prepared: int, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """Calibrates each of two uses as if it were the only one, on a ledger that admits both."""
    dp.Ledger.open(ledger, budget=dp.Odometer(delta=DELTA)).close()
    honest(prepared, target, ledger, source)
    return honest(prepared, target, ledger, source)


def uncharged(
    prepared: int, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    return 1.0


def with_a_test_key(
    prepared: int, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    return honest(prepared, target, ledger, Source.unsafe_test_key(b"k" * 32))


RECIPE = Recipe(
    name="made-up",
    data_set="digits",
    model="None.",
    epsilons=(1.0, 2.0),
    goals=(Goal(1.0, accuracy=0.7),),
    tuned="nothing.",
    without_privacy="not at all.",
    prepare=lambda folder: 20,
    train=honest,
)


def series(folder: Path, recipe: Recipe[int] = RECIPE) -> Series:
    return Series(recipe, folder, folder / "results", Console(quiet=True))


def test_runs_are_added_to_a_file_with_what_their_ledgers_say(tmp_path: Path) -> None:
    series(tmp_path).run([1.0], 2)
    series(tmp_path).run([1.0, None], 1)
    found = Results.read(tmp_path / "results", "made-up", 1.0)
    assert found.accuracies == [0.75] * 3
    for run in found.runs:
        assert run.certified is not None
        assert run.certified.lower <= run.certified.upper <= 1.0
        assert run.certified.delta == DELTA
        assert "add-or-remove" in run.certified.statement
        assert len(run.certified.charges) == 1
    (plain,) = Results.read(tmp_path / "results", "made-up", None).runs
    assert plain.certified is None


def test_earlier_runs_are_forgotten_on_request(tmp_path: Path) -> None:
    series(tmp_path).run([1.0], 2)
    series(tmp_path).run([1.0], 1, replace=True)
    assert len(Results.read(tmp_path / "results", "made-up", 1.0).runs) == 1


def test_files_hold_no_seed_and_no_path(tmp_path: Path) -> None:
    series(tmp_path).run([1.0], 1)
    written = (tmp_path / "results" / "made-up-1.json").read_text()
    assert str(tmp_path) not in written
    assert set(json.loads(written)["runs"][0]) == {
        "accuracy",
        "certified",
        "prepare_seconds",
        "train_seconds",
        "cpu_seconds",
        "threads",
        "software",
        "date",
    }


def test_p41_p44_a_recipe_that_spends_more_than_its_target_is_not_written_down(
    tmp_path: Path,
) -> None:
    with pytest.raises(AccountingError, match="within epsilon 1.0"):
        series(tmp_path, replace(RECIPE, train=twice)).run([1.0], 1)
    assert not (tmp_path / "results").exists()


def test_p41_a_recipe_whose_second_use_nobody_planned_is_refused_by_its_ledger(
    tmp_path: Path,
) -> None:
    def train(
        prepared: int, target: Target | None, ledger: Path, source: Source | None = None
    ) -> float:
        honest(prepared, target, ledger, source)
        return honest(prepared, target, ledger, source)

    with pytest.raises(BudgetExceeded, match="of which 0 fit"):
        series(tmp_path, replace(RECIPE, train=train)).run([1.0], 1)
    assert not (tmp_path / "results").exists()


def test_p41_a_recipe_that_charges_nothing_is_not_written_down(tmp_path: Path) -> None:
    with pytest.raises(LedgerNotFound):
        series(tmp_path, replace(RECIPE, train=uncharged)).run([1.0], 1)
    assert not (tmp_path / "results").exists()


def test_p18_a_run_with_a_test_key_is_not_written_down(tmp_path: Path) -> None:
    with pytest.raises(AccountingError, match="NO GUARANTEE"):
        series(tmp_path, replace(RECIPE, train=with_a_test_key)).run([1.0], 1)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "otherwise",
    [
        {"adjacency": dp.Adjacency.ZERO_OUT},
        {"numerics": dp.Numerics.IDEALISED},
        {"unit": dp.Unit("hospital")},
    ],
    ids=lambda otherwise: next(iter(otherwise)),
)
def test_p48_a_statement_of_something_else_is_not_written_down(
    tmp_path: Path, otherwise: dict[str, Any]
) -> None:
    """The page says for all of its rows what is protected, and that arithmetic was not taken for
    that of real numbers.
    """

    def train(
        prepared: int, target: Target | None, ledger: Path, source: Source | None = None
    ) -> float:
        plan = dp.Plan.dpsgd(
            records=prepared, sampling_probability=0.5, steps=3, noise_multiplier=20.0, **otherwise
        )
        with dp.Ledger.open(ledger) as book:
            run = book.begin(plan.run_info(), plan.snapshot().counted())
            for _ in run.steps(plan.step, plan.steps):
                pass
        return 0.75

    with pytest.raises(AccountingError, match="one example added or removed"):
        series(tmp_path, replace(RECIPE, train=train)).run([1.0], 1)
    assert not (tmp_path / "results").exists()


def test_charges_in_words() -> None:
    plan = dp.Plan.dpsgd(
        records=100, expected_batch_size=50, steps=4, clip_norm=0.5, noise_multiplier=2.0
    )
    (charge,) = plan.charges()
    assert charge_words(charge) == (
        "4 steps on samples of probability 0.5: grad/* (sum with Gaussian noise, noise "
        "multiplier 2)"
    )


def test_a_recipe_of_no_known_data_set_or_with_a_goal_that_is_not_shown_is_refused() -> None:
    with pytest.raises(ParameterError, match="data_set"):
        replace(RECIPE, data_set="imagenet")
    with pytest.raises(ParameterError, match="epsilons"):
        replace(RECIPE, goals=(Goal(3.0, accuracy=0.7),))
    with pytest.raises(ParameterError, match="accuracy"):
        Goal(3.0)
