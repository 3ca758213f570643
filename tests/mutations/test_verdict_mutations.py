"""Deliberate bugs in what is executed, for which the verdict is FAIL; and in the verdict itself."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet import verdict as module
from discreet.aggregation import aggregator
from discreet.aggregation.session import Session
from discreet.mechanisms import Group
from discreet.numerics import exact
from discreet.randomness import GaussianNoise, Purpose, Stream
from discreet.sampling import Sample, sampler
from discreet.sampling._policies import drawn_positions
from discreet.units import Guarantee
from discreet.verdict import Verdict
from support.mutations import Mutation, assert_caught, by_name, replaced
from support.white_box import source_of

AUDIT = "audits/test_verdict.py::test_the_verdict_on_what_is_executed_is_pass"
UNIT = "unit/test_verdict.py"


class Halved(GaussianNoise):
    """Half the noise that is charged."""

    def __init__(self, stream: Stream, *, scale: float, size: int) -> None:
        super().__init__(stream, scale=scale / 2.0, size=size)


def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither clipped, nor dropped by the check on the integers."""
    monkeypatch.setattr(Group, "weights", lambda _, norms: np.full(len(norms), 0.1))
    monkeypatch.setattr(exact, "_within", lambda squares, _: np.ones(len(squares[0]), bool))


def often(policy: Any, *rest: Any) -> Iterator[NDArray[np.int64]]:
    """Records are drawn four times as often as is charged."""
    return drawn_positions(replace(policy, probability=4.0 * policy.probability), *rest)


def reused(_: Session, __: Sample, lane: int) -> Stream:
    """Every step has the noise of the first."""
    return source_of("the same for ever").stream(Purpose.NOISE, step=0, lane=lane)


RIGHT_CLAIM = module._claimed


def at_another_delta(source: Any, delta: float | None) -> tuple[Any, Guarantee]:
    """Bounds are at another delta than the claim."""
    snapshot, claim = RIGHT_CLAIM(source, delta)
    return snapshot, replace(claim, delta=1e-3)


def ignores_marks(self: Verdict) -> str:
    return "FAIL" if self.best.lower > self.claim.upper else "PASS"


def against_the_lower_end(self: Verdict) -> str:
    return (
        "NO CLAIM"
        if self.claim.voided_by
        else "FAIL"
        if self.best.lower > self.claim.lower
        else "PASS"
    )


def free_bounds_only(self: Verdict) -> str:
    return (
        "NO CLAIM" if self.claim.voided_by else "FAIL" if self.lower > self.claim.upper else "PASS"
    )


MUTATIONS = [
    Mutation(
        "P23 half the noise, seen by the verdict",
        replaced(aggregator, "GaussianNoise", Halved),
        f"{AUDIT}[full batch]",
    ),
    Mutation("P01 no clipping, seen by the verdict", unclipped, f"{AUDIT}[full batch]"),
    Mutation(
        "P26 drawn more often than charged, seen by the verdict",
        replaced(sampler, "drawn_positions", often),
        f"{AUDIT}[sampled]",
    ),
    Mutation(
        "P20 noise of the first step again, seen by the verdict",
        replaced(Session, "noise_stream", reused),
        f"{AUDIT}[two releases compared]",
    ),
    Mutation(
        "P43 bounds of an audit at another delta than the claim",
        replaced(module, "_claimed", at_another_delta),
        f"{UNIT}::test_p43_bounds_are_at_the_delta_of_the_claim",
    ),
    Mutation(
        "P43 each bound of a verdict has the whole probability of an error",
        replaced(module, "_shared", lambda confidence, _: confidence),
        f"{UNIT}::test_p43_all_bounds_share_the_probability_of_an_error",
    ),
    Mutation(
        "a void ledger passes its audit",
        replaced(Verdict, "outcome", property(ignores_marks)),
        f"{UNIT}::test_a_ledger_that_is_void_never_passes[0.0]",
    ),
    Mutation(
        "P37 an audit is compared with the lower end of the claim",
        replaced(Verdict, "outcome", property(against_the_lower_end)),
        f"{UNIT}::test_fail_is_said_above_the_claim_and_only_there",
    ),
    Mutation(
        "the bound under an assumption is ignored",
        replaced(Verdict, "outcome", property(free_bounds_only)),
        f"{UNIT}::test_fail_is_said_above_the_claim_and_only_there",
    ),
    Mutation(
        "the noise that an audit scales is not scaled",
        replaced(module, "_noisier", lambda query, _: query),
        f"{UNIT}::test_what_is_scaled_is_the_noise_of_the_claim",
    ),
    Mutation(
        "P43 canaries that keep their place are taken for absent",
        replaced(module, "_as_attacked", lambda charges: charges),
        f"{UNIT}::test_samples_that_are_cut_are_audited_under_zero_out_where_a_canary_that_is_out_keeps_its_place",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
