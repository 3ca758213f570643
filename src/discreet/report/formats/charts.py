"""Geometry of the charts: from numbers to places on a canvas, which the templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from discreet.report.formats.document import Bars, LineChart

__all__ = ["BarDrawing", "DrawnBar", "LineDrawing", "Tick", "draw_bars", "draw_line"]

# The canvas and its margins, in units of the SVG's own coordinates.
_WIDTH, _HEIGHT = 420.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 26.0, 44.0
# False positives are drawn from 0.001 to 1, on a logarithmic axis.
_DECADES = 3.0
# Height of a bar with its name above it; characters of a name that fit.
_ROW, _LONGEST = 52.0, 44


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDrawing:
    """A line chart on its canvas; y grows downwards."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    path: str
    area: str
    dots: tuple[tuple[float, float], ...]
    guess: str
    limit: Tick | None
    named: tuple[float, float, str] | None


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """A bar, with its name (cut, if it is long) above it and its note to the right."""

    y: float
    width: float
    name: str
    full_name: str
    note: str


@dataclass(frozen=True, slots=True)
class BarDrawing:
    """A chart of horizontal bars on its canvas."""

    width: float
    height: float
    bars: tuple[DrawnBar, ...]


def draw_line(line: LineChart) -> LineDrawing:
    """A line chart. The trade-off has a logarithmic axis of false positives and the diagonal of
    guessing.
    """
    logarithmic = line.key == "tradeoff"
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    furthest = max(x for x, _ in line.points)
    x_marks, y_marks, highest = _marks(line, furthest)

    # A chart of nothing but zeros has no scale of its own: any will do.
    def across(x: float) -> float:
        share = x / (furthest or 1.0)
        if logarithmic:
            share = 1.0 + math.log10(x) / _DECADES

        return round(_LEFT + (right - _LEFT) * share, 1)

    def down(y: float) -> float:
        return round(bottom - (bottom - _TOP) * y / (highest or 1.0), 1)

    points = [(across(x), down(y)) for x, y in line.points]
    path = _path(points)

    # Guessing accuses members and others alike: as many found as wrongly accused.
    guesses = [(across(x), down(x)) for x, _ in line.points] if logarithmic else []

    return LineDrawing(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=right,
        top=_TOP,
        bottom=bottom,
        x_ticks=tuple(Tick(across(value), text) for value, text in x_marks),
        y_ticks=tuple(Tick(down(value), text) for value, text in y_marks),
        path=path,
        area=f"{path} L{points[-1][0]:g} {bottom:g} L{points[0][0]:g} {bottom:g} Z",
        dots=() if logarithmic else tuple(points),
        guess=_path(guesses) if guesses else "",
        limit=None if line.limit is None else Tick(down(line.limit[0]), line.limit[1]),
        named=None
        if line.named is None
        else (across(line.named[0]), down(line.named[1]), line.named[2]),
    )


def _marks(
    line: LineChart, furthest: float
) -> tuple[list[tuple[float, str]], list[tuple[float, str]], float]:
    """Values with their texts along both axes, and the value at the upper end of the second."""
    # Both axes of the trade-off are shares, whatever its points are.
    if line.key == "tradeoff":
        rates = _labelled((0.001, 0.01, 0.1, 1.0), scale=100.0, form="{:g} %")
        shares = _labelled((0.0, 0.25, 0.5, 0.75, 1.0), scale=100.0, form="{:g} %")
        return rates, shares, 1.0

    # A limit above the line must be on the canvas as well.
    highest = max(y for _, y in line.points)
    if line.limit:
        highest = max(highest, line.limit[0])

    x_marks = _labelled(_round_numbers(furthest, 4), form="{:,.6g}")
    y_marks = _labelled(_round_numbers(highest, 5), form="{:g}")

    # A little room above the line, so that neither it nor the limit's text touches the frame.
    return x_marks, y_marks, max(y_marks[-1][0], highest * 1.06)


def _labelled(values: Iterable[float], *, form: str, scale: float = 1.0) -> list[tuple[float, str]]:
    return [(value, form.format(scale * value)) for value in values]


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)


def _round_numbers(largest: float, about: int) -> list[float]:
    """Multiples of a round number, from 0 to at most `largest`; about so many.

    >>> _round_numbers(2344.0, 4)
    [0.0, 500.0, 1000.0, 1500.0, 2000.0]
    """
    if not largest > 0.0:
        return [0.0]

    # The smallest round number that is not much below an even division.
    rough = largest / about
    power = 10.0 ** math.floor(math.log10(rough))
    width = power * next(
        factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * 0.8
    )

    # Through six digits, so that 3 times 0.1 is written 0.3; 1e-9 keeps the last multiple.
    return [float(f"{i * width:.6g}") for i in range(int(largest / width + 1e-9) + 1)]


def draw_bars(chart: Bars) -> BarDrawing:
    """Horizontal bars, one below the other."""
    # A group without a share (its cost is counted apart) gets an empty bar, and its note.
    bars = tuple(
        DrawnBar(
            i * _ROW,
            round(_WIDTH * (bar.share or 0.0), 1),
            bar.name if len(bar.name) <= _LONGEST else bar.name[: _LONGEST - 1] + "…",
            bar.name,
            bar.note,
        )
        for i, bar in enumerate(chart.bars)
    )

    return BarDrawing(_WIDTH, len(bars) * _ROW, bars)
