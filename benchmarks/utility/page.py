"""docs/utility.md, from the results and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.utility import curves
from benchmarks.utility.data import DATA_SETS
from benchmarks.utility.published import PUBLISHED, Published
from benchmarks.utility.recipe import Goal, Recipe
from benchmarks.utility.recipes import recipes
from benchmarks.utility.results import Results
from discreet._digits import upward

__all__ = ["PAGE", "PICTURE", "text", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "utility.md"
PICTURE = PAGE.parent / "images" / "utility.png"
FEWEST = 3  # runs behind a mean
_NEAR = 1.25  # a published epsilon so close, as a ratio, stands in the same row

_HEAD = """# Accuracy at a certified epsilon

Written by `python -m benchmarks.utility page` from
[the results of single runs](../benchmarks/utility), which `make bench-utility` repeats. One record
is protected, under add-or-remove adjacency. How to read the table:

* *certified*: the largest upper bound on epsilon, over all runs, that the accountant read from the
  run's own ledger. It covers whatever was asked of the training data: statistics of features,
  covariances, gradients. Not what was tuned: see each recipe.
* *accuracy*: on the test data, mean of the runs ± their standard deviation (least to most).
* *without*: mean of the same recipe without privacy; *gap*: how far below it the private mean is,
  in points.
* *published*: what others reached at about this epsilon,
  [with citations below](#published-figures); `?` was not checked.
* *time*: CPU seconds of the slowest run (by the clock, on two cores that also had other work) + (by
  the clock: to load the data and to compute features that need no privacy, once for several runs).
"""

_COLUMNS = (
    "recipe",
    "target",
    "certified",
    "runs",
    "accuracy",
    "without",
    "gap",
    "published",
    "goal",
    "time",
)


def text(folder: Path) -> str:
    """The page.

    Args:
        folder: of the results.
    """
    every = recipes().values()
    parts = [
        _HEAD,
        "\n".join(_table(every, folder)),
        "![Accuracy against epsilon](images/utility.png)",
    ]
    parts.append(
        "Dots: mean of the runs, with their range. Crosses: published. Dotted: the same "
        "recipe without privacy.\n"
    )
    parts.append("\n".join(_published()))
    parts += ["\n".join(_section(recipe, folder)) for recipe in every]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def write(folder: Path) -> tuple[Path, Path]:
    """The page and its picture, to docs."""
    PAGE.write_text(text(folder))
    curves.draw(list(recipes().values()), folder, PICTURE)
    return PAGE, PICTURE


# --- the table ---


def _table(every: Iterable[Recipe[Any]], folder: Path) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|---|{'---:|' * (len(_COLUMNS) - 1)}"
    for recipe in every:
        plain = Results.read(folder, recipe.name, None)
        for epsilon in recipe.epsilons:
            yield (
                f"| {' | '.join(_row(recipe, Results.read(folder, recipe.name, epsilon), plain))} |"
            )


def _row(recipe: Recipe[Any], found: Results, plain: Results) -> list[str]:
    epsilon = found.epsilon or 0.0
    name = f"[{recipe.title}: {recipe.name}](#{recipe.name})"
    goal = recipe.goal(epsilon)
    others = _near(recipe.data_set, epsilon)
    if not found.runs:
        return [name, f"{epsilon:g}", "", "0", "not run", "", "", others, _wanted(goal), ""]
    claims = [run.certified.upper for run in found.runs if run.certified is not None]
    return [
        name,
        f"{epsilon:g}",
        upward(max(claims)),
        str(len(found.runs)),
        _accuracy(found),
        f"{plain.mean:.2%}" if plain.runs else "not run",
        f"{_points(plain.mean - found.mean)}" if plain.runs else "",
        others,
        _verdict(goal, found, plain),
        _time(found),
    ]


def _accuracy(found: Results) -> str:
    if len(found.runs) == 1:
        return f"{found.mean:.2%}"
    least, most = min(found.accuracies), max(found.accuracies)
    return f"**{found.mean:.2%}** ± {_points(found.spread)} ({100 * least:.2f} to {100 * most:.2f})"


def _points(share: float) -> str:
    return f"{100 * share:.2f}"


def _time(found: Results) -> str:
    slowest = max(found.runs, key=lambda run: run.cpu_seconds)
    threads = sorted({run.threads for run in found.runs})
    prepared = max(run.prepare_seconds for run in found.runs)
    used = f"{' or '.join(map(str, threads))} thread{'' if threads == [1] else 's'}"
    return (
        f"{slowest.cpu_seconds:.0f} s CPU ({slowest.train_seconds:.0f} s) + ({prepared:.0f} s), "
        f"{used}"
    )


def _near(data_set: str, epsilon: float) -> str:
    figures = [
        f"{figure.accuracy:.1%}{'' if figure.read_in else '?'} at {figure.epsilon:g}"
        for figure in PUBLISHED.get(data_set, ())
        if figure.epsilon is not None
        and max(figure.epsilon / epsilon, epsilon / figure.epsilon) <= _NEAR
    ]
    return "; ".join(figures)


def _wanted(goal: Goal | None) -> str:
    match goal:
        case None:
            return ""
        case Goal(accuracy=float(accuracy)):
            return f"{accuracy:.1%}"
        case _:
            return f"gap {_points(goal.gap or 0.0)}"


def _verdict(goal: Goal | None, found: Results, plain: Results) -> str:
    """Whether the goal is reached, by a mean of enough runs."""
    if goal is None:
        return ""
    if goal.accuracy is not None:
        missing = goal.accuracy - found.mean
    elif plain.runs and goal.gap is not None:
        missing = plain.mean - found.mean - goal.gap
    else:
        return _wanted(goal)
    if missing > 0.0:
        return f"{_wanted(goal)}: missed by {_points(missing)}"
    return (
        f"{_wanted(goal)}: {'reached' if len(found.runs) >= FEWEST else f'not yet {FEWEST} runs'}"
    )


# --- what stands below it ---


def _published() -> Iterator[str]:
    yield "## Published figures\n"
    yield "| data | accuracy | epsilon | by | how | read in |"
    yield "|---|---:|---:|---|---|---|"
    for name, figures in PUBLISHED.items():
        for figure in figures:
            yield f"| {DATA_SETS[name].title} | {' | '.join(_figure(figure))} |"


def _figure(figure: Published) -> list[str]:
    epsilon = "not said" if figure.epsilon is None else f"{figure.epsilon:g}"
    source = figure.read_in or "not checked: from memory"
    return [f"{figure.accuracy:.1%}", epsilon, f"[{figure.citation}]", figure.how, source]


def _section(recipe: Recipe[Any], folder: Path) -> Iterator[str]:
    yield f"## {recipe.name}\n"
    yield f"{recipe.title}: {DATA_SETS[recipe.data_set].about}. {recipe.model}\n"
    yield f"*Tuned:* {recipe.tuned}\n"
    yield f"*Without privacy:* {recipe.without_privacy}\n"
    for epsilon in recipe.epsilons:
        found = Results.read(folder, recipe.name, epsilon)
        if not found.runs:
            continue
        last = found.runs[-1]
        if last.certified is None:
            continue
        target = f"Epsilon {epsilon:g} at delta {last.certified.delta:g}"
        yield (
            f"{target} (`python -m benchmarks.utility {recipe.name} --epsilon {epsilon:g}`): "
            f"{_runs(found)}. Charged:\n"
        )
        yield from (f"* {charge}" for charge in last.certified.charges)
        yield ""
    plain = Results.read(folder, recipe.name, None)
    if plain.runs:
        yield f"Without privacy: {_runs(plain)}.\n"


def _runs(found: Results) -> str:
    versions = " and ".join(
        f"torch {torch}" for torch in sorted({run.software["torch"] for run in found.runs})
    )
    accuracies = ", ".join(f"{accuracy:.2%}" for accuracy in found.accuracies)
    return f"{accuracies} ({max(run.date for run in found.runs)}, {versions})"
