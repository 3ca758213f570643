"""The best score that a plan's own releases admit: how much likelier they are with the canary than
without.

Legend: m canaries, each alone on a coordinate of its own; x what was released there, in units of
the clip norm; z the noise multiplier of the group. If the canary was in the batch, x is 1 plus
noise of standard deviation z, else only noise, so

    l = log density ratio of the batch = sum over groups of (x - 1/2) / z^2.

Whether the canary was drawn is not known, only how: the ratio of a step is the average of e^l over
the draw, that of a run the product over its steps.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.ledger.events import Sampling
from discreet.units import Adjacency

__all__ = ["Likelihood"]


class Likelihood:
    """Log-likelihood ratios of m canaries, batch after batch.

    Whoever audits may use any score; this one is the most powerful against a plan's mechanism if
    nothing but the canary lies on its coordinate (Neyman and Pearson). Other records that do only
    weaken it.

    Args:
        policy: how samples are drawn.
        canaries: m.
        adjacency: under replace-one a canary that is out has the opposite sign; else it contributes
            nothing.

    >>> from discreet.ledger.events import Everything
    >>> likelihood = Likelihood(Everything(), canaries=2)
    >>> likelihood.observe([(np.array([1.2, -0.3]), 2.0)])
    >>> likelihood.scores().round(3).tolist()
    [0.175, -0.2]
    """

    __slots__ = ("_adjacency", "_batches", "_canaries", "_policy", "_step", "_total")

    def __init__(
        self, policy: Sampling, *, canaries: int, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    ) -> None:
        self._policy = policy
        self._canaries = canaries
        self._adjacency = adjacency
        self._total = np.zeros(canaries)
        self._batches = policy.batches_per_step

        # Log ratios of the batches of a step that is not over.
        self._step: list[NDArray[np.float64]] = []

    def observe(self, groups: list[tuple[NDArray[np.float64], float]]) -> None:
        """Take in one batch: for each group, x of every canary and the noise multiplier z. Released
        values only.
        """
        # One row for each record that may stand in the canary's place: the canary, and under
        # replace-one its opposite.
        signs = (1.0, -1.0) if self._adjacency is Adjacency.REPLACE_ONE else (1.0,)
        ratios = np.zeros((len(signs), self._canaries))
        for x, z in groups:
            ratios += (np.multiply.outer(signs, x) - 0.5) / z**2

        self._step.append(ratios)

        # Both ratios are against an empty place: that of one against the other is the difference.
        if len(self._step) == self._batches:
            drawn = self._averaged(np.stack(self._step))
            self._total += drawn[0] - drawn[1] if len(signs) == 2 else drawn[0]
            self._step = []

    def _averaged(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        """Over the draw; axes: batches of the step, signs, canaries."""
        if self._batches == 1:
            return _mixed(ratios[0], self._policy.inclusion_probability)

        # A whole epoch: the canary is in one of the batches, each as likely as the others.
        averaged: NDArray[np.float64] = np.logaddexp.reduce(ratios, axis=0)
        return averaged - math.log(self._batches)

    def scores(self) -> NDArray[np.float64]:
        """The log ratio of everything seen so far, steps that are over; one for each canary."""
        return self._total.copy()


def _mixed(ratios: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    # log((1 - q) + q e^l), without an exponential that overflows; at q = 1 the first term is
    # log 0.
    if probability >= 1.0:
        return ratios

    mixed: NDArray[np.float64] = np.logaddexp(
        math.log1p(-probability), math.log(probability) + ratios
    )
    return mixed
