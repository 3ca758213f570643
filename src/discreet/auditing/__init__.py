"""What was measured: audits of what was released, and the file that they leave."""

from discreet.auditing.audit import Audit
from discreet.auditing.exposure import Exposure, exposure_by_fit, exposure_by_rank, exposure_chance, exposure_limit
from discreet.auditing.secrets import SecretText

__all__ = [
    "Audit",
    "Exposure",
    "SecretText",
    "exposure_by_fit",
    "exposure_by_rank",
    "exposure_chance",
    "exposure_limit",
]
