"""What was measured: audits of what was released, and the file that they leave."""

from discreet.auditing.attacks.exposure import (
    Exposure,
    exposure_by_fit,
    exposure_by_rank,
    exposure_chance,
    exposure_limit,
)
from discreet.auditing.attacks.membership import Membership, lira, logit_confidence, loss_attack
from discreet.auditing.attacks.secrets import SecretText
from discreet.auditing.attacks.white_box import white_box
from discreet.auditing.audit import Audit
from discreet.auditing.estimate import Estimate
from discreet.auditing.estimators.hits import Hits, hits
from discreet.auditing.estimators.one_run import one_run
from discreet.auditing.estimators.scaled import gaussian, scaled
from discreet.auditing.estimators.threshold import threshold

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
