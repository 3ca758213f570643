"""Deliberate privacy bugs in the accountants, each applied to the real code, and the test that catches it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import discreet as dp
from discreet import budget
from discreet.accounting import accountant, normalise, sources
from discreet.accounting.leaves import Gaussian, PoissonGaussian
from discreet.accounting.tight import accountant as tight
from discreet.accounting.tight import directions
from discreet.ledger.folding import folded_noise_multiplier
from golden import test_tight as golden
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit import test_budget
from unit.accounting import test_accountant


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """Results computed by right code must not hide wrong code, nor the reverse."""
    for function in (tight.tight_epsilon, tight.tight_delta, normalise.leaves_of_step):
        function.cache_clear()


def count_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normalise.normalise
    monkeypatch.setattr(
        accountant, "normalise", lambda steps, its: tuple((leaf, min(count, 1)) for leaf, count in right(steps, its))
    )


def largest_group_only(queries: Any) -> float:
    return float(min(query.noise_std / query.sensitivity for query in queries))


def removal_for_replacement(queries: Any, _: dp.Adjacency) -> tuple[Gaussian]:
    return (Gaussian(folded_noise_multiplier(queries)),)


def cheaper_direction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right = directions.directions
    monkeypatch.setattr(tight, "directions", lambda leaf: (right(leaf)[1], right(leaf)[1]))


def flattered(leaf: Any) -> Any:
    return replace(leaf, noise_multiplier=leaf.noise_multiplier * 1.01) if isinstance(leaf, PoissonGaussian) else leaf


def noise_overstated(monkeypatch: pytest.MonkeyPatch) -> None:
    right = directions.directions
    monkeypatch.setattr(tight, "directions", lambda leaf: right(flattered(leaf)))


def shuffled_as_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normalise._sampled

    def wrong(sampling: Any, noise: float, adjacency: dp.Adjacency) -> Any:
        if isinstance(sampling, dp.Shuffled):
            return PoissonGaussian(1.0 / sampling.batches, noise)
        return right(sampling, noise, adjacency)

    monkeypatch.setattr(normalise, "_sampled", wrong)


def target_missed_by_three_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    right = budget.Budget._accounted
    monkeypatch.setattr(
        budget.Budget,
        "_accounted",
        lambda self, *given: replace(right(self, *given), lower=0.0, estimate=None, upper=right(self, *given).upper / 1.03),
    )


def running_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sources.read
    monkeypatch.setattr(budget, "_adaptive", lambda charges: False)
    monkeypatch.setattr(accountant, "read", lambda *given: replace(right(*given), parameters=dp.Parameters.FIXED_IN_ADVANCE))


def two_groups_fold() -> None:
    """Two groups cost more than the larger alone."""
    step = dp.Step(dp.Poisson(0.1), [dp.GaussianSum("a", 1.0, 2.0), dp.GaussianSum("b", 1.0, 2.0)])
    (leaf,) = normalise.leaves_of_step(step, dp.Adjacency.ADD_OR_REMOVE)
    assert isinstance(leaf, PoissonGaussian)
    assert leaf.noise_multiplier == pytest.approx(2.0**0.5, rel=1e-12)


def twelve_oracles() -> None:
    for row in golden.STORED["oracles"]:
        golden.test_twelve_oracles_to_eight_digits(row)


MUTATIONS = [
    Mutation("P26 shuffled taken for Poisson", shuffled_as_poisson, test_accountant.test_p26_shuffled_is_not_amplified),
    Mutation("P33 the count is dropped", count_dropped, test_accountant.test_p33_one_hundred_choices_cost_more_than_one),
    Mutation(
        "P34 only the largest group is counted",
        replaced(normalise, "folded_noise_multiplier", largest_group_only),
        two_groups_fold,
    ),
    Mutation(
        "P35 replace-one with the sensitivity of a removal",
        replaced(normalise, "_unsampled", removal_for_replacement),
        test_accountant.test_p35_full_batch_replace_one_is_twice_the_sensitivity_in_both_accountants,
    ),
    Mutation("one direction of add-or-remove only", cheaper_direction_only, twelve_oracles),
    Mutation("noise overstated by 1 %", noise_overstated, twelve_oracles),
    Mutation(
        "P38 a target missed by 3 % is met",
        target_missed_by_three_percent,
        test_budget.test_p38_exactly_the_target_fits_and_anything_more_does_not,
    ),
    Mutation(
        "P39 a running bound as stopping rule",
        running_bound,
        test_budget.test_p39_parameters_chosen_from_outputs_get_a_filter_not_the_tight_accountant,
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_afresh() -> None:
        forget()
        mutation.check()

    assert_caught(replace(mutation, check=check_afresh), monkeypatch)
