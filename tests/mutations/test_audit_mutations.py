"""Deliberate bugs that white-box audits see: the lower bound that an attack proves goes above the
claim.

A wrong norm is noticed by the engine itself, which compares a few records with torch's own
gradients and then computes one by one; for these bugs that comparison is switched off as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.aggregation.session import Session
from discreet.mechanisms import Group
from discreet.randomness import Purpose, gaussian
from discreet.sampling import _policies, sampler
from discreet.training import step
from discreet.training.factors import factors
from discreet.training.passes.oracle import SelfTest
from support.audits import source
from support.mutations import Mutation, Patch, assert_caught, by_name, replaced

AUDITS = "audits/test_engine_audits.py"
FULL_BATCH, SAMPLED = f"{AUDITS}::test_mechanisms[one group]", f"{AUDITS}::test_samplers[poisson]"


def noise_by(factor: Any) -> Patch:
    right = gaussian.release_all

    def wrong(pairs: Any, *, noise_std: float, **more: Any) -> None:
        right(pairs, noise_std=noise_std * factor, **more)

    return replaced(step, "release_all", wrong)


def the_same_noise_in_every_step(self: Session, _: Any, lane: int) -> Any:
    del self
    return source(bytes(32)).stream(Purpose.NOISE, step=0, lane=lane)


def twice_the_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.drawn_positions

    def wrong(policy: Any, *more: Any) -> Iterator[Any]:
        return iter(right(dp.Poisson(2.0 * policy.probability), *more))

    monkeypatch.setattr(sampler, "drawn_positions", wrong)


def wrong_norm(owner: object, name: str, value: Any) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SelfTest, "passes", lambda self, loss, rows, trial: True)
        monkeypatch.setattr(owner, name, value)

    return patch


right_measured = factors.Outer.measured


def half_as_long(self: factors.Outer) -> Any:
    squares, spreads = right_measured(self)
    return squares / 4.0, spreads / 4.0


def no_products_of_different_positions(outers: Any) -> Any:
    squares = [
        (side.a.double().square().sum(-1), side.b.double().square().sum(-1)) for side in outers
    ]
    return [(of_a * of_b).sum(-1) for of_a, of_b in squares]


def rows_that_are_not_merged(self: factors.Lookups, rows: Any) -> Any:
    del self
    return rows.double().square().sum((-1, -2))


MUTATIONS = [
    Mutation(
        "P01 no clipping, seen by an audit",
        replaced(Group, "weights", lambda self, squares: np.ones(len(squares))),
        FULL_BATCH,
    ),
    Mutation("P23 noise halved, seen by an audit", noise_by(0.5), FULL_BATCH),
    Mutation("P23 noise halved, seen by an audit of samples", noise_by(0.5), SAMPLED),
    Mutation(
        "P23 noise halved, seen by an audit of adaptive clipping",
        noise_by(0.5),
        f"{AUDITS}::test_mechanisms[adaptive]",
    ),
    Mutation(
        "P23 noise of the mean on the sum, seen by an audit", noise_by(1.0 / 3020), FULL_BATCH
    ),
    Mutation(
        "P20 noise reused in every step, seen by an audit",
        replaced(Session, "noise_stream", the_same_noise_in_every_step),
        f"{AUDITS}::test_p20_noise_does_not_repeat",
    ),
    Mutation("P26 twice the probability, seen by an audit", twice_the_probability, SAMPLED),
    Mutation(
        "P01 norm half of what it is, seen by an audit",
        wrong_norm(factors.Outer, "measured", half_as_long),
        f"{AUDITS}::test_paths[positions, ghost]",
    ),
    Mutation(
        "P14 norm without cross terms, seen by an audit",
        wrong_norm(factors, "_ghosts", no_products_of_different_positions),
        f"{AUDITS}::test_paths[positions, ghost]",
    ),
    Mutation(
        "P03 tied weights without their cross term, seen by an audit",
        wrong_norm(
            factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)
        ),
        f"{AUDITS}::test_paths[tied, ghost]",
    ),
    Mutation(
        "P08 repeated words not merged, seen by an audit",
        wrong_norm(factors.Lookups, "_all_pairs", rows_that_are_not_merged),
        f"{AUDITS}::test_paths[embedding]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
