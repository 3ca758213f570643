"""Accounting side by side: this library, dp-accounting (PLD and RDP) and prv-accountant.

    python benchmarks/accounting.py            # 144 settings, about twenty minutes
    python benchmarks/accounting.py --quick    # 15 settings

Every tool runs in a process of its own, warmed up by one query and one calibration that are not
counted; the tools take turns on each setting, so that whatever else the machine does hits all of
them. Times are CPU seconds of that process, with as many threads as its libraries take. A tool that
needs more than the limit is stopped and started again. Queries are told apart by their number of
steps. The truth is our bracket: [lower, upper] certified, the estimate inside it. A peer is *below
the truth* if it is below our certified lower bound: it promises more privacy than there is. Peers
that are not installed are named and skipped.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import logging
import math
import multiprocessing
import resource
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from discreet.accounting.accountant import Accountant, account
from discreet.accounting.calibration.calibrate import solve
from discreet.accounting.calibration.unknowns import NoiseMultiplier
from discreet.accounting.live import LiveEpsilon
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.units import Adjacency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from multiprocessing.connection import Connection

LIMIT = 20.0  # seconds for one query of a peer
MEMORY = 6 << 30  # bytes that a tool may ask for


@dataclass(frozen=True)
class Setting:
    """One Poisson-sampled Gaussian, composed."""

    probability: float
    noise: float
    steps: int
    delta: float

    @property
    def kind(self) -> str:
        """What tells easy queries from hard ones."""
        return "one step" if self.steps == 1 else f"{self.steps:,} steps"


@dataclass(frozen=True)
class Target:
    """One calibration of the noise multiplier."""

    probability: float
    steps: int
    epsilon: float
    delta: float


@dataclass
class Result:
    """What a tool answered: numbers, CPU seconds, or why not."""

    values: tuple[float, ...] = ()
    seconds: float = math.nan
    failure: str = ""


# --- the tools; each function runs inside its own process
# ---------------------------------------------------------------


def ours_tight(task: Setting | Target) -> tuple[float, ...]:
    """Certified bracket and estimate."""
    return _ours(task, "tight")


def ours_rdp(task: Setting | Target) -> tuple[float, ...]:
    """The Rényi bound."""
    return _ours(task, "rdp")


def _ours(task: Setting | Target, accountant: Accountant) -> tuple[float, ...]:
    if isinstance(task, Target):
        unknown = NoiseMultiplier(Poisson(task.probability), task.steps)
        return (
            solve(unknown, epsilon=task.epsilon, delta=task.delta, accountant=accountant).value,
        )
    step = Step(Poisson(task.probability), (GaussianSum("sum", 1.0, task.noise),))
    found = account(
        [(step, task.steps)],
        delta=task.delta,
        accountant=accountant,
        adjacency=Adjacency.ADD_OR_REMOVE,
    )
    return found.upper, found.lower, math.nan if found.estimate is None else found.estimate


def dpa_pld(task: Setting | Target) -> tuple[float, ...]:
    """dp-accounting, privacy loss distributions with its default interval."""
    return _dpa(
        task, importlib.import_module("dp_accounting.pld.pld_privacy_accountant").PLDAccountant
    )


def dpa_rdp(task: Setting | Target) -> tuple[float, ...]:
    """dp-accounting, Rényi with its default orders."""
    return _dpa(
        task, importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant").RdpAccountant
    )


def _dpa(task: Setting | Target, make: Callable[[], Any]) -> tuple[float, ...]:
    dpa = importlib.import_module("dp_accounting")

    def event(noise: float) -> Any:
        return dpa.SelfComposedDpEvent(
            dpa.PoissonSampledDpEvent(task.probability, dpa.GaussianDpEvent(noise)), task.steps
        )

    if isinstance(task, Target):
        return (float(dpa.calibrate_dp_mechanism(make, event, task.epsilon, task.delta, tol=1e-3)),)
    return (float(make().compose(event(task.noise)).get_epsilon(task.delta)),)


def prv(task: Setting | Target) -> tuple[float, ...]:
    """prv-accountant, errors of 0.01 (0.05 when calibrating) in epsilon and a thousandth in delta;
    its upper bound.
    """
    library = importlib.import_module("prv_accountant")

    def upper(noise: float, error: float) -> float:
        mechanism = library.PoissonSubsampledGaussianMechanism(
            noise_multiplier=noise, sampling_probability=task.probability
        )
        accountant = library.PRVAccountant(
            prvs=[mechanism],
            max_self_compositions=[task.steps],
            eps_error=error,
            delta_error=task.delta / 1000.0,
        )
        return float(
            accountant.compute_epsilon(delta=task.delta, num_self_compositions=[task.steps])[2]
        )

    if isinstance(task, Setting):
        return (upper(task.noise, 0.01),)
    low, high = 0.3, 50.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if upper(middle, 0.05) <= task.epsilon else (middle, high)
    return (high,)


TOOLS: dict[str, tuple[Callable[[Setting | Target], tuple[float, ...]], str]] = {
    "ours, tight": (ours_tight, "discreet"),
    "ours, rdp": (ours_rdp, "discreet"),
    "dp-accounting PLD": (dpa_pld, "dp_accounting"),
    "dp-accounting RDP": (dpa_rdp, "dp_accounting"),
    "prv-accountant": (prv, "prv_accountant"),
}


# --- one process for each tool
# -------------------------------------------------------------------------------------------


def _serve(tool: Callable[[Setting | Target], tuple[float, ...]], pipe: Connection) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while True:
        task = pipe.recv()
        start = time.process_time()
        try:
            values = tool(task)
            pipe.send(Result(values, time.process_time() - start))
        except Exception as error:  # noqa: BLE001 whatever a tool raises is its answer
            pipe.send(Result((), time.process_time() - start, type(error).__name__))


@dataclass
class Runner:
    """A tool in a process that can be stopped."""

    name: str
    process: Any = None
    pipe: Any = None
    context: Any = field(default_factory=lambda: multiprocessing.get_context("spawn"))

    def ask(self, task: Setting | Target, limit: float) -> Result:
        """The answer, or a failure named "timeout"."""
        if self.process is None:
            self._start()
        self.pipe.send(task)
        if self.pipe.poll(limit):
            answer: Result = self.pipe.recv()
            return answer
        self.stop()
        return Result((), limit, "timeout")

    def _start(self) -> None:
        self.pipe, there = self.context.Pipe()
        self.process = self.context.Process(
            target=_serve, args=(TOOLS[self.name][0], there), daemon=True
        )
        self.process.start()
        for task in (Setting(0.02, 2.0, 50, 1e-5), Target(0.02, 50, 1.0, 1e-5)):
            self.pipe.send(task)  # imports and caches, not counted
            self.pipe.poll(60.0)
            self.pipe.recv()

    def stop(self) -> None:
        """End the process that this runner started."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


