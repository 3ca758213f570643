"""Small valid values to build tests from."""

from dataclasses import replace
from pathlib import Path

import discreet as dp

INFO = dp.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad", "metric"),
    numerics=dp.Numerics.IDEALISED,
    randomness=dp.Randomness.SYSTEM,
    parameters=dp.Parameters.FIXED_IN_ADVANCE,
    label="example",
)
STEP = dp.Step(dp.Poisson(0.01), [dp.GaussianSum("grad", 1.0, 1.1)])
OTHER_STEP = dp.Step(dp.Poisson(0.01), [dp.GaussianSum("grad", 1.0, 1.1), dp.GaussianSum("metric", 1.0, 40.0)])


def varied_ledger(path: Path | None = None) -> dp.Ledger:
    """A ledger with every kind of row: two runs, spelled and referred steps, settled and open leases, a mark."""
    ledger = dp.Ledger.in_memory() if path is None else dp.Ledger.open(path)
    ledger.begin(INFO)
    with ledger.reserve(STEP, count=10) as lease:
        for _ in range(7):
            lease.take()
    ledger.reserve(STEP, count=5)
    with ledger.reserve(OTHER_STEP, count=3) as lease:
        lease.take()
    ledger.begin(replace(INFO, unit=dp.Unit.USER, adjacency=dp.Adjacency.ZERO_OUT, label="second"))
    ledger.reserve(dp.Step(dp.Everything(), dp.LaplaceSum("metric", 1.0, 2.0)), count=2)
    ledger.mark("unsafe_example")
    return ledger


def counts(ledger: dp.Ledger) -> dict[tuple[str, dp.Step], int]:
    """Charged steps by run label and step: what a cost is computed from."""
    return {(charge.run.label, charge.step): charge.count for charge in ledger.charges()}
