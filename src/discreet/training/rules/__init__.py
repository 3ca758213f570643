"""Rules: how a function in which a parameter meets records is recorded."""

from discreet.training.rules.registry import RULES

__all__ = ["RULES"]
