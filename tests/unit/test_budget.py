"""Budgets, filters and odometers: rows of the ledger that hold whoever opens it, and what may be
claimed under each.
"""

from __future__ import annotations

import math
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.accounting.filters import GaussianFilter
from discreet.ledger import Rule, RunRecord, Snapshot
from support.examples import list_of

DELTA = 1e-6
FIXED = dp.ledger.RunInfo(
    unit=dp.Unit.USER,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad",),
    numerics=dp.Numerics.CERTIFIED,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
)
CHOSEN = replace(FIXED, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)


def step_of(noise: float = 1.0, sampling: dp.ledger.Sampling = dp.Poisson(0.01)) -> dp.ledger.Step:  # noqa: B008
    return dp.ledger.Step(sampling, [dp.ledger.GaussianSum("grad", 1.0, noise)])


STEP = step_of()
FULL = step_of(20.0, dp.Everything())


def tight(
    count: int, step: dp.ledger.Step = STEP, delta: float = DELTA, tolerance: float = 1e-3
) -> dp.Guarantee:
    return dp.account([(step, count)], delta=delta, tolerance=tolerance, adjacency=FIXED.adjacency)


def held_to(
    budget: Any, *planned: tuple[dp.ledger.Step, int], info: dp.ledger.RunInfo = FIXED
) -> dp.Ledger:
    """A ledger with one run that took all that it planned."""
    ledger = dp.Ledger.in_memory(budget=budget)
    run = ledger.begin(info, planned)
    for step, count in planned:
        run.reserve(step, count=count)
    return ledger


def steps_that_fit(budget: Any, info: dp.ledger.RunInfo = FIXED) -> int:
    return dp.Ledger.in_memory(budget=budget).fitting(info, STEP, 100_000)


# --- a list with a budget ---


def test_nothing_fits_a_budget_of_nearly_nothing() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(epsilon=1e-9, delta=1e-9))
    with pytest.raises(dp.errors.BudgetExceeded, match="Nothing was charged"):
        ledger.begin(FIXED, [(STEP, 1)])
    assert ledger.runs() == ()
    assert ledger.begin(FIXED).number


def test_p38_exactly_the_target_fits_and_anything_more_does_not() -> None:
    # One full-batch Gaussian: the accountant has a closed form, so the bound is the same whatever
    # the tolerance.
    step = step_of(2.0, dp.Everything())
    exact = tight(1, step).upper
    held_to(dp.Budget(epsilon=exact, delta=DELTA), (step, 1))
    with pytest.raises(dp.errors.BudgetExceeded, match="Nothing was charged"):
        held_to(dp.Budget(epsilon=math.nextafter(exact, 0.0), delta=DELTA), (step, 1))


def test_a_list_is_accounted_tightly_and_stops_at_the_last_step_that_fits() -> None:
    most = steps_that_fit(dp.Budget(epsilon=2.0, delta=DELTA))
    assert tight(most).lower <= 2.0
    assert tight(most + 2, tolerance=1e-4).upper > 2.0


def test_the_claim_of_a_list_is_what_its_steps_cost_and_not_the_budget() -> None:
    ledger = held_to(dp.Budget(epsilon=2.0, delta=DELTA), (STEP, 100))
    claim = dp.account(ledger)
    assert (claim.upper, claim.delta, claim.accountant) == (tight(100).upper, DELTA, "tight")
    assert dp.account(ledger, delta=1e-7).upper > claim.upper
    assert dp.account(ledger, epsilon=claim.upper).delta == pytest.approx(DELTA, rel=0.05)


def test_plans_are_the_list_and_other_steps_are_refused_for_good() -> None:
    plans = [
        dp.Plan.dpsgd(sampling_probability=0.01, steps=30, noise_multiplier=noise)
        for noise in (2.0, 3.0)
    ]
    both = dp.Programme({"first": plans[0], "second": plans[1]})
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=both))
    for plan in reversed(plans):
        ledger.begin(plan.run_info(), [(plan.step, 30)])
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(plans[0].run_info(), [(plans[0].step, 1)])
    claim = dp.account(ledger, delta=DELTA)
    assert claim.upper == pytest.approx(dp.account(both, delta=DELTA).upper, rel=1e-6)
    with pytest.raises(dp.errors.BudgetExceeded):
        costs = dp.account(both, delta=DELTA).lower
        held = dp.Ledger.in_memory(budget=dp.Budget(epsilon=0.5 * costs, delta=DELTA, plans=both))
        held.begin(
            plans[0].run_info(), [(plans[0].step, 1)]
        )  # all of the list counts from the first run on


