"""Mechanisms: how norms become weights, how much noise, which event, next state. Numbers only; no
tensor is touched here.
"""

from discreet.mechanisms.adaptive import AdaptiveClip
from discreet.mechanisms.bound import Bound, Mechanism, Row, State, Threshold
from discreet.mechanisms.gaussian import Gaussian, Joint, Normalised, NotPrivate
from discreet.mechanisms.group import Array, Clipping, Group
from discreet.mechanisms.groups import Groups
from discreet.mechanisms.microbatches import Microbatches
from discreet.mechanisms.split import Split
from discreet.mechanisms.statistics import BatchNorm, Count, Histogram, MomentEstimate, Moments

__all__ = [
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
    "Mechanism",
    "Microbatches",
    "MomentEstimate",
    "Moments",
    "Normalised",
    "NotPrivate",
    "Row",
    "Split",
    "State",
    "Threshold",
]
