"""What is declared before the first step: `Plan`, and how its missing number is found."""

from discreet.plan.calibrated import Target, default_delta
from discreet.plan.declaration import Declaration
from discreet.plan.plan import Plan
from discreet.plan.programme import Phase, Programme
from discreet.plan.schedule import Schedule

__all__ = ["Declaration", "Phase", "Plan", "Programme", "Schedule", "Target", "default_delta"]