# --- a filter ---


def test_p39_what_is_chosen_from_outputs_gets_a_filter_and_not_the_tight_accountant() -> None:
    most = steps_that_fit(dp.Budget(epsilon=2.0, delta=DELTA))
    filtered = steps_that_fit(dp.Filter(epsilon=2.0, delta=DELTA), CHOSEN)
    assert (
        0.5 * most < filtered < most
    )  # a running tight accountant (the bug of P39) would give the same number
    assert steps_that_fit(dp.Filter(epsilon=2.0, delta=DELTA), FIXED) == filtered
    with pytest.raises(dp.errors.BudgetExceeded, match="filter"):
        held_to(dp.Filter(epsilon=2.0, delta=DELTA), (STEP, most), info=CHOSEN)


def test_t01_a_filter_counts_every_charge_fixed_ones_too() -> None:
    """Fixed and adaptive runs under one budget, each by its own rule, exceeded it: delta 1.9 times
    that of the budget.
    """
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=2.0, delta=DELTA))
    most = ledger.fitting(CHOSEN, STEP, 100_000)
    for info in (FIXED, CHOSEN):
        ledger.begin(info, [(STEP, most // 2)]).reserve(STEP, count=most // 2)
    left = most - 2 * (most // 2)
    for info in (FIXED, CHOSEN):
        with pytest.raises(dp.errors.BudgetExceeded, match="filter"):
            ledger.begin(info, [(STEP, left + 2)])


def test_t01_the_attack_of_three_runs_is_refused_on_either_path() -> None:
    """`Budget(3, 1e-5)`: run 1, then run 2 by the tight accountant or run 3 by the filter,
    whichever run 1 made look better.
    """
    first, second, third = (
        step_of(1.5547, dp.Everything()),
        step_of(0.2, dp.Poisson(2.518e-5)),
        step_of(3.11, dp.Everything()),
    )
    listed = dp.Ledger.in_memory(budget=dp.Budget(epsilon=3.0, delta=1e-5))
    listed.begin(FIXED, [(first, 1)])
    for info, step in ((FIXED, second), (FIXED, third)):
        with pytest.raises(dp.errors.BudgetExceeded):
            listed.begin(info, [(step, 1)])
    with pytest.raises(dp.errors.LedgerMisuse):
        listed.begin(CHOSEN, [(third, 1)])
    filtered = dp.Ledger.in_memory(budget=dp.Filter(epsilon=3.0, delta=1e-5))
    filtered.begin(FIXED, [(first, 1)]).reserve(first, count=1)
    for info in (FIXED, CHOSEN):
        with pytest.raises(dp.errors.AccountingError, match="Gaussian filter"):
            filtered.begin(info, [(second, 1)])
    filtered.begin(CHOSEN, [(third, 1)]).reserve(third, count=1)
    with pytest.raises(dp.errors.BudgetExceeded):
        filtered.begin(CHOSEN, [(third, 1)])


def test_the_claim_of_a_filter_is_the_budget_and_says_so() -> None:
    claim = dp.account(held_to(dp.Filter(epsilon=2.0, delta=DELTA), (STEP, 10), info=CHOSEN))
    assert (claim.lower, claim.upper, claim.delta, claim.estimate) == (
        0.0,
        2.0,
        DELTA,
        None,
    )  # not what ten steps cost
    assert "filter" in claim.accountant
    assert "the whole budget, whatever decided on runs and steps" in claim.basis
    assert claim.unit == dp.Unit.USER


@pytest.mark.parametrize(
    "asked", [{"delta": 1e-5}, {"delta": 1e-7}, {"epsilon": 2.0}, {"accountant": "rdp"}]
)
def test_t03_a_filter_has_one_delta_and_one_analysis_which_nobody_chooses_afterwards(
    asked: dict[str, Any],
) -> None:
    for budget in (dp.Filter(epsilon=2.0, delta=DELTA), dp.Odometer(delta=DELTA)):
        with pytest.raises(dp.errors.AccountingError, match="fixed before the first release"):
            dp.account(held_to(budget, (STEP, 10)), **asked)


def test_unsampled_gaussians_get_the_gaussian_filter_and_keep_it() -> None:
    limit = GaussianFilter(1.0, 1e-5).limit
    full = step_of(math.sqrt(10 / limit) * (1 + 1e-9), dp.Everything())
    ledger = held_to(dp.Filter(epsilon=1.0, delta=1e-5), (full, 10), info=CHOSEN)
    assert dp.account(ledger).accountant == "Gaussian filter"
    with pytest.raises(dp.errors.BudgetExceeded, match="Gaussian filter"):
        ledger.begin(CHOSEN, [(full, 1)])
    with pytest.raises(dp.errors.AccountingError, match="order"):
        ledger.begin(CHOSEN, [(STEP, 1)])
    mixed = ((step_of(30.0, dp.Everything()), 1), (step_of(3.0), 1))
    held_to(dp.Filter(epsilon=1.0, delta=1e-5, order=20.0), *mixed, info=CHOSEN)


def test_the_filter_is_decided_by_what_the_first_run_plans() -> None:
    ledger = held_to(dp.Filter(epsilon=2.0, delta=DELTA), (STEP, 5), info=CHOSEN)
    before = dp.account(ledger).accountant
    for step in (step_of(5.0), step_of(40.0, dp.Everything())):
        ledger.begin(CHOSEN, [(step, 1)]).reserve(step, count=1)
    assert dp.account(ledger).accountant == before
    assert [held.terms.rule for held in ledger.snapshot().history] == [
        Rule.FILTER,
        Rule.RENYI_FILTER,
    ]


def test_a_filter_that_was_not_obeyed_is_no_guarantee() -> None:
    """Whoever writes rows by hand can charge what the filter refuses: the claim checks it again."""
    ledger = held_to(dp.Filter(epsilon=2.0, delta=DELTA), (STEP, 10), info=CHOSEN)
    snapshot = ledger.snapshot()
    (run,) = snapshot.runs
    forged = replace(snapshot, runs=(replace(run, charged=((STEP, 10**6),)),))
    with pytest.raises(dp.errors.AccountingError, match="did not obey its budget"):
        dp.account(forged)


# --- a budget belongs to the file ---


def charge_what_fits(path: Path, kind: str, start: Any) -> None:
    """A writer of its own: opens the file without a word about a budget, and charges as much as it
    is allowed to.
    """
    ledger = dp.Ledger.open(path)
    info = FIXED if kind == "list" else CHOSEN
    start.wait()
    for count in (100, 40, 15, 5):
        for _ in range(9):
            try:
                run = ledger.begin(info, [(STEP, count)])
            except dp.errors.BudgetExceeded:
                break
            with run.reserve(STEP, count=count) as lease:
                for _ in range(count):
                    lease.take()
            run.end()


@pytest.mark.parametrize(
    ("kind", "budget"),
    [
        ("list", dp.Budget(epsilon=2.0, delta=DELTA, plans=list_of((STEP, 800)).plans)),
        ("filter", dp.Filter(epsilon=2.0, delta=DELTA)),
        ("odometer", dp.Odometer(epsilon=2.0, delta=DELTA)),
    ],
    ids=["list", "filter", "odometer"],
)
def test_t02_four_writers_without_a_budget_of_their_own_are_held_to_the_files(
    tmp_path: Path, kind: str, budget: Any
) -> None:
    path = tmp_path / "a.ledger"
    dp.Ledger.open(path, budget=budget).close()
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    writers = [context.Process(target=charge_what_fits, args=(path, kind, start)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    ledger = dp.Ledger.open(path, "r").verify()
    snapshot = ledger.snapshot()
    assert len(snapshot.runs) > 4
    assert dp.account(ledger).upper <= 2.0
    assert snapshot.steps > 300
    assert ledger.fitting(FIXED, STEP, 100) < 5  # it is the budget that stopped them


@pytest.mark.parametrize(
    "another",
    [
        dp.Filter(epsilon=9.0, delta=DELTA),
        dp.Filter(epsilon=1.0, delta=DELTA),
        dp.Filter(epsilon=2.0, delta=1e-5),
        dp.Filter(epsilon=2.0, delta=DELTA, order=7.0),
        dp.Budget(epsilon=2.0, delta=DELTA),
        dp.Odometer(epsilon=2.0, delta=DELTA),
    ],
)
def test_t02_t03_a_ledger_that_is_reopened_with_another_budget_is_refused(
    tmp_path: Path, another: Any
) -> None:
    path, budget = tmp_path / "a.ledger", dp.Filter(epsilon=2.0, delta=DELTA)
    with dp.Ledger.open(path, budget=budget) as ledger:
        head = ledger.head()
    for _ in range(2):
        with pytest.raises(
            dp.errors.LedgerMisuse, match="Leave the budget out: the ledger has its own"
        ):
            dp.Ledger.open(path, budget=another)
        with dp.Ledger.open(
            path, budget=budget
        ) as ledger:  # the same is welcome, before and after the first run
            assert ledger.verify(head)
            ledger.begin(CHOSEN, [(STEP, 1)]).reserve(STEP, count=1)
    assert dp.account(dp.Ledger.open(path, "r")).upper == 2.0


@pytest.mark.parametrize(
    "budget", [dp.Budget(epsilon=9.0, delta=DELTA), dp.Filter(epsilon=9.0, delta=DELTA)]
)
def test_t03_a_ledger_that_began_without_a_budget_gets_none_by_opening_it(
    tmp_path: Path, budget: Any
) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as ledger:
        ledger.begin(FIXED, [(STEP, 100)]).reserve(STEP, count=100)
        head = ledger.head()
    with pytest.raises(dp.errors.LedgerMisuse, match="the ledger has its own"):
        dp.Ledger.open(path, budget=budget)
    assert dp.Ledger.open(path, "r").verify(head).terms == replace(
        budget.terms(), **_OF_THE_FIRST_RUN
    )


_OF_THE_FIRST_RUN = {"rule": Rule.LIST, "epsilon": None, "delta": None, "planned": ((STEP, 100),)}


# --- changes are rows ---


def test_a_budget_is_lowered_and_raised_by_rows_that_history_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=dp.Filter(epsilon=2.0, delta=DELTA)) as ledger:
        ledger.begin(CHOSEN, [(STEP, 100)]).reserve(STEP, count=100)
        ledger.change_budget(1.8, reason="less is enough")
        with pytest.raises(dp.errors.BudgetExceeded):
            ledger.change_budget(0.1, reason="what is charged does not fit")
        ledger.change_budget(3.0, reason="the board agreed")
    with dp.Ledger.open(path) as reopened:
        shown = [(held.terms.epsilon, held.reason) for held in reopened.snapshot().history]
        assert shown == [(2.0, ""), (2.0, ""), (1.8, "less is enough"), (3.0, "the board agreed")]
        assert all(held.since.endswith("+00:00") for held in reopened.snapshot().history)
        assert dp.account(reopened).upper == 3.0
        reopened.change_budget(2.0, reason="back again")
        assert dp.account(reopened).upper == 3.0  # the largest that it ever had
        assert reopened.terms is not None
        assert reopened.terms.delta == DELTA
        with pytest.raises(
            dp.errors.ParameterError, match="delta is fixed before the first charge"
        ):
            reopened.change_budget(2.0, delta=1e-5, reason="a larger delta")


def test_a_lowered_budget_holds(tmp_path: Path) -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=2.0, delta=DELTA))
    most = ledger.fitting(CHOSEN, STEP, 100_000)
    ledger.begin(CHOSEN, [(STEP, 10)])
    ledger.change_budget(1.5, reason="less is enough")
    assert 0 < ledger.fitting(CHOSEN, STEP, 100_000) < most - 10


def test_a_gaussian_filter_cannot_be_raised_and_can_be_lowered() -> None:
    ledger = held_to(dp.Filter(epsilon=2.0, delta=DELTA), (FULL, 1), info=CHOSEN)
    assert ledger.terms is not None
    assert ledger.terms.rule is Rule.GAUSSIAN_FILTER
    head = ledger.head()
    with pytest.raises(dp.errors.LedgerMisuse, match="a Gaussian filter, to be raised"):
        ledger.change_budget(2.1, reason="more is needed")
    assert ledger.head() == head
    ledger.change_budget(1.0, reason="less is enough")
    with pytest.raises(dp.errors.LedgerMisuse):
        ledger.change_budget(2.0, reason="back again")
    assert dp.account(ledger).upper == 2.0


def test_before_the_first_run_a_budget_may_become_another_one_in_a_row() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=2.0, delta=DELTA))
    ledger.change_budget(3.0, reason="the board agreed")
    ledger.begin(CHOSEN, [(FULL, 1)]).reserve(FULL, count=1)
    assert dp.account(ledger).upper == 3.0
    with pytest.raises(dp.errors.LedgerMisuse, match="not held to anything yet"):
        dp.Ledger.in_memory().change_budget(1.0, delta=DELTA, reason="none before")


def test_a_list_gets_a_budget_by_a_row_if_what_it_plans_fits() -> None:
    ledger = held_to(None, (STEP, 100))
    costs = tight(100).upper
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.change_budget(0.9 * costs, delta=DELTA, reason="the officer asks for one")
    ledger.change_budget(1.1 * costs, delta=DELTA, reason="the officer asks for one")
    assert dp.account(ledger).upper == pytest.approx(costs, rel=1e-3)
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.extend_list([(STEP, 100)], reason="power failure")


# --- an odometer ---


def test_an_odometer_reads_what_the_plan_costs_at_half_of_delta_and_grows_with_further_runs() -> (
    None
):
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=DELTA))
    readings = []
    for number in range(1, 5):
        run = ledger.begin(CHOSEN, [(STEP, 200)])
        run.reserve(STEP, count=200)
        run.end()
        claim = dp.account(ledger)
        readings.append(claim.upper)
        assert claim.if_fixed is not None
        assert claim.if_fixed == pytest.approx(tight(200 * number).upper, rel=2e-3)
        assert claim.if_fixed < claim.upper < 1.6 * claim.if_fixed
        assert "whatever decided on runs and steps" in claim.basis
        assert f"epsilon would be at most {claim.if_fixed:.3g}"[:-1] in str(claim)
    assert readings == sorted(readings)
    assert readings[0] == pytest.approx(tight(200, delta=DELTA / 2).upper, rel=1e-6)


