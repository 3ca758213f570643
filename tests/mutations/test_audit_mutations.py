"""Deliberate bugs that white-box audits see: the lower bound that an attack proves goes above the claim.

A wrong norm is noticed by the engine itself, which compares a few records with torch's own gradients and then computes one by
one; for these bugs that comparison is switched off as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import discreet as dp
from audits import test_engine_audits as audits
from discreet.aggregation.session import Session
from discreet.canaries import Scores
from discreet.mechanisms import Group
from discreet.randomness import Purpose, gaussian
from discreet.sampling import _policies, sampler
from discreet.training import GradientCanaries, engine, factors, step
from mutations.test_engine_mutations import unchecked
from support.audits import COINS, DATA, Finding, Refuted, read, source, spiked, spiked_steps
from support.mutations import Check, Mutation, Patch, assert_caught, by_name, replaced

NOISE = dp.Groups({"grad/*": audits.NOISE})


def full_batch() -> None:
    spiked(NOISE).check()


def poisson() -> None:
    spiked(NOISE, dp.Poisson(0.4), steps=3).check()


def adaptive() -> None:
    audits.test_mechanisms("adaptive")


def path(name: str, **more: Any) -> Check:
    return lambda: audits.audited(name, **more).check()


def spread() -> None:
    """Another attack: noise that repeats cancels in differences, so a canary that comes and goes is seen against it."""
    its = dp.Plan(sampler=dp.Sampler(dp.Poisson(0.5), records=DATA + 500, steps=4), mechanism=NOISE)
    canaries = GradientCanaries(500, source=source(COINS))
    seen = [read(model, canaries) for model in spiked_steps(its, canaries)]
    spreads = np.stack(seen).std(0) * its.expected_batch_size
    Finding(its, Scores(spreads - 0.3, canaries.scores().inside)).check(least=-1.0)


def noise_by(factor: Any) -> Patch:
    right = gaussian.release_all

    def wrong(pairs: Any, *, noise_std: float, **more: Any) -> None:
        right(pairs, noise_std=noise_std * factor, **more)

    return replaced(step, "release_all", wrong)


def the_same_noise_in_every_step(self: Session, _: Any, lane: int) -> Any:
    del self
    return source(bytes(32)).stream(Purpose.NOISE, step=0, lane=lane)


def twice_the_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.positions

    def wrong(policy: Any, *more: Any) -> Iterator[Any]:
        return iter(right(dp.Poisson(2.0 * policy.probability), *more))

    monkeypatch.setattr(sampler, "positions", wrong)


def wrong_norm(kind: type, name: str, value: Any) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "isolated", unchecked)
        monkeypatch.setattr(kind, name, value)

    return patch


right_measured = factors.Outer.measured


def half_as_long(self: factors.Outer) -> Any:
    squares, spreads = right_measured(self)
    return squares / 4.0, spreads / 4.0


def no_products_of_different_positions(self: factors.Outer, spreads: Any) -> Any:
    del spreads
    return (self.a.double().square().sum(-1) * self.b.double().square().sum(-1)).sum(-1)


def rows_that_are_not_merged(self: factors.Rows, rows: Any) -> Any:
    del self
    return rows.double().square().sum((-1, -2))


MUTATIONS = [
    Mutation("no clipping", replaced(Group, "weights", lambda self, squares: np.ones(len(squares))), full_batch),
    Mutation("noise halved", noise_by(0.5), full_batch),
    Mutation("noise halved, sampled", noise_by(0.5), poisson),
    Mutation("noise halved, adaptive", noise_by(0.5), adaptive),
    Mutation("noise of the mean on the sum", noise_by(1.0 / 3020), full_batch),
    Mutation("noise reused in every step", replaced(Session, "noise_stream", the_same_noise_in_every_step), spread),
    Mutation("twice the probability", twice_the_probability, poisson),
    Mutation("norm half of what it is", wrong_norm(factors.Outer, "measured", half_as_long), path("positions, ghost")),
    Mutation(
        "norm without cross terms",
        wrong_norm(factors.Outer, "_ghost", no_products_of_different_positions),
        path("positions, ghost"),
    ),
    Mutation(
        "tied weights without their cross term",
        wrong_norm(factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)),
        path("tied, ghost", trials=6),  # contributions are too long by the root of 2 only
    ),
    Mutation("repeated words not merged", wrong_norm(factors.Rows, "_all_pairs", rows_that_are_not_merged), path("embedding")),
]


@by_name(MUTATIONS)
def test_an_audit_sees_it(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch, caught=(Refuted,))
