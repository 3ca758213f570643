"""The tight accountant: certified (lower, estimate, upper) for epsilon at a delta, and for delta at
an epsilon.

    accountant.py   the answer for canonical (cost, count) pairs
    analyses/       what one step costs, one file for each kind of sampling
    lattice/        what many steps cost together
    interface.py    what an analysis must provide to be composed on the lattice
    rounding.py     what is assumed of floating-point arithmetic

The argument that the bounds are bounds is docs/proofs/tight.md.
"""

from discreet.accounting.tight.accountant import (
    Interval,
    sketched_epsilon,
    tight_delta,
    tight_epsilon,
    tight_upper,
)

__all__ = ["Interval", "sketched_epsilon", "tight_delta", "tight_epsilon", "tight_upper"]