def test_an_odometer_says_what_was_charged_and_not_what_was_planned() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=DELTA))
    run = ledger.begin(CHOSEN, [(STEP, 200)])
    run.reserve(STEP, count=200)
    once = dp.account(ledger).upper
    further = ledger.begin(CHOSEN, [(STEP, 200)])
    assert dp.account(ledger).upper == once
    further.reserve(STEP, count=1)
    assert dp.account(ledger).upper > once


def test_an_odometer_takes_steps_of_other_kinds_by_its_orders() -> None:
    ledger = held_to(dp.Odometer(delta=DELTA), (STEP, 200))
    before = dp.account(ledger).upper
    ledger.begin(CHOSEN, [(FULL, 1)]).reserve(FULL, count=1)
    claim = dp.account(ledger)
    assert claim.upper > before
    assert "a mixture of Rényi orders" in claim.basis


def test_an_odometer_with_a_limit_refuses_what_would_pass_it() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=DELTA, epsilon=2.0))
    ledger.begin(CHOSEN, [(STEP, 100)]).reserve(STEP, count=100)
    most = ledger.fitting(CHOSEN, STEP, 100_000)
    ledger.begin(CHOSEN, [(STEP, most)]).reserve(STEP, count=most)
    assert 1.8 < dp.account(ledger).upper <= 2.0
    with pytest.raises(dp.errors.BudgetExceeded, match="odometer"):
        ledger.begin(CHOSEN, [(STEP, 100)])


