"""The verdict on the engine as it is: PASS, by two attacks. The same attacks must say FAIL of a
broken one (tests/mutations).

Of right code FAIL would be said with probability at most 1e-6 in each case; with fixed keys, never.
"""

from collections.abc import Callable

import numpy as np
import pytest

import discreet as dp
from discreet.auditing import white_box
from discreet.canaries import Canaries, Scores
from discreet.verdict import audit
from support.white_box import source_of

FULL = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=1000, steps=1), mechanism=dp.Gaussian(1.0, 2.0)
)
RARE = dp.Plan(
    sampler=dp.Sampler(dp.Poisson(0.1), records=1000, steps=1), mechanism=dp.Gaussian(1.0, 0.5)
)
TWICE = dp.Plan(
    sampler=dp.Sampler(dp.Poisson(0.5), records=1000, steps=2), mechanism=dp.Gaussian(1.0, 2.0)
)


def likelihoods(plan: dp.Plan) -> Scores:
    return white_box(plan, trials=5, source=source_of("verdict"))


def differences(plan: dp.Plan) -> Scores:
    """Who compares two releases: if they share their noise, a canary that was drawn once is plain
    to see.
    """
    parts = []
    for trial in range(2):
        source = source_of(f"differences {trial}")
        planted = Canaries(np.arange(1000), source=source)
        run = dp.Aggregator(
            plan.for_leaves({"x": 1000}), ledger=dp.Ledger.in_memory(), source=source
        )
        seen = []
        for sample in run.samples():
            rows = np.zeros((len(sample), 1000))
            rows[np.arange(len(sample)), sample.indices] = planted.inside[sample.indices]
            seen.append(run.release(sample, {"x": rows})["x"])
        parts.append(Scores(np.abs(seen[0] - seen[1]), planted.inside))
    return Scores.pooled(parts)


@pytest.mark.parametrize(
    ("plan", "attack"),
    [(FULL, likelihoods), (RARE, likelihoods), (TWICE, differences)],
    ids=["full batch", "sampled", "two releases compared"],
)
def test_the_verdict_on_what_is_executed_is_pass(
    plan: dp.Plan, attack: Callable[[dp.Plan], Scores]
) -> None:
    verdict = audit(plan, attack(plan), delta=1e-5, confidence=1.0 - 1e-6, assume_scaled=True)
    assert verdict.outcome == "PASS", str(verdict)