# --- the grid and the tables
# ---------------------------------------------------------------------------------------------


def settings(*, quick: bool) -> list[Setting]:
    """The grid."""
    grid: Iterable[tuple[float, float, int, float]]
    if quick:
        few = itertools.product((0.001, 0.01, 0.1), (1.0,), (1,), (1e-5,))
        many = itertools.product((0.001, 0.01, 0.1), (1.0, 4.0), (1_000,), (1e-5, 1e-11))
        grid = itertools.chain(few, many)
    else:
        usual = itertools.product(
            (1e-4, 1e-3, 0.01, 0.1, 0.5), (0.6, 1.0, 2.0, 5.0), (1, 100, 10_000), (1e-5, 1e-10)
        )
        long = itertools.product(
            (1e-4, 1e-3, 0.01), (0.6, 1.0, 2.0, 5.0), (1_000_000,), (1e-6, 1e-12)
        )
        grid = itertools.chain(usual, long)
    return [Setting(*row) for row in grid]


def targets(*, quick: bool) -> list[Target]:
    """Calibrations: those of the project's notes, and a few more."""
    rows = [
        Target(0.005, 20_000, 3.0, 1e-6),
        Target(0.01, 1_000, 1.0, 1e-5),
        Target(0.1, 1_000, 8.0, 1e-6),
        Target(1e-3, 100_000, 2.0, 1e-7),
        Target(0.08192, 1_000, 3.0, 1e-5),
        Target(0.05, 100, 0.5, 1e-6),
        Target(0.5, 200, 4.0, 1e-6),
        Target(256 / 60_000, 14_063, 1.0, 1e-5),
    ]
    return rows[:2] if quick else rows


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, by rich if it is there."""
    if importlib.util.find_spec("rich") is None:
        print(
            f"\n{title}\n"
            + "\n".join("  ".join(cell.rjust(18) for cell in row) for row in [head, *rows])
        )
        return
    shown = importlib.import_module("rich.table").Table(title=title)
    for name in head:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(*row)
    importlib.import_module("rich.console").Console(width=160).print(shown)


def run(
    tasks: Sequence[Setting | Target], runners: dict[str, Runner], limit: float
) -> dict[str, list[Result]]:
    """Every tool on every task, taking turns; a calibration may take twice the limit of a query."""
    answers: dict[str, list[Result]] = {name: [] for name in runners}
    for number, task in enumerate(tasks):
        names = list(runners)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            answers[name].append(
                runners[name].ask(task, 2 * limit if isinstance(task, Target) else limit)
            )
        print(f"{number + 1} of {len(tasks)} done", file=sys.stderr, flush=True)
    return answers


def times(results: Sequence[Result]) -> tuple[str, str, str]:
    """Median, nine in ten, largest, in milliseconds; a stopped query counts with the limit."""
    seconds = sorted(1e3 * result.seconds for result in results)
    return (
        f"{statistics.median(seconds):.1f}",
        f"{seconds[int(0.9 * (len(seconds) - 1))]:.1f}",
        f"{seconds[-1]:.0f}",
    )


def speed_up(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Median over tasks of their time over ours."""
    ratios = [b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.0f}x"


