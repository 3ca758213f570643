"""The composition of lattice measures by FFT, with a bound on every rounding error.

Tilted by theta and normalised, the measures become probability vectors on whole indices. Each is
written as an atom a at place 0 (its largest entry) and a rest r; with R the transform of r, F = a +
R, and T the count,

    composition = atom A at 0  +  inverse transform of  A (e^X - 1),
    A = prod a^T,   X = sum T ln(1 + R/a),

computed modulo the window length n. Only r and e^X - 1 are ever transformed, so that a sparse
sample, nearly all of whose mass is one atom, leaves errors in proportion to what is not the atom.
Where A is negligible, A e^X is transformed as it is.

Error per bin (docs/proofs/tight.md, section 5, "Rounding"), with u the unit roundoff, d the error
of one FFT output (see `rounding`), x + iy = X, |r| the 1-norm:

    ln F   is wrong by at most  b = u |r| (16 log2 n + 80) / |F|,
    X      by                   B = sum T b + 8u (|ln A| + |x| + |y|),
    A e^X  by                   A e^x (e^B - 1) + 4u A |e^X - 1|,

and the inverse transform adds d A mean|e^X - 1|.

The second bound grows with |F|, so |F| may be replaced by anything larger there: sizes below a
least count as that. In long double u is that of long double; the masses that go in are float64 and
exact by definition, those that come out are rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from discreet.accounting.tight.lattice.upper import Measure
from discreet.accounting.tight.rounding import WIDE, FloatArray, U, fft_error

__all__ = ["Composed", "Tilted", "compose", "tilted"]

# Factors below e^-60 are not computed but bounded.
_NEGLIGIBLE = 60.0

# Sizes of a spectrum below this are bounded by it.
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Tilted:
    """Measures with counts, tilted by theta: everything about them except the convolution itself.

    Attributes:
        measures: what is composed, each with its count.
        theta: exponent of the tilt.
        weights: normalised tilted masses of each measure, on `places`; none if a measure has no
            mass.
        places: whole indices of each measure's nodes, 0 at its largest weight.
        log_total: ln of what normalisation took out, K(theta) of the measures, rounded outward.
        origin: loss of the place 0 of the composition.
        slack: by how much the composed loss must be moved outward.
    """

    measures: tuple[tuple[Measure, int], ...]
    theta: float
    weights: tuple[FloatArray, ...]
    places: tuple[Any, ...]
    log_total: float
    origin: float
    slack: float

    @property
    def lowest(self) -> float:
        """Place below which the composition has no mass; -inf if there is no telling in whole
        numbers.
        """
        counts = [count for _, count in self.measures]
        return float(
            sum(count * int(place.min()) for place, count in zip(self.places, counts, strict=True))
        )

    @property
    def spacing(self) -> float:
        """The loss between two neighbouring places."""
        return self.measures[0][0].spacing

    @property
    def infinite(self) -> float:
        """Mass of the composition at infinity, rounded up: 1 - prod (1 - p)^T <= sum T p."""
        return sum(count * measure.infinite for measure, count in self.measures) * (1.0 + 1e-9)

    def cumulant(self, theta: float, below: float = math.inf) -> float:
        """The ln of the total mass of the composition, tilted by another theta, rounded up; of
        losses up to `below` only.
        """
        total = 0.0

        for measure, count in self.measures:
            # An upper bound: the errors of the exponentials and of their sum are added.
            exponent = theta * measure.loss
            top = float(exponent.max())
            weight = float(np.sum((measure.mass * np.exp(exponent - top))[measure.loss <= below]))
            if weight <= 0.0:
                return -math.inf

            error = 4.0 * U * (len(exponent) + float(np.abs(exponent).max()) + abs(top) + 8.0)
            total += count * (math.log(weight) + top + error)

        return total


@dataclass(frozen=True, slots=True)
class Composed:
    """Tilted mass of the composition on places first, first + 1, ...; each entry true up to
    `error`, either way.
    """

    first: int
    mass: FloatArray
    error: float


def tilted(measures: tuple[tuple[Measure, int], ...], theta: float, *, outward: int) -> Tilted:
    """Tilt and normalise; `outward` is +1 to round masses up (upper bound), -1 to round down (lower
    bound).
    """
    weights, places = [], []
    log_total = origin = slack = 0.0

    for measure, count in measures:
        # The largest exponential is taken out, so that none overflows.
        exponent = theta * measure.loss
        top = float(exponent.max())
        error = 4.0 * U * (np.abs(exponent) + abs(top) + 8.0)
        mass = measure.mass * np.exp(exponent - top) * (1.0 + outward * error)
        total = math.fsum(mass)
        if total <= 0.0:
            return Tilted(measures, theta, (), (), -math.inf, 0.0, 0.0)

        weight = mass / total
        middle = int(measure.index[int(np.argmax(weight))])
        weights.append(weight)
        places.append(measure.index - middle)
        log_total += count * (math.log(total) + top + outward * 8.0 * U * (1.0 + abs(top)))

        # The composition's place 0 is where every step has its largest weight.
        origin += count * (measure.offset + measure.spacing * middle)
        rounded = 8.0 * U * (abs(measure.offset) + abs(measure.spacing * middle))
        slack += count * (measure.slack + rounded)

    # Nodes are computed as origin + spacing * place, and an epsilon between two of them from both.
    slack += 16.0 * U * (abs(origin) + measures[0][0].spacing)
    return Tilted(measures, theta, tuple(weights), tuple(places), log_total, origin, slack)


def compose(part: Tilted, first: int, length: int, *, extended: bool = False) -> Composed:
    """The tilted composition on places first ... first + length - 1, modulo length; `extended` uses
    long double.
    """
    kind: Any = np.longdouble if extended and WIDE else np.float64
    spectra = [
        _spectrum(weight, place, count, length, kind)
        for weight, place, (_, count) in zip(part.weights, part.places, part.measures, strict=True)
    ]
    log_atom: Any = sum((step.count * np.log(kind(step.atom)) for step in spectra), kind(0.0))

    # With a negligible atom only frequencies that are not negligible are computed.
    computed: Any = np.arange(length // 2 + 1)
    if log_atom < -_NEGLIGIBLE / 2.0:
        log_size = sum(step.count * step.log_size() for step in spectra)  # ln of A |e^X|
        computed = np.flatnonzero(log_size > -_NEGLIGIBLE)

    unit = float(np.finfo(kind).eps) / 2.0

    # X = x + iy, an upper bound on x, and the error B of X: the sums over the steps of the header.
    x: Any = np.zeros(len(computed), dtype=kind)
    y: Any = np.zeros(len(computed), dtype=kind)
    x_bound, error_x, worst = np.zeros(len(computed)), np.zeros(len(computed)), 0.0

    for step in spectra:
        log, angle = _logarithm(
            step.rest.real[computed] / step.atom, step.rest.imag[computed] / step.atom
        )
        x += step.count * log
        y += step.count * angle
        bounded = np.maximum(log.astype(np.float64), math.log(_LEAST / step.atom))
        x_bound += step.count * bounded
        step_error = step.count * unit * step.loose * (16.0 * math.log2(length) + 80.0)
        error_x += step_error / step.atom * np.exp(-bounded)
        worst += step_error / _LEAST + 16.0 * U * step.count

    error_x += 8.0 * unit * (abs(float(log_atom)) + np.abs(x) + np.abs(y)).astype(np.float64)

    mass, error = _inverse((x, y, computed), x_bound, error_x, log_atom, length)

    # The frequencies that were not computed: each is at most e^-60 times its own error.
    skipped = length // 2 + 1 - len(computed)
    largest = math.exp(-_NEGLIGIBLE + min(worst, _NEGLIGIBLE))
    error += 2.0 * skipped * largest / length * (1.0 + 1e-9)
    return Composed(first, np.roll(mass, -(first % length)), error)


@dataclass(frozen=True, slots=True)
class _Spectrum:
    """The transform of one tilted measure: an atom a, and the transform R of the rest.

    Attributes:
        atom: a.
        loose: 1-norm of what is not the atom.
        rest: R, at the non-negative frequencies.
        count: how often the measure is composed.
    """

    atom: float
    loose: float
    rest: Any
    count: int

    def log_size(self) -> FloatArray:
        """The ln of |a + R|, at least ln of the least size that counts; good to 16u besides the
        error of R.
        """
        re, im = self.rest.real.astype(np.float64) + self.atom, self.rest.imag.astype(np.float64)
        log: FloatArray = 0.5 * np.log(np.maximum(re * re + im * im, _LEAST**2))
        return log


def _spectrum(weight: FloatArray, place: Any, count: int, length: int, kind: Any) -> _Spectrum:
    """Split off the atom at place 0 and transform what remains, modulo the length."""
    centre = place == 0
    atom = float(weight[centre][0])
    loose = np.zeros(length, dtype=kind)
    np.add.at(loose, np.mod(place, length), np.where(centre, 0.0, weight).astype(kind))
    return _Spectrum(atom, float(np.sum(weight)) - atom, scipy.fft.rfft(loose), count)


def _logarithm(re: Any, im: Any) -> tuple[Any, Any]:
    """The ln of |1 + z| and the angle of 1 + z, accurate for small z = re + i im."""
    ratio = re * (2.0 + re) + im * im
    square = (1.0 + re) ** 2 + im * im
    near = np.abs(ratio) < 0.5
    log_near = np.log1p(np.where(near, ratio, 0.0))
    log_size = 0.5 * np.where(near, log_near, np.log(np.maximum(square, 1e-300)))
    return log_size, np.arctan2(im, 1.0 + re)


def _inverse(
    exponent: tuple[Any, Any, Any],
    x_bound: FloatArray,
    error_x: FloatArray,
    log_atom: Any,
    length: int,
) -> tuple[FloatArray, float]:
    """Mass on places 0 ... length - 1 and the error of each, from (x, y, frequencies); see the
    header.
    """
    x, y, computed = exponent
    unit = float(np.finfo(x.dtype).eps) / 2.0
    split = log_atom >= -_NEGLIGIBLE / 2.0
    power = np.zeros(length // 2 + 1, dtype=np.result_type(x.dtype, np.complex128))
    if split:
        # e^X - 1 without cancellation: cos y - 1 = -2 sin^2(y/2).
        half, grown = np.sin(0.5 * y), np.expm1(x)
        power.real = grown - 2.0 * (1.0 + grown) * half * half
        power.imag = (1.0 + grown) * np.sin(y)
    else:
        size = np.exp(x + log_atom)
        power.real[computed] = size * np.cos(y)
        power.imag[computed] = size * np.sin(y)

    scale = np.exp(log_atom) if split else 1.0
    mass = scale * scipy.fft.irfft(power, n=length)
    mass[0] += scale if split else 0.0

    # Every frequency of the real transform stands for two at most.
    top = np.exp(x_bound + (0.0 if split else float(log_atom)))
    size = np.abs(power[computed]).astype(np.float64)
    off = top * np.expm1(np.minimum(error_x, 700.0))
    total = float(
        np.sum(
            off * (1.0 + 4.0 * unit) + 4.0 * unit * size + fft_error(length, unit) * (size + off)
        )
    )
    return mass.astype(np.float64), 2.0 * float(scale) * total / length * (1.0 + 1e-9)
