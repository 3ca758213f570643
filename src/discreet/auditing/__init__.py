"""What was measured: audits of what was released, and the file that they leave."""

from discreet.auditing.audit import Audit
from discreet.auditing.estimate import Estimate
from discreet.auditing.hits import Hits, hits
from discreet.auditing.one_run import one_run
from discreet.auditing.scaled import gaussian, scaled
from discreet.auditing.threshold import threshold

__all__ = ["Audit", "Estimate", "Hits", "gaussian", "hits", "one_run", "scaled", "threshold"]
