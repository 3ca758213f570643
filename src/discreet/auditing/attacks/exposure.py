"""How well a model remembers a secret: the rank of its loss among those of all that it could have
been [Carlini2019].

Legend: N candidates, of which the secret is one, drawn uniformly; r the rank of its loss, 1 for the
smallest;

    exposure = log2 N - log2 r   [bits],

from 0 (all others are likelier) to log2 N (none is). A model that never saw the secret has
P[exposure >= k] <= 2^-k; one with (epsilon, delta)-differential privacy for the record that holds
it

    P[exposure >= k] <= e^epsilon 2^-k + delta.          Proof: docs/proofs/exposure.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet.canaries.scores import array_of
from discreet.errors import NumericsError, ParameterError

__all__ = ["Exposure", "exposure_by_fit", "exposure_by_rank", "exposure_chance", "exposure_limit"]

# Chances are rounded up: by a factor, and by the smallest number where the exponential underflows.
_UP = 1.0 + 2.0**-48
_TINY = 2.0**-1074

# Candidates: half of them for three parameters, half for the test of the fit.
_LEAST_TO_FIT = 100

# P-value below which a fit is said to be bad.
_DOUBTFUL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """The exposure of one secret: evidence of remembering, never a bound on epsilon by itself.

    Args:
        bits: the exposure.
        candidates: N, the secret included.
        fit: p-value of the test that the fitted curve describes candidates it was not fitted to;
            None if nothing was fitted.

    >>> print(Exposure(bits=9.97, candidates=1000, fit=None))
    Exposure 10.0 bits of at most 10.0, by rank among 1000 candidates. ...
    """

    bits: float
    candidates: int
    fit: float | None = None

    def __str__(self) -> str:
        chance = min(1.0, 2.0**-self.bits)
        return (
            f"Exposure {self.bits:.1f} bits {self._method()} A model that never saw the secret "
            f"reaches this with probability {chance:.2g}. A low exposure proves nothing: a better "
            "attack may exist."
        )

    def _method(self) -> str:
        """Say how the exposure was measured, and whether that can be trusted."""
        if self.fit is None:
            largest = math.log2(self.candidates)
            return f"of at most {largest:.1f}, by rank among {self.candidates} candidates."

        curve = f"by a skew-normal curve through the losses of {self.candidates - 1} candidates."
        if self.fit < _DOUBTFUL:
            doubt = f"The curve does not fit (p = {self.fit:.1g}): do not use this figure."
            return f"{curve} {doubt}"

        # The test saw candidates, and none of them is as far out as the secret.
        fits = f"The curve fits where there are candidates (p = {self.fit:.2g})"
        return f"{curve} {fits}; beyond, it is extrapolated."


def exposure_by_rank(loss: float, candidates: ArrayLike) -> Exposure:
    """Compute the exposure of a secret from its loss and those of candidates that were not planted.

    Ties count against the attack: a secret is ranked behind every candidate of the same loss. So a
    model that tells nothing apart exposes nothing, and the limits above hold whatever the losses
    are.

    Args:
        loss: of the secret; sensitive.
        candidates: losses of the N - 1 others: all that the secret could have been, or an
            independent uniform sample.

    >>> exposure_by_rank(0.5, [2.0, 3.0, 1.0]).bits, exposure_by_rank(2.0, [2.0, 3.0, 1.0]).bits
    (2.0, 0.415...)
    """
    # Behind all that are equal: otherwise a constant loss would have the highest exposure.
    secret, losses = _checked("exposure_by_rank", loss, candidates)
    rank = 1 + int(np.count_nonzero(losses <= secret))
    return Exposure(bits=math.log2((losses.size + 1) / rank), candidates=losses.size + 1)


def exposure_by_fit(loss: float, candidates: ArrayLike) -> Exposure:
    """Estimate an exposure beyond log2 N from a curve through the candidates' losses.

    It is minus log2 of the probability that the curve gives to a smaller loss than the secret's.

    The curve is a skew normal, fitted to every second candidate; the others test it (Kolmogorov and
    Smirnov), so the p-value is that of a test on fresh data. It says nothing of the tail, where
    there are no candidates: take the result for an order of magnitude.

    Args:
        loss: of the secret; sensitive.
        candidates: losses of other candidates in random order, at least 100.

    Raises:
        NumericsError: the losses are all alike, or no curve was found.

    >>> losses = np.random.default_rng(0).normal(30.0, 2.0, 1000)
    >>> exposure = exposure_by_fit(18.0, losses)  # six standard deviations below: about 30 bits
    >>> 20.0 < exposure.bits < 40.0, exposure.fit > 0.01
    (True, True)
    """
    owner = "exposure_by_fit"
    secret, losses = _checked(owner, loss, candidates)
    if losses.size < _LEAST_TO_FIT:
        expected = f"at least {_LEAST_TO_FIT} losses"
        raise ParameterError(
            owner=owner, name="candidates", expected=expected, got=str(losses.size)
        )

    # Losses that differ by rounding alone have no curve.
    centre, width = float(losses.mean()), float(losses.std())
    if not width > 1e-9 * (1.0 + abs(centre)):
        raise _no_curve("candidates that all have the same loss")

    # Fitted to every second candidate, tested on those in between.
    scaled = (losses - centre) / width
    with np.errstate(all="ignore"):
        curve = scipy.stats.skewnorm(*scipy.stats.skewnorm.fit(scaled[::2]))
        p_value = float(scipy.stats.kstest(scaled[1::2], curve.cdf).pvalue)
        bits = -_log_cdf(curve, (secret - centre) / width) / math.log(2.0)

    if not math.isfinite(bits) or not math.isfinite(p_value):
        raise _no_curve("a fit that is no number")

    return Exposure(bits=max(0.0, bits), candidates=losses.size + 1, fit=p_value)


def exposure_chance(bits: float, *, epsilon: float, delta: float = 0.0) -> float:
    """The largest probability, rounded up, that an exposure by rank reaches this many bits.

    The secret is drawn uniformly.

    Args:
        bits: k, at least 0.
        epsilon: of the guarantee for all that holds the secret: if it stands in several records, of
            that group.
        delta: of the same guarantee.

    >>> round(exposure_chance(10.0, epsilon=2.0, delta=1e-5), 5)  # e^2 / 1024 + 1e-5
    0.00723
    """
    owner = "exposure_chance"
    k = check.not_negative(owner, "bits", bits)
    spent = check.not_negative(owner, "epsilon", epsilon)
    failing = check.fraction(owner, "delta", delta, zero=True, one=True)

    # e^epsilon 2^-k + delta, each step rounded up.
    exponent = spent - k * math.log(2.0) + 2.0**-48 * (spent + k)
    if exponent >= 0.0:
        return 1.0

    return min(1.0, (math.exp(exponent) + failing) * _UP + _TINY)


def exposure_limit(*, epsilon: float, delta: float = 0.0, probability: float = 0.05) -> float:
    """The bits, rounded up, that an exposure by rank reaches with at most this probability.

    The secret is drawn uniformly.

    Args:
        epsilon: as for `exposure_chance`.
        delta: likewise.
        probability: above delta.

    >>> round(exposure_limit(epsilon=2.0, delta=1e-5, probability=0.05), 2)
    7.21
    """
    owner = "exposure_limit"
    spent = check.not_negative(owner, "epsilon", epsilon)
    failing = check.fraction(owner, "delta", delta, zero=True)
    allowed = check.fraction(owner, "probability", probability)
    if not allowed > failing:
        expected = f"above delta={failing!r}"
        raise ParameterError(owner=owner, name="probability", expected=expected, got=repr(allowed))

    # e^epsilon 2^-k + delta = probability, solved for k.
    return (spent - math.log(allowed - failing)) / math.log(2.0) * _UP + 2.0**-40


def _log_cdf(curve: scipy.stats.distributions.rv_frozen, x: float) -> float:
    """The logarithm of P[X <= x].

    Left of the middle the density is integrated relative to that at x: else it would underflow.
    """
    if x >= curve.median():
        return float(curve.logcdf(x))

    # Left of the median the density falls towards the left: the ratio is at most 1 but for
    # rounding.
    top = float(curve.logpdf(x))
    area, _ = scipy.integrate.quad(
        lambda t: math.exp(min(0.0, float(curve.logpdf(x - t)) - top)), 0.0, np.inf
    )
    return top + math.log(area)


def _no_curve(got: str) -> NumericsError:
    return NumericsError(
        expected="losses that a skew-normal curve can be fitted to",
        got=got,
        do="Use the exposure by rank.",
    )


def _checked(owner: str, loss: float, candidates: ArrayLike) -> tuple[float, NDArray[np.float64]]:
    """Check the loss of a secret and those of its candidates."""
    secret = check.real(owner, "loss", loss)
    losses = array_of(candidates)
    is_numeric = losses.ndim == 1 and losses.size > 0 and losses.dtype.kind in "iuf"
    if not is_numeric or not np.isfinite(losses).all():
        expected = "finite losses in one axis, at least one"
        got = f"{losses.dtype}, shape {losses.shape}"
        raise ParameterError(owner=owner, name="candidates", expected=expected, got=got)

    return secret, losses.astype(np.float64)
