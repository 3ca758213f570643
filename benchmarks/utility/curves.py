"""Accuracy against epsilon, one panel for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.utility.data import DATA_SETS
from benchmarks.utility.published import PUBLISHED
from benchmarks.utility.recipe import Recipe
from benchmarks.utility.results import Results

mpl.use("Agg")
import matplotlib.pyplot as plt  # after the choice of backend
from matplotlib.axes import Axes

__all__ = ["draw"]

_ACROSS = 3
_TICKS = (0.3, 0.5, 1, 2, 3, 5, 8)


def draw(recipes: Sequence[Recipe[Any]], folder: Path, path: Path) -> None:
    """The picture.

    Args:
        recipes: whose results to show.
        folder: of the results.
        path: of the picture.
    """
    shown = [
        name
        for name in DATA_SETS
        if any(_has_results(one, folder) for one in recipes if one.data_set == name)
    ]
    rows = max(1, -(-len(shown) // _ACROSS))
    figure, grid = plt.subplots(rows, _ACROSS, figsize=(4.2 * _ACROSS, 3.4 * rows), squeeze=False)
    for axes, name in zip(grid.flat, shown, strict=False):
        _panel(axes, name, [one for one in recipes if one.data_set == name], folder)
    for axes in grid.flat[len(shown) :]:
        axes.axis("off")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _has_results(recipe: Recipe[Any], folder: Path) -> bool:
    return any(Results.read(folder, recipe.name, epsilon).runs for epsilon in recipe.epsilons)


def _panel(axes: Axes, name: str, recipes: Sequence[Recipe[Any]], folder: Path) -> None:
    for number, recipe in enumerate(recipes):
        colour = f"C{number}"
        found = [
            one
            for epsilon in recipe.epsilons
            if (one := Results.read(folder, recipe.name, epsilon)).runs
        ]
        means = [100 * one.mean for one in found]
        below = [mean - 100 * min(one.accuracies) for mean, one in zip(means, found, strict=True)]
        above = [100 * max(one.accuracies) - mean for mean, one in zip(means, found, strict=True)]
        epsilons = [one.epsilon or 0.0 for one in found]
        axes.errorbar(
            epsilons,
            means,
            yerr=[below, above],
            fmt="o-",
            capsize=3,
            color=colour,
            label=recipe.name,
        )
        plain = Results.read(folder, recipe.name, None)
        if plain.runs:
            axes.axhline(100 * plain.mean, linestyle=":", color=colour)
    for colour, label, checked in (
        ("black", "published", True),
        ("darkgrey", "published, not checked", False),
    ):
        figures = [
            one
            for one in PUBLISHED.get(name, ())
            if one.epsilon is not None and bool(one.read_in) is checked
        ]
        if figures:
            points = (
                [one.epsilon or 0.0 for one in figures],
                [100 * one.accuracy for one in figures],
            )
            axes.plot(*points, "x", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.set(title=DATA_SETS[name].title, xlabel="epsilon", ylabel="test accuracy [%]")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
