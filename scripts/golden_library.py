"""What the parts of `golden.py` share: public names, plans, runs, and how answers become text.

Public names are looked up in all doors of the library, so that it does not matter in which of its
rooms a tree has them.
"""  # noqa: INP001

from __future__ import annotations

import pprint
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

ROOMS = """
accounting accounting.interop aggregation auditing canaries cli errors features ledger mechanisms
numerics plan randomness recipes report sampling tuning units
"""
"""Rooms of today and of before; a tree need not have all of them."""

FORMER_NAMES: dict[str, str] = {"TuningKind": "Kind"}
"""Public names of today, and what an earlier tree calls them."""

Entries: TypeAlias = Iterator[tuple[str, str]]
Question: TypeAlias = Callable[[], object]

np.set_printoptions(floatmode="unique", threshold=sys.maxsize, linewidth=100)


class PublicNames:
    """All public names, wherever this tree has them: in `discreet` itself, or in one of its rooms.

    So `dp.Shuffled` is `discreet.Shuffled` in one tree and `discreet.ledger.Shuffled` in another.
    """

    def __init__(self) -> None:
        rooms = ["discreet", *(f"discreet.{room}" for room in ROOMS.split())]
        self._doors = [import_module(room) for room in rooms if find_spec(room) is not None]

    def __getattr__(self, name: str) -> Any:
        for known, door in product((name, FORMER_NAMES.get(name, name)), self._doors):
            if known in door.__all__:
                return getattr(door, known)
        raise AttributeError(f"{name} is no public name of discreet")


dp = PublicNames()

FIXED, CHOSEN = dp.Parameters.FIXED_IN_ADVANCE, dp.Parameters.CHOSEN_FROM_OUTPUTS
RECORDS, STEPS, DELTA = 1000, 20, 1e-5
POLICIES = {
    "Everything": dp.Everything(),
    "Poisson": dp.Poisson(0.05),
    "TruncatedPoisson": dp.TruncatedPoisson(0.05, 60, RECORDS),
    "FixedSize": dp.FixedSize(50, RECORDS),
    "Shuffled": dp.Shuffled(10),
    "BallsInBins": dp.BallsInBins(10),
}
LEAVES = {"grad/w": 6, "grad/b": 2, "metric/loss": 1}
PARTS, SHARES = {"body": "grad/*", "head": "*"}, {"body": 3.0, "head": 1.0}
SINGLE = {
    "Gaussian": dp.Gaussian(1.0, 1.25),
    "Joint": dp.Joint(1.0, 1.5, {"grad/*": 0.5, "*": 3.0}),
    "Normalised": dp.Normalised(1.0, 2.0, stability=0.02),
    "AdaptiveClip": dp.AdaptiveClip(dp.Gaussian(0.7, 1.1), quantile=0.4, count_noise_std=9.0),
    "Split": dp.Split(1.0, 1.3),
    "Split by dimension": dp.Split(2.0, 1.3, clip="by dimension", noise="by dimension"),
    "Split by shares": dp.Split(1.0, 1.3, PARTS, SHARES, SHARES),
}
SLOTTED = {f"Microbatches of {name}": dp.Microbatches(SINGLE[name], 4) for name in SINGLE}
MECHANISMS = {
    **SINGLE,
    **SLOTTED,
    "NotPrivate": dp.NotPrivate(),
    "Groups": dp.Groups({"grad/w": SINGLE["AdaptiveClip"], "*": SINGLE["Split"]}),
    "Groups, one open": dp.Groups(
        {"grad/*": dp.NotPrivate(), "*": SLOTTED["Microbatches of Split"]}
    ),
}

PAIRS = [("Poisson", name) for name in MECHANISMS] + [(name, "Gaussian") for name in POLICIES]
"""Every mechanism with one policy, and every policy with one mechanism."""


def answer(*questions: Question) -> str:
    """What calls return, one after the other, or the types and texts of their errors."""
    answers = []
    for question in questions:
        try:
            answers.append(shown(question()))
        except Exception as error:  # noqa: BLE001  (an error is an answer)
            answers.append(f"{type(error).__name__}: {error}")
    return "\n".join(answers)


def shown(*values: object) -> str:
    """Texts as they are; other values in their own words, if they have some, and in full."""
    lines = []
    for value in values:
        if isinstance(value, str) or type(value).__str__ is not object.__str__:
            lines.append(str(value))
        if not isinstance(value, str):
            lines.append(pprint.pformat(value, width=100, sort_dicts=False))
    return "\n".join(lines)


def plan_of(policy: str, mechanism: str = "Gaussian", steps: int = STEPS) -> Any:
    """A plan under zero-out, for which every policy has an analysis."""
    return dp.Plan(
        sampler=dp.Sampler(POLICIES[policy], records=RECORDS, steps=steps),
        mechanism=MECHANISMS[mechanism],
        adjacency=dp.Adjacency.ZERO_OUT,
        leaves=LEAVES,
    )


def dpsgd(**numbers: Any) -> Any:
    """A plan with a target, under add-or-remove."""
    numbers = numbers or {"sampling_probability": 0.05, "steps": STEPS}
    return dp.Plan.dpsgd(records=RECORDS, epsilon=2.0, delta=DELTA, **numbers)


def execute(ledger: Any, plan: Any, label: str = "train", **how: Any) -> Any:
    """A run that takes all steps of a plan, or `taken` of them, as an engine would charge it."""
    info = plan.run_info(label, parameters=how.get("parameters", FIXED))
    planned, continues = [(plan.step, plan.steps)], how.get("continues")
    run = ledger.begin(info, planned, plan=plan.as_row(), continues=continues)
    for _ in run.steps(plan.step, how.get("taken", plan.steps)):
        pass
    return run


def rows_of(ledger: Any) -> str:
    """The export: one line for each row, with its digest, and the seal."""
    file = Path("exported.jsonl")
    file.unlink(missing_ok=True)
    ledger.export(file)
    return file.read_text()


def scores_of(count: int, trials: Any = None) -> Any:
    """Scores of canaries that leak a little."""
    rng = np.random.default_rng(7)
    inside = rng.random(count) < 0.5
    return dp.Scores(rng.normal(size=count) + inside, inside, trials=trials, attack="a test")