# --- several ledgers of one data set ---


def test_several_ledgers_are_one_composition() -> None:
    first, second = held_to(None, (STEP, 100)), held_to(None, (STEP, 50), (FULL, 2))
    together = dp.account([first, second], delta=DELTA)
    pairs = dp.account([(STEP, 150), (FULL, 2)], delta=DELTA, adjacency=FIXED.adjacency)
    assert together.upper == pytest.approx(pairs.upper, rel=1e-9)
    assert any(
        "the runs of all ledgers named were fixed before the first release" in line
        for line in together.assumptions
    )
    plan = dp.Plan.dpsgd(
        sampling_probability=0.01, steps=30, noise_multiplier=2.0, unit=dp.Unit.USER
    )
    with_plan: list[dp.Ledger | dp.Plan] = [first, plan]
    assert dp.account(with_plan, delta=DELTA).upper > dp.account(first, delta=DELTA).upper
    assert dp.account([first], delta=DELTA).upper == dp.account(first, delta=DELTA).upper


def test_what_several_ledgers_cannot_say_together_is_refused(tmp_path: Path) -> None:
    first = held_to(None, (STEP, 100))
    for other in (
        replace(FIXED, unit=dp.Unit.EXAMPLE),
        replace(FIXED, adjacency=dp.Adjacency.ZERO_OUT),
    ):
        with pytest.raises(dp.errors.AccountingError, match="in all runs"):
            dp.account([first, held_to(None, (STEP, 1), info=other)], delta=DELTA)
    with pytest.raises(dp.errors.AccountingError, match="two copies of the same one"):
        dp.account([first, first], delta=DELTA)
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.account([first, held_to(None, (STEP, 1))])
    with pytest.raises(dp.errors.AccountingError):
        dp.account(
            [first, held_to(dp.Filter(epsilon=2.0, delta=DELTA), (STEP, 1), info=CHOSEN)],
            delta=DELTA,
        )
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as ledger:
        ledger.begin(FIXED, [(STEP, 1)])
        shutil.copyfile(path, tmp_path / "copy.ledger")
        ledger.begin(FIXED)
    with pytest.raises(
        dp.errors.AccountingError, match="Name each ledger once, in its latest state"
    ):
        dp.account(
            [dp.Ledger.open(path, "r"), dp.Ledger.open(tmp_path / "copy.ledger", "r")], delta=DELTA
        )


