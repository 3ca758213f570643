"""The law of every outcome of a step for few records, by enumeration, and Pearson's test against
it.

See tests/statistics/test_samplers.py for the choice of the numbers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from scipy import stats

from discreet.ledger.events import Sampling
from discreet.sampling import Sampler
from support.written_streams import source

ALPHA = 1e-6
STEPS = 12_000

Outcome: TypeAlias = tuple[tuple[int, ...], ...]  # the records of each batch of a step
Law: TypeAlias = dict[Outcome, float]


def p_value(outcomes: Iterable[Outcome], law: Law) -> float:
    """Of Pearson's test; 0 if something happened that cannot happen."""
    counts = Counter(outcomes)
    if counts.keys() - law.keys():
        return 0.0
    observed = np.array([counts[cell] for cell in law])
    expected = np.array(list(law.values())) * observed.sum()
    assert abs(sum(law.values()) - 1.0) < 1e-12
    assert expected.min() > 20
    return float(stats.chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue)


def outcomes(policy: Sampling, records: int, steps: int = STEPS) -> list[Outcome]:
    """What the sampler draws in many steps."""
    sampler = Sampler(policy, records=records, steps=steps)
    samples = (tuple(sample.indices.tolist()) for sample in sampler.draw(source()))
    return list(zip(*[samples] * sampler.batches_per_step, strict=True))


def poisson_law(records: int, probability: float) -> Law:
    return {
        (chosen,): probability ** len(chosen) * (1 - probability) ** (records - len(chosen))
        for size in range(records + 1)
        for chosen in itertools.combinations(range(records), size)
    }


def truncated_law(records: int, probability: float, limit: int) -> Law:
    law: Law = {}
    for (chosen,), weight in poisson_law(records, probability).items():
        kept = list(itertools.combinations(chosen, min(limit, len(chosen))))
        for one in kept:
            law[one,] = law.get((one,), 0.0) + weight / len(kept)
    return law


def fixed_law(records: int, size: int) -> Law:
    cells = list(itertools.combinations(range(records), size))
    return {(cell,): 1 / len(cells) for cell in cells}


def shuffled_law(records: int, batches: int) -> Law:
    assert batches == 2
    firsts = list(itertools.combinations(range(records), records // 2))
    return {
        (first, tuple(sorted(set(range(records)) - set(first)))): 1 / len(firsts)
        for first in firsts
    }


def bins_law(records: int, batches: int) -> Law:
    cells = itertools.product(range(batches), repeat=records)
    return {in_bins(cell, batches): batches**-records for cell in cells}


def in_bins(bins: Iterable[int], batches: int) -> Outcome:
    chosen = list(bins)
    return tuple(
        tuple(record for record, bin_ in enumerate(chosen) if bin_ == batch)
        for batch in range(batches)
    )
