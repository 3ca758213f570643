"""Rényi differential privacy: bounds at one order that simply add, converted to (epsilon, delta) at
the best order.
"""

from discreet.accounting.rdp.accountant import (
    RenyiBound,
    composed,
    curve,
    delta,
    divergence,
    epsilon,
)

__all__ = ["RenyiBound", "composed", "curve", "delta", "divergence", "epsilon"]