def report_queries(grid: Sequence[Setting], answers: dict[str, list[Result]]) -> None:
    """Times, failures, soundness and tightness of single queries."""
    truth = answers["ours, tight"]
    rows, wrong = [], []
    for name, results in answers.items():
        below, gaps = 0, []
        for setting, found, true in zip(grid, results, truth, strict=True):
            if not found.values or not true.values:
                continue
            value, (_, lower, estimate) = found.values[0], true.values
            if value < lower:
                below += 1
                wrong.append((name, setting, value, lower, estimate))
            elif 0.01 < estimate < 100.0:
                gaps.append(value / estimate - 1.0)
        failures = [result.failure for result in results if result.failure]
        gap = f"{100 * statistics.median(gaps):.3g} / {100 * max(gaps):.3g}" if gaps else "-"
        rows.append(
            [name, *times(results), speed_up(truth, results), str(len(failures)), str(below), gap]
        )
    head = [
        "tool",
        "median ms",
        "90 % ms",
        "max ms",
        "our speed-up",
        "no answer",
        "below the truth",
        "above it, % med/max",
    ]
    table(f"{len(grid)} queries of epsilon", head, rows)
    if wrong:
        head = [
            "tool",
            "probability",
            "noise",
            "steps",
            "delta",
            "answer",
            "certified lower",
            "short by %",
        ]
        wrong.sort(key=lambda row: row[2] / row[3])
        table(
            "Below the truth (worst 20)",
            head,
            [
                [
                    n,
                    f"{s.probability:g}",
                    f"{s.noise:g}",
                    f"{s.steps:g}",
                    f"{s.delta:g}",
                    f"{v:.5g}",
                    f"{low:.5g}",
                    f"{100 * (1 - v / low):.3g}",
                ]
                for n, s, v, low, _ in wrong[:20]
            ],
        )
    slow = [(s, r) for s, r in zip(grid, truth, strict=True) if r.seconds > 1.0 or r.failure]
    print(f"Ours above 1 s or without an answer: {len(slow)} of {len(grid)}.")
    for setting, result in slow:
        print(f"  {setting}: {result.seconds:.2f} s {result.failure}")
    widths = [1 - r.values[1] / r.values[0] for r in truth if r.values and 0 < r.values[0] < 900]
    narrow = sum(width <= 1e-3 for width in widths)
    print(
        f"Our bracket: {narrow} of {len(widths)} within 1e-3 relative, widest "
        f"{max(widths, default=math.nan):.2g}."
    )


