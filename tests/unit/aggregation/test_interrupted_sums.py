"""Sums that were broken off while records were added."""

from typing import Any

import numpy as np
import pytest

from discreet.aggregation import Aggregator
from discreet.errors import SampleMisuse
from discreet.ledger import Ledger
from discreet.ledger.events import Everything
from discreet.mechanisms import Gaussian, Groups
from discreet.numerics import ExactSum
from discreet.plan import Plan
from discreet.sampling import Sampler


def test_records_added_again_after_an_interruption_are_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group had the records already, but they were not counted: with the second try each counted twice in it."""
    mechanism = Groups({"a": Gaussian(1.0, 2.0), "b": Gaussian(1.0, 2.0)})
    plan = Plan(sampler=Sampler(Everything(), records=4, steps=1), mechanism=mechanism, leaves={"a": 3, "b": 3})
    run = Aggregator(plan, ledger=Ledger.in_memory())
    (sample,) = run.samples()
    sums = run.partial(sample)
    add, calls = ExactSum.add, []

    def interrupted(self: ExactSum, *args: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        add(self, *args)

    monkeypatch.setattr(ExactSum, "add", interrupted)
    records = {"a": np.ones((4, 3)), "b": np.ones((4, 3))}
    with pytest.raises(KeyboardInterrupt):
        sums.add(records)
    sums.add(records)
    with pytest.raises(SampleMisuse, match="each added once"):
        run.release(sample, sums)
