"""The interface between a cost and the tight accountant: one direction of a dominating pair.

A pair (P, Q) has the privacy loss L = ln(dP/dQ) and the curve D(eps) = E_P (1 - e^(eps - L))_+ =
sup_S P(S) - e^eps Q(S). A cost has one direction or two (P against Q, and Q against P); each is
composed on its own, and the worse counts (docs/proofs/tight.md, sections 1 and 5).

To add an analysis, write a frozen class with the two methods of `Direction` and return it from
`analyses.registry.directions`:

* `quadrature()` describes the law of L under P by nodes, accurately but without a certificate. It
  chooses tilt, grid and window, and gives the estimate; a poor one costs tightness, never
  soundness.
* `cells(edges)` gives *certified* numbers for every cell between consecutive edges: all soundness
  rests on it.

Everything else (connecting the dots, gathering, composing, inverting) is generic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from discreet.accounting.tight.rounding import FloatArray
from discreet.errors import AccountingError

__all__ = ["Bounds", "Cells", "Direction", "Quadrature"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Certified bounds on an array of non-negative numbers, entry by entry."""

    lower: FloatArray
    upper: FloatArray

    def __post_init__(self) -> None:
        # Written so that a NaN is refused too: it must never be read as "no loss" (P37).
        if not np.all(self.lower <= self.upper):
            raise AccountingError(
                expected="a lower bound below its upper bound",
                got="numbers out of range",
                do="Use the 'rdp' accountant.",
            )


@dataclass(frozen=True, slots=True)
class Quadrature:
    """Nodes for the law of the loss under P, by increasing loss: E_P f(L) = sum_i exp(log_weight_i)
    f(loss_i), nearly.
    """

    loss: FloatArray
    log_weight: FloatArray


@dataclass(frozen=True, slots=True)
class Cells:
    """What is certified of the cells that edges l_0 < ... < l_m cut the loss into.

    Cell 0 is (-inf, l_0], cell i is (l_(i-1), l_i], cell m+1 is (l_m, inf): one more cell than
    there are edges. With P_i, Q_i the masses of cell i and g_i, g'_i its lower and upper end:

    Attributes:
        mass: P_i.
        over: P_i - e^(g_i) Q_i, what the cell holds above its lower end (cell 0: unused, any valid
            value).
        under: e^(g'_i) Q_i - P_i, what it lacks to its upper end (last cell: unused, any valid
            value).
        slack: the true edges are within this of the nominal ones (rounding in the inverse of the
            loss), absolutely.
        slack_of: the same for each edge on its own, where that is known.
    """

    mass: Bounds
    over: Bounds
    under: Bounds
    slack: float
    slack_of: FloatArray | None = None


# Every analysis of a policy ends in objects of this kind; the lattice knows no policy.
class Direction(Protocol):
    """One direction of a dominating pair of distributions."""

    def __hash__(self) -> int:
        """Equal for equal directions: what is known of one is remembered by it."""

    def quadrature(self) -> Quadrature:
        """Describe the law of the loss under P, for choices and for the estimate."""

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the masses of the cells between the edges (strictly increasing, finite).

        Raises:
            AccountingError: if an edge is so far out that no certificate can be given there.
        """
