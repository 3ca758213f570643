"""What an odometer costs over the tight total of runs that were fixed in advance.

    python -m benchmarks.odometer

For 1, 2, 5 and 20 runs at epsilon 0.5, 1 and 3 each: equal runs, which the levels of the odometer
serve, and runs of which each has a little less noise than the one before, which only its mixture of
Rényi orders serves. Nothing random is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import discreet as dp
from discreet.accounting import account
from discreet.accounting.normalise import normalise
from discreet.accounting.odometer import mixture_epsilon, odometer_reading, shares
from discreet.ledger import Everything, Rule, Terms
from discreet.ledger.terms import Planned

DELTA = 1e-5
RUNS = (1, 2, 5, 20)
EPSILONS = (0.5, 1.0, 3.0)
ADJACENCY = dp.Adjacency.ADD_OR_REMOVE


@dataclass(frozen=True)
class Cost:
    """One cell of the table: epsilon by each rule."""

    fixed: float
    equal: float
    orders: float
    one_order: float


def plan_for(kind: str, epsilon: float) -> dp.Plan:
    """A plan that just meets epsilon: one full batch, or 20 epochs of DP-SGD on 60,000 records."""
    if kind == "DP-SGD":
        return dp.Plan.dpsgd(
            records=60_000, expected_batch_size=512, epochs=20, epsilon=epsilon, delta=DELTA
        )
    single = dp.Plan(
        sampler=dp.Sampler(Everything(), records=60_000, steps=1),
        mechanism=dp.Gaussian(1.0, noise_multiplier=1.0),
    )
    return dp.Programme({"sum": single}).calibrated(epsilon=epsilon, delta=DELTA)["sum"]


def cost_of(planned: Planned, runs: int) -> Cost:
    """Epsilon of so many runs of a plan."""
    levels, orders = shares(planned, ADJACENCY, DELTA)
    terms = Terms(rule=Rule.ODOMETER, delta=DELTA, planned=planned, levels=levels, orders=orders)
    charged = tuple((step, runs * count) for step, count in planned)
    costs = normalise(charged, ADJACENCY)
    single = min(
        orders,
        key=lambda pair: mixture_epsilon(normalise(planned, ADJACENCY), [(pair[0], 1.0)], DELTA),
    )
    return Cost(
        fixed=account(charged, delta=DELTA, adjacency=ADJACENCY).upper,
        equal=odometer_reading(terms, charged, ADJACENCY).epsilon,
        orders=mixture_epsilon(costs, orders, DELTA),
        one_order=mixture_epsilon(costs, [(single[0], 1.0)], DELTA),
    )


def main() -> None:
    """Print the table in Markdown."""
    print(
        "| runs of | epsilon each | runs | fixed in advance | odometer, equal runs | "
        "odometer, any runs | one order |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for kind in ("full batch", "DP-SGD"):
        for epsilon in EPSILONS:
            plan = plan_for(kind, epsilon)
            for runs in RUNS:
                cost = cost_of(((plan.step, plan.steps),), runs)
                rules = (cost.equal, cost.orders, cost.one_order)
                shown = [
                    f"{value:.3g} (+{100.0 * (value / cost.fixed - 1.0):.0f} %)" for value in rules
                ]
                print(f"| {kind} | {epsilon} | {runs} | {cost.fixed:.3g} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
