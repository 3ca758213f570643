"""Accounting: events in, a guarantee out. Knows nothing of training."""

from discreet.accounting.account import account
from discreet.accounting.live import LiveEpsilon

__all__ = ["LiveEpsilon", "account"]
