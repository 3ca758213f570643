"""The tight accountant: certified (lower, estimate, upper) for epsilon at a delta, and for delta at
an epsilon.

    direction.py        what a cost must provide; directions.py finds it for each cost
    poisson.py, replace.py, segment.py      the costs' directions
    lattice.py, measure.py, gather.py       upper and lower measure on a lattice of losses
    tilt.py, compose.py, curve.py           exponential tilt, convolution by FFT, the privacy curve
    pair.py, window.py, bracket.py          both measures of a composition, what is transformed, certified bounds
    estimate.py                             a point value
    accountant.py       all of it for canonical (cost, count) pairs
    _rounding.py        what is assumed of floating-point arithmetic

The argument that the bounds are bounds is docs/proofs/tight.md.
"""

from discreet.accounting.tight.accountant import Interval, tight_delta, tight_epsilon, tight_upper

__all__ = ["Interval", "tight_delta", "tight_epsilon", "tight_upper"]
