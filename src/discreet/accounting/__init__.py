"""Accounting: events in, a guarantee out. Knows nothing of training.

account, LiveEpsilon                     what a source costs: now, and after every step
calibrate, solve                         the one missing value for a target
group_guarantee, group_epsilon           the same release, read for k units at once
tier, profile_of, TradeOff, hit_rate     what a guarantee means
selection_epsilon                        tuning: the best of a random number of runs
central_limit                            an approximation, which is never a guarantee
"""

from discreet.accounting.accountant import account
from discreet.accounting.calibration.approximations import Approximation, central_limit
from discreet.accounting.calibration.calibrate import Calibration, calibrate, solve
from discreet.accounting.live import LiveEpsilon
from discreet.accounting.meaning.group_privacy import group_guarantee
from discreet.accounting.meaning.tiers import Tier, tier
from discreet.accounting.meaning.tradeoff import (
    TradeOff,
    hit_rate,
    membership_advantage,
    posterior,
    profile_of,
)
from discreet.accounting.tight.analyses.groups import group_epsilon
from discreet.accounting.tuning import selection_epsilon

__all__ = [
    "Approximation",
    "Calibration",
    "LiveEpsilon",
    "Tier",
    "TradeOff",
    "account",
    "calibrate",
    "central_limit",
    "group_epsilon",
    "group_guarantee",
    "hit_rate",
    "membership_advantage",
    "posterior",
    "profile_of",
    "selection_epsilon",
    "solve",
    "tier",
]
