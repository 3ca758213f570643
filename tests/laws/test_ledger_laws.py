"""Laws of the ledger, over random histories: it never says less than was taken, and replaying says
the same as living.
"""

import os
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import discreet as dp
from support.examples import INFO, OTHER_STEP, STEP, roomy_ledger


class Histories(RuleBasedStateMachine):
    """Reserve, take, settle, lose, reopen, in any order,
    against a plain count of what was taken.
    """

    def __init__(self) -> None:
        super().__init__()
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112  (many small files)
        self.folder = tempfile.TemporaryDirectory(dir=folder)
        self.path = Path(self.folder.name) / "a.ledger"
        self.ledger = roomy_ledger(self.path)
        self.run = self.ledger.begin(INFO)
        self.leases: list[tuple[dp.ledger.Step, dp.ledger.Lease, int]] = []
        self.taken = {STEP: 0, OTHER_STEP: 0}
        self.reserved_and_open = {STEP: 0, OTHER_STEP: 0}

    @rule(step=st.sampled_from([STEP, OTHER_STEP]), count=st.integers(1, 5))
    def reserve(self, step: dp.ledger.Step, count: int) -> None:
        self.leases.append((step, self.run.reserve(step, count=count), count))
        self.reserved_and_open[step] += count

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        step, lease, _ = data.draw(st.sampled_from(self.leases))
        if lease.left:
            lease.take()
            self.taken[step] += 1
            self.reserved_and_open[step] -= 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.leases))
        self.leases.remove(entry)
        step, lease, _ = entry
        self.reserved_and_open[step] -= lease.left
        lease.settle()

    @rule()
    def crash_and_reopen(self) -> None:
        self.leases = []  # lost, never settled: they go on counting in full
        self.ledger._journal.store.close()
        self.ledger = dp.Ledger.open(self.path)
        self.run = self.ledger.begin(INFO)

    @invariant()
    def charged_is_taken_plus_what_may_have_been(self) -> None:
        charged = {STEP: 0, OTHER_STEP: 0}
        for charge in self.ledger.charges():
            charged[charge.step] += charge.count
        for step, count in charged.items():
            assert count == self.taken[step] + self.reserved_and_open[step]

    @invariant()
    def replay_equals_live(self) -> None:
        with dp.Ledger.open(self.path, "r") as replayed:
            assert replayed.verify().charges() == self.ledger.charges()
            assert replayed.head() == self.ledger.head()

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestHistories = Histories.TestCase
