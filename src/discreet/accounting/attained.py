"""Lower bounds from explicit data sets, for policies whose upper bound is not known to be attained.

The tight accountant's own lower bound counts only steps whose dominating pair some two data sets
attain. For samples of fixed size and for shuffled epochs other, weaker pairs are attained; they are
shown beside the upper bound, so that one sees how much of it is proven to be real. Only for sources
in which every step is of that kind: data sets that are worst for one policy need not be for
another. (docs/proofs/fixed_size.md; docs/proofs/shuffled.md, [ChuaEtAl2024].)
"""

from __future__ import annotations

import math

from discreet.accounting.costs import FixedSizeGaussian, PoissonGaussian
from discreet.accounting.normalise import Counted
from discreet.accounting.sources import Read
from discreet.accounting.tight import tight_epsilon
from discreet.accounting.tight.analyses.shuffled import shuffled_lower
from discreet.ledger.events import Shuffled
from discreet.ledger.folding import folded_noise_multiplier
from discreet.units import Adjacency

__all__ = ["attained_lower"]


def attained_lower(source: Read, costs: Counted, delta: float, tolerance: float) -> float:
    """An epsilon below which no statement at this delta is valid; 0 where nothing is known.

    | case                                                      | result                         |
    |-----------------------------------------------------------|--------------------------------|
    | no steps                                                  | 0.0                            |
    | fixed size, zero-out or add-or-remove                     | 0.0                            |
    | steps of several policies, or epochs that are not alike   | 0.0                            |
    | shuffled epochs, add-or-remove                            | 0.0                            |

    Args:
        source: what was read of the source; its adjacency and its steps are used.
        costs: the normalised costs of the same steps.
        delta: in (0, 1).
        tolerance: of the tight accountant, where it is asked.
    """
    fixed_size = _fixed_size(source.adjacency, costs, delta, tolerance)
    return max(fixed_size, _shuffled(source, delta))


def _fixed_size(adjacency: Adjacency, costs: Counted, delta: float, tolerance: float) -> float:
    """Replace-one, every other record at -1, the one in question at +1 or -1: the sum is -size, or
    with it -size + 2.

    That is the pair of a Poisson sample with probability size/records, at half the noise
    (docs/proofs/fixed_size.md).
    """
    if adjacency is not Adjacency.REPLACE_ONE:
        return 0.0

    explicit = []

    for cost, count in costs:
        if not isinstance(cost, FixedSizeGaussian):
            return 0.0

        # Everything is rounded towards less loss; the cost's multiplier was rounded down.
        fraction = math.nextafter(cost.size / cost.records, 0.0)
        noise = math.nextafter(cost.noise_multiplier, math.inf) / 2.0
        explicit.append((PoissonGaussian(fraction, noise), count))

    return tight_epsilon(tuple(explicit), delta, tolerance).lower


def _shuffled(source: Read, delta: float) -> float:
    """The published bound, where all epochs are alike [ChuaEtAl2024] (docs/proofs/shuffled.md)."""
    steps = [(step, count) for step, count in source.steps if count]

    # Two policies are equal if they are of one kind with equal fields: here, as many batches.
    policies = {step.sampling for step, _ in steps}
    policy = policies.pop() if len(policies) == 1 else None
    if not isinstance(policy, Shuffled):
        return 0.0

    # `normalise` refuses every query of shuffled batches that is no Gaussian sum, so all fold.
    noises = {folded_noise_multiplier(step.queries) for step, _ in steps}
    if len(noises) > 1:
        return 0.0

    return shuffled_lower(
        batches=policy.batches,
        # The fold is rounded down, so its successor is at least the true multiplier.
        noise_multiplier=math.nextafter(noises.pop(), math.inf),
        epochs=sum(count for _, count in steps),
        delta=delta,
        adjacency=source.adjacency,
    )
