"""Scores against what was tuned, as a figure."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

from discreet._files import checked_path, overwrite
from discreet.errors import DiscreetError, ParameterError

__all__ = ["Line", "Picture", "draw"]

_SUFFIXES = (".png", ".svg")


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, score) in ascending order of x, and what they have in common."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What to draw.

    Args:
        title: in words.
        across: what x is.
        lines: one or several.
        chosen: (x, score) of the trial that was chosen, if one was.
        level: a score to compare with, and what it is.
        noise: standard deviation of the noise on scores, drawn as a bar on both sides.
    """

    title: str
    across: str
    lines: tuple[Line, ...]
    chosen: tuple[float, float] | None
    level: tuple[float, str] | None = None
    noise: float = 0.0


def draw(owner: str, path: str | os.PathLike[str], picture: Picture) -> Path:
    """Write a PNG or SVG file, by the suffix of the path: whole or not at all, over an earlier
    picture.

    Returns:
        The path.

    Raises:
        DiscreetError: matplotlib is not installed.
    """
    place = checked_path(owner, path)
    if place.suffix not in _SUFFIXES:
        expected = f"one that ends in {' or '.join(_SUFFIXES)}"
        raise ParameterError(owner=owner, name="path", expected=expected, got=repr(str(place)))
    content = _figure(picture, place.suffix)
    try:
        overwrite(place, lambda draft: _write(draft, content))
    except OSError as wrong:
        raise ParameterError(
            owner=owner, name="path", expected="a path to write to", got=str(wrong)
        ) from None
    return place


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _figure(picture: Picture, suffix: str) -> bytes:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  (only who draws needs it)
    except ImportError:
        do = "Install it: pip install 'discreet[plots]'. Nothing was written."
        raise DiscreetError(
            expected="matplotlib, to draw a figure", got="an installation without it", do=do
        ) from None
    drawing = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = drawing.subplots()
    for line in picture.lines:
        x, y = zip(*line.points, strict=True)
        axes.errorbar(x, y, yerr=picture.noise or None, marker=".", capsize=3.0, label=line.name)
    if picture.level is not None:
        axes.axhline(
            picture.level[0], linestyle="--", linewidth=1.0, color="grey", label=picture.level[1]
        )
    if picture.chosen is not None:
        across, score = picture.chosen
        axes.scatter(
            [across],
            [score],
            s=120.0,
            facecolors="none",
            edgecolors="black",
            zorder=3.0,
            label="chosen",
        )
    axes.set(xlabel=picture.across, ylabel="score", xscale="log")
    axes.set_title(
        picture.title, fontsize="small", wrap=True, parse_math=False
    )  # names are other people's
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    file = io.BytesIO()
    drawing.savefig(file, format=suffix.removeprefix("."), dpi=150)
    return file.getvalue()
