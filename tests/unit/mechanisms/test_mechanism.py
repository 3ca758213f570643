"""Mechanisms of a user: what is executed and charged are groups of the library, or nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.errors import ParameterError
from discreet.mechanisms import (
    MECHANISMS,
    Bound,
    Gaussian,
    Group,
    Groups,
    Mechanism,
    Microbatches,
    NotPrivate,
    Threshold,
)
from discreet.mechanisms._frozen import Frozen

LEAVES = {"grad/w": 3, "grad/b": 1}


@dataclass(frozen=True)
class ByKind(Mechanism):
    """Biases get half the clip norm of weights."""

    clip_norm: float
    noise_multiplier: float

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        bounds = []
        for leaf, size in leaves.items():
            clip_norm = self.clip_norm / (2.0 if leaf.endswith("b") else 1.0)
            inner = Gaussian(clip_norm, self.noise_multiplier)
            bounds.append(inner.bind({leaf: size}, f"{name}/{leaf}"))
        return Bound.merged(bounds)


@dataclass(frozen=True)
class Returns(Mechanism):
    """Whatever it was made with."""

    bound: Any

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        del leaves, name
        return self.bound  # type: ignore[no-any-return]


class Unclipped(Group):
    """States a sensitivity and clips nothing."""

    def weights(self, squared_norms: Any) -> Any:
        return squared_norms[:, 0] * 0.0 + 1.0


def plan_of(mechanism: Any, leaves: Mapping[str, int] | None = LEAVES) -> dp.Plan:
    sampler = dp.Sampler(dp.Poisson(0.5), records=20, steps=2)
    return dp.Plan(sampler=sampler, mechanism=mechanism, leaves=leaves)


def test_an_own_mechanism_is_executed_and_charged_by_its_groups() -> None:
    plan = plan_of(ByKind(2.0, 3.0))
    assert [(query.group, query.sensitivity, query.noise_std) for query in plan.queries()] == [
        ("all/grad/w", 2.0, 6.0),
        ("all/grad/b", 1.0, 3.0),
    ]
    ledger = dp.Ledger.in_memory()
    run = dp.Aggregator(plan, ledger=ledger)
    for sample in run.samples():
        sums = run.partial(sample)
        rows = {leaf: np.full((len(sample), size), 1e6) for leaf, size in LEAVES.items()}
        sums.add(rows)
        released = run.release(sample, sums)
        assert np.abs(released["grad/w"]).max() <= 2.0 * len(sample) + 6.0 * 8
    assert dict(ledger.snapshot().counted()) == {plan.step: 2}
    assert dp.account(ledger, delta=1e-6).voided_by == ()


def test_an_own_mechanism_may_be_a_part_and_may_have_slots() -> None:
    whole = Groups({"grad/*": Microbatches(ByKind(2.0, 3.0), 4), "*": Gaussian(1.0, 9.0)})
    plan = plan_of(whole, {**LEAVES, "metric": 1})
    assert [query.sensitivity for query in plan.queries()] == [4.0, 2.0, 1.0]


def test_without_leaves_nothing_is_said_of_an_own_mechanism() -> None:
    plan = plan_of(ByKind(2.0, 3.0), None)
    for ask in (plan.queries, plan.marks, plan.snapshot, plan.run_info):
        with pytest.raises(ParameterError, match="for_leaves"):
            ask()
    assert plan.for_leaves(LEAVES).marks() == ()


def test_no_file_names_an_own_mechanism() -> None:
    plan = plan_of(ByKind(2.0, 3.0))
    with pytest.raises(ParameterError, match="ByKind"):
        plan.to_json()
    assert plan.as_row() == ""
    with pytest.raises(ParameterError, match="noise to scale"):
        ByKind(1.0, 1.0).with_noise_times(2.0)


def test_a_group_that_is_not_private_marks_the_plan() -> None:
    plan = plan_of(Returns(NotPrivate().bind(LEAVES)))
    assert plan.marks() == ("unsafe_no_privacy",)


RIGHT = Gaussian(1.0, 2.0).bind(LEAVES)
FIELDS = {name: getattr(RIGHT.start[0], name) for name in Group.__dataclass_fields__}
MOVING = Threshold(group="nobody", observed="bit", start=1.0, quantile=0.5, learning_rate=0.2)
BITS = Group(name="bit", leaves=("bit",), scales=(1.0,), clip_norm=0.5, noise_std=9.0)


class OwnBound(Bound):
    """Could state other queries than its groups."""


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (replace(RIGHT, start=(Unclipped(**FIELDS),)), "not of other classes"),
        (OwnBound(dimensions=RIGHT.dimensions, start=RIGHT.start), "not of other classes"),
        (None, "not of other classes"),
        (
            Bound(
                dimensions=Frozen((*LEAVES.items(), ("bit", 1))),
                start=(*RIGHT.start, BITS),
                thresholds=(MOVING,),
            ),
            "not of other classes",
        ),
        (Gaussian(1.0, 2.0).bind({"grad/w": 3}), "takes every leaf"),
        (Gaussian(1.0, 2.0).bind({**LEAVES, "more": 1}), "takes every leaf"),
        (Gaussian(1.0, 2.0).bind({"grad/w": 3, "grad/b": 2}), "takes every leaf"),
    ],
    ids=["group", "bound", "nothing", "threshold", "fewer", "more", "another size"],
)
def test_what_the_proofs_are_not_about_is_refused(bound: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        plan_of(Returns(bound))


@pytest.mark.parametrize(
    "bound",
    [Microbatches(Gaussian(1.0, 2.0), 4).bind(LEAVES), NotPrivate().bind(LEAVES)],
    ids=["slots", "no noise"],
)
def test_slots_do_not_hide_what_a_group_says(bound: Bound) -> None:
    with pytest.raises(ParameterError, match="Microbatches"):
        plan_of(Microbatches(Returns(bound), 8))


def test_a_mechanism_is_final_and_frozen() -> None:
    with pytest.raises(ParameterError, match="every mechanism is final"):
        type("Mine", (Gaussian,), {})

    @dataclass
    class Changing(Mechanism):
        noise: float

        def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
            return Gaussian(1.0, self.noise).bind(leaves, name)

    for wrong in (Changing(1.0), Gaussian, "gaussian", None):
        with pytest.raises(ParameterError, match="frozen dataclass"):
            plan_of(wrong)


def test_numbers_of_a_group_are_stored_in_float64() -> None:
    """Noise of 2^24 + 1 is not a float32; engines must not compute with less."""
    group = Group(
        name="g",
        leaves=("a",),
        scales=(np.float32(1.0),),  # type: ignore[arg-type]
        clip_norm=np.float32(0.5),  # type: ignore[arg-type]
        noise_std=np.float32(2.0),  # type: ignore[arg-type]
    )
    numbers = (group.clip_norm, group.noise_std, *group.scales)
    assert {type(number) for number in numbers} == {float}


def test_the_librarys_own_mechanisms_have_names_and_bounds_of_their_own() -> None:
    kinds = [mechanism.kind for mechanism in MECHANISMS]
    assert len(set(kinds)) == len(MECHANISMS)
    assert "" not in kinds
    assert {mechanism.kind for mechanism in MECHANISMS if not mechanism.fits_groups} == {"groups"}
    assert {mechanism.kind for mechanism in MECHANISMS if not mechanism.fits_slots} == {
        "groups",
        "microbatches",
        "not-private",
    }
