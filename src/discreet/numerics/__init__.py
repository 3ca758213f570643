"""From floating-point numbers to exact ones: the grid, certified norms, sums with a proven sensitivity."""

from discreet.numerics.grid import Grid

__all__ = ["Grid"]
