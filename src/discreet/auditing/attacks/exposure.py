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

_UP = 1.0 + 2.0**-48
_TINY = 2.0**-1074  # where the exponential underflows
_LEAST_TO_FIT = 100  # candidates: half of them for three parameters, half for the test of the fit
_DOUBTFUL = 0.01  # p-value below which a fit is said to be bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How exposed one secret is. Evidence of remembering, never a bound on epsilon by itself.

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
        if self.fit is None:
            most = math.log2(self.candidates)
            how = f"of at most {most:.1f}, by rank among {self.candidates} candidates."
        else:
            how = f"by a skew-normal curve through the losses of {self.candidates - 1} candidates."
            if self.fit < _DOUBTFUL:
                how += f" The curve does not fit (p = {self.fit:.1g}): do not use this figure."
            else:
                how += (
                    f" The curve fits where there are candidates (p = {self.fit:.2g}); beyond, it "
                    "is extrapolated."
                )
        chance = (
            "A model that never saw the secret reaches this with probability "
            f"{min(1.0, 2.0**-self.bits):.2g}."
        )
        return (
            f"Exposure {self.bits:.1f} bits {how} {chance} A low exposure proves nothing: a "
            "better attack may exist."
        )


def exposure_by_rank(loss: float, candidates: ArrayLike) -> Exposure:
    """The exposure of a secret whose loss, and the losses of candidates that were not planted, are
    known.

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
    found, others = _checked("exposure_by_rank", loss, candidates)
    rank = 1 + int(np.count_nonzero(others <= found))
    return Exposure(bits=math.log2((others.size + 1) / rank), candidates=others.size + 1)


def exposure_by_fit(loss: float, candidates: ArrayLike) -> Exposure:
    """The exposure beyond log2 N: minus log2 of the probability that a curve through the
    candidates' losses gives to less.

    The curve is a skew normal, fitted to every second candidate; the others test it (Kolmogorov and
    Smirnov), so the p-value is that of a test on fresh data. It says nothing of the tail, where
    there are no candidates: take the result for an order of magnitude.

    Args:
        loss: of the secret; sensitive.
        candidates: losses of other candidates in random order, at least 100.

    Raises:
        NumericsError: the losses are all alike, or no curve was found.

    >>> losses = np.random.default_rng(0).normal(30.0, 2.0, 1000)
    >>> found = exposure_by_fit(18.0, losses)  # six standard deviations below: about 30 bits
    >>> 20.0 < found.bits < 40.0, found.fit > 0.01
    (True, True)
    """
    owner = "exposure_by_fit"
    found, others = _checked(owner, loss, candidates)
    if others.size < _LEAST_TO_FIT:
        expected = f"at least {_LEAST_TO_FIT} losses"
        raise ParameterError(
            owner=owner, name="candidates", expected=expected, got=str(others.size)
        )
    centre, width = float(others.mean()), float(others.std())
    if not width > 1e-9 * (1.0 + abs(centre)):
        raise _no_curve("candidates that all have the same loss")
    scaled = (others - centre) / width
    with np.errstate(all="ignore"):
        curve = scipy.stats.skewnorm(*scipy.stats.skewnorm.fit(scaled[::2]))
        p_value = float(scipy.stats.kstest(scaled[1::2], curve.cdf).pvalue)
        bits = -_log_cdf(curve, (found - centre) / width) / math.log(2.0)
    if not math.isfinite(bits) or not math.isfinite(p_value):
        raise _no_curve("a fit that is no number")
    return Exposure(bits=max(0.0, bits), candidates=others.size + 1, fit=p_value)


def exposure_chance(bits: float, *, epsilon: float, delta: float = 0.0) -> float:
    """The largest probability, rounded up, that the exposure by rank of a uniformly drawn secret
    reaches this many bits.

    Args:
        bits: k, at least 0.
        epsilon: of the guarantee for all that holds the secret: if it stands in several records, of
            that group.
        delta: of the same guarantee.

    >>> round(exposure_chance(10.0, epsilon=2.0, delta=1e-5), 5)  # e^2 / 1024 + 1e-5
    0.00723
    """
    owner = "exposure_chance"
    reached, spent = _nonnegative(owner, "bits", bits), _nonnegative(owner, "epsilon", epsilon)
    rest = check.fraction(owner, "delta", delta, zero=True, one=True)
    exponent = spent - reached * math.log(2.0) + 2.0**-48 * (spent + reached)
    return 1.0 if exponent >= 0.0 else min(1.0, (math.exp(exponent) + rest) * _UP + _TINY)


def exposure_limit(*, epsilon: float, delta: float = 0.0, probability: float = 0.05) -> float:
    """The bits, rounded up, that the exposure by rank of a uniformly drawn secret reaches with at
    most this probability.

    Args:
        epsilon: as for `exposure_chance`.
        delta: likewise.
        probability: above delta.

    >>> round(exposure_limit(epsilon=2.0, delta=1e-5, probability=0.05), 2)
    7.21
    """
    owner = "exposure_limit"
    spent = _nonnegative(owner, "epsilon", epsilon)
    rest = check.fraction(owner, "delta", delta, zero=True)
    allowed = check.fraction(owner, "probability", probability)
    if not allowed > rest:
        raise ParameterError(
            owner=owner, name="probability", expected=f"above delta={rest!r}", got=repr(allowed)
        )
    return (spent - math.log(allowed - rest)) / math.log(2.0) * _UP + 2.0**-40


def _log_cdf(curve: scipy.stats.distributions.rv_frozen, x: float) -> float:
    """The logarithm of P[X <= x]. Left of the middle the density is integrated relative to that at
    x: the rest underflows.
    """
    if x >= curve.median():
        return float(curve.logcdf(x))
    top = float(curve.logpdf(x))
    area, _ = scipy.integrate.quad(
        lambda t: math.exp(min(0.0, float(curve.logpdf(x - t)) - top)), 0.0, np.inf
    )
    return top + math.log(area)


def _no_curve(got: str) -> NumericsError:
    do = "Use the exposure by rank."
    return NumericsError(
        expected="losses that a skew-normal curve can be fitted to", got=got, do=do
    )


def _nonnegative(owner: str, name: str, value: float) -> float:
    number = check.real(owner, name, value)
    if number < 0.0:
        raise ParameterError(owner=owner, name=name, expected="at least 0", got=repr(number))
    return number


def _checked(owner: str, loss: float, candidates: ArrayLike) -> tuple[float, NDArray[np.float64]]:
    found = check.real(owner, "loss", loss)
    others = array_of(candidates)
    if (
        others.ndim != 1
        or not others.size
        or others.dtype.kind not in "iuf"
        or not np.isfinite(others).all()
    ):
        expected = "finite losses in one axis, at least one"
        raise ParameterError(
            owner=owner,
            name="candidates",
            expected=expected,
            got=f"{others.dtype}, shape {others.shape}",
        )
    return found, others.astype(np.float64)
