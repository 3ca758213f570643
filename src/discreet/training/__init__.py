"""PyTorch: per-record gradients of any model, clipped, summed and noised. The only folder that imports torch."""

from discreet.training.check import Problem, Problems, check
from discreet.training.engine import Engine

__all__ = ["Engine", "Problem", "Problems", "check"]
