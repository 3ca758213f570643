"""What was measured: audits of what was released, and the file that they leave."""

from discreet.auditing.audit import Audit
from discreet.auditing.estimate import Estimate
from discreet.auditing.exposure import (
    Exposure,
    exposure_by_fit,
    exposure_by_rank,
    exposure_chance,
    exposure_limit,
)
from discreet.auditing.hits import Hits, hits
from discreet.auditing.membership import Membership, lira, logit_confidence, loss_attack
from discreet.auditing.one_run import one_run
from discreet.auditing.scaled import gaussian, scaled
from discreet.auditing.secrets import SecretText
from discreet.auditing.threshold import threshold
from discreet.auditing.white_box import white_box

__all__ = [
    "Audit",
    "Estimate",
    "Exposure",
    "Hits",
    "Membership",
    "SecretText",
    "exposure_by_fit",
    "exposure_by_rank",
    "exposure_chance",
    "exposure_limit",
    "gaussian",
    "hits",
    "lira",
    "logit_confidence",
    "loss_attack",
    "one_run",
    "scaled",
    "threshold",
    "white_box",
]
