"""The statement answers every item of the guide's checklist, whatever was executed (P48)."""

import functools
from dataclasses import replace

import pytest

import discreet as dp
from discreet._digits import upward
from discreet.ledger import events
from support.reports import (
    DELTA,
    INFO,
    REFUSED,
    SAMPLINGS,
    analysed,
    extend,
    items,
    ledger_of,
    listed,
    planned,
    step_of,
)

FORMATS = ("html", "md", "json")


@functools.cache
def made(sampling: dp.ledger.Sampling, adjacency: dp.Adjacency) -> tuple[dp.Report, str]:
    """A report on a tuning run and a final run, and the head of its ledger."""
    info = replace(INFO, adjacency=adjacency, unit=dp.Unit("patient"))
    budget = listed((step_of(sampling), 7))
    ledger = ledger_of((step_of(sampling), 3), info=replace(info, label="tuning"), budget=budget)
    extend(ledger, (step_of(sampling), 4), info=replace(info, label="the final one"))
    return dp.Report.of(ledger, delta=DELTA), ledger.head()


def required(
    report: dp.Report, head: str, sampling: dp.ledger.Sampling, adjacency: dp.Adjacency
) -> dict[str, list[str]]:
    """What each item must say; written down here once more, so that an item that falls silent is
    noticed.
    """
    claim = report.guarantee
    return {
        "1": ["Setting", "Central differential privacy", "trusted"],
        "2a": [
            "Data accesses",
            "7 steps of 2 runs",
            "tuning",
            "the final one",
            "Not covered",
            "validation",
            "architecture",
        ],
        "2b": ["output", "full sequence", "every checkpoint", "final model"],
        "2c": ["Unit", "One patient", "features and labels"],
        "2d": [
            "Adjacency",
            adjacency.value.capitalize(),
            "neighbours",
            "How many records there are",
        ],
        "3a": ["accounting", "PLD", "RDP", sampling.phrase, f"at most {upward(claim.upper)}"],
        "3b": [
            "Assumptions",
            f"Samples were drawn as accounted for: {sampling.phrase}",
            "numerics: certified",
            "cryptographic generator",
            "fixed in advance",
            "All reservations are settled",
            "depends on that record",
            "Each record holds everything of one patient",
            "relied on",
            "yes, checked",
            "by the engine",
        ],
        "3c": [
            (
                f"({upward(claim.upper)}, {DELTA!r})-differentially private for one patient under "
                f"{adjacency.value} adjacency"
            ),
            *claim.assumptions,
            "mplification by sampling",
            "1/records",
            "1e-07",
            "tuning",
        ],
        "4": ["Transparency", head, dp.__version__, "python ", "numpy "],
    }


@pytest.mark.parametrize(("sampling", "adjacency"), analysed(), ids=str)
def test_p48_every_item_of_the_checklist_is_answered(
    sampling: dp.ledger.Sampling, adjacency: dp.Adjacency
) -> None:
    report, head = made(sampling, adjacency)
    wanted = required(report, head, sampling, adjacency)
    for form in FORMATS:
        found = items(report, form)
        assert list(found) == list(wanted), form
        for number, texts in wanted.items():
            for text in texts:
                assert text in found[number], (form, number, text)


def test_p48_the_cases_are_all_that_have_an_analysis() -> None:
    assert len(analysed()) == 3 * len(SAMPLINGS) - len(REFUSED) == 16
    assert {type(sampling) for sampling in SAMPLINGS} == set(events.SAMPLINGS)
    for sampling, adjacency in [
        (kind, adj) for kind in SAMPLINGS for adj in dp.Adjacency if (type(kind), adj) in REFUSED
    ]:
        with pytest.raises(dp.errors.AccountingError):
            dp.account([(step_of(sampling), 1)], delta=DELTA, adjacency=adjacency)


def test_samples_that_amplify_have_a_guarantee_without_amplification_too() -> None:
    amplified = items(made(dp.Poisson(0.05), dp.Adjacency.ADD_OR_REMOVE)[0], "md")["3c"]
    full = dp.account(
        [(step_of(dp.Everything()), 7)], delta=DELTA, adjacency=dp.Adjacency.ADD_OR_REMOVE
    )
    assert f"epsilon at most {upward(full.upper)}" in amplified
    for plain in (dp.Everything(), dp.ledger.Shuffled(10)):
        assert (
            "No amplification by sampling is claimed"
            in items(made(plain, dp.Adjacency.ZERO_OUT)[0], "md")["3c"]
        )


def test_delta_is_compared_with_the_number_of_records() -> None:
    unknown = items(made(dp.Poisson(0.05), dp.Adjacency.ADD_OR_REMOVE)[0], "md")["3c"]
    assert "Neither plan nor ledger say how many records" in unknown
    plan = planned()
    ledger = ledger_of((plan.step, plan.steps), info=plan.run_info("final"))
    assert (
        "(1,000 records), which it is"
        in items(dp.Report.of(ledger, delta=DELTA, plan=plan), "md")["3c"]
    )
    large = dp.Report.of(ledger, delta=1e-3, plan=plan)
    assert "WHICH IT IS NOT" in items(large, "md")["3c"]
    assert [found.severity for found in large.deviations if "1/records" in found.text] == ["wrong"]
