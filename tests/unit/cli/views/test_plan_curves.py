"""Curves in text and as figures."""

import pytest

import discreet as dp
from discreet.cli.views.plan_curves import CurveKind, PlanCurve, chart, curve_of, figure
from discreet.errors import DiscreetError

PLAN = dp.Plan.dpsgd(records=10_000, expected_batch_size=100, steps=80, noise_multiplier=1.0)


def test_epsilon_rises_with_the_steps_and_passes_through_the_plan() -> None:
    guarantee = dp.account(PLAN, delta=1e-6)
    curve = curve_of(CurveKind.EPSILON, PLAN, guarantee, epochs=None)
    values = [y for _, y in curve.points]
    assert values == sorted(values)
    assert [x for x, _ in curve.points] == [float(10 * eighth) for eighth in range(1, 17)]
    assert dict(curve.points)[80.0] == pytest.approx(guarantee.upper, rel=2e-3)


@pytest.mark.parametrize("logarithmic", [True, False])
def test_longer_bars_are_larger_values(logarithmic: bool) -> None:
    points = ((1.0, 0.5), (2.0, 2.0), (3.0, 1.0))
    curve = PlanCurve(
        title="t", across="x", along="y", points=points, here=3.0, logarithmic=logarithmic
    )
    for blocks, mark in ((True, "█"), (False, "#")):
        low, high, middle = (
            line.count(mark) for line in chart(curve, blocks=blocks).splitlines()[2:]
        )
        assert 0 < low < middle < high == 48
    assert chart(curve, blocks=False).isascii()


def test_one_point_is_a_chart_too() -> None:
    curve = PlanCurve(
        title="t", across="x", along="y", points=((1.0, 0.5),), here=1.0, logarithmic=True
    )
    assert "#" * 48 in chart(curve, blocks=False)


def test_a_curve_over_batches_needs_the_number_of_records() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=80, noise_multiplier=1.0)
    with pytest.raises(DiscreetError, match="Expected --records for the curve"):
        curve_of(CurveKind.NOISE, plan, dp.account(plan, delta=1e-6), epochs=None)


def test_a_figure_is_a_file_of_its_format() -> None:
    curve = PlanCurve(
        title="t",
        across="x",
        along="y",
        points=((1.0, 0.5), (2.0, 1.0)),
        here=1.0,
        logarithmic=True,
    )
    assert figure(curve, ".png").startswith(b"\x89PNG")
    assert b"<svg" in figure(curve, ".svg")
