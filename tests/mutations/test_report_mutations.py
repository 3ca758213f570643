"""Deliberate bugs in the report, each applied to the real code, and the test that catches it."""

from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

import discreet as dp
from discreet.accounting import tight
from discreet.ledger import RunRecord, Snapshot
from discreet.report import layout as compose
from discreet.report.facts import curves
from discreet.report.facts import gathered as facts
from discreet.report.formats import markdown, page
from discreet.report.formats.document import Item
from discreet.report.sections import assumptions, checklist, deviations, headline
from support.mutations import Mutation, Patch, assert_caught, by_name, replaced

ASSUMPTIONS = "unit/report/sections/test_assumptions.py"
CHECKLIST = "unit/report/sections/test_checklist.py"
CURVES = "unit/report/facts/test_curves.py"
DEVIATIONS = "unit/report/sections/test_deviations.py"
HEADLINE = "unit/report/sections/test_headline.py"
LAYOUT = "unit/report/test_layout.py"
PAGE = "unit/report/formats/test_page.py"
REPORT = "unit/report/test_report.py"

EVERY_ITEM = (
    "unit/report/sections/test_checklist.py::test_p48_every_item_of_the_checklist_is_answered"
    "[Everything()-Adjacency.ADD_OR_REMOVE]"
)
RIGHT_CLAIM = headline.claim
RIGHT_UPPER = tight.tight_upper


def without_item(number: int) -> Patch:
    """The checklist without one of its items."""
    kept = checklist.CHECKLIST[:number] + checklist.CHECKLIST[number + 1 :]
    return replaced(checklist, "CHECKLIST", kept)


def silent_item(number: int) -> Patch:
    """The item is there, but says nothing."""

    def silent(found: facts.Facts) -> Item:
        return replace(right(found), paragraphs=(), points=(), table=None)

    right = checklist.CHECKLIST[number]
    return replaced(
        checklist,
        "CHECKLIST",
        (*checklist.CHECKLIST[:number], silent, *checklist.CHECKLIST[number + 1 :]),
    )


