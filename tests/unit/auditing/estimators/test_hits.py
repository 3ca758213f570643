"""Hit rates are measured on the half that did not choose the limit."""

import numpy as np
import pytest

from discreet.auditing import hits
from discreet.auditing.estimators.guesses import highest_rate, lowest_rate
from discreet.canaries import Scores
from discreet.errors import ParameterError


def test_hits_by_hand() -> None:
    """100 others with scores 0..99 twice: at most 10 of the 100 that choose are above their 11th
    highest, 89.
    """
    values = np.concatenate([np.repeat(np.arange(100.0), 2), np.full(20, 95.0), np.full(20, 50.0)])
    inside = np.arange(240) >= 200
    found = hits(Scores(values, inside), false_positive_rate=0.1, confidence=0.9)
    assert (found.limit, found.rate, found.false_rate) == (89.0, 0.5, 0.1)
    assert found.lower == lowest_rate(10, 20, error=0.025)
    assert found.false_upper == highest_rate(10, 100, error=0.025)
    assert found.lower < 0.5 < found.upper
    assert "0.5000 of the members found" in str(found)


def test_hits_need_members_and_others() -> None:
    with pytest.raises(ParameterError, match="2 canaries in and 2 out"):
        hits(Scores(np.arange(10), np.ones(10, bool)), false_positive_rate=0.1)
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(ParameterError, match="false_positive_rate"):
            hits(Scores(np.arange(10), np.arange(10) % 2 == 0), false_positive_rate=wrong)
