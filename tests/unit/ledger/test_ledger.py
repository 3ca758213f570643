"""Charging, reading and refusing."""

import pytest

import discreet as dp
from discreet.ledger import Run
from support.examples import INFO, METRIC_STEP, STEP, roomy_ledger


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


@pytest.fixture
def run(ledger: dp.Ledger) -> Run:
    return ledger.begin(INFO)


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


# --- reserve and settle ---


# --- steps in blocks ---


# --- what is refused, and leaves the ledger as it was ---


def test_what_names_no_run_is_refused() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that began"):
        ledger.reserve(1, STEP, 1, spelled_out_in=None)
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that began"):
        ledger.mark(1, "unsafe_thing")
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that is not over"):
        ledger.end(1)


def test_bad_arguments_leave_the_ledger_as_it_was(ledger: dp.Ledger, run: Run) -> None:
    head = ledger.head()
    stranger = dp.ledger.Step(dp.Poisson(0.1), dp.ledger.GaussianSum("stranger", 1, 1))
    for call in (
        lambda: run.reserve(stranger, count=1),
        lambda: run.reserve(STEP, count=0),
        lambda: run.reserve(STEP, count=1.0),  # type: ignore[arg-type]
        lambda: run.reserve("poisson", count=1),  # type: ignore[arg-type]
        lambda: ledger.begin("run"),  # type: ignore[arg-type]
        lambda: ledger.begin(INFO, [(stranger, 1)]),
        lambda: ledger.begin(INFO, [(STEP, 0)]),
        lambda: ledger.begin(INFO, [STEP]),  # type: ignore[list-item]
        lambda: ledger.begin(INFO, continues=99),
        lambda: ledger.begin(INFO, continues=0),
        lambda: ledger.begin(INFO, plan=5),  # type: ignore[arg-type]
        lambda: run.end("a\nb"),
        lambda: ledger.change_budget(0.0, reason="none is left"),
        lambda: ledger.change_budget(1.0, reason=""),
        lambda: ledger.extend_list([(STEP, 1)], reason=""),
        lambda: run.mark("harmless"),
        lambda: next(run.steps(STEP, 0)),
        lambda: next(run.steps(STEP, 5, block=0)),
    ):
        with pytest.raises(dp.errors.ParameterError):
            call()
    assert ledger.head() == head
    ledger.verify()


def test_p38_a_budget_sees_the_proposed_charge_and_its_refusal_charges_nothing() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=1.0, delta=1e-5))
    run = ledger.begin(INFO)
    run.reserve(STEP, count=10)
    head = ledger.head()
    with pytest.raises(dp.errors.BudgetExceeded, match="Nothing was charged"):
        run.reserve(METRIC_STEP, count=1)  # Laplace noise with an epsilon of 1/2, on a full batch
    assert ledger.head() == head
    assert total(ledger) == 10
    ledger.verify()


# --- several runs, several handles, marks ---


def test_marks_are_kept_and_an_unsafe_key_is_one(ledger: dp.Ledger, run: Run) -> None:
    run.mark("unsafe_raw_metric")
    run.mark("unsafe_raw_metric")
    assert ledger.marks() == ("unsafe_raw_metric",)
    info = {name: getattr(INFO, name) for name in dp.ledger.RunInfo.__dataclass_fields__}
    ledger.begin(dp.ledger.RunInfo(**(info | {"randomness": dp.units.Randomness.UNSAFE_TEST_KEY})))
    assert ledger.marks() == ("unsafe_raw_metric", "unsafe_test_key")


# --- the file ---


# --- what a book refuses although the chain is whole ---