# --- a void ledger ---


@pytest.mark.parametrize(
    "budget",
    [
        None,
        dp.Budget(epsilon=2.0, delta=DELTA),
        dp.Filter(epsilon=2.0, delta=DELTA),
        dp.Odometer(delta=DELTA),
    ],
    ids=["no budget", "list", "filter", "odometer"],
)
def test_t05_a_void_ledger_has_no_number_under_any_rule(budget: Any) -> None:
    ledger = held_to(budget, (STEP, 10))
    ledger.mark(ledger.runs()[0].number, "unsafe_thing")
    for source in (ledger, [ledger, held_to(None, (STEP, 10))]):
        claim = dp.account(source, delta=DELTA)
        assert (claim.upper, claim.lower, claim.estimate, claim.if_fixed) == (
            math.inf,
            0.0,
            None,
            None,
        )
        assert claim.voided_by == ("unsafe_thing",)
        assert str(claim) == "NO GUARANTEE: voided by unsafe_thing."


# --- what is refused ---


@pytest.mark.parametrize(
    "wrong",
    [
        dp.Budget,
        lambda: dp.Budget(epsilon=1.0),
        lambda: dp.Budget(delta=1e-5),
        lambda: dp.Budget(epsilon=0.0, delta=1e-5),
        lambda: dp.Budget(epsilon=1.0, delta=0.0),
        lambda: dp.Budget(epsilon=1.0, delta=1.0),
        lambda: dp.Budget(plans=5),  # type: ignore[arg-type]
        lambda: dp.Budget(plans=[(STEP, 1)]),  # type: ignore[arg-type]
        lambda: dp.Filter(epsilon=0.0, delta=1e-5),
        lambda: dp.Filter(epsilon=1.0, delta=0.0),
        lambda: dp.Filter(epsilon=1.0, delta=1e-5, order=1.0),
        lambda: dp.Odometer(delta=0.0),
        lambda: dp.Odometer(delta=1e-5, epsilon=-1.0),
    ],
)
def test_what_is_no_budget_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        wrong()


def test_an_order_that_allows_nothing_is_refused() -> None:
    with pytest.raises(dp.errors.AccountingError, match="Take a larger order"):
        dp.Filter(epsilon=0.1, delta=1e-6, order=2.0)


def test_an_empty_ledger_has_no_claim_under_any_rule() -> None:
    for budget in (
        None,
        dp.Budget(epsilon=1.0, delta=DELTA),
        dp.Filter(epsilon=1.0, delta=DELTA),
        dp.Odometer(delta=DELTA),
    ):
        with pytest.raises(dp.errors.AccountingError, match="empty"):
            dp.account(dp.Ledger.in_memory(budget=budget), delta=DELTA)


def test_a_list_given_in_advance_counts_before_anything_is_charged() -> None:
    """Its first run may be charged with all of it: the claim is about what may be released, not
    what was.
    """
    plans = Snapshot(runs=(RunRecord(info=FIXED, charged=((STEP, 100),)),))
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=plans))
    ledger.begin(FIXED, [(STEP, 1)])
    assert dp.account(ledger, delta=DELTA).upper == tight(100).upper
