"""A plan says everything before the first step: charges, leaves, notes, and what is refused."""

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.mechanisms import AdaptiveClip, Gaussian, Groups, Microbatches, NotPrivate, Split
from discreet.plan import Schedule, Target
from discreet.plan.calibrated import epoch_steps
from discreet.randomness.source import Source
from discreet.sampling import Owners, Sampler

SAMPLER = Sampler(dp.Poisson(0.01), records=1_000, steps=10)
GIVEN: dict[str, Any] = {"sampling_probability": 0.01, "steps": 10, "noise_multiplier": 1.1}


def plan(mechanism: Any = None, **fields: Any) -> dp.Plan:
    chosen: dict[str, Any] = {"sampler": SAMPLER, "mechanism": mechanism or Gaussian(1.0, 1.1)}
    return dp.Plan(**chosen | fields)


def test_charges_are_the_step_as_often_as_planned() -> None:
    made = dp.Plan.dpsgd(**GIVEN, clip_norm=0.5)
    (charge,) = made.charges()
    assert (charge.step, charge.count, charge.unsettled) == (made.step, 10, 0)
    assert made.step == dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("grad/*", 0.5, 0.55))


def test_executing_a_plan_charges_the_ledger_what_the_plan_says() -> None:
    made = dp.Plan.dpsgd(sampling_probability=0.01, steps=30, noise_multiplier=1.1)
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(made.run_info(), [(made.step, made.steps)], plan=made.as_row())
    for _ in run.steps(made.step, made.steps):
        pass
    assert [replace(charge, number=0) for charge in ledger.charges()] == list(made.charges())
    (record,) = ledger.runs()
    assert dp.Plan.from_json(record.plan) == made


def test_a_run_declares_where_its_randomness_comes_from() -> None:
    info = plan().run_info("first", randomness=dp.units.Randomness.UNSAFE_TEST_KEY)
    assert (info.label, info.randomness, info.numerics) == (
        "first",
        dp.units.Randomness.UNSAFE_TEST_KEY,
        dp.Numerics.CERTIFIED,
    )
    assert plan(numerics=dp.Numerics.IDEALISED).run_info().numerics is dp.Numerics.IDEALISED


def test_p15_slots_are_charged_with_twice_the_clip_norm() -> None:
    made = plan(Microbatches(Gaussian(clip_norm=0.5, noise_multiplier=3.0), slots=8))
    assert made.step.queries == (dp.ledger.GaussianSum("all", 1.0, 3.0),)
    assert made.for_leaves({"w": 2}).step == made.step


def test_p24_the_bit_of_adaptive_clipping_is_charged() -> None:
    made = plan(AdaptiveClip(Gaussian(1.0, 1.1), quantile=0.5, count_noise_std=10.0))
    assert made.step.groups == ("all", "all/below")
    assert made.noise_multiplier == pytest.approx(1.1, rel=1e-12)


def test_an_epoch_is_one_step_where_it_is_one_draw() -> None:
    made = plan(
        sampler=Sampler(dp.ledger.Shuffled(20), records=1_000, steps=3),
        adjacency=dp.Adjacency.ZERO_OUT,
    )
    assert isinstance(made.sampler, Sampler)
    assert (made.steps, made.sampler.batches, made.expected_batch_size) == (3, 60, 50.0)
    assert made.charges()[0].count == 3


def test_queries_that_depend_on_leaves_need_them() -> None:
    made = plan(Split(clip_norm=1.0, noise_multiplier=2.0))
    for ask in (lambda: made.step, made.charges, made.run_info, made.explain, lambda: made.bound):
        with pytest.raises(dp.errors.ParameterError):
            ask()
    bound = made.for_leaves({"a": 1, "b": 2})
    assert bound.step.groups == ("all/a", "all/b")
    assert bound.for_leaves({"a": 1, "b": 2}) == bound


def test_every_leaf_is_claimed_before_the_first_step() -> None:
    made = plan(Groups({"grad/*": Gaussian(1.0, 1.0)}))
    with pytest.raises(dp.errors.ParameterError, match="metric/loss"):
        made.for_leaves({"grad/w": 3, "metric/loss": 1})
    with pytest.raises(dp.errors.ParameterError, match=r"grad/\*"):
        plan(Groups({"bn/*": Gaussian(1.0, 1.0), "grad/*": Gaussian(1.0, 1.0)})).for_leaves(
            {"bn/w": 3}
        )


@pytest.mark.parametrize("leaves", [{"a": 2}, {"a": 1, "b": 1}, {"b": 1}])
def test_leaves_once_bound_cannot_become_others(leaves: dict[str, int]) -> None:
    with pytest.raises(dp.errors.ParameterError, match="leaves"):
        plan(leaves={"a": 1}).for_leaves(leaves)


