"""The NumPy engines: records as arrays, charged, clipped, summed exactly, noised once; the session
that engines share.
"""

from discreet.aggregation.aggregator import Aggregator, aggregate
from discreet.aggregation.release import Release
from discreet.aggregation.second_moments import SecondMoments, symmetrised
from discreet.aggregation.session import Session
from discreet.aggregation.sums import PartialSums, Records

__all__ = [
    "Aggregator",
    "PartialSums",
    "Records",
    "Release",
    "SecondMoments",
    "Session",
    "aggregate",
    "symmetrised",
]
