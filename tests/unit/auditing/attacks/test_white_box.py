"""The attack on a plan's own mechanism: what is executed is the plan, and what cannot be executed
is refused.
"""

import sys
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.auditing import white_box
from discreet.canaries import Scores
from support.white_box import source_of

module = sys.modules["discreet.auditing.attacks.white_box"]
MECHANISM = dp.Gaussian(1.0, 1.0)


def plan_of(
    mechanism: object = MECHANISM, records: int = 40, leaves: dict[str, int] | None = None
) -> dp.Plan:
    sampler = dp.Sampler(dp.Poisson(0.5), records=records, steps=2)
    return dp.Plan(sampler=sampler, mechanism=mechanism, leaves=leaves)  # type: ignore[arg-type]


def test_scores_are_one_for_each_canary_of_each_trial_and_trials_are_counted() -> None:
    seen = []
    scores = white_box(
        plan_of(), canaries=10, trials=3, progress=lambda done, total: seen.append((done, total))
    )
    assert isinstance(scores, Scores)
    assert (len(scores), scores.runs) == (30, 3)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert scores.attack == module.ATTACK


def test_all_records_are_canaries_where_a_plan_has_fewer() -> None:
    assert len(white_box(plan_of(), canaries=1000, trials=1)) == 40


def test_trials_are_independent_and_a_test_key_repeats_them() -> None:
    one, two = (
        white_box(plan_of(), canaries=20, trials=2, source=source_of("a")) for _ in range(2)
    )
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.inside, two.inside)
    assert not np.array_equal(one.values[:20], one.values[20:])
    fresh, other = (white_box(plan_of(), canaries=20, trials=1) for _ in range(2))
    assert not np.array_equal(fresh.values, other.values)


@pytest.mark.full
def test_processes_change_nothing_but_the_time() -> None:
    one, two = (
        white_box(
            plan_of(dp.Groups({"a*": MECHANISM})),
            canaries=20,
            trials=3,
            source=source_of("a"),
            processes=processes,
        )
        for processes in (1, 2)
    )
    assert np.array_equal(one.values, two.values)


def test_slots_are_where_canaries_disturb_each_other() -> None:
    slotted = dp.mechanisms.Microbatches(MECHANISM, slots=8)
    assert module.independent(plan_of())
    assert module.independent(plan_of(dp.Groups({"a*": MECHANISM})))
    assert not module.independent(plan_of(slotted))
    assert not module.independent(plan_of(dp.Groups({"a*": MECHANISM, "b*": slotted})))


BY_DIMENSION = dp.Split(1.0, 1.0, clip="by dimension", noise="by dimension")


@pytest.mark.parametrize(
    ("mechanism", "leaves"),
    [
        (BY_DIMENSION, {"w": 96, "b": 4}),
        (dp.Groups({"grad/*": BY_DIMENSION, "*": MECHANISM}), {"grad/w": 96, "grad/b": 4, "x": 2}),
        (dp.mechanisms.Microbatches(BY_DIMENSION, slots=8), {"w": 96, "b": 4}),
        (
            dp.Split(1.0, 1.0, parts={"all": "[wv]", "b": "*"}, clip="by dimension"),
            {"w": 96, "v": 3, "b": 4},
        ),
        (dp.Split(1.0, 1.0), {"w": 96, "b[*]": 4}),
        (
            dp.Groups(
                {
                    "grad/a*": MECHANISM,
                    "grad/[b-c]?": MECHANISM,
                    "*": dp.Split(1.0, 1.0, parts={"p": "q*"}),
                }
            ),
            None,
        ),
        (dp.Groups({"a*": dp.Joint(1.0, 1.0, scales={"ab": 1.0, "a*": 2.0})}), None),
        (
            dp.mechanisms.Microbatches(dp.Joint(1.0, 1.0, scales={"ab": 1.0, "a*": 2.0}), slots=8),
            None,
        ),
        (dp.AdaptiveClip(MECHANISM, quantile=0.5, count_noise_std=5.0), None),
    ],
    ids=str,
)
def test_what_is_executed_has_the_steps_of_the_plan(
    mechanism: object, leaves: dict[str, int] | None
) -> None:
    plan = plan_of(mechanism, leaves=leaves)
    audited = module._for_canaries(plan, 25)
    assert audited.step == plan.step
    firsts = [
        group.leaves[0]
        for group in audited.bound.start
        if group.leaves[0] not in audited.bound.observed
    ]
    assert {audited.bound.dimensions[leaf] for leaf in firsts} == {25}
    assert len(white_box(plan, canaries=25, trials=1)) == 25


def test_a_plan_that_knows_no_number_of_records_is_executed_on_its_canaries() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.1, steps=3, noise_multiplier=1.0)
    assert len(white_box(plan, canaries=30, trials=1)) == 30


def test_units_that_own_rows_are_one_row_each() -> None:
    owners = dp.Owners.from_ids(np.repeat(np.arange(10), 3))
    sampler = dp.Sampler(dp.Poisson(0.5), records=10, steps=2, owners=owners)
    assert (
        len(white_box(dp.Plan(sampler=sampler, mechanism=MECHANISM, unit=dp.Unit.USER), trials=1))
        == 10
    )


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of(dp.NotPrivate()), "without noise"),
        (plan_of(dp.Groups({"a*": MECHANISM, "b*": dp.NotPrivate()})), "without noise"),
        (plan_of(BY_DIMENSION), "knows its leaves"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_attacked_is_refused_in_words(plan: dp.Plan, words: str) -> None:
    with pytest.raises(dp.errors.ParameterError, match=words):
        white_box(plan, canaries=5, trials=1)


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Groups({"a*": MECHANISM, "a0": MECHANISM}),
        dp.Groups({"[!a]*": MECHANISM, "a*": dp.Joint(1.0, 1.0, scales={"b": 1.0})}),
    ],
    ids=str,
)
def test_without_leaves_the_names_of_patterns_do_not_matter(mechanism: Any) -> None:
    """What is attacked are groups and their numbers; which leaf a pattern claims is checked where a
    plan is bound.
    """
    audited = module._for_canaries(plan_of(mechanism), 5)
    assert audited.step == plan_of(mechanism).step
    assert len(white_box(plan_of(mechanism), canaries=5, trials=1)) == 5


@pytest.mark.parametrize(
    "wrong",
    [{"canaries": 0}, {"trials": 0}, {"processes": 0}, {"trials": 1.5}, {"source": "a"}],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(dp.errors.ParameterError, match=next(iter(wrong))):
        white_box(plan_of(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="plan"):
        white_box("plan")  # type: ignore[arg-type]
