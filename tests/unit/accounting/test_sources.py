"""What an accountant reads of ledgers, plans and pairs, and which of them it refuses together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import discreet as dp
from discreet.accounting import account
from discreet.accounting.sources import read_source
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.rows import RunInfo
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

ADD = Adjacency.ADD_OR_REMOVE
STEP = Step(Poisson(0.01), [GaussianSum("grad", 1.0, 4.0)])
RUN = RunInfo(
    unit=Unit.USER,
    adjacency=ADD,
    groups=("grad",),
    numerics=Numerics.CERTIFIED,
    randomness=Randomness.SYSTEM,
    parameters=Parameters.FIXED_IN_ADVANCE,
)


def ledger_of(
    *runs: tuple[RunInfo, int], unsettled: int = 0, marks: tuple[str, ...] = ()
) -> Snapshot:
    """What a file of schema 1 holds: runs with so many steps charged, and no terms."""
    records = [
        RunRecord(info=info, charged=((STEP, count),), unsettled=((STEP, unsettled),))
        for info, count in runs
    ]
    return Snapshot(runs=tuple(records), marks=marks, schema=1)


def test_pairs_need_an_adjacency() -> None:
    with pytest.raises(ParameterError, match="adjacency"):
        account([(STEP, 10)], delta=1e-5)


def test_idealised_numerics_are_named() -> None:
    found = account(ledger_of((RUN, 1), (replace(RUN, numerics=Numerics.IDEALISED), 1)), delta=1e-5)
    assert found.numerics is Numerics.IDEALISED
    assert any("behave as real numbers" in line for line in found.assumptions)


def test_certified_numerics_are_named_with_what_they_rest_on() -> None:
    idealised, exact = (
        replace(RUN, numerics=level) for level in (Numerics.IDEALISED, Numerics.EXACT)
    )
    for runs, named in (
        ((RUN,), True),
        ((RUN, exact), True),
        ((RUN, idealised), True),
        ((exact,), False),
        ((idealised,), False),
    ):
        found = account(ledger_of(*((run, 1) for run in runs)), delta=1e-5)
        assert any("IEEE 754" in line for line in found.assumptions) is named


@pytest.mark.parametrize("change", [{"adjacency": Adjacency.ZERO_OUT}, {"unit": Unit.EXAMPLE}])
def test_runs_that_protect_different_things_are_refused(change: dict[str, object]) -> None:
    other = replace(RUN, **change)  # type: ignore[arg-type]
    for sources in (ledger_of((RUN, 1), (other, 1)), [ledger_of((RUN, 1)), ledger_of((other, 1))]):
        with pytest.raises(AccountingError, match="in all runs"):
            account(sources, delta=1e-5)
    with pytest.raises(AccountingError, match="in all runs"):
        account(ledger_of((RUN, 1)), delta=1e-5, **change)  # type: ignore[arg-type]


def test_an_empty_ledger_is_no_guarantee() -> None:
    with pytest.raises(AccountingError, match="empty"):
        account(Snapshot(runs=()), delta=1e-5)
    with pytest.raises(AccountingError, match="void by unsafe_seed"):
        account(Snapshot(runs=(), marks=("unsafe_seed",)), delta=1e-5)


def test_several_sources_are_one_composition_and_say_what_they_rest_on() -> None:
    both = account([ledger_of((RUN, 100)), ledger_of((RUN, 100))], delta=1e-5)
    assert both.upper == account(ledger_of((RUN, 200)), delta=1e-5).upper
    assert any(
        "the runs of all ledgers named were fixed before the first release" in line
        for line in both.assumptions
    )
    with pytest.raises(ParameterError, match="but not both"):
        account([ledger_of((RUN, 1)), (STEP, 1)], delta=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [[5], "ab", [(1, 2, 3)], 7, [("step", 1)]])
def test_what_is_no_source_is_said(source: Any) -> None:
    with pytest.raises(dp.errors.ParameterError):
        dp.account(source, delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE)


def test_a_generator_of_pairs_is_read_once_and_whole() -> None:
    read = read_source(((STEP, count) for count in (1, 0, 2)), ADD, None)
    assert read.steps == ((STEP, 1), (STEP, 0), (STEP, 2))
    assert (read.unit, read.terms, read.basis) == (Unit.EXAMPLE, None, "")
    assert read.sampling == ("Poisson with probability 0.01",)


def test_the_same_ledger_twice_is_refused() -> None:
    one = replace(ledger_of((RUN, 1)), ledger="the same")
    with pytest.raises(AccountingError, match="two copies of the same one"):
        read_source([one, one], None, None)


def test_a_budget_that_was_lowered_later_is_not_the_one_that_is_claimed() -> None:
    """What a filter admitted before was within the larger budget only."""
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=3.0, delta=1e-6))
    list(ledger.begin(RUN, [(STEP, 1)]).steps(STEP, 1))
    ledger.change_budget(2.0, reason="less is enough")
    assert read_source(ledger, None, None).largest_epsilon == 3.0
