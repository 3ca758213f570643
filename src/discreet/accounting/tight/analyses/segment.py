"""Losses on a segment [-r, r]: the Laplace mechanism, a choice of bounded range, randomized
response. None of them is sampled.

In all three the loss has the density (c/2) e^(l/2) dl under P, hence (c/2) e^(-l/2) dl under Q,
between -r and r, and atoms at -r, 0 and r. With w = (l1 - l0)/2, the part of a cell (l0, l1]
without atoms has

    P              = c e^(l1/2) (1 - e^-w),
    P - e^(l0) Q   = c e^(l0/2) (1 - e^-w) (e^w - 1),
    e^(l1) Q - P   = c e^(l1/2) (1 - e^-w) (e^w - 1).

* Laplace with scale b (in sensitivities): r = 1/b, c = e^(-r/2)/2, atoms 1/2 at r and e^(-r)/2 at
  -r.
* Bounded range eta: the largest of all curves in the family, sup_t, is D(l) = (e^(eta/2) -
  e^(l/2))^2 / (e^eta - 1) on [-eta, eta], whose pair has r = eta, c = 1/(2 sinh(eta/2)) and no
  atoms [DongDurfeeRogers2020].
* Randomized response: c = 0, atoms truth at r, lie at -r, what remains at 0.

The pairs are derived in docs/proofs/tight.md, section 2; rounding is that of section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["Segment"]

# Nodes of the quadrature between the two ends.
_NODES = 400


@dataclass(frozen=True, slots=True)
class Segment:
    """A law of losses with atoms at -r, 0 and r, and a density between.

    Args:
        reach: r.
        density: c of the header.
        atoms: the masses under P at -r, 0 and r.
    """

    reach: float
    density: float
    atoms: tuple[float, float, float]

    def quadrature(self) -> Quadrature:
        """Gauss-Legendre between the ends, and the atoms."""
        loss, mass = np.array([-self.reach, 0.0, self.reach]), np.array(self.atoms)
        if self.density > 0.0:
            node, weight = _gauss_legendre()
            inner = self.reach * node
            inner_mass = self.reach * weight * 0.5 * self.density * np.exp(0.5 * inner)
            loss = np.concatenate([loss, inner])
            mass = np.concatenate([mass, inner_mass])

        order = np.argsort(loss, kind="stable")
        loss, mass = loss[order], mass[order]
        positive = mass > 0.0
        return Quadrature(loss[positive], np.log(mass[positive]))

    def cells(self, edges: FloatArray) -> Cells:
        """Density and atoms of every cell; the ends of the segment are known to a few units in the
        last place.
        """
        r = self.reach
        inside = np.clip(edges, -r, r)
        low, high = np.concatenate([[-r], inside]), np.concatenate([inside, [r]])
        w = 0.5 * (high - low)
        shrink, grow = -np.expm1(-w), np.expm1(w)
        mass = self.density * np.exp(0.5 * high) * shrink

        # The header's formulas hold between the clipped ends. A cell that sticks out of the segment
        # is measured from its own ends: P - e^g Q = (P - e^low Q) + (e^low - e^g) Q.
        q_mass = self.density * np.exp(-0.5 * low) * shrink
        lower = np.concatenate([[-np.inf], edges])
        upper = np.concatenate([edges, [0.0]])
        over = (
            self.density * np.exp(0.5 * low) * shrink * grow
            + (np.exp(low) - np.exp(np.minimum(lower, low))) * q_mass
        )
        under = (
            self.density * np.exp(0.5 * high) * shrink * grow
            + (np.exp(np.maximum(upper, high)) - np.exp(high)) * q_mass
        )

        for place, atom in zip((-r, 0.0, r), self.atoms, strict=True):
            # Cells are closed above: an atom on an edge belongs to the cell under it.
            i = int(np.searchsorted(edges, place))
            mass[i] += atom
            over[i] += atom * -np.expm1(min(lower[i] - place, 0.0))
            if i < len(edges):
                under[i] += atom * np.expm1(max(upper[i] - place, 0.0))

        slack = 64.0 * U * (1.0 + r + float(np.max(np.abs(edges))))
        return Cells(
            _bounds(mass, slack * mass),
            _bounds(over, slack * mass),
            _bounds(under, slack * mass),
            slack,
        )


def _bounds(value: FloatArray, absolute: FloatArray) -> Bounds:
    """A relative error of a few units in the last place, plus an absolute one for the place of the
    ends.
    """
    error = 64.0 * U * value + absolute
    return Bounds(np.maximum(value - error, 0.0), value + error)


@cache
def _gauss_legendre() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [-1, 1]; they take far longer than all that is done with them."""
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    return node, weight