def test_a_plan_without_privacy_says_so_everywhere() -> None:
    made = plan(NotPrivate())
    assert (made.private, made.noise_multiplier, made.charges()) == (False, 0.0, ())
    assert made.marks() == ("unsafe_no_privacy",)
    assert "NOT PRIVATE" in made.notes[0]
    assert "NO GUARANTEE" in made.explain(delta=1e-5)
    assert "NOT PRIVATE" in made.for_leaves({"w": 1}).explain()
    assert made.run_info().groups == made.for_leaves({"w": 1}).run_info().groups == ("all",)
    with pytest.raises(dp.errors.ParameterError, match="unsafe_no_privacy"):
        _ = made.step
    assert dp.account(made, delta=1e-5).upper == math.inf
    with pytest.raises(dp.errors.AccountingError):
        made.certified(Target(1e9, 0.5))


def test_numbers_of_other_libraries_are_python_numbers_in_a_plan() -> None:
    made = plan(leaves={"w": np.int32(3)})
    assert made == plan(leaves={"w": 3})
    assert dp.Plan.from_json(made.to_json()) == made
    assert epoch_steps(np.float32(20), np.int64(512), np.uint32(60_000)) == 2344  # type: ignore[arg-type]


def test_one_group_without_privacy_voids_the_whole_plan() -> None:
    made = plan(Groups({"grad/*": Gaussian(1.0, 1.1), "debug/*": NotPrivate()}))
    bound = made.for_leaves({"grad/w": 3, "debug/x": 1})
    assert bound.bound.private is False
    for version in (made, bound):
        assert (version.private, version.noise_multiplier) == (False, 0.0)
        assert version.run_info().groups == ("debug/*", "grad/*")
        assert (
            version.marks() == dp.account(version, delta=1e-5).voided_by == ("unsafe_no_privacy",)
        )
        assert "NO GUARANTEE" in version.explain(delta=1e-5)
    with pytest.raises(dp.errors.AccountingError, match="unsafe_no_privacy"):
        made.certified(Target(1e9, 0.5))


def test_a_plan_cannot_be_changed() -> None:
    made = plan(leaves={"w": 3})
    for name in (
        "sampler",
        "mechanism",
        "unit",
        "adjacency",
        "leaves",
        "numerics",
        "target",
        "_bound",
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, None)
    with pytest.raises((AttributeError, TypeError)):
        made.steps = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        made.sampler.steps = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.leaves["w"] = 4  # type: ignore[index]


def test_a_plan_shares_nothing_with_the_dictionaries_it_was_made_from() -> None:
    leaves, inner = {"grad/w": 3}, {"grad/*": Gaussian(1.0, 1.1)}
    made = plan(Groups(inner), leaves=leaves)
    before = (made.to_json(), made.step, made.explain())
    leaves["grad/v"] = 5
    inner["grad/*"] = Gaussian(1.0, 1e-6)
    inner["other"] = Gaussian(1.0, 1e-6)
    assert (made.to_json(), made.step, made.explain()) == before


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"sampler": dp.Poisson(0.1)}, "sampler"),
        ({"sampler": None}, "sampler"),
        ({"mechanism": "gaussian"}, "mechanism"),
        ({"mechanism": Gaussian}, "mechanism"),
        ({"unit": "example"}, "unit"),
        ({"adjacency": "zero-out"}, "adjacency"),
        ({"numerics": "exact"}, "numerics"),
        ({"target": (1.0, 1e-5)}, "target"),
        ({"leaves": {}}, "leaves"),
        ({"leaves": ["w"]}, "leaves"),
        ({"leaves": {"w": 0}}, "leaves['w']"),
        ({"leaves": {"w": 1.5}}, "leaves['w']"),
        ({"leaves": {3: 1}}, "key of leaves"),
    ],
)
def test_p45_bad_fields_are_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(dp.errors.ParameterError) as refused:
        plan(**fields)
    assert refused.value.name == name


def test_rows_are_not_drawn_while_accounting_for_another_unit() -> None:
    owners = Owners.from_ids(["ann", "bob", "ann"])
    by_user = Sampler(dp.Poisson(0.5), records=2, steps=1, owners=owners)
    with pytest.raises(dp.errors.ParameterError, match="user"):
        plan(sampler=by_user)
    assert plan(sampler=by_user, unit=dp.Unit.USER).notes == ()
    with pytest.raises(dp.errors.ParameterError, match="owners"):
        plan(sampler=by_user, unit=dp.Unit.USER).to_toml()


def test_without_the_number_of_records_nothing_is_drawn_or_divided() -> None:
    made = dp.Plan.dpsgd(**GIVEN)
    assert isinstance(made.sampler, Schedule)
    with pytest.raises(dp.errors.ParameterError, match="records"):
        _ = made.expected_batch_size
    with pytest.raises(dp.errors.ParameterError, match="records"):
        made.sampler.draw(Source.system())
    with pytest.raises(dp.errors.ParameterError, match="Sampler"):
        Schedule(dp.FixedSize(2, 10), steps=1)
