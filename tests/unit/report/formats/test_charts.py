"""Geometry of the charts: on the canvas, upwards, and true to their numbers."""

from discreet.report.formats.charts import draw_bars, draw_line
from discreet.report.formats.document import Bars, LineChart, ShareBar, Table


def test_points_lie_on_the_canvas_and_grow_upwards() -> None:
    line = LineChart(
        "spending",
        "t",
        "w",
        ("x", "y"),
        ((0.0, 0.0), (10.0, 2.0), (40.0, 3.0)),
        Table((), ()),
        limit=(5.0, "target 5"),
    )
    drawing = draw_line(line)
    assert [x for x, _ in drawing.dots] == sorted(x for x, _ in drawing.dots)
    assert [y for _, y in drawing.dots] == sorted((y for _, y in drawing.dots), reverse=True)
    assert all(
        drawing.left <= x <= drawing.right and drawing.top <= y <= drawing.bottom
        for x, y in drawing.dots
    )
    assert drawing.limit is not None
    assert drawing.top <= drawing.limit.at < drawing.dots[-1][1]


def test_a_line_of_zeros_is_drawn() -> None:
    drawing = draw_line(
        LineChart("spending", "t", "w", ("x", "y"), ((0.0, 0.0), (1.0, 0.0)), Table((), ()))
    )
    assert {y for _, y in drawing.dots} == {drawing.bottom}


def test_bars_are_as_long_as_their_shares_and_long_names_are_cut() -> None:
    drawing = draw_bars(
        Bars(
            "g",
            "t",
            "w",
            (ShareBar("a", 0.25, ""), ShareBar("b" * 200, 0.75, ""), ShareBar("c", None, "")),
        )
    )
    assert [bar.width / drawing.width for bar in drawing.bars] == [0.25, 0.75, 0.0]
    assert len(drawing.bars[1].name) < 50
    assert drawing.bars[1].full_name == "b" * 200
