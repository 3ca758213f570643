"""docs/budgets.md runs as it is shown, and its table is what the benchmark computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.odometer import cost_of, plan_for

from support import pages
from support.source import ROOT

PAGE = (ROOT / "docs" / "budgets.md").read_text()
_NUMBER = r"([\d.]+)(?: \(.*?\))?"
_ROW = re.compile(
    rf"^\| (full batch|DP-SGD) \| {' .. '.join([_NUMBER] * 6)} ".replace(" .. ", r" \| "),
    re.MULTILINE,
)


def test_the_examples_run_as_shown(tmp_path: Path) -> None:
    out = pages.run(PAGE, tmp_path)
    assert "100 steps, a list that was fixed before the first release" in out
    assert (
        "for a public reason, as was declared: 'the machine was needed for something else'" in out
    )
    readings = [
        tuple(map(float, pair))
        for pair in re.findall(r"([\d.]+), if all had been fixed in advance ([\d.]+)", out)
    ]
    assert len(readings) == 2
    assert all(odometer > fixed for odometer, fixed in readings)
    assert "(20.0, 'the board allowed it')" in out


def test_the_table_has_every_number_of_runs() -> None:
    rows = {(kind, float(epsilon), int(runs)) for kind, epsilon, runs, *_ in _ROW.findall(PAGE)}
    assert rows == {
        (kind, epsilon, runs)
        for kind in ("full batch", "DP-SGD")
        for epsilon in (0.5, 1.0, 3.0)
        for runs in (1, 2, 5, 20)
    }


@pytest.mark.parametrize(("kind", "epsilon"), [("full batch", 0.5), ("DP-SGD", 3.0)])
def test_the_table_is_what_the_benchmark_computes(kind: str, epsilon: float) -> None:
    plan = plan_for(kind, epsilon)
    for row in _ROW.findall(PAGE):
        if row[:2] != (kind, str(epsilon)):
            continue
        cost = cost_of(((plan.step, plan.steps),), int(row[2]))
        computed = (cost.fixed, cost.equal, cost.orders, cost.one_order)
        assert [float(number) for number in row[3:7]] == pytest.approx(
            computed, rel=6e-3
        )  # three digits are shown
        assert cost.fixed <= cost.equal <= cost.orders
