"""What a tuner releases of a trial on private data: the share of right answers, with the noise that
is stated.

alpha = 1e-6. N = 120 scores, each on its own ledger with its own fixed key: e = (score - truth)
records / noise_std should be standard normal, so that the sum of e^2 has a chi-squared distribution
with N degrees of freedom; it must lie between its quantiles alpha/2 and 1 - alpha/2, which are 58.8
and 211.6. The named alternatives: half the noise stays above 58.8 with probability 1.7e-9; no
noise, or the noise of the average on the sum, gives a sum near 0; a truth that is off by 1/2 moves
every e by 25.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import discreet as dp
from discreet.aggregation import session
from discreet.ledger import ledger
from discreet.tuning.score import released_score
from support.tunings import PLAN, RECORDS, answers, private

ALPHA = 1e-6
SCORES = 120
NOISE_STD = 8.0


def plausible(
    monkeypatch: pytest.MonkeyPatch, noise_std: float = NOISE_STD, share: float = 0.5
) -> bool:
    """Whether the scores could be those of half right answers with the noise that is stated."""
    keys = iter(range(SCORES))

    class Fixed(dp.randomness.Source):
        @classmethod
        def system(cls) -> dp.randomness.Source:
            return dp.randomness.Source.unsafe_test_key(next(keys).to_bytes(32, "big"))

    monkeypatch.setattr(session, "Source", Fixed)
    monkeypatch.setattr(
        ledger, "software", lambda: ()
    )  # half of the time, and no part of the question
    values = answers(share)
    found = [
        released_score(values, private(noise_std=noise_std), PLAN, "a score") for _ in range(SCORES)
    ]
    total = float(np.sum(((np.array(found) - 0.5) * RECORDS / NOISE_STD) ** 2))
    low, high = scipy.stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], SCORES)
    return bool(low < total < high)


def test_p23_scores_have_the_noise_that_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plausible(monkeypatch)


@pytest.mark.parametrize(("noise_std", "share"), [(NOISE_STD / 2, 0.5), (NOISE_STD, 1.0)])
def test_p23_other_noise_or_another_sum_is_caught(
    monkeypatch: pytest.MonkeyPatch, noise_std: float, share: float
) -> None:
    assert not plausible(monkeypatch, noise_std, share)
