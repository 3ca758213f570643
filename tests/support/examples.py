"""Small valid values to build tests from."""

from dataclasses import replace
from pathlib import Path

import discreet as dp
from discreet.ledger import RunRecord, Snapshot

INFO = dp.ledger.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad", "metric"),
    numerics=dp.Numerics.IDEALISED,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
    label="example",
)
STEP = dp.ledger.Step(dp.Poisson(0.01), [dp.ledger.GaussianSum("grad", 1.0, 1.1)])
OTHER_STEP = dp.ledger.Step(
    dp.Poisson(0.01),
    [dp.ledger.GaussianSum("grad", 1.0, 1.1), dp.ledger.GaussianSum("metric", 1.0, 40.0)],
)
METRIC_STEP = dp.ledger.Step(dp.Everything(), dp.ledger.LaplaceSum("metric", 1.0, 2.0))
PLENTY = ((STEP, 100_000), (OTHER_STEP, 1_000), (METRIC_STEP, 100))


def list_of(*planned: tuple[dp.ledger.Step, int]) -> dp.Budget:
    """A list of these steps without a budget, whichever run takes them."""
    return dp.Budget(plans=Snapshot(runs=(RunRecord(info=INFO, charged=planned),)))


ROOM = list_of(*PLENTY)
"""Room for whatever the runs of a test take."""


def roomy_ledger(path: Path | None = None) -> dp.Ledger:
    """A ledger on which several runs may take whatever they like of `PLENTY`."""
    return dp.Ledger.in_memory(budget=ROOM) if path is None else dp.Ledger.open(path, budget=ROOM)


def varied_ledger(path: Path | None = None) -> dp.Ledger:
    """A ledger with every kind of row: terms that change, runs that continue and end, spelled and
    referred steps, a mark.

    Leases are settled and open. No epsilon is computed.
    """
    ledger = dp.Ledger.in_memory() if path is None else dp.Ledger.open(path)
    first = ledger.begin(
        INFO, [(STEP, 20), (OTHER_STEP, 5), (METRIC_STEP, 4)], plan='{"steps": 20}'
    )
    with first.reserve(STEP, count=10) as lease:
        for _ in range(7):
            lease.take()
    first.reserve(STEP, count=5)
    with first.reserve(OTHER_STEP, count=3) as lease:
        lease.take()
    first.end()
    ledger.extend_list([(METRIC_STEP, 1)], reason="power failure")
    second = ledger.begin(replace(INFO, label="second"), [(METRIC_STEP, 3)], continues=first.number)
    second.reserve(METRIC_STEP, count=2)
    second.mark("unsafe_example")
    second.end()
    ledger.begin(replace(INFO, label="third"), [(METRIC_STEP, 1)]).end("out of time")
    return ledger


def counts(ledger: dp.Ledger) -> dict[tuple[str, dp.ledger.Step], int]:
    """Charged steps by run label and step: what a cost is computed from."""
    return {(charge.run.label, charge.step): charge.count for charge in ledger.charges()}
