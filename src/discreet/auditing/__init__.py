"""What was measured: audits of what was released, and the file that they leave."""

from discreet.auditing.audit import Audit

__all__ = ["Audit"]