def unescaped(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = Environment(
        loader=FileSystemLoader(page._TEMPLATES), autoescape=False, trim_blocks=True
    )
    monkeypatch.setattr(page, "_environment", lambda: careless)


def blind(name: str) -> Patch:
    """One kind of deviation is never found."""
    return replaced(deviations, name, lambda *_: iter(()))


def planned_steps_only(found: facts.Facts, plan: dp.Plan) -> tuple[dp.ledger.Charge, ...]:
    return tuple(
        charge for charge in found.snapshot.charges if charge.step == deviations.step_of(plan)
    )


def without_marks(ledger: dp.Ledger) -> Snapshot:
    """Something that the ledger says is lost on the way."""
    return replace(RIGHT_SNAPSHOT(ledger), marks=())


def settled_only(ledger: dp.Ledger) -> Snapshot:
    snapshot = RIGHT_SNAPSHOT(ledger)
    return replace(snapshot, runs=tuple(map(_settled, snapshot.runs)))


def _settled(run: RunRecord) -> RunRecord:
    unsettled = dict(run.unsettled)
    charged = tuple((step, count - unsettled.get(step, 0)) for step, count in run.charged)
    return replace(run, charged=charged, unsettled=())


RIGHT_SNAPSHOT = dp.Ledger.snapshot


ITEMS = [
    Mutation(f"P48 item {i + 1} of the checklist {kind}", patch(i), EVERY_ITEM)
    for i in range(len(checklist.CHECKLIST))
    for kind, patch in (("is left out", without_item), ("says nothing", silent_item))
]
MUTATIONS = [
    *ITEMS,
    Mutation(
        "marks are lost",
        replaced(dp.Ledger, "snapshot", without_marks),
        f"{HEADLINE}::test_a_marked_ledger_has_no_guarantee_and_no_curve",
    ),
    Mutation(
        "P41 unsettled steps do not count in a report",
        replaced(dp.Ledger, "snapshot", settled_only),
        f"{REPORT}::test_unsettled_steps_count_and_are_named",
    ),
    Mutation(
        "P37 an infinite epsilon counts as a claim",
        replaced(facts.Facts, "void", property(lambda _: False)),
        f"{HEADLINE}::test_an_infinite_epsilon_is_no_guarantee",
    ),
    Mutation(
        "texts are not escaped",
        unescaped,
        f"{PAGE}::test_no_text_of_the_ledger_becomes_markup[<script>alert(1)</script>]",
    ),
    Mutation(
        "Markdown is not escaped",
        replaced(markdown, "escaped", lambda text: text),
        f"{PAGE}::test_no_text_of_the_ledger_becomes_markup[<script>alert(1)</script>]",
    ),
    Mutation(
        "P39 a filter's claim is computed as if steps were fixed",
        replaced(facts.Facts, "by_fixed_analysis", property(lambda _: False)),
        f"{LAYOUT}::test_p39_a_filtered_ledger_claims_all_of_its_budget",
    ),
    Mutation(
        "P37 the estimate is claimed in the place of the upper bound",
        replaced(
            headline,
            "claim",
            lambda found: replace(RIGHT_CLAIM(found), epsilon_upper=found.guarantee.estimate),
        ),
        f"{REPORT}::test_the_claim_is_the_accountants",
    ),
    Mutation(
        "epsilon over steps is half of what is certified",
        replaced(curves, "tight_upper", lambda *terms: 0.5 * RIGHT_UPPER(*terms)),
        f"{CURVES}::test_epsilon_over_steps_ends_in_the_claim_and_is_certified_before",
    ),
    Mutation(
        "the attacker's curve is too low",
        replaced(compose, "percent", lambda share: f"{100.0 * share / 2.0:g} %"),
        f"{CURVES}::test_the_named_point_lies_on_the_curve_and_bounds_the_best_attack",
    ),
    Mutation(
        "without amplification a pushed-out record is forgotten",
        replaced(curves, "_known", lambda step, _: dp.ledger.Step(dp.Everything(), step.queries)),
        f"{CURVES}::test_without_amplification_a_full_truncated_sample_changes_in_two_records",
    ),
    Mutation(
        "P41 what was done in the place of a plan counts as another run",
        replaced(deviations, "charges_of_plan", planned_steps_only),
        f"{DEVIATIONS}::test_p41_a_plan_of_a_programme_that_ran_with_other_noise_under_another_name_is_wrong",
    ),
    Mutation(
        "P43 an audit above the claim is overlooked",
        replaced(deviations, "refuted", lambda _: False),
        f"{DEVIATIONS}::test_p43_an_audit_above_the_claim_contradicts_it",
    ),
    Mutation(
        "an audit of any ledger counts",
        replaced(facts, "_audited", lambda *_: facts.AuditedHead.THIS),
        f"{DEVIATIONS}::test_an_audit_of_another_ledger_is_wrong_and_not_compared",
    ),
    Mutation(
        "P43 an audit is compared at the claim's delta",
        replaced(facts, "_claim_at", lambda held, delta, found, limit=None: found.upper),
        f"{DEVIATIONS}::test_p43_an_audit_is_compared_at_its_own_delta",
    ),
    Mutation(
        "P38 spending above the target is overlooked",
        blind("_limits"),
        f"{DEVIATIONS}::test_spending_the_whole_target_is_fine_and_more_is_wrong",
    ),
    Mutation(
        "P41 more steps than planned are overlooked",
        blind("_steps"),
        f"{DEVIATIONS}::test_more_steps_are_wrong_and_fewer_none_where_all_count",
    ),
    Mutation(
        "delta is not compared with 1/records",
        blind("_records"),
        f"{CHECKLIST}::test_delta_is_compared_with_the_number_of_records",
    ),
    Mutation(
        "P18 a test key is taken for random",
        replaced(assumptions, "Randomness", type("R", (), {"UNSAFE_TEST_KEY": None})),
        f"{ASSUMPTIONS}::test_whether_an_assumption_holds_follows_the_ledger[test key]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