def report_kinds(grid: Sequence[Setting], answers: dict[str, list[Result]]) -> None:
    """Times for each kind of query, and how wide our bracket is there."""
    rows = []
    for kind in dict.fromkeys(setting.kind for setting in grid):
        chosen = [k for k, setting in enumerate(grid) if setting.kind == kind]
        for name, results in answers.items():
            of_kind = [results[k] for k in chosen]

            # Only ours has a lower end to be told apart from 0.
            ends = [result.values for result in of_kind if len(result.values) > 1]
            widths = [1 - low / high for high, low, _ in ends if low > 0.0]
            width = f"{statistics.median(widths):.2g} / {max(widths):.2g}" if widths else "-"
            rows.append([f"{kind} ({len(chosen)})", name, *times(of_kind), width])
    head = ["queries", "tool", "median ms", "90 % ms", "max ms", "bracket, med/max"]
    table("Times and relative widths by kind of query", head, rows)


def report_calibrations(rows: Sequence[Target], answers: dict[str, list[Result]]) -> None:
    """Times and noise of calibrations."""
    ours = answers["ours, tight"]
    head = ["tool", "median ms", "90 % ms", "max ms", "our speed-up"]
    table(
        f"{len(rows)} calibrations",
        head,
        [[name, *times(found), speed_up(ours, found)] for name, found in answers.items()],
    )
    noise = [
        [f"{t.probability:.4g}", str(t.steps), f"{t.epsilon:g}", f"{t.delta:g}"]
        + [
            f"{found[k].values[0]:.4f}" if found[k].values else found[k].failure
            for found in answers.values()
        ]
        for k, t in enumerate(rows)
    ]
    table("Noise multiplier found", ["probability", "steps", "epsilon", "delta", *answers], noise)


def report_live() -> None:
    """Epsilon after each of 10,000 steps: time per step, and how far the last value is above the
    exact one.
    """
    rows = []
    for probability, noise in ((0.01, 1.0), (0.001, 0.7), (0.1, 4.0)):
        step = Step(Poisson(probability), [GaussianSum("grad", 1.0, noise)])
        meter = LiveEpsilon(delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE)
        start = time.process_time()
        for _ in range(10_000):
            meter.add(step)
        spent = time.process_time() - start
        above = meter.epsilon / meter.exact() - 1.0
        rows.append(
            [f"{probability:g}", f"{noise:g}", f"{spent / 10_000 * 1e3:.3f}", f"{100 * above:.2g}"]
        )
    table(
        "Live: epsilon after each of 10,000 steps",
        ["probability", "noise", "ms per step", "above exact, %"],
        rows,
    )


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small grid")
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="seconds after which a query is stopped"
    )
    arguments = parser.parse_args()
    runners = {}
    for name, (_, package) in TOOLS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name}: not installed, skipped (pip install 'discreet[bench]').")
        elif package == "discreet" or not arguments.ours:
            runners[name] = Runner(name)
    try:
        grid, rows = settings(quick=arguments.quick), targets(quick=arguments.quick)
        report_live()
        answers = run(grid, runners, arguments.limit)
        report_queries(grid, answers)
        report_kinds(grid, answers)
        sys.stdout.flush()
        report_calibrations(rows, run(rows, runners, arguments.limit))
    finally:
        for runner in runners.values():
            runner.stop()


if __name__ == "__main__":
    main()
