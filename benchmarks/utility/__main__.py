"""The command line: `python -m benchmarks.utility --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.utility
from benchmarks.utility import page
from benchmarks.utility.recipes import recipes
from benchmarks.utility.results import FOLDER
from benchmarks.utility.run import Series
from discreet.errors import DiscreetError


def main() -> int:
    """Run recipes, list them, or write the page."""
    every = recipes()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.utility",
        description=benchmarks.utility.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=[*every, "all", "page"], metavar="WHAT", help="a recipe, all, or page")
    parser.add_argument("--list", action="store_true", help="the recipes")
    parser.add_argument("--epsilon", type=float, nargs="+", help="targets; by default those of the recipe")
    parser.add_argument("--without-privacy", action="store_true", help="the same recipe without privacy, and nothing else")
    parser.add_argument("--runs", type=int, default=3, help="at each target (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default 2)")
    parser.add_argument("--replace", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets (default data)")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the results")
    asked = parser.parse_args()
    console = Console()
    if asked.list:
        for recipe in every.values():
            console.print(
                f"{recipe.name}: {recipe.title}. {recipe.model} Epsilon {', '.join(f'{e:g}' for e in recipe.epsilons)}."
            )
        return 0
    if asked.what is None:
        parser.error("name a recipe, all, or page; --list shows the recipes")
    if asked.what == "page":
        console.print(f"written: {', '.join(map(str, page.write(asked.results)))}")
        return 0
    torch.set_num_threads(asked.threads)
    for recipe in every.values() if asked.what == "all" else [every[asked.what]]:
        targets: list[float | None] = asked.epsilon or ([None] if asked.without_privacy else list(recipe.epsilons))
        if asked.what == "all":
            targets = [None, *recipe.epsilons]
        try:
            Series(recipe, asked.data, asked.results, console).run(targets, asked.runs, replace=asked.replace)
        except DiscreetError as error:
            console.print(f"{recipe.name}: {error}", style="red")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
