"""The hit rate of an attack at a fixed false-positive rate, with intervals [Carlini2022]."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _validate as check
from discreet.auditing.estimators.guesses import halves, highest_rate, lowest_rate
from discreet.canaries import Scores

__all__ = ["Hits", "hits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """The share of members that an attack finds when it accuses few others.

    Guarantee: unless an event happened that has probability at most 1 - confidence, the hit rate of
    the attack with this limit is in [lower, upper] and its false-positive rate in [false_lower,
    false_upper], if the scores are independent. It describes this attack; it says nothing of other
    attacks, nor of epsilon.

    Args:
        asked: the false-positive rate for which the limit was chosen, on one half of the scores.
        limit: scores above it accuse.
        rate, lower, upper: hit rate on the other half, and its interval.
        false_rate, false_lower, false_upper: false-positive rate there, and its interval.
        confidence: of both intervals together.
    """

    asked: float
    limit: float
    rate: float
    lower: float
    upper: float
    false_rate: float
    false_lower: float
    false_upper: float
    confidence: float

    def __str__(self) -> str:
        interval = f"{self.lower:.4f} to {self.upper:.4f}"
        false_interval = f"{self.false_lower:.4f} to {self.false_upper:.4f}"
        return (
            f"{self.rate:.4f} of the members found ({interval}), {self.false_rate:.4f} of the "
            f"others accused ({false_interval}), confidence {self.confidence!r}"
        )


def hits(scores: Scores, *, false_positive_rate: float, confidence: float = 0.95) -> Hits:
    """Measure the hit rate on one half of the scores, at a limit chosen on the other half.

    The limit is the least at which the half that chooses has at most this false-positive rate.

    Args:
        scores: of at least 2 canaries in and 2 out; independent of each other. No coins are needed.
            Sensitive.
        false_positive_rate: in (0, 1).
        confidence: in (0, 1).

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> inside = rng.random(4000) < 0.5
    >>> scores = Scores(rng.normal(size=4000) + 3.0 * inside, inside)
    >>> rates = hits(scores, false_positive_rate=0.01)
    >>> rates.lower < 0.749 < rates.upper   # Phi(3 - 2.326)
    True
    """
    asked = check.fraction("hits", "false_positive_rate", false_positive_rate)
    sure = check.fraction("hits", "confidence", confidence)

    # The limit is chosen on one half and measured on the other: on the same scores it would flatter
    # itself. Of this half, so many outsiders may be above it.
    chosen, measured = halves("hits", scores)
    candidates = chosen.outs.size
    accused = min(int(asked * candidates), candidates - 1)
    limit = float(chosen.outs[candidates - 1 - accused])

    members, outsiders = measured.ins.size, measured.outs.size
    hit = members - measured.missed(limit)
    false = measured.false(limit)

    # Four bounds share the probability of an error.
    share = 0.25 * (1.0 - sure)
    return Hits(
        asked=asked,
        limit=limit,
        rate=hit / members,
        lower=lowest_rate(hit, members, error=share),
        upper=highest_rate(hit, members, error=share),
        false_rate=false / outsiders,
        false_lower=lowest_rate(false, outsiders, error=share),
        false_upper=highest_rate(false, outsiders, error=share),
        confidence=sure,
    )
