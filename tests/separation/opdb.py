"""The table of rules against torch's own database of operators: forward, in place and backward.

For each sample a record axis is chosen in one or several of its tensors; what the proof then claims
is tested (`claims`). The operators run in a process of their own, which may die (some kernels do
not survive what they are given here) and is then started again behind the operator where it died.

    PYTHONPATH=tests python -m separation.opdb --samples 100 --claims 50 --json report.json
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from discreet.training.separation.states import Rows
from discreet.training.separation.table.operands import tensors_among
from separation.claims import Choice, Report, Trial, Watch, Way, mapped, ramp_like
from separation.exchange import CHANGES

_MOST = 24  # entries of an axis that may be that of records


@dataclass(frozen=True)
class Budget:
    """How much is tried.

    Args:
        samples: of each operator and kind of numbers, spread over all that there are.
        choices: of record axes in each sample, spread as well.
        claims: that are tested, for each way to run an operator and kind of numbers.
        changes: of all other records.
        dtypes: kinds of numbers.
        seconds: for one operator.
        layout: of the arguments, one of `LAYOUTS`.
    """

    samples: int
    choices: int
    claims: int
    changes: tuple[str, ...] = CHANGES
    dtypes: tuple[str, ...] = ("float32",)
    seconds: float = 600.0
    layout: str = "plain"


# --- layouts ---


def _expanded(tensor: Tensor, dim: int) -> Tensor:
    """The first entry along an axis, in the place of all others: they share its memory."""
    return tensor.narrow(dim, 0, 1).expand_as(tensor) if tensor.ndim else tensor


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda tensor: tensor,
    "expanded first": lambda tensor: _expanded(tensor, 0),
    "expanded last": lambda tensor: _expanded(tensor, -1),
    "with gaps": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
}
"""How the memory of arguments is laid out, by an operation that the proof sees too."""


class _Laid:
    """An operator whose arguments are laid out in another way first."""

    def __init__(self, function: Any, layout: str) -> None:
        self._function = function
        self._layout = LAYOUTS[layout]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        others = mapped(self._layout, list(arguments))
        return self._function(*others, **mapped(self._layout, named))


# --- samples ---


def choices(tensors: Sequence[Tensor]) -> list[Choice]:
    """Record axes of one tensor, others as they are, or alike for all records; of all that fit."""
    chosen: list[Choice] = []
    for number, tensor in enumerate(tensors):
        for dim, size in enumerate(tensor.shape):
            if not 2 <= size <= _MOST:
                continue
            left = _fitting(tensors, dim, size)
            right = _fitting(tensors, dim - tensor.ndim, size)
            for count, inner, outer in _foldings(size):
                place = {number: Rows(dim, inner, outer)}
                chosen.append(Choice(place, count))
                for axes in (left, right):
                    others = {other: axis for other, axis in axes.items() if other != number}
                    if others:
                        chosen.append(Choice(place, count, others))
                        rows = {other: Rows(axis, inner, outer) for other, axis in axes.items()}
                        chosen.append(Choice(rows, count))
    return [choice for place, choice in enumerate(chosen) if choice not in chosen[:place]]


def _fitting(tensors: Sequence[Tensor], dim: int, size: int) -> dict[int, int]:
    """Tensors that have an axis of this size there, counted from the right if negative."""
    return {
        number: dim % tensor.ndim
        for number, tensor in enumerate(tensors)
        if -tensor.ndim <= dim < tensor.ndim and tensor.shape[dim] == size
    }


def _foldings(size: int) -> list[tuple[int, int, int]]:
    """(records, inner, outer) for an axis of this size."""
    half = size // 2
    folded = [(half, 2, 1), (half, 1, 2)] if size % 2 == 0 and half > 1 else []
    return [(size, 1, 1), *folded]


def spread(things: Sequence[Any], most: int) -> list[Any]:
    """At most so many, evenly from first to last."""
    if len(things) <= most:
        return list(things)
    return [things[place * len(things) // most] for place in range(most)]


# --- one operator ---


def name_of(operator: Any) -> str:
    variant = operator.variant_test_name
    return f"{operator.name}.{variant}" if variant else str(operator.name)


def examined(operator: Any, budget: Budget) -> Report:
    """All that is found of one operator."""
    report = Report()
    stop = time.monotonic() + budget.seconds
    for dtype in _dtypes(operator, budget):
        claims: Counter[str] = Counter()
        for number, sample in enumerate(_samples(operator, dtype, budget, report)):
            label = f"{name_of(operator)} {dtype} sample {number}"
            for trial in _trials(operator, sample, dtype, budget, report):
                if claims[trial.kind] >= budget.claims:
                    continue
                if time.monotonic() > stop:
                    report.counts["out of time"] += 1
                    return report
                claims[trial.kind] += trial.run(label, budget.changes)
    return report


def _trials(
    operator: Any, sample: Any, dtype: torch.dtype, budget: Budget, report: Report
) -> Iterator[Trial]:
    tensors = tensors_among((sample.input, tuple(sample.args), sample.kwargs))
    if any(type(tensor) is not Tensor or tensor.layout is not torch.strided for tensor in tensors):
        return
    tensors = [tensor.detach().contiguous().clone() for tensor in tensors]
    ways = (
        _ways(operator, sample, dtype)
        if budget.layout == "plain"
        else _laid_ways(operator, sample, dtype, budget.layout)
    )
    for way in ways:
        if budget.layout == "plain":
            _watch(way, tensors, report)
        for turn, choice in enumerate(spread(choices(tensors), budget.choices)):
            yield Trial(way, tensors, choice, report, turn)


def _dtypes(operator: Any, budget: Budget) -> list[torch.dtype]:
    """Kinds of numbers that the operator takes; if none of the budget's, one of some others."""
    wanted = [getattr(torch, name) for name in budget.dtypes]
    taken = [dtype for dtype in wanted if operator.supports_dtype(dtype, "cpu")]
    others = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return taken or [dtype for dtype in others if operator.supports_dtype(dtype, "cpu")][:1]


