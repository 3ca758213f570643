"""Live cross-check: our accountants and dp-accounting's on the same steps, through
`discreet.accounting.interop`.

    python benchmarks/interop.py

A row is right if our certified lower bound is at most their (upper) bound; the Rényi accountants
agree where both use the same theorem. Needs the package dp-accounting.
"""

from __future__ import annotations

import importlib
import importlib.util

from discreet.accounting import rdp
from discreet.accounting.accountant import Accountant, account
from discreet.accounting.interop import from_dp_event, to_dp_event
from discreet.accounting.normalise import normalise
from discreet.errors import AccountingError
from discreet.ledger.events import (
    Everything,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    RandomizedResponse,
    Step,
    TruncatedPoisson,
)
from discreet.units import Adjacency, Guarantee

DELTA = 1e-6
CASES = [
    ("Gaussian", Step(Everything(), [GaussianSum("a", 1.0, 5.0)]), 10),
    (
        "two groups, one sample",
        Step(Poisson(0.01), [GaussianSum("a", 1.0, 2.0), GaussianSum("b", 3.0, 6.0)]),
        500,
    ),
    ("Poisson", Step(Poisson(0.02), [GaussianSum("a", 1.0, 1.0)]), 500),
    (
        "truncated Poisson",
        Step(TruncatedPoisson(0.005, 5_400, 1_000_000), [GaussianSum("a", 1.0, 1.0)]),
        200,
    ),
    ("fixed size", Step(FixedSize(5_000, 1_000_000), [GaussianSum("a", 1.0, 2.0)]), 200),
    ("Laplace", Step(Everything(), [LaplaceSum("a", 1.0, 20.0)]), 50),
    ("randomized response", Step(Everything(), [RandomizedResponse("a", 5, 0.3)]), 20),
]


def ours(step: Step, count: int, adjacency: Adjacency, accountant: Accountant) -> Guarantee | str:
    """Our guarantee, or why there is none."""
    try:
        return account([(step, count)], delta=DELTA, accountant=accountant, adjacency=adjacency)
    except AccountingError as error:
        return error.expected


def theirs(step: Step, count: int, adjacency: Adjacency, accountant: str) -> float | None:
    """Their epsilon, or None where the export is refused."""
    try:
        event, relation = to_dp_event([(step, count)], adjacency=adjacency, accountant=accountant)
    except AccountingError:
        return None
    back = normalise(
        from_dp_event(event, adjacency=Adjacency[_OURS[relation.name]], accountant=accountant),
        Adjacency[_OURS[relation.name]],
    )
    if rdp.composed(back, 5.0) < rdp.composed(normalise([(step, count)], adjacency), 5.0) * (
        1 - 1e-9
    ):
        print(f"  {event}: does not come back as it was")
    name = "pld.pld_privacy_accountant" if accountant == "pld" else "rdp.rdp_privacy_accountant"
    module = importlib.import_module(f"dp_accounting.{name}")
    made = (
        module.PLDAccountant(relation)
        if accountant == "pld"
        else module.RdpAccountant(neighboring_relation=relation)
    )
    return float(made.compose(event).get_epsilon(DELTA))


_OURS = {"ADD_OR_REMOVE_ONE": "ADD_OR_REMOVE", "REPLACE_ONE": "REPLACE_ONE"}


def main() -> None:
    """Print one line for each case, adjacency and accountant."""
    if importlib.util.find_spec("dp_accounting") is None:
        print("dp-accounting is not installed; nothing to compare (pip install 'discreet[bench]').")
        return
    print(f"{'case':24s} {'adjacency':14s} {'theirs':>18s} {'ours: lower':>12s} {'upper':>10s}")
    for name, step, count in CASES:
        for adjacency in (Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE_ONE):
            for accountant in ("pld", "rdp"):
                found = ours(step, count, adjacency, "tight" if accountant == "pld" else "rdp")
                if isinstance(found, str):
                    continue
                other = theirs(step, count, adjacency, accountant)
                shown = "no event" if other is None else f"{accountant} {other:.6f}"
                right = other is None or found.lower <= other * (1 + 1e-6)
                row = (
                    f"{name:24s} {adjacency.value:14s} {shown:>18s} {found.lower:12.6f} "
                    f"{found.upper:10.6f}"
                )
                print(row if right else row + "  BELOW OUR LOWER BOUND")


if __name__ == "__main__":
    main()
