"""A measured lower bound on epsilon, with everything that it depends on."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _validate as check

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one estimator made of the scores of an attack.

    Guarantee: unless an event happened that has probability at most 1 - confidence, what was
    attacked is not (epsilon, delta)-differentially private for any epsilon below `lower`, if what
    it `assumes` is true (docs/proofs/auditing.md). It can refute a claim; it can never prove one.

    Args:
        method: name of the estimator.
        lower: the bound on epsilon, at least 0; 0 says nothing.
        delta: for which the bound holds, in [0, 1).
        confidence: of the bound, in (0, 1), corrected for everything that the estimator tried.
        assumes: what must be true of the mechanism; nothing if empty.

    >>> print(Estimate(method="one run", lower=0.5, delta=1e-5, confidence=0.95))
    epsilon is at least 0.5 at delta 1e-05 (one run, confidence 0.95)
    """

    method: str
    lower: float
    delta: float
    confidence: float
    assumes: str = ""

    def __post_init__(self) -> None:
        # Stored as checked, so that an estimate holds Python's own numbers.
        owner = "Estimate"
        for name, value in (
            ("method", check.label(owner, "method", self.method)),
            ("lower", check.not_negative(owner, "lower", self.lower)),
            ("delta", check.fraction(owner, "delta", self.delta, zero=True)),
            ("confidence", check.fraction(owner, "confidence", self.confidence)),
            ("assumes", check.label(owner, "assumes", self.assumes, empty=True)),
        ):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        # All digits: it is for whoever computes on, and reports round it down.
        bound = f"epsilon is at least {self.lower!r} at delta {self.delta!r}"
        method = f"({self.method}, confidence {self.confidence!r})"
        # Last, and never left out: a bound is worth what it assumes.
        condition = f", if {self.assumes}" if self.assumes else ""
        return f"{bound} {method}{condition}"
