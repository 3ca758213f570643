"""The composition of lattice measures as a transform, with a bound on every rounding error.

Tilted by theta and normalised, the measures become probability vectors on whole indices. Each is
written as an atom a at place 0 (its largest entry) and a rest r; with R the transform of r, F = a +
R, and T the count,

    composition = atom A at 0  +  inverse transform of  A (e^X - 1),
    A = prod a^T,   X = sum T ln(1 + R/a),

modulo the window length n. Only r and e^X - 1 are ever transformed, so that a sparse sample, nearly
all of whose mass is one atom, leaves errors in proportion to what is not the atom. Where A is
negligible, A e^X stands as it is, and only at frequencies where it is not negligible. The inverse
transform itself is never computed: `curve` sums it up in closed form.

Error per bin (docs/proofs/tight.md, section 5, "Rounding"), with u the unit roundoff, |r| the
1-norm, d |r| the error of R (see `spectrum`), x + iy = X:

    ln F   is wrong by at most  b = |r| (d + 80u) / |F|,
    X      by                   B = sum T b + 8u (|ln A| + |x| + |y|),
    A e^X  by                   A e^x (e^B - 1) + 32u A |e^X - 1|.

The second bound grows with |F|, so |F| may be replaced by anything larger there: sizes below a
least count as that. In long double u is that of long double; the masses that go in are float64 and
exact by definition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.tight.lattice.spectrum import LEAST, Step, all_frequencies, frequencies
from discreet.accounting.tight.lattice.upper import Measure
from discreet.accounting.tight.rounding import WIDE, FloatArray, U

__all__ = ["Composed", "Tilted", "compose", "tilted"]

# Factors below e^-60 are not computed but bounded.
_NEGLIGIBLE = 60.0


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

    def cumulant(self, theta: FloatArray) -> FloatArray:
        """The ln of the total mass of the composition, tilted by other exponents, rounded up."""
        total_T = np.zeros_like(theta)

        for measure, count in self.measures:
            present = measure.mass > 0.0
            if not present.any():
                return np.full_like(theta, -np.inf)

            # With the mass in the exponent, the largest term is 1 and never underflows.
            log_mass = np.log(measure.mass[present])
            exponent_TN = np.multiply.outer(theta, measure.loss[present])
            size_T = np.abs(exponent_TN).max(axis=1) + float(np.abs(log_mass).max())
            exponent_TN += log_mass
            top_T = exponent_TN.max(axis=1)
            sum_T = np.exp(exponent_TN - top_T[:, None]).sum(axis=1)

            # An upper bound: the errors of the exponentials and of their sum are added.
            error_T = 8.0 * U * (len(log_mass) + size_T + 8.0)
            total_T += count * (np.log(sum_T) + top_T + error_T)

        return total_T


@dataclass(frozen=True, slots=True)
class Composed:
    """Tilted mass of a composition on whole places, modulo a length: an atom at place 0, and on
    every place i the sum of Re(power_k e^(2 pi i k i / length)) over the frequencies k.

    Attributes:
        length: n.
        frequency: the k, between 0 and n / 2; all others count for nothing.
        power: in long double, if the composition was computed so.
        atom: mass at place 0, apart from the sum.
        error: the sum is the true mass of a place up to this, either way.
    """

    length: int
    frequency: NDArray[np.int64]
    power: Any
    atom: float
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


def compose(part: Tilted, length: int, *, extended: bool = False) -> Composed:
    """The tilted composition modulo the length; `extended` uses long double."""
    kind: Any = np.longdouble if extended and WIDE else np.float64
    steps = [
        Step(weight, place, count)
        for weight, place, (_, count) in zip(part.weights, part.places, part.measures, strict=True)
    ]
    log_atom: Any = sum((step.count * np.log(kind(step.atom)) for step in steps), kind(0.0))

    # With a negligible atom only frequencies that are not negligible are computed.
    split = bool(log_atom >= -_NEGLIGIBLE / 2.0)
    computed = all_frequencies(length) if split else frequencies(steps, length, _NEGLIGIBLE)
    rests = [step.rest(computed, length, kind) for step in steps]
    if not split:
        log_size = sum(rest.count * rest.log_size() for rest in rests)  # ln of A |e^X|
        matters = np.flatnonzero(log_size > -_NEGLIGIBLE)
        computed, rests = computed[matters], [rest.at(matters) for rest in rests]

    unit = float(np.finfo(kind).eps) / 2.0

    # X = x + iy, an upper bound on x, and the error B of X: the sums over the steps of the header.
    x: Any = np.zeros(len(computed), dtype=kind)
    y: Any = np.zeros(len(computed), dtype=kind)
    x_bound, error_x, worst = np.zeros(len(computed)), np.zeros(len(computed)), 0.0

    for rest in rests:
        log, angle = _logarithm(rest.value.real / rest.atom, rest.value.imag / rest.atom)
        x += rest.count * log
        y += rest.count * angle
        bounded = np.maximum(log.astype(np.float64), math.log(LEAST / rest.atom))
        x_bound += rest.count * bounded
        step_error = rest.count * rest.loose * (rest.error + 80.0 * unit)
        error_x += step_error / rest.atom * np.exp(-bounded)
        worst += step_error / LEAST + 16.0 * U * rest.count

    error_x += 8.0 * unit * (abs(float(log_atom)) + np.abs(x) + np.abs(y)).astype(np.float64)
    power = _power(x, y, log_atom, split=split)
    off = np.exp(x_bound + float(log_atom)) * np.expm1(np.minimum(error_x, 700.0))

    # Every frequency of a real transform stands for two, but the first and, if the length is even,
    # the last one.
    twice = np.where((computed == 0) | (2 * computed == length), 1.0, 2.0)
    size = np.abs(power).astype(np.float64)
    error = float(np.sum(twice * (off * (1.0 + 32.0 * unit) + 32.0 * unit * size)))

    # The frequencies that were not computed: each is at most e^-60 times its own error.
    skipped = length // 2 + 1 - len(computed)
    error += 2.0 * skipped * math.exp(-_NEGLIGIBLE + min(worst, _NEGLIGIBLE))
    return Composed(
        length,
        computed,
        power * (twice / length),
        math.exp(float(log_atom)) if split else 0.0,
        error / length * (1.0 + 1e-9),
    )


def _logarithm(re: Any, im: Any) -> tuple[Any, Any]:
    """The ln of |1 + z| and the angle of 1 + z, accurate for small z = re + i im."""
    ratio = re * (2.0 + re) + im * im
    square = (1.0 + re) ** 2 + im * im
    near = np.abs(ratio) < 0.5
    log_near = np.log1p(np.where(near, ratio, 0.0))
    log_size = 0.5 * np.where(near, log_near, np.log(np.maximum(square, 1e-300)))
    return log_size, np.arctan2(im, 1.0 + re)


def _power(x: Any, y: Any, log_atom: Any, *, split: bool) -> Any:
    """The transform of the composition: A (e^X - 1) if the atom is apart, else A e^X."""
    if not split:
        return np.exp(x + log_atom) * (np.cos(y) + 1j * np.sin(y))

    # e^X - 1 without cancellation: cos y - 1 = -2 sin^2(y/2).
    half, grown = np.sin(0.5 * y), np.expm1(x)
    difference = grown - 2.0 * (1.0 + grown) * half * half + 1j * (1.0 + grown) * np.sin(y)
    return np.exp(log_atom) * difference
