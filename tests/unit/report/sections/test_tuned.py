"""The report says on what data parameters were tuned, and believes a record of private tuning only
with its ledger.
"""

from dataclasses import replace

import pytest

import discreet as dp
from discreet.tuning import Tuning, TuningKind, tune_for_compute
from support.reports import DELTA, STEP, items, ledger_of
from support.tunings import PLAN, RATES, honest, private, public_record

FORMATS = ("html", "md", "json")


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_record_tuning_is_not_stated(form: str) -> None:
    report = dp.Report.of(ledger_of((STEP, 3)), delta=DELTA)
    assert "Tuning: not stated." in items(report, form)["2a"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [TuningKind.PUBLIC, TuningKind.SYNTHETIC])
def test_tuning_on_other_data_is_named_and_on_somebodys_word(form: str, kind: TuningKind) -> None:
    record = replace(public_record(), kind=kind)
    found = items(dp.Report.of(ledger_of((STEP, 3)), delta=DELTA, tuning=record), form)["2a"]
    tried = (
        "Tried: learning_rate 0.5, 2; momentum 0.9. Chosen: learning_rate 0.5, momentum 0.9, "
        "score 0.91."
    )
    for words in (
        f"{kind.value} data “digits” (of other people)",
        "on the word of",
        "by other means: 2 trials on",
        tried,
    ):
        assert words in found, words
    assert "not stated" not in found


@pytest.fixture(scope="module")
def tuned() -> tuple[dp.Ledger, Tuning]:
    data = private()
    return data.ledger, tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data).tuning


@pytest.mark.parametrize("form", FORMATS)
def test_tuning_that_was_charged_is_covered(form: str, tuned: tuple[dp.Ledger, Tuning]) -> None:
    ledger, record = tuned
    found = items(dp.Report.of(ledger, tuning=[public_record(), record]), form)["2a"]
    for words in (
        "3 trials on private data “patients” (of one hospital)",
        "Covered: every trial",
        "6 runs in all",
        "“digits”",
        "with noise 0.02",
    ):
        assert words in found, words


def test_later_runs_on_the_ledger_change_nothing(tuned: tuple[dp.Ledger, Tuning]) -> None:
    ledger, record = tuned
    data = private(ledger=ledger)
    ledger.begin(PLAN.run_info("final", parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)).end()
    assert ledger.head() != record.ledger_head
    assert "Covered" in items(dp.Report.of(data.ledger, tuning=record), "md")["2a"]


def test_p39_a_record_of_another_ledger_is_refused(tuned: tuple[dp.Ledger, Tuning]) -> None:
    _, record = tuned
    with pytest.raises(dp.errors.ParameterError, match="charged nothing here"):
        dp.Report.of(ledger_of((STEP, 3)), delta=DELTA, tuning=record)


def test_p39_a_record_with_runs_that_were_never_charged_is_refused(
    tuned: tuple[dp.Ledger, Tuning],
) -> None:
    ledger, record = tuned
    boast = replace(record, trials=(*record.trials, replace(record.trials[0], runs=("more",))))
    with pytest.raises(dp.errors.ParameterError, match="'more' charged nothing here"):
        dp.Report.of(ledger, tuning=boast)


def test_p39_the_right_names_on_another_ledger_are_not_enough(
    tuned: tuple[dp.Ledger, Tuning],
) -> None:
    ledger, record = tuned
    with pytest.raises(dp.errors.ParameterError, match="another ledger"):
        dp.Report.of(ledger, tuning=replace(record, ledger_head="ab" * 32))


def test_other_things_are_refused() -> None:
    for wrong in (None, "tuning.json", ["tuning.json"]):
        with pytest.raises(dp.errors.ParameterError, match="tuning"):
            dp.Report.of(ledger_of((STEP, 3)), delta=DELTA, tuning=wrong)  # type: ignore[arg-type]
