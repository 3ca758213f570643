"""Mechanisms: how norms become weights, how much noise, which event, next state. Numbers only; no
tensor is touched here.
"""

from discreet.mechanisms.adaptive import AdaptiveClip
from discreet.mechanisms.bound import Bound, LeafRow, State, Threshold, checked_bound
from discreet.mechanisms.gaussian import Gaussian, Joint, Normalised, NotPrivate
from discreet.mechanisms.group import Array, Clipping, Group
from discreet.mechanisms.groups import Groups
from discreet.mechanisms.mechanism import Mechanism
from discreet.mechanisms.microbatches import Microbatches
from discreet.mechanisms.split import Split
from discreet.mechanisms.statistics import BatchNorm, Count, Histogram, MomentEstimate, Moments

MECHANISMS: tuple[type[Mechanism], ...] = (
    Gaussian,
    Joint,
    Normalised,
    Split,
    AdaptiveClip,
    Microbatches,
    Groups,
    NotPrivate,
)
"""The mechanisms that a plan's file can name, each by its `kind`."""

__all__ = [
    "MECHANISMS",
    "AdaptiveClip",
    "Array",
    "BatchNorm",
    "Bound",
    "Clipping",
    "Count",
    "Gaussian",
    "Group",
    "Groups",
    "Histogram",
    "Joint",
    "LeafRow",
    "Mechanism",
    "Microbatches",
    "MomentEstimate",
    "Moments",
    "Normalised",
    "NotPrivate",
    "Split",
    "State",
    "Threshold",
    "checked_bound",
]
