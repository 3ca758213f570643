"""The joint law of what is drawn, policy by policy, at alpha = 1e-6; and wrong samplers that the
same test catches.

For few records *every* outcome of a step (which records are in which batch) is a cell, so
marginals, pairs, sizes and empty
samples are tested together: Pearson's statistic of the counts is compared with the chi-square law
of cells - 1 degrees of freedom, and a p-value below 1e-6 fails. Expected counts are above 20, where
that law is accurate enough; with the fixed key a right sampler that passes once passes always. A
wrong sampler with cell probabilities p' moves the mean of the statistic by N * sum (p' - p)^2 / p.
With N = 12 000 that is at least 140 for every wrong sampler named here, where the threshold is 57
(16 cells) to 90 (36 cells): by the noncentral law it is caught with probability above 1 - 1e-6.
Each is run and must fail by the same function.

For many records counts are binomial, and the region of acceptance is the central one of probability
1 - 1e-6. Where a wrong sampler is too slow to run, its probability of falling into the region is
computed and must be below 1e-6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from discreet.ledger.events import (
    BallsInBins,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.randomness import draws
from discreet.randomness.draws import below, bernoulli, permutation, subset
from discreet.sampling import Owners, Sampler
from support.joint_laws import (
    ALPHA,
    STEPS,
    Law,
    Outcome,
    bins_law,
    fixed_law,
    in_bins,
    outcomes,
    p_value,
    poisson_law,
    shuffled_law,
    truncated_law,
)
from support.written_streams import source, stream

# --- wrong samplers ---


def fixed_size_instead(records: int, size: int) -> list[Outcome]:
    generator = np.random.default_rng(1)
    return [(tuple(sorted(generator.permutation(records)[:size].tolist())),) for _ in range(STEPS)]


def shuffled_instead(records: int, batches: int) -> list[Outcome]:
    """Single batches of shuffled epochs, taken for Poisson samples (P26)."""
    generator = np.random.default_rng(2)
    epochs = (np.split(generator.permutation(records), batches) for _ in range(STEPS // batches))
    return [(tuple(sorted(batch.tolist())),) for epoch in epochs for batch in epoch]


def coins_instead(probabilities: list[float]) -> list[Outcome]:
    uniform = np.random.default_rng(3).random((STEPS, len(probabilities)))
    return [(tuple(np.flatnonzero(row).tolist()),) for row in uniform < np.array(probabilities)]


def without_empty(policy: Sampling, records: int) -> list[Outcome]:
    """Empty samples skipped (P28)."""
    return [outcome for outcome in outcomes(policy, records) if outcome != ((),)]


def neighbours_together() -> list[Outcome]:
    """One word serves two records, in one step of five."""
    generator = np.random.default_rng(4)
    coins = generator.random((STEPS, 4)) < 0.3
    coins[:, 1] = np.where(generator.random(STEPS) < 0.2, coins[:, 0], coins[:, 1])
    return [(tuple(np.flatnonzero(row).tolist()),) for row in coins]


def first_kept() -> list[Outcome]:
    """A sample beyond the limit loses its last records."""
    return [(outcome[0][:2],) for outcome in coins_instead([0.6] * 4)]


def equal_batches_instead() -> list[Outcome]:
    """Shuffled, taken for balls in bins."""
    generator = np.random.default_rng(5)
    return [in_bins(generator.permutation(3).tolist(), 3) for _ in range(STEPS)]


def sorted_records_instead() -> list[Outcome]:
    """Every tenth epoch is not shuffled at all."""
    right = outcomes(Shuffled(2), 5)
    return [((0, 1), (2, 3, 4)) if number % 10 == 0 else one for number, one in enumerate(right)]


def modulo_instead() -> list[Outcome]:
    """Three bits modulo 5: 0, 1 and 2 are preferred."""
    generator = np.random.default_rng(6)
    pairs = generator.integers(0, 8, (2 * STEPS, 2)) % 5
    return [(tuple(sorted(pair.tolist())),) for pair in pairs if pair[0] != pair[1]]


def lopsided_bins() -> list[Outcome]:
    """Two bits modulo 3."""
    return [
        in_bins(row, 3)
        for row in (np.random.default_rng(7).integers(0, 4, (STEPS, 3)) % 3).tolist()
    ]


@dataclass(frozen=True)
class Case:
    name: str
    policy: Sampling
    records: int
    law: Law
    wrong: dict[str, Callable[[], list[Outcome]]] = field(default_factory=dict)


CASES = [
    Case(
        "poisson",
        Poisson(0.3),
        4,
        poisson_law(4, 0.3),
        {
            "fixed size": lambda: fixed_size_instead(4, 1),
            "empty skipped": lambda: without_empty(Poisson(0.3), 4),
            "position": lambda: coins_instead([0.3, 0.3, 0.3, 0.25]),
            "pairs": neighbours_together,
            "rate": lambda: coins_instead([0.33] * 4),
        },
    ),
    Case(
        "poisson half",
        Poisson(0.5),
        4,
        poisson_law(4, 0.5),
        {"shuffled": lambda: shuffled_instead(4, 2)},
    ),
    Case(
        "truncated",
        TruncatedPoisson(0.6, 2, 4),
        4,
        truncated_law(4, 0.6, 2),
        {"first kept": first_kept, "not truncated": lambda: coins_instead([0.6] * 4)},
    ),
    Case(
        "fixed",
        FixedSize(2, 5),
        5,
        fixed_law(5, 2),
        {"modulo": modulo_instead, "poisson": lambda: coins_instead([0.4] * 5)},
    ),
    Case("fixed sparse", FixedSize(2, 32), 32, fixed_law(32, 2)),
    Case("shuffled", Shuffled(2), 5, shuffled_law(5, 2), {"not shuffled": sorted_records_instead}),
    Case(
        "bins",
        BallsInBins(3),
        3,
        bins_law(3, 3),
        {"shuffled": equal_batches_instead, "modulo": lopsided_bins},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_p26_p28_the_joint_law_of_a_step(case: Case) -> None:
    assert p_value(outcomes(case.policy, case.records), case.law) >= ALPHA


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        pytest.param(case, wrong, id=f"{case.name}-{wrong}")
        for case in CASES
        for wrong in case.wrong
    ],
)
def test_p26_p28_a_wrong_sampler_is_caught(case: Case, wrong: str) -> None:
    assert p_value(case.wrong[wrong](), case.law) < ALPHA


# --- steps are independent ---


def _pairs(steps: list[Outcome]) -> list[Outcome]:
    return [one + two for one, two in zip(steps[::2], steps[1::2], strict=True)]


def _product(law: Law) -> Law:
    return {one + two: law[one] * law[two] for one in law for two in law}


@pytest.mark.parametrize(
    ("policy", "records", "law"),
    [
        (Poisson(0.5), 2, poisson_law(2, 0.5)),
        (FixedSize(1, 4), 4, fixed_law(4, 1)),
        (Shuffled(2), 4, shuffled_law(4, 2)),
    ],
    ids=["poisson", "fixed", "shuffled"],
)
def test_p20_consecutive_steps_are_independent(policy: Sampling, records: int, law: Law) -> None:
    steps = outcomes(policy, records)
    assert p_value(_pairs(steps), _product(law)) >= ALPHA
    repeated = [
        steps[number - number % 2] if number % 20 < 2 else one for number, one in enumerate(steps)
    ]
    assert p_value(_pairs(repeated), _product(law)) < ALPHA  # one pair in ten shares its randomness


# --- rows of a unit ---


def test_rows_of_units_are_uniform_subsets_anew_in_each_draw() -> None:
    """Two units of four rows, two taken from each: 36 equally likely outcomes."""
    owners = Owners.from_ids([0, 0, 0, 0, 1, 1, 1, 1])
    sampler = Sampler(Poisson(1.0), records=2, steps=STEPS, owners=owners, rows_per_unit=2)
    drawn: list[Outcome] = [
        (tuple(one.rows[:2].tolist()), tuple(one.rows[2:].tolist()))
        for one in sampler.draw(source())
    ]
    halves = [list(itertools.combinations(range(start, start + 4), 2)) for start in (0, 4)]
    law: Law = dict.fromkeys(itertools.product(*halves), 1 / 36)
    assert p_value(drawn, law) >= ALPHA
    first_rows: list[Outcome] = [
        ((0, 1), (4, 5)) if number % 10 == 0 else one for number, one in enumerate(drawn)
    ]
    assert p_value(first_rows, law) < ALPHA
    same_in_both: list[Outcome] = [
        (one[0], tuple(4 + row for row in one[0])) if number % 10 == 0 else one
        for number, one in enumerate(drawn)
    ]
    assert p_value(same_in_both, law) < ALPHA  # units share their keys


# --- permutations and integers ---


def test_all_orders_of_five_are_equally_likely() -> None:
    law: Law = {(order,): 1 / 120 for order in itertools.permutations(range(5))}
    base = stream()
    drawn: list[Outcome] = [
        (tuple(permutation(base.child(str(number)), 5).tolist()),) for number in range(STEPS)
    ]
    assert p_value(drawn, law) >= ALPHA
    generator = np.random.default_rng(8)
    naive = []
    for _ in range(STEPS):
        order = list(range(5))
        for place in range(5):
            other = int(generator.integers(5))  # any place, where only the later ones are right
            order[place], order[other] = order[other], order[place]
        naive.append((tuple(order),))
    assert p_value(naive, law) < ALPHA


def test_integers_are_unbiased_where_modulo_is_not() -> None:
    """Modulo without passing words over, the first two thirds would have 3/4 of the mass."""
    law: Law = {((third,),): 1 / 3 for third in range(3)}
    thirds = below(stream(), 3 * 2**61, STEPS) // 2**61
    assert p_value([((int(third),),) for third in thirds], law) >= ALPHA
    modulo = stream().words(STEPS) % np.uint64(3 * 2**61) // np.uint64(2**61)
    assert p_value([((int(third),),) for third in modulo], law) < ALPHA


# --- many records ---


def region(trials: int, probability: float) -> tuple[int, int]:
    """The central region of acceptance: outside with probability at most alpha."""
    law = stats.binom(trials, probability)
    return int(law.ppf(ALPHA / 2)), int(law.isf(ALPHA / 2))


def check_rate(probability: float, positions: int, *wrong: float) -> None:
    """The number of heads is in the region of `probability`, and that of a wrong probability would
    not be.
    """
    least, most = region(positions, probability)
    for other in wrong:
        law = stats.binom(positions, other)
        assert min(float(law.cdf(most)), float(law.sf(least - 1))) < ALPHA
    part = 2 * 10**8
    heads = sum(
        bernoulli(stream(), probability, start, min(start + part, positions)).size
        for start in range(0, positions, part)
    )
    assert least <= heads <= most


def lattice(probability: float) -> float:
    """The probability of `rand() < probability` where rand() is a multiple of 2^-24."""
    return math.ceil(probability * 2**24) / 2**24


def test_p27_no_lattice_at_small_probabilities() -> None:
    check_rate(1e-8, 15 * 10**8, lattice(1e-8))


@pytest.mark.full
def test_p27_no_lattice_at_six_and_a_half_in_a_hundred_million() -> None:
    check_rate(6.5e-8, 45 * 10**8, lattice(6.5e-8))


def test_p27_ties_are_refined() -> None:
    """16 bits alone would give 1 or 2 in 65536, not 1.5."""
    check_rate(1.5 * 2.0**-16, 2 * 10**8, 2.0**-16, 2.0**-15)


def test_neighbours_and_blocks_are_independent() -> None:
    """Both of two records are drawn with probability q^2, at distances that words and blocks could
    connect.
    """
    count, probability = 2 * draws._BLOCK, 0.3
    coins = np.zeros(count, np.int64)
    coins[bernoulli(stream(), probability, 0, count)] = 1
    for distance in (1, 2, 4, draws._BLOCK // 2, draws._BLOCK):
        pairs = coins.reshape(-1, 2, distance)  # disjoint pairs at this distance
        least, most = region(count // 2, probability**2)
        assert least <= int((pairs[:, 0] * pairs[:, 1]).sum()) <= most
    shared = coins.reshape(-1, 2, 4).copy()
    shared[::20, 1] = shared[::20, 0]  # one word in twenty is used twice
    assert int((shared[:, 0] * shared[:, 1]).sum()) > most


def positions_are_alike(drawn: NDArray[np.int64], count: int) -> bool:
    """Counts in 64 equal ranges, given how many were drawn, against their chi-square law (coins:
    nearly so, and below it).
    """
    cells = np.bincount(drawn * 64 // count, minlength=64)
    return bool(stats.chisquare(cells).pvalue >= ALPHA)


@pytest.mark.parametrize("kind", ["coins", "subset"])
def test_no_position_is_preferred(kind: str) -> None:
    """The wrong draw loses 5 % of the last quarter, as a range that ends early would."""
    count = 64 * 10**5
    right = (
        bernoulli(stream(), 0.05, 0, count)
        if kind == "coins"
        else subset(stream(), count // 20, count)
    )
    assert positions_are_alike(right, count)
    late = np.flatnonzero(right > 3 * count // 4)
    assert not positions_are_alike(np.delete(right, late[::20]), count)
