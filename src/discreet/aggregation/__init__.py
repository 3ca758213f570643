"""The NumPy engine: records as arrays, charged, clipped, summed exactly, noised once."""

from discreet.aggregation.aggregator import Aggregator, aggregate
from discreet.aggregation.release import Release
from discreet.aggregation.sums import PartialSums, Records

__all__ = ["Aggregator", "PartialSums", "Records", "Release", "aggregate"]
