"""Rényi differential privacy: bounds at one order that simply add, converted to (epsilon, delta) at
the best order.
"""

from discreet.accounting.rdp.accountant import (
    RenyiBound,
    composed,
    delta,
    divergence,
    divergence_curve,
    epsilon,
)

__all__ = ["RenyiBound", "composed", "delta", "divergence", "divergence_curve", "epsilon"]
