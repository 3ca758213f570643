"""Statistics of private vectors, as private queries. NumPy only.

What comes out is public, and applies to any vectors:

    vectors -> standardise: means and variances of coordinates, one query
            -> unit_ball: norms, by the row alone
            -> whiten: second moments, one query; strong directions are shrunk
            -> a linear model learns from what remains
"""

from discreet.features.rowwise import unit_ball
from discreet.features.standardisation import Standardisation, standardise, standardise_plan
from discreet.features.whitening import Whitening, whiten, whiten_plan

__all__ = [
    "Standardisation",
    "Whitening",
    "standardise",
    "standardise_plan",
    "unit_ball",
    "whiten",
    "whiten_plan",
]
