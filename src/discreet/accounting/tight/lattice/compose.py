"""The composition of lattice measures by FFT, with a bound on every rounding error.

Tilted by theta and normalised, the measures become probability vectors on whole indices. Each is
written as an atom a at place 0 (its largest entry) and a rest r; with R the transform of r, F = a +
R, and T the count,

    composition = atom A at 0  +  inverse transform of  A (e^X - 1),     A = prod a^T,   X = sum T ln(1 + R/a),

computed modulo the window length n. Only r and e^X - 1 are ever transformed, so that a sparse
sample, nearly all of whose mass is one atom, leaves errors in proportion to what is not the atom.
Where A is negligible, A e^X is transformed as it is.

Error per bin, with u the unit roundoff, d the error of one FFT output (see `_rounding`), x + iy =
X, |r| the 1-norm:

    ln F is wrong by at most  b = u |r| (16 log2 n + 80) / |F|,   X by  B = sum T b + 8u (|ln A| + |x| + |y|),
    A e^X by  A e^x (e^B - 1) + 4u A |e^X - 1|,   the inverse transform adds  d A mean|e^X - 1|.

The second bound grows with |F|, so |F| may be replaced by anything larger there: sizes below a
least count as that. In long double u is that of long double; the masses that go in are float64 and
exact by definition, those that come out are rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from discreet.accounting.tight.rounding import WIDE, FloatArray, U, fft_error

if TYPE_CHECKING:
    from discreet.accounting.tight.lattice.upper import Measure

__all__ = ["Composed", "Tilted", "compose", "tilted"]

_NEGLIGIBLE = 60.0  # factors below e^-60 are not computed but bounded
_LEAST = 1e-3  # sizes of a spectrum below this are bounded by it


@dataclass(frozen=True, slots=True)
class Tilted:
    """Measures with counts, tilted by theta: everything about them except the convolution itself.

    Attributes:
        weights: normalised tilted masses of each measure, on `places` (whole indices, 0 at the
            largest).
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
        return float(
            sum(
                count * int(place.min())
                for place, (_, count) in zip(self.places, self.measures, strict=True)
            )
        )

    @property
    def spacing(self) -> float:
        """Loss between two places."""
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
        step = math.log(total) + top + outward * 8.0 * U * (1.0 + abs(top))
        log_total += count * step
        centre = measure.offset + measure.spacing * middle
        origin += count * centre
        slack += count * (
            measure.slack + 8.0 * U * (abs(measure.offset) + abs(measure.spacing * middle))
        )
    # Nodes are computed as origin + spacing * place, and an epsilon between two of them from both.
    slack += 16.0 * U * (abs(origin) + measures[0][0].spacing)
    return Tilted(measures, theta, tuple(weights), tuple(places), log_total, origin, slack)


