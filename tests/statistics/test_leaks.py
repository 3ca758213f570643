"""P43: mechanisms that betray much with a small probability; estimators that forget delta, or dependence, state too much.

Samples, levels and named alternatives are those of `support.coverage`; tests/mutations has the wrong estimators.
"""

from support import coverage


def test_p43_a_leak_within_delta_refutes_nothing() -> None:
    """Every coin is betrayed with probability delta: epsilon is 0 at this delta."""
    coverage.one_run_covers_a_leak()


def test_p43_a_run_that_betrays_all_or_nothing_is_one_observation() -> None:
    """All coins of a run are betrayed, or none: within delta, and no audit may count them one by one."""
    coverage.canaries_of_one_run_are_not_taken_for_independent()
