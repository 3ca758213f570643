"""From floating-point numbers to exact ones: the grid, certified norms, sums with a proven
sensitivity.
"""

from discreet.numerics.exact import ExactSum, quantise
from discreet.numerics.ghost import ghost_squared_norms, outer_spread
from discreet.numerics.grid import Grid
from discreet.numerics.limits import overflow_probability
from discreet.numerics.norms import NormError, l2_norms, norm_error, squared_norms
from discreet.numerics.rounded import FloatSum, float_sum_sensitivity

__all__ = [
    "ExactSum",
    "FloatSum",
    "Grid",
    "NormError",
    "float_sum_sensitivity",
    "ghost_squared_norms",
    "l2_norms",
    "norm_error",
    "outer_spread",
    "overflow_probability",
    "quantise",
    "squared_norms",
]