def compose(part: Tilted, first: int, length: int, *, extended: bool = False) -> Composed:
    """The tilted composition on places first ... first + length - 1, modulo length; `extended` uses
    long double.
    """
    kind: Any = np.longdouble if extended and WIDE else np.float64
    spectra = [
        _spectrum(*one, length, kind)
        for one in zip(part.weights, part.places, part.measures, strict=True)
    ]
    log_atom: Any = sum((one.count * np.log(kind(one.atom)) for one in spectra), kind(0.0))
    # With a negligible atom only frequencies that are not negligible are computed; `rough` is ln of
    # A |e^X| for all of them.
    rough = sum(one.count * one.log_size() for one in spectra)
    kept = (
        np.flatnonzero(rough > -_NEGLIGIBLE)
        if log_atom < -_NEGLIGIBLE / 2.0
        else np.arange(length // 2 + 1)
    )
    unit = float(np.finfo(kind).eps) / 2.0
    x: Any = np.zeros(len(kept), dtype=kind)
    y: Any = np.zeros(len(kept), dtype=kind)
    most, wrong, worst = np.zeros(len(kept)), np.zeros(len(kept)), 0.0
    for one in spectra:
        log_size, angle = _logarithm(one.rest.real[kept] / one.atom, one.rest.imag[kept] / one.atom)
        x += one.count * log_size
        y += one.count * angle
        bounded = np.maximum(log_size.astype(np.float64), math.log(_LEAST / one.atom))
        most += one.count * bounded
        one_wrong = one.count * unit * one.loose * (16.0 * math.log2(length) + 80.0)
        wrong += one_wrong / one.atom * np.exp(-bounded)
        worst += one_wrong / _LEAST + 16.0 * U * one.count
    wrong += 8.0 * unit * (abs(float(log_atom)) + np.abs(x) + np.abs(y)).astype(np.float64)
    mass, error = _inverse((x, y, kept), most, wrong, log_atom, length)
    lost = length // 2 + 1 - len(kept)
    error += 2.0 * lost * math.exp(-_NEGLIGIBLE + min(worst, _NEGLIGIBLE)) / length * (1.0 + 1e-9)
    return Composed(first, np.roll(mass, -(first % length)), error)


@dataclass(frozen=True, slots=True)
class _Spectrum:
    """An atom a, and the transform R of the rest, whose 1-norm is `loose`."""

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


def _spectrum(
    weight: FloatArray, place: Any, counted: tuple[Measure, int], length: int, kind: Any
) -> _Spectrum:
    centre = place == 0
    atom = float(weight[centre][0])
    rest = np.zeros(length, dtype=kind)
    np.add.at(rest, np.mod(place, length), np.where(centre, 0.0, weight).astype(kind))
    return _Spectrum(atom, float(np.sum(weight)) - atom, scipy.fft.rfft(rest), counted[1])


def _logarithm(re: Any, im: Any) -> tuple[Any, Any]:
    """The ln of |1 + z| and the angle of 1 + z, accurate for small z = re + i im."""
    ratio = re * (2.0 + re) + im * im
    square = (1.0 + re) ** 2 + im * im
    near = np.abs(ratio) < 0.5
    log_size = 0.5 * np.where(
        near, np.log1p(np.where(near, ratio, 0.0)), np.log(np.maximum(square, 1e-300))
    )
    return log_size, np.arctan2(im, 1.0 + re)


def _inverse(
    exponent: tuple[Any, Any, Any], most: FloatArray, wrong: FloatArray, log_atom: Any, length: int
) -> tuple[FloatArray, float]:
    """Mass on places 0 ... length - 1 and the error of each, from (x, y, frequencies); see the
    header. `most` bounds x.
    """
    x, y, kept = exponent
    unit = float(np.finfo(x.dtype).eps) / 2.0
    split = log_atom >= -_NEGLIGIBLE / 2.0
    power = np.zeros(length // 2 + 1, dtype=np.result_type(x.dtype, np.complex128))
    if split:
        half, grown = np.sin(0.5 * y), np.expm1(x)
        power.real = grown - 2.0 * (1.0 + grown) * half * half
        power.imag = (1.0 + grown) * np.sin(y)
    else:
        size = np.exp(x + log_atom)
        power.real[kept] = size * np.cos(y)
        power.imag[kept] = size * np.sin(y)
    scale = np.exp(log_atom) if split else 1.0
    mass = scale * scipy.fft.irfft(power, n=length)
    mass[0] += scale if split else 0.0
    # Every frequency of the real transform stands for two at most.
    top = np.exp(most + (0.0 if split else float(log_atom)))
    size = np.abs(power[kept]).astype(np.float64)
    off = top * np.expm1(np.minimum(wrong, 700.0))
    total = float(
        np.sum(
            off * (1.0 + 4.0 * unit) + 4.0 * unit * size + fft_error(length, unit) * (size + off)
        )
    )
    return mass.astype(np.float64), 2.0 * float(scale) * total / length * (1.0 + 1e-9)
