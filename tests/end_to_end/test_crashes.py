"""Real processes, killed: the ledger never says less than was released, always opens, and lets the
next one go on.

`python -m benchmarks.crashes --kills 10000` does more of the same, and prints a table.
"""

from pathlib import Path

import pytest

from support.crashes import BUGS, campaigns


def test_p41_500_kills_at_every_named_point_and_at_random_never_under_count(tmp_path: Path) -> None:
    verdict = campaigns(tmp_path, 500, jobs=4, seed=500)
    assert verdict.errors == []
    assert (verdict.total.under, verdict.total.damaged) == (0, 0)
    assert verdict.total.kills >= 500
    assert [name for name, tally in verdict.points.items() if not tally.kills] == []
    assert verdict.total.charged >= verdict.total.released > 1_000
    assert verdict.journals > 0  # some died in the middle of a transaction


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.full] * (number > 0)) for number, bug in enumerate(BUGS)],
)
def test_the_same_campaign_notices_a_ledger_that_is_wrong(bug: str, tmp_path: Path) -> None:
    verdict = campaigns(tmp_path, 120, jobs=4, seed=7, bug=bug)
    if bug == "no transaction":  # half a row is damage, or a process that cannot go on after it
        assert verdict.total.damaged or verdict.errors, verdict
    else:
        assert verdict.total.under > 0, verdict
    assert not verdict.sound
