"""Membership attacks on finished models: who was in the training data, judged by losses
[Carlini2022].

An attack needs the losses of members and of others that were set apart by a random split. It
measures what *this* attack finds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet.auditing.estimators.hits import Hits, hits
from discreet.canaries import Scores
from discreet.canaries.scores import array_of
from discreet.errors import ParameterError

__all__ = ["Membership", "lira", "logit_confidence", "loss_attack"]

_Floats = NDArray[np.float64]

# Of losses below it, 1 - e^-loss is zero in float64.
_LEAST_LOSS = 2.0**-53

# Standard deviation that is taken for models that all agree.
_LEAST_STD = 1e-6

# Models on each side of every record, from which on each record has a variance of its own.
_MANY = 32

# False-positive rates that are shown, if so many others are accused there: fewer tell nothing.
_RATES = (0.1, 0.01, 0.001)
_LEAST_ACCUSED = 10


@dataclass(frozen=True, slots=True)
class Membership:
    """What an attack learned about members and non-members.

    Guarantee: none. Rates describe this attack on these records; intervals take records for
    independent. A bound on epsilon needs more: that each record was in or out by a fair coin of
    `Canaries`. Then, and only then, `one_run(membership.scores)` is one.

    Args:
        scores: of the attack, with who was a member; several models pooled by `Scores.pooled`.

    >>> loss_attack([0.1, 0.2, 1.5, 0.15], [True, True, False, False]).auc
    0.75
    """

    scores: Scores

    def __post_init__(self) -> None:
        # Every rate here has the number of one side below the line.
        inside = check.instance("Membership", "scores", self.scores, Scores).inside
        if inside.all() or not inside.any():
            raise ParameterError(
                owner="Membership",
                name="scores",
                expected="scores of members and of non-members",
                got=f"{int(inside.sum())} members among {inside.size} records",
            )

    @property
    def auc(self) -> float:
        """The probability that a random member scores higher than a random non-member.

        Ties count half; 0.5 is chance.
        """
        # By the sum of the members' ranks (Mann and Whitney): as many pairs as are in order.
        inside = self.scores.inside
        members = int(inside.sum())
        pairs = members * (inside.size - members)
        ranks = scipy.stats.rankdata(self.scores.values)
        return float((ranks[inside].sum() - members * (members + 1) / 2) / pairs)

    def roc(self) -> tuple[_Floats, _Floats]:
        """False-positive rates and hit rates of all thresholds, each rising from 0 to 1.

        To look at: it has no interval.

        >>> [rates.tolist() for rates in loss_attack([0.1, 1.5], [True, False]).roc()]
        [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
        """
        order = np.argsort(-self.scores.values, kind="stable")
        values, inside = self.scores.values[order], self.scores.inside[order]

        # Equal scores are on the same side of every threshold.
        ends = np.append(values[1:] != values[:-1], True)
        hit, wrong = np.cumsum(inside)[ends], np.cumsum(~inside)[ends]
        return np.append(0.0, wrong / wrong[-1]), np.append(0.0, hit / hit[-1])

    def hits(self, false_positive_rate: float, *, confidence: float = 0.95) -> Hits:
        """Measure the hit rate at this false-positive rate, with an interval.

        See `discreet.auditing.estimators.hits`.
        """
        return hits(self.scores, false_positive_rate=false_positive_rate, confidence=confidence)

    def __str__(self) -> str:
        members = int(self.scores.inside.sum())
        outsiders = len(self.scores) - members

        # The caveats are part of the text: without them the rates read like a proof.
        shown = [rate for rate in _RATES if rate * outsiders >= _LEAST_ACCUSED]
        rates = [f"At a false-positive rate of {rate:.1%}: {self.hits(rate)}.\n" for rate in shown]
        return (
            f"{self.scores.attack}: area under the curve {self.auc:.3f} (chance: 0.5), "
            f"from {members} members and {outsiders} others.\n{''.join(rates)}"
            "It says how well this attack tells them apart, if a random split of one population "
            "made them members and others: otherwise it may have told the two populations apart, "
            "not who was trained on.\n"
            "A low rate proves nothing: a better attack may exist. Only canaries with coins give "
            "a bound on epsilon (one_run)."
        )


def logit_confidence(losses: ArrayLike) -> _Floats:
    """Compute log(p / (1 - p)) of the confidence p = e^-loss in the right answer.

    It is nearly normal over models, and computed without cancellation. Losses are cross entropies.
    Below 2^-53, where p is 1 in float64, they count as 2^-53.

    >>> logit_confidence([np.log(2.0), 1e-12, 50.0]).round(3).tolist()
    [0.0, 27.631, -50.0]
    """
    entropies = _numbers("logit_confidence", "losses", losses, axes=None)
    if (entropies < 0.0).any():
        raise ParameterError(
            owner="logit_confidence",
            name="losses",
            expected="cross entropies, which are at least 0",
            got="some below",
        )

    # log p = -loss, and 1 - p by expm1: for small losses, 1 - e^-loss has no digits left.
    entropies = np.maximum(entropies, _LEAST_LOSS)
    logits: _Floats = -entropies - np.log(-np.expm1(-entropies))
    return logits


def loss_attack(losses: ArrayLike, members: ArrayLike) -> Membership:
    """Take the records with the smallest losses for members.

    Args:
        losses: of one model, one for each record; sensitive.
        members: whether it was trained on the record.
    """
    scores = -_numbers("loss_attack", "losses", losses, axes=1)
    return Membership(Scores(scores, members, attack="loss threshold"))


def lira(
    confidences: ArrayLike,
    members: ArrayLike,
    references: ArrayLike,
    reference_members: ArrayLike,
    *,
    online: bool = True,
) -> Membership:
    """Score each record by how much likelier its confidence is if the model was trained on it.

    For each record, normal curves are fitted to the confidences x of reference models: N(m1, s1) of
    those that had it, and N(m0, s0) of those that had not. The score is log N(x; m1, s1) - log N(x;
    m0, s0). Offline, for reference models that never had the record, it is (x - m0) / s0. Where a
    record has fewer than 32 models on a side, one variance of that side serves all records. A
    record without any model on a side that is needed scores 0: nothing is known.

    Args:
        confidences: of the model under attack, one for each record, scaled by `logit_confidence`;
            sensitive.
        members: whether it was trained on the record.
        references: confidences of the reference models, models x records. They are trained as the
            attacked one is, on random subsets of the same records, drawn apart from its members.
        reference_members: which model was trained on which record, models x records.
        online: whether to use the models that had a record.
    """
    owner = "lira"
    x = _numbers(owner, "confidences", confidences, axes=1)
    models = _numbers(owner, "references", references, axes=2)
    had = array_of(reference_members)

    # Numbers are no booleans: with 0 and 1 the inversion below would not be the others.
    if models.shape[1] != x.size or had.shape != models.shape or had.dtype.kind != "b":
        raise ParameterError(
            owner=owner,
            name="reference_members",
            expected=f"a boolean for each confidence of a reference model, models x {x.size} "
            "records",
            got=f"{had.dtype}, shape {had.shape}, for confidences of shape {models.shape}",
        )

    mean_out, std_out, known = _fitted(models, ~had)
    score = (x - mean_out) / std_out

    # The difference of two log densities; the constants of the normal density cancel.
    if online:
        mean_in, std_in, known_in = _fitted(models, had)
        minus_log_out = 0.5 * score**2 + np.log(std_out)
        score = minus_log_out - 0.5 * ((x - mean_in) / std_in) ** 2 - np.log(std_in)
        known &= known_in

    name = f"likelihood ratio, {'online' if online else 'offline'}, {len(models)} reference models"
    return Membership(Scores(np.where(known, score, 0.0), members, attack=name))


def _fitted(
    models: _Floats, chosen: NDArray[np.bool_]
) -> tuple[_Floats, _Floats, NDArray[np.bool_]]:
    """Mean and standard deviation of the chosen models of each record, and whether it has any."""
    counts = chosen.sum(axis=0)
    mean = np.where(chosen, models, 0.0).sum(axis=0) / np.maximum(counts, 1)
    squares = (np.where(chosen, models - mean, 0.0) ** 2).sum(axis=0)
    freedom = np.maximum(counts - 1, 0)
    if freedom.sum() == 0:
        raise ParameterError(
            owner="lira",
            name="references",
            expected="two reference models, at least, on the same side of some record",
            got=f"{len(models)} models",
        )

    # Few models say little about the spread of one record: then all records say it together.
    if counts.min() >= _MANY:
        variance = squares / np.maximum(freedom, 1)
    else:
        variance = np.full(counts.shape, squares.sum() / freedom.sum())

    return mean, np.maximum(np.sqrt(variance), _LEAST_STD), counts > 0


def _numbers(owner: str, name: str, values: ArrayLike, *, axes: int | None) -> _Floats:
    """Check that these are finite numbers, in so many axes if that matters."""
    array = array_of(values)
    has_axes = axes is None or array.ndim == axes
    if not has_axes or not array.size or array.dtype.kind not in "iuf":
        where = {None: "", 1: " in 1 axis"}.get(axes, f" in {axes} axes")
        got = f"{array.dtype}, shape {array.shape}"
        raise ParameterError(owner=owner, name=name, expected=f"numbers{where}", got=got)

    if not np.isfinite(array).all():
        raise ParameterError(
            owner=owner, name=name, expected="finite numbers", got="some that are not"
        )

    return array.astype(np.float64)