def _samples(operator: Any, dtype: torch.dtype, budget: Budget, report: Report) -> list[Any]:
    try:
        torch.default_generator.manual_seed(0)
        samples = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception:  # noqa: BLE001  (samples that need more than there is here)
        report.counts["no samples"] += 1
        return []
    return spread(samples, budget.samples)


def _ways(operator: Any, sample: Any, dtype: torch.dtype) -> Iterator[Way]:
    arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
    yield Way("forward", operator, arguments)
    if operator.inplace_variant is not None and isinstance(sample.input, Tensor):
        yield Way("in place", operator.inplace_variant, arguments)
    if operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex):
        yield Way("backward", operator, arguments)


def _laid_ways(operator: Any, sample: Any, dtype: torch.dtype, layout: str) -> Iterator[Way]:
    """Nothing can be written in place where entries share their memory."""
    arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
    yield Way("forward", _Laid(operator, layout), arguments)
    if operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex):
        yield Way("backward", _Laid(operator, layout), arguments)


def _watch(way: Way, tensors: Sequence[Tensor], report: Report) -> None:
    """Run once to see which arguments are written."""
    watch = Watch()
    torch.default_generator.manual_seed(0)
    try:
        with watch:
            way(tensors, lambda _, result: ramp_like(result))
    except Exception:  # noqa: BLE001  (samples that torch itself refuses)
        return
    report.counts["watched for writes"] += 1
    for name in sorted(watch.undeclared):
        report.wrong.append(f"{name} writes an argument that its schema does not name")


# --- all operators ---


def run(budget: Budget, only: str = "") -> tuple[dict[str, Report], list[str]]:
    """Reports by name, and the operators at which the process died."""
    operators = [operator for operator in op_db if only in name_of(operator)]
    reports: dict[str, Report] = {}
    crashed: list[str] = []
    while operators:
        finished = _in_child(operators, budget)
        for operator, report in zip(operators, finished, strict=False):
            reports.setdefault(name_of(operator), Report()).add(report)
        operators = operators[len(finished) :]
        if operators:
            crashed.append(name_of(operators[0]))
            operators = operators[1:]
    return reports, crashed


def _in_child(operators: Sequence[Any], budget: Budget) -> list[Report]:
    """Reports of the first operators, up to one at which the process died."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with os.fdopen(write, "wb") as pipe:
            for operator in operators:
                pickle.dump(examined(operator, budget), pipe)
                pipe.flush()
        os._exit(0)
    os.close(write)
    reports: list[Report] = []
    with os.fdopen(read, "rb") as pipe:
        while True:
            try:
                reports.append(pickle.load(pipe))
            except (EOFError, pickle.UnpicklingError):
                break
    os.waitpid(child, 0)
    return reports


def summary(reports: dict[str, Report], crashed: Sequence[str], seconds: float) -> dict[str, Any]:
    """As JSON."""
    total = Report()
    for report in reports.values():
        total.add(report)
    claimed = sorted(name for name, report in reports.items() if report.counts["forward rows"])
    return {
        "operators": len(reports),
        "claimed": claimed,
        "crashed": list(crashed),
        "counts": dict(total.counts),
        "wrong": total.wrong,
        "reasons": dict(total.reasons.most_common(200)),
        "never claimed": sorted(set(reports) - set(claimed)),
        "seconds": seconds,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--samples", type=int, default=2)
    asked.add_argument("--choices", type=int, default=6)
    asked.add_argument("--claims", type=int, default=2)
    asked.add_argument("--changes", nargs="*", default=list(CHANGES))
    asked.add_argument("--dtypes", nargs="*", default=["float32"])
    asked.add_argument("--seconds", type=float, default=600.0)
    asked.add_argument("--only", default="")
    asked.add_argument("--layout", choices=list(LAYOUTS), default="plain")
    asked.add_argument("--json", type=Path, required=True)
    options = asked.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # The database seeds for each sample, and torch formats three stacks each time, for devices.
    torch.manual_seed = torch.default_generator.manual_seed
    budget = Budget(
        samples=options.samples,
        choices=options.choices,
        claims=options.claims,
        changes=tuple(options.changes),
        dtypes=tuple(options.dtypes),
        seconds=options.seconds,
        layout=options.layout,
    )
    start = time.monotonic()
    reports, crashed = run(budget, options.only)
    outcome = summary(reports, crashed, time.monotonic() - start) | {"budget": asdict(budget)}
    options.json.write_text(json.dumps(outcome, indent=1))
    sys.stdout.write(f"{outcome['operators']} operators, {len(outcome['wrong'])} wrong\n")


if __name__ == "__main__":
    main()
