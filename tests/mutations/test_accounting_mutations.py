"""Deliberate privacy bugs in the accountants, each applied to the real code, and the test that
catches it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet import budget
from discreet.accounting import accountant, normalise, sources
from discreet.accounting.costs import Gaussian, PoissonGaussian
from discreet.accounting.tight import accountant as tight
from discreet.accounting.tight.analyses import registry as directions
from discreet.ledger import Snapshot, Terms
from discreet.ledger.folding import folded_noise_multiplier
from support.mutations import Mutation, assert_caught, by_name, replaced

GOLDEN = "golden/test_tight.py"
BUDGET = "unit/test_budget.py"
ACCOUNTANT = "unit/accounting/test_accountant.py"
NORMALISE = "unit/accounting/test_normalise.py"


def count_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normalise.normalise
    monkeypatch.setattr(
        accountant,
        "normalise",
        lambda steps, its: tuple((cost, min(count, 1)) for cost, count in right(steps, its)),
    )


def largest_group_only(queries: Any) -> float:
    return float(min(query.noise_std / query.sensitivity for query in queries))


def removal_for_replacement(queries: Any, _: dp.Adjacency) -> tuple[Gaussian]:
    return (Gaussian(folded_noise_multiplier(queries)),)


def cheaper_direction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right = directions.directions
    monkeypatch.setattr(tight, "directions", lambda cost: (right(cost)[1], right(cost)[1]))


def flattered(cost: Any) -> Any:
    return (
        replace(cost, noise_multiplier=cost.noise_multiplier * 1.01)
        if isinstance(cost, PoissonGaussian)
        else cost
    )


def noise_overstated(monkeypatch: pytest.MonkeyPatch) -> None:
    right = directions.directions
    monkeypatch.setattr(tight, "directions", lambda cost: right(flattered(cost)))


def shuffled_as_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normalise._sampled

    def wrong(sampling: Any, noise: float, adjacency: dp.Adjacency) -> Any:
        if isinstance(sampling, dp.ledger.Shuffled):
            return PoissonGaussian(1.0 / sampling.batches, noise)
        return right(sampling, noise, adjacency)

    monkeypatch.setattr(normalise, "_sampled", wrong)


def target_missed_by_three_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    right = accountant.account

    def generous(*steps: Any, **options: Any) -> dp.Guarantee:
        claim = right(*steps, **options)
        return replace(claim, lower=0.0, estimate=None, upper=claim.upper / 1.03)

    monkeypatch.setattr(budget, "account", generous)


def running_bound(self: object, snapshot: Snapshot) -> None:
    """The tight accountant admits whatever was chosen from outputs."""
    terms = snapshot.terms
    if terms is None or terms.epsilon is None:
        return
    claim = accountant.account(
        snapshot.committed(), delta=terms.delta, adjacency=snapshot.runs[0].info.adjacency
    )
    budget._refuse_above(terms.epsilon, terms.delta, claim.upper, "a running bound")


def each_kind_by_its_own_rule(self: budget._Rules, snapshot: Snapshot) -> None:
    """The filter admits what was chosen from outputs, the tight accountant what was fixed, as if
    neither knew the other.
    """
    fixed = [
        run for run in snapshot.runs if run.info.parameters is dp.units.Parameters.FIXED_IN_ADVANCE
    ]
    chosen = [
        run
        for run in snapshot.runs
        if run.info.parameters is not dp.units.Parameters.FIXED_IN_ADVANCE
    ]
    if chosen:
        RIGHT_ADMIT(self, replace(snapshot, runs=tuple(chosen)))
    if fixed:
        running_bound(self, replace(snapshot, runs=tuple(fixed)))


def delta_chosen_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    right = accountant._fixed_analysis

    def obliging(found: sources.Read, terms: Terms, delta: float | None, name: Any) -> dp.Guarantee:
        return right(
            found, replace(terms, delta=delta or terms.delta), delta or terms.delta, "tight"
        )

    monkeypatch.setattr(accountant, "_fixed_analysis", obliging)


def marks_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sources.read_source
    monkeypatch.setattr(
        accountant, "read_source", lambda *source: replace(right(*source), voided_by=())
    )


RIGHT_ADMIT = budget._Rules.admit

MUTATIONS = [
    Mutation(
        "P26 shuffled taken for Poisson",
        shuffled_as_poisson,
        f"{ACCOUNTANT}::test_p26_shuffled_is_not_amplified",
    ),
    Mutation(
        "P33 an accountant drops the count",
        count_dropped,
        f"{ACCOUNTANT}::test_p33_one_hundred_choices_cost_more_than_one",
    ),
    Mutation(
        "P34 an accountant counts the largest group only",
        replaced(normalise, "folded_noise_multiplier", largest_group_only),
        f"{NORMALISE}::test_p34_groups_fold_whatever_the_type_of_the_numbers",
    ),
    Mutation(
        "P35 replace-one with the sensitivity of a removal",
        replaced(normalise, "_unsampled", removal_for_replacement),
        f"{ACCOUNTANT}::test_p35_full_batch_replace_one_is_twice_the_sensitivity_in_both_accountants",
    ),
    Mutation(
        "one direction of add-or-remove only",
        cheaper_direction_only,
        f"{GOLDEN}::test_twelve_oracles_to_eight_digits",
    ),
    Mutation(
        "noise overstated by 1 %",
        noise_overstated,
        f"{GOLDEN}::test_twelve_oracles_to_eight_digits",
    ),
    Mutation(
        "P38 a target missed by 3 % is met",
        target_missed_by_three_percent,
        f"{BUDGET}::test_p38_exactly_the_target_fits_and_anything_more_does_not",
    ),
    Mutation(
        "P39 a running bound as stopping rule",
        replaced(budget._Rules, "admit", running_bound),
        f"{BUDGET}::test_p39_what_is_chosen_from_outputs_gets_a_filter_and_not_the_tight_accountant",
    ),
    Mutation(
        "T01 fixed runs by the accountant, adaptive ones by the filter",
        replaced(budget._Rules, "admit", each_kind_by_its_own_rule),
        f"{BUDGET}::test_t01_a_filter_counts_every_charge_fixed_ones_too",
    ),
    Mutation(
        "T03 the reader chooses the delta of a filter",
        delta_chosen_afterwards,
        f"{BUDGET}::test_t03_a_filter_has_one_delta_and_one_analysis_which_nobody_chooses_afterwards",
    ),
    Mutation(
        "T05 a void ledger has a number",
        marks_forgotten,
        f"{ACCOUNTANT}::test_t05_a_void_ledger_has_no_number",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
