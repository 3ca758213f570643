"""Plans to attack: every mechanism, on every sampler, under every adjacency that the accountant
admits.
"""

import math
from itertools import product

import discreet as dp
from discreet.accounting import membership_advantage, profile_of
from discreet.canaries import Scores
from discreet.mechanisms import Mechanism

RECORDS = 600
Z = 1.2

MECHANISMS: dict[str, Mechanism] = {
    "gaussian": dp.Gaussian(0.5, Z),
    "groups": dp.Groups({"grad/*": dp.Gaussian(1.0, 2 * Z), "bn/*": dp.Gaussian(4.0, Z)}),
    "joint": dp.Joint(1.0, Z, scales={"small": 1.0, "large": 100.0}),
    "split": dp.Split(2.0, Z, parts={"a": "a*", "b": "b*"}, noise={"a": 1.0, "b": 3.0}),
    "normalised": dp.Normalised(1.0, Z, stability=0.1),
    "adaptive": dp.AdaptiveClip(dp.Gaussian(1.0, Z), quantile=0.5, count_noise_std=20.0),
    "microbatches": dp.mechanisms.Microbatches(dp.Gaussian(1.0, Z), slots=1024),
}
SAMPLINGS: dict[str, dp.ledger.Sampling] = {
    "everything": dp.Everything(),
    "poisson": dp.Poisson(0.5),
    "truncated": dp.ledger.TruncatedPoisson(0.5, 280, RECORDS),
    "fixed": dp.FixedSize(300, RECORDS),
    "shuffled": dp.ledger.Shuffled(2),
    "bins": dp.ledger.BallsInBins(2),
}
REFUSED = {("fixed", dp.Adjacency.ADD_OR_REMOVE), ("shuffled", dp.Adjacency.ADD_OR_REMOVE)}
CASES = [
    (mechanism, sampling, adjacency)
    for mechanism, sampling, adjacency in product(MECHANISMS, SAMPLINGS, dp.Adjacency)
    if (sampling, adjacency) not in REFUSED
]


def plan_of(mechanism: str, sampling: str, adjacency: dp.Adjacency, steps: int = 2) -> dp.Plan:
    sampler = dp.Sampler(SAMPLINGS[sampling], records=RECORDS, steps=steps)
    return dp.Plan(sampler=sampler, mechanism=MECHANISMS[mechanism], adjacency=adjacency)


def source_of(name: str) -> dp.randomness.Source:
    """Fixed, so that no test ever fails by chance."""
    return dp.randomness.Source.unsafe_test_key(name.encode().ljust(32, b".")[:32])


def claimed_advantage(plan: dp.Plan) -> float:
    """The most by which any attack's hit rate can exceed its false-positive rate, by the
    accountant.
    """
    return membership_advantage(profile_of(plan))


def advantage(scores: Scores) -> float:
    """Hit rate minus false-positive rate of who says "in" where the likelihood ratio is above 1."""
    said = scores.values > 0.0
    return float(said[scores.inside].mean() - said[~scores.inside].mean())


def slack(scores: Scores, alpha: float) -> float:
    """By how much `advantage` exceeds its expectation with probability at most alpha (Hoeffding,
    given the coins).
    """
    inside = int(scores.inside.sum())
    return math.sqrt(math.log(1.0 / alpha) * (1.0 / inside + 1.0 / (len(scores) - inside)) / 2.0)
