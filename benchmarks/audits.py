"""Audits of this library by itself: how much of a claim an attack reaches, and that none is ever
above it.

    python -m benchmarks.audits               # both; some minutes
    python -m benchmarks.audits reached       # full-batch Gaussian and DP-SGD at epsilon 1 to 8
    python -m benchmarks.audits honest        # 200 audits over mechanisms, samplers and adjacencies
    python -m benchmarks.audits reached --json out/audits.json

`reached`: `auditing.white_box` on the plan's own mechanism, then `dp.audit` at confidence 1 - 1e-6,
so that honest code fails here once in 100,000 times. Its bound by `scaled noise` assumes noise of
the plan's kind, times an unknown factor, and canaries that are independent. Beside it `one run` at
confidence 0.95, which holds whatever the mechanism is.

`honest`: every audit states its bounds at confidence 1 - 5e-7, so that 200 of them are all right
but with probability 1e-4. Where canaries are not independent of each other (samples of a fixed
size, shuffles, slots), only `one run` is asked. Delta is 1e-12: one run of a mechanism may leak
everything with probability delta, so at such a confidence only a smaller delta admits a conclusion
from one run.

Ends with an error if a bound is above its claim.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import discreet as dp
from discreet.auditing import one_run, white_box
from discreet.auditing.attacks.white_box import independent
from discreet.verdict import Verdict, audit

DELTA, CANARIES, REACHED_ERROR = 1e-5, 2_000, 1e-6
EPSILONS = (1.0, 2.0, 4.0, 8.0)
HONEST, ERROR, HONEST_DELTA, HONEST_CANARIES = 200, 5e-7, 1e-12, 500
ADD, ZERO, REPLACE = dp.Adjacency


@dataclass(frozen=True)
class Row:
    """One audit."""

    what: str
    claim: float
    one_run: float
    scaled: float | None
    reached: float
    canaries: int
    seconds: float
    outcome: str


def row(what: str, verdict: Verdict, seconds: float, free: float | None = None) -> Row:
    """What is printed of a verdict; `free`: another bound by one run than the verdict's."""
    bounds = {estimate.method: estimate.lower for estimate in verdict.estimates}
    one, scaled = bounds["one run"] if free is None else free, bounds.get("scaled noise")
    return Row(
        what,
        verdict.claim.upper,
        one,
        scaled,
        verdict.reached,
        verdict.canaries,
        seconds,
        verdict.outcome,
    )


# --- how much is reached ---


def reached(trials: int, processes: int) -> Iterator[Row]:
    """Full-batch Gaussian and DP-SGD, each calibrated to epsilon."""
    for epsilon in EPSILONS:
        for what, probability, steps in (
            ("full-batch Gaussian", 1.0, 1),
            ("DP-SGD, q = 0.1, 50 steps", 0.1, 50),
        ):
            plan = dp.Plan.dpsgd(
                records=CANARIES,
                sampling_probability=probability,
                steps=steps,
                epsilon=epsilon,
                delta=DELTA,
            )
            start = time.perf_counter()
            scores = white_box(plan, canaries=CANARIES, trials=trials, processes=processes)
            verdict = audit(plan, scores, confidence=1.0 - REACHED_ERROR, assume_scaled=True)
            seconds = time.perf_counter() - start
            yield row(
                f"{what}, epsilon {epsilon:g}", verdict, seconds, one_run(scores, delta=DELTA).lower
            )


# --- never above the claim ---

