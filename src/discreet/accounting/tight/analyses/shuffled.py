"""Shuffled disjoint batches: no amplification is claimed from above; from below, how little there
can be.

Upper bound: one epoch is one un-amplified Gaussian, whatever the permutation (`normalise` makes it
so). Lower bound [ChuaEtAl2024]: every other record contributes -1, so that a batch sums to minus
its size, a public number, unless the record in question is in it. With T batches, e_t the t-th unit
vector, and s the noise multiplier, the two outputs of an epoch are

    zero-out:     P = mean over t of N(2 e_t, s^2 I)   against   Q = mean over t of N(e_t, s^2 I),
    replace-one:  P as above                           against   Q = N(0, s^2 I),

and for the event that the largest coordinate exceeds c,

    P(c) = 1 - F((c-2)/s) F(c/s)^(T-1),      Q(c) = 1 - F((c-1)/s) F(c/s)^(T-1)  or  1 - F(c/s)^T,

F the normal distribution function. Whatever is (epsilon, delta)-private has P(c) <= e^epsilon Q(c)
+ delta, for every c (docs/proofs/shuffled.md).
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from discreet import _validate as check
from discreet.accounting.tight.analyses.atoms import Atoms
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.accounting.tight.rounding import FloatArray
from discreet.units import Adjacency

__all__ = ["shuffled_lower"]

# A relative error far above the rounding of the formulas, and far below what matters here.
_RELATIVE = 1e-11

# Into so many cells the largest coordinate of an epoch is rounded.
_CELLS = 4000

# So many events, one for each threshold, are tried for one epoch.
_THRESHOLDS = 20001


def shuffled_lower(
    *,
    batches: int,
    noise_multiplier: float,
    epochs: int,
    delta: float,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> float:
    """No valid epsilon at this delta is below, for data sets of any content: a lower bound, never a
    guarantee.

    For one epoch the event of the header at the best c; for several also the composition of the
    largest coordinates of all epochs, each rounded to a cell (post-processing of the output, hence
    a lower bound).

    Args:
        batches: in one epoch, at least 1.
        noise_multiplier: noise over the sensitivity of rule 5 of the event vocabulary.
        epochs: number of epochs, each with a permutation of its own.
        delta: of the guarantee that is bounded from below, in (0, 1).
        adjacency: zero-out or replace-one; for add-or-remove no statement is made (0).

    | case                                       | result                                       |
    |--------------------------------------------|----------------------------------------------|
    | one batch, zero-out                        | that of the Gaussian, up to the choice of c  |
    | add-or-remove                              | 0.0: no statement                            |
    | delta near 1, or so much noise that no c   | 0.0                                          |
    | tells the two apart                        |                                              |
    | no batch, no epoch                         | ParameterError                               |
    | delta 0 or 1; noise 0 or infinite          | ParameterError                               |

    >>> round(shuffled_lower(batches=200, noise_multiplier=1.0, epochs=1, delta=1e-6), 3)
    4.512
    """
    owner = "shuffled_lower"
    batches = check.whole(owner, "batches", batches, least=1)
    noise = check.positive(owner, "noise_multiplier", noise_multiplier)
    epochs = check.whole(owner, "epochs", epochs, least=1)
    delta = check.fraction(owner, "delta", delta)
    if adjacency is Adjacency.ADD_OR_REMOVE:
        return 0.0

    single = _one_epoch(batches, noise, delta, adjacency)
    if epochs == 1:
        return single

    return max(single, _composed(batches, noise, epochs, delta, adjacency))


def _tails(
    threshold: FloatArray, batches: int, noise: float, adjacency: Adjacency
) -> tuple[FloatArray, FloatArray]:
    """P(c) and Q(c) of the header: 1 - F(a) F(b)^(T-1) = -expm1(ln F(a) + (T-1) ln F(b)), without
    cancellation.
    """
    without_unit = (batches - 1) * scipy.special.log_ndtr(threshold / noise)
    mean_q = 0.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    above_p = -np.expm1(scipy.special.log_ndtr((threshold - 2.0) / noise) + without_unit)
    above_q = -np.expm1(scipy.special.log_ndtr((threshold - mean_q) / noise) + without_unit)
    return above_p, above_q


def _one_epoch(batches: int, noise: float, delta: float, adjacency: Adjacency) -> float:
    """The largest ln((P(c) - delta)/Q(c)) over many thresholds c, rounded down."""
    threshold = np.linspace(-2.0 - 9.0 * noise, 2.0 + 12.0 * noise, _THRESHOLDS)
    above_p, above_q = _tails(threshold, batches, noise, adjacency)
    gain = above_p * (1.0 - _RELATIVE) - delta

    # Where Q(c) underflows, or P(c) is below delta, the event says nothing.
    usable = (gain > 0.0) & (above_q > 1e-290)
    if not np.any(usable):
        return 0.0

    best = float(np.max(gain[usable] / (above_q[usable] * (1.0 + _RELATIVE))))
    return max(math.log(best) - _RELATIVE, 0.0) if best > 0.0 else 0.0


def _composed(batches: int, noise: float, epochs: int, delta: float, adjacency: Adjacency) -> float:
    """The largest coordinate of each epoch, cut into cells: a pair with finitely many outcomes,
    composed.

    In either order the loss of a cell and its mass under the first distribution are rounded down: a
    lower bound.
    """
    threshold = np.linspace(-2.0 - 9.0 * noise, 2.0 + 9.0 * noise, _CELLS)
    above_p, above_q = _tails(threshold, batches, noise, adjacency)
    p, error_p = _cells(above_p)
    q, error_q = _cells(above_q)

    # Cells whose mass is mostly rounding are left out: post-processing drops them too.
    sure = (p > 1e6 * error_p) & (q > 1e6 * error_q)
    p, error_p, q, error_q = p[sure], error_p[sure], q[sure], error_q[sure]
    return max(
        _composed_lower(p - error_p, q + error_q, epochs, delta),
        _composed_lower(q - error_q, p + error_p, epochs, delta),
    )


def _composed_lower(mass: FloatArray, against: FloatArray, epochs: int, delta: float) -> float:
    """A lower bound on epsilon from outcomes with at least `mass` under the first distribution and
    at most `against` under the second.
    """
    loss = np.log(mass) - np.log(against) - _RELATIVE
    order = np.argsort(loss)

    # Losses closer than 1e-9 count as one, the least of them.
    is_new = np.concatenate([[True], np.diff(loss[order]) > 1e-9])
    group = np.cumsum(is_new) - 1
    together = np.bincount(group, weights=mass[order]).astype(np.float64)
    atoms = Atoms(loss[order][is_new], together * (1.0 - _RELATIVE), 0.0, 0.0)
    return epsilon_bracket(Composition(((atoms, epochs),)), delta, 1e-2).lower


def _cells(above: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Masses of (c_i, c_(i+1)] and, last, of (c_last, inf); and a bound on their errors."""
    # Differences of tails: an error relative to the tails, not to the difference.
    mass = np.concatenate([-np.diff(above), above[-1:]])
    error = 1e-13 * np.concatenate([above[:-1] + above[1:], above[-1:]]) + 1e-300
    return np.maximum(mass, 0.0), error
