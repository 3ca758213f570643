"""Membership attacks on finished models."""

import math
from typing import Any

import numpy as np
import pytest

from discreet.auditing import Membership, lira, logit_confidence, loss_attack
from discreet.canaries import Scores
from discreet.errors import ParameterError

Array = np.ndarray[Any, Any]


def world(models: int, records: int, *, gain: float, seed: int = 0) -> tuple[Array, Array]:
    """Confidences (models x records) that differ much between records, and by `gain` between
    members and others.
    """
    rng = np.random.default_rng(seed)
    had = rng.random((models, records)) < 0.5
    return rng.normal(0.0, 5.0, records) + gain * had + rng.normal(size=(models, records)), had


# --- curves ---


def test_area_and_curve_by_hand() -> None:
    found = Membership(Scores([3.0, 2.0, 2.0, 1.0], [True, True, False, False]))
    assert found.auc == 0.875  # of four pairs three are right and one is a tie
    wrong, hits = found.roc()
    assert wrong.tolist() == [0.0, 0.0, 0.5, 1.0]
    assert hits.tolist() == [0.0, 0.5, 1.0, 1.0]


def test_the_area_is_that_under_the_curve() -> None:
    rng = np.random.default_rng(1)
    found = Membership(Scores(rng.integers(8, size=500), rng.random(500) < 0.3))
    wrong, hits = found.roc()
    assert np.trapezoid(hits, wrong) == pytest.approx(found.auc, abs=1e-12)


def test_equal_scores_are_at_chance_whatever_their_order() -> None:
    """A curve that steps through ties one by one, members first, would say 1."""
    found = loss_attack(np.ones(10), [True] * 5 + [False] * 5)
    assert found.auc == 0.5
    assert [rates.tolist() for rates in found.roc()] == [[0.0, 1.0], [0.0, 1.0]]


def test_members_have_the_smaller_losses() -> None:
    assert loss_attack([0.1, 2.0], [True, False]).auc == 1.0


def test_hit_rates_have_intervals() -> None:
    rng = np.random.default_rng(2)
    inside = rng.random(4000) < 0.5
    found = Membership(Scores(rng.normal(size=4000) + 3.0 * inside, inside)).hits(
        0.01, confidence=0.99
    )
    assert found.lower < 0.749 < found.upper  # Phi(3 - 2.326)
    assert found.upper - found.lower < 0.2


def test_it_says_what_it_cannot_conclude() -> None:
    said = str(loss_attack([0.1, 2.0], [True, False]))
    for words in ("random split", "proves nothing", "coins"):
        assert words in said
    assert "false-positive rate" not in said  # of one record nothing can be told
    many = str(loss_attack(np.arange(2000.0), np.arange(2000) % 2 == 0))
    assert "rate of 1.0%" in many
    assert "rate of 0.1%" not in many


# --- confidences ---


def test_confidences_are_exact_at_both_ends() -> None:
    """p/(1-p) computed from p itself would be infinite at 1e-20 and 0/0 at 800."""
    losses = np.array([1e-20, 1e-9, 0.5, 20.0, 800.0])
    true = [
        53 * math.log(2.0),
        -math.log(1e-9) - 5e-10,
        math.log(1.0 / math.expm1(0.5)),
        -20.0,
        -800.0,
    ]
    assert logit_confidence(losses) == pytest.approx(np.array(true), rel=1e-8)
    assert logit_confidence([0.0])[0] == pytest.approx(53 * math.log(2.0))
    assert (np.diff(logit_confidence(losses)) < 0.0).all()


def test_a_negative_loss_is_no_cross_entropy() -> None:
    with pytest.raises(ParameterError, match="at least 0"):
        logit_confidence([-0.1])


# --- likelihood ratios ---


@pytest.mark.parametrize("models", [17, 101])
def test_reference_models_see_what_a_threshold_cannot(models: int) -> None:
    """Records differ by 5, members by 3: a threshold on confidences hardly helps, one curve for
    each record does.

    Known curves would have an area of Phi(3 / sqrt 2) = 0.983.
    """
    confidences, had = world(models, 2000, gain=3.0)
    plain = Membership(Scores(confidences[0], had[0]))
    assert plain.auc < 0.7
    online = lira(confidences[0], had[0], confidences[1:], had[1:])
    assert 0.96 < online.auc < 0.99
    offline = lira(confidences[0], had[0], confidences[1:], had[1:], online=False)
    assert 0.93 < offline.auc < 0.99


def test_the_online_score_is_the_ratio_of_the_fitted_curves() -> None:
    references = np.array([[1.0], [3.0], [10.0], [16.0]])
    had = np.array([[False], [False], [True], [True]])
    score = lira(
        np.array([6.0, 6.0]), [True, False], np.hstack([references] * 2), np.hstack([had] * 2)
    ).scores.values[0]
    out = -0.5 * math.log(2.0) - (6.0 - 2.0) ** 2 / 4.0  # mean 2, variance 2
    member = -0.5 * math.log(18.0) - (6.0 - 13.0) ** 2 / 36.0  # mean 13, variance 18
    assert score == pytest.approx(member - out)


def test_it_is_at_chance_where_membership_changes_nothing() -> None:
    confidences, had = world(33, 4000, gain=0.0)
    for online in (True, False):
        found = lira(confidences[0], had[0], confidences[1:], had[1:], online=online)
        assert abs(found.auc - 0.5) < 0.05  # standard deviation 0.009


def test_with_many_models_every_record_has_its_own_spread() -> None:
    rng = np.random.default_rng(3)
    spread = np.where(np.arange(1000) % 2, 0.1, 10.0)
    had = rng.random((129, 1000)) < 0.5
    confidences = spread * rng.normal(size=(129, 1000)) + had
    many = lira(confidences[0], had[0], confidences[1:], had[1:]).auc
    few = lira(confidences[0], had[0], confidences[1:21], had[1:21]).auc
    assert (
        many > 0.72
    )  # half of the records are told apart for sure, the others by chance: 0.75 + 0.02
    assert few < many - 0.05


def test_a_record_without_references_on_a_side_scores_nothing() -> None:
    confidences, had = world(9, 50, gain=3.0)
    had[1:, 7] = True
    assert lira(confidences[0], had[0], confidences[1:], had[1:]).scores.values[7] == 0.0
    assert (
        lira(confidences[0], had[0], confidences[1:], had[1:], online=False).scores.values[7] == 0.0
    )


@pytest.mark.parametrize(
    ("confidences", "references", "had"),
    [
        ([0.0, 1.0], [[0.0], [1.0]], [[True], [False]]),
        ([0.0, 1.0], [[0.0, 1.0]], [[1, 0]]),
        ([0.0, 1.0], [[0.0, 1.0]], [[True, False]]),  # one model has no spread
        ([0.0, 1.0], [[0.0, math.nan]] * 4, [[True, False]] * 4),
        ([[0.0, 1.0]], [[0.0, 1.0]] * 4, [[True, False]] * 4),
        (["a", "b"], [[0.0, 1.0]] * 4, [[True, False]] * 4),
    ],
)
def test_wrong_references_are_refused(confidences: Any, references: Any, had: Any) -> None:
    with pytest.raises(ParameterError):
        lira(confidences, [True, False], references, had)


@pytest.mark.parametrize("members", [[True, True], [False, False], [1, 0], [True]])
def test_members_and_others_are_both_needed(members: Any) -> None:
    with pytest.raises(ParameterError):
        loss_attack([0.1, 0.2], members)