MECHANISMS: dict[str, dp.mechanisms.Mechanism] = {
    "Gaussian": dp.Gaussian(0.5, noise_multiplier=2.0),
    "Groups": dp.Groups({"a": dp.Gaussian(1.0, 3.0), "b": dp.Gaussian(10.0, 4.0)}),
    "Joint": dp.Joint(1.0, 2.0, {"a": 1.0, "b": 50.0}),
    "Split": dp.Split(1.0, 2.0),
    "Normalised": dp.Normalised(1.0, 2.0),
    "AdaptiveClip": dp.AdaptiveClip(dp.Gaussian(1.0, 2.0), 0.5, 20.0),
    "Microbatches": dp.mechanisms.Microbatches(dp.Gaussian(1.0, 2.0), 40),
}
N = HONEST_CANARIES
SAMPLERS: dict[str, tuple[dp.Sampler, tuple[dp.Adjacency, ...]]] = {
    "everything": (dp.Sampler(dp.Everything(), records=N, steps=3), (ADD, ZERO, REPLACE)),
    "Poisson": (dp.Sampler(dp.Poisson(0.3), records=N, steps=8), (ADD, ZERO, REPLACE)),
    "truncated Poisson": (
        dp.Sampler(dp.ledger.TruncatedPoisson(0.3, 180, N), records=N, steps=8),
        (ZERO,),
    ),
    "fixed size": (dp.Sampler(dp.FixedSize(150, N), records=N, steps=8), (ZERO, REPLACE)),
    "shuffled": (dp.Sampler(dp.ledger.Shuffled(4), records=N, steps=2), (ZERO, REPLACE)),
    "balls in bins": (dp.Sampler(dp.ledger.BallsInBins(4), records=N, steps=2), (ADD, ZERO)),
}


def plans() -> Iterator[tuple[str, dp.Plan]]:
    """Every combination that has an analysis."""
    for (name, mechanism), (sampling, (sampler, adjacencies)) in itertools.product(
        MECHANISMS.items(), SAMPLERS.items()
    ):
        for adjacency in adjacencies:
            plan = dp.Plan(
                sampler=sampler, mechanism=mechanism, adjacency=adjacency, leaves={"a": N, "b": N}
            )
            try:
                dp.account(plan, delta=HONEST_DELTA)
            except dp.errors.AccountingError:
                continue
            yield f"{name}, {sampling}, {adjacency.value}", plan


def honest(audits: int, trials: int) -> Iterator[Row]:
    """The combinations in turn, each audit with fresh randomness."""
    for number, (what, plan) in zip(range(audits), itertools.cycle(list(plans())), strict=False):
        start = time.perf_counter()
        apart = independent(plan) and not isinstance(
            plan.step.sampling, dp.ledger.BallsInBins
        )  # their profiles take seconds
        scores = white_box(plan, canaries=N, trials=trials)
        verdict = audit(
            plan, scores, delta=HONEST_DELTA, confidence=1.0 - ERROR, assume_scaled=apart
        )
        yield row(f"{number + 1:3d} {what}", verdict, time.perf_counter() - start)


# --- output ---


def show(rows: Iterator[Row]) -> list[Row]:
    """Print rows as they come."""
    print("| audit | claim | one run | scaled noise | reached | canaries | seconds | |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    kept = []
    for one in rows:
        scaled = "-" if one.scaled is None else f"{one.scaled:.3f}"
        numbers = (
            f"{one.claim:.3f} | {one.one_run:.3f} | {scaled} | {one.reached:.0%} | "
            f"{one.canaries:,} | {one.seconds:.1f}"
        )
        print(f"| {one.what} | {numbers} | {one.outcome} |", flush=True)
        kept.append(one)
    return kept


def main() -> None:
    """Print both tables, or one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("reached", "honest"))
    parser.add_argument("--trials", type=int, help="runs of one audit")
    parser.add_argument("--audits", type=int, default=HONEST, help="of honest")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of reached")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    asked = parser.parse_args()
    rows: list[Row] = []
    if asked.what in (None, "reached"):
        rows += show(reached(asked.trials or 200, asked.processes))
    if asked.what in (None, "honest"):
        found = show(honest(asked.audits, asked.trials or 20))
        above = sum(one.outcome != "PASS" for one in found)
        middle = statistics.median(one.reached for one in found)
        print(
            f"{len(found)} honest audits: {above} above the claim; reached, median: "
            f"{middle:.0%} of the claim"
        )
        rows += found
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n")
    if any(one.outcome != "PASS" for one in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
