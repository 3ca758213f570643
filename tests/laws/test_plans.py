"""Laws of plans: files lose nothing, nothing unknown gets in,
what is planned is what is charged.
"""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.ledger.folding import folded_noise_multiplier
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    Split,
)
from discreet.plan import Schedule
from discreet.sampling import Sampler
from support.plans import numbers, plans, shares

LEAVES = {"grad/a": 3, "grad/b": 50, "metric/c": 1}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([[]]),
)


@given(plans)
def test_a_file_gives_back_the_same_plan_bit_for_bit(plan: dp.Plan) -> None:
    for again in (dp.Plan.from_toml(plan.to_toml()), dp.Plan.from_json(plan.to_json())):
        assert again == plan
        assert repr(again) == repr(plan)  # a repr shows every digit
        assert hash(again) == hash(plan)


@given(
    plans,
    st.dictionaries(
        st.text(st.characters(categories=("L", "P", "S")), min_size=1, max_size=9),
        st.integers(1, 10**9),
    ),
)
def test_leaves_survive_files_in_their_order(plan: dp.Plan, leaves: dict[str, int]) -> None:
    named = {f"leaf {name}": size for name, size in leaves.items()} or {"w": 1}
    bound = dp.Plan(sampler=plan.sampler, mechanism=Gaussian(1.0, 1.0), leaves=named)
    again = dp.Plan.from_toml(bound.to_toml())
    assert again == bound == dp.Plan.from_json(bound.to_json())
    assert list((again.leaves or {}).items()) == list(named.items())


def places(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every position in plain data."""
    inner = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [here, *(place for key, part in inner for place in places(part, (*here, key)))]


@given(plans, st.data(), JUNK)
def test_p45_p46_junk_anywhere_in_a_file_is_a_parameter_error_or_another_plan(
    plan: dp.Plan, data: st.DataObject, junk: Any
) -> None:
    table = json.loads(plan.to_json())
    place = data.draw(st.sampled_from(places(table)[1:]))
    inner = table
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = junk
    try:
        changed = dp.Plan.from_json(json.dumps(table))
    except (
        dp.errors.ParameterError,
        dp.errors.NumericsError,
    ):  # the latter for numbers whose products no float64 holds
        return
    assert dp.Plan.from_json(changed.to_json()) == changed


@given(plans, st.data())
def test_p45_a_key_too_many_or_too_few_is_refused(plan: dp.Plan, data: st.DataObject) -> None:
    table = json.loads(plan.to_json())
    tables = []
    for place in places(table):
        inner = table
        for key in place:
            inner = inner[key]
        if isinstance(inner, dict):
            tables.append(inner)
    chosen = data.draw(st.sampled_from(tables))
    chosen["epsilom"] = 1
    with pytest.raises(dp.errors.ParameterError):
        dp.Plan.from_json(json.dumps(table))
    del chosen["epsilom"]
    missing = data.draw(
        st.sampled_from(sorted(set(chosen) - {"leaves", "target", "rows_per_unit"}))
    )
    del chosen[missing]
    with pytest.raises(dp.errors.ParameterError):
        dp.Plan.from_json(json.dumps(table))


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_text_that_is_no_plan_is_a_parameter_error(source: str) -> None:
    for read in (dp.Plan.from_toml, dp.Plan.from_json):
        with pytest.raises(dp.errors.ParameterError):
            read(source)


WITH_MULTIPLIER = [
    lambda clip, noise, share: Gaussian(clip, noise),
    lambda clip, noise, share: Normalised(clip, noise),
    lambda clip, noise, share: Joint(1.0, noise, {"grad/a": clip, "*": share}),
    lambda clip, noise, share: Split(clip, noise),
    lambda clip, noise, share: Split(clip, noise, clip="by dimension", noise="by dimension"),
    lambda clip, noise, share: Split(
        clip, noise, parts={"x": "grad/*", "y": "*"}, clip={"x": share, "y": 1.0}
    ),
    lambda clip, noise, share: AdaptiveClip(Gaussian(clip, noise), 0.5, noise * (0.5 + share)),
    lambda clip, noise, share: Microbatches(Gaussian(clip, noise), 8),
    lambda clip, noise, share: Groups({"*": Split(clip, noise, noise="by dimension")}),
]


@pytest.mark.parametrize("make", WITH_MULTIPLIER)
@settings(max_examples=20)
@given(numbers, numbers, shares)
def test_p34_the_folded_multiplier_is_the_one_asked_for(
    make: Any, clip: float, noise: float, share: float
) -> None:
    plan = dp.Plan(
        sampler=Schedule(dp.Poisson(0.1), steps=3),
        mechanism=make(clip, noise, share),
        leaves=LEAVES,
    )
    assert noise * (1 - 1e-15) <= plan.noise_multiplier <= noise * (1 + 1e-13)
    assert plan.noise_multiplier == folded_noise_multiplier(
        [q for q in plan.step.queries if isinstance(q, dp.ledger.GaussianSum)]
    )


@pytest.mark.parametrize("make", WITH_MULTIPLIER)
@settings(max_examples=20)
@given(numbers, numbers, shares, st.integers(1, 40))
def test_p41_executing_a_plan_charges_what_it_says(
    make: Any, clip: float, noise: float, share: float, steps: int
) -> None:
    sampler = Sampler(dp.Poisson(0.1), records=100, steps=steps)
    plan = dp.Plan(sampler=sampler, mechanism=make(clip, noise, share)).for_leaves(LEAVES)
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(plan.run_info(), plan.snapshot().counted())
    for _ in run.steps(plan.step, plan.steps):
        pass
    assert [replace(charge, number=0) for charge in ledger.charges()] == list(plan.charges())
    assert ledger.marks() == plan.marks() == ()
    assert plan.step.queries == tuple(sorted(plan.bound.queries, key=lambda query: query.group))


@settings(max_examples=30)
@given(plans)
def test_copies_are_equal_and_nothing_can_be_set(plan: dp.Plan) -> None:
    before = plan.to_json()
    assert copy.deepcopy(plan) == copy.copy(plan) == plan
    for name in (*vars(dp.Plan), "anything"):
        if not name.startswith("__"):
            with pytest.raises(
                (AttributeError, TypeError)
            ):  # TypeError: CPython's own slip for names that are no fields
                setattr(plan, name, 1)
            with pytest.raises((AttributeError, TypeError)):
                delattr(plan, name)
    assert plan.to_json() == before
