"""The command line: `python -m benchmarks.utility --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.utility
from benchmarks.utility import page
from benchmarks.utility.fetch import FETCHED, fetch
from benchmarks.utility.recipes import recipes
from benchmarks.utility.results import FOLDER
from benchmarks.utility.run import Series
from discreet.errors import DiscreetError


def options(names: list[str]) -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.utility",
        description=benchmarks.utility.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=[*names, "all", "fetch", "page"],
        metavar="WHAT",
        help="a recipe, all, fetch (the data), or page",
    )
    parser.add_argument("--list", action="store_true", help="the recipes")
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument(
        "--epsilon", type=float, nargs="+", help="targets; by default those of the recipe"
    )
    targets.add_argument(
        "--without-privacy",
        action="store_true",
        help="the same recipe without privacy, and nothing else",
    )
    parser.add_argument("--runs", type=int, default=3, help="at each target (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default 2)")
    parser.add_argument("--replace", action="store_true", help="forget the results of earlier runs")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="folder of the data sets (default data)"
    )
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the results")
    return parser


def main() -> int:
    """Run recipes, list them, or write the page."""
    every = recipes()
    parser, console = options(list(every)), Console()
    asked = parser.parse_args()
    if asked.list:
        for recipe in every.values():
            epsilons = ", ".join(f"{epsilon:g}" for epsilon in recipe.epsilons)
            console.print(f"{recipe.name}: {recipe.title}, epsilon {epsilons}. {recipe.model}")
        return 0
    if asked.what is None:
        parser.error("name a recipe, all, fetch, or page; --list shows the recipes")
    if asked.what == "fetch":
        return _fetch(asked.data, console)
    if asked.what == "page":
        console.print(f"written: {', '.join(map(str, page.write(asked.results)))}")
        return 0
    if asked.what == "all" and (asked.epsilon or asked.without_privacy):
        parser.error(
            "all runs every recipe at all of its targets and without privacy; name one recipe "
            "to choose"
        )
    torch.set_num_threads(asked.threads)
    failed = 0
    for recipe in every.values() if asked.what == "all" else [every[asked.what]]:
        targets: list[float | None] = list(asked.epsilon or recipe.epsilons)
        if asked.what == "all" or asked.without_privacy:
            targets = [None, *targets] if asked.what == "all" else [None]
        try:
            Series(recipe, asked.data, asked.results, console).run(
                targets, asked.runs, replace=asked.replace
            )
        except DiscreetError as error:
            console.print(f"{recipe.name}: {error}", style="red")
            failed = 1
    return failed


def _fetch(folder: Path, console: Console) -> int:
    """All data sets that are not there yet."""
    failed = 0
    for name in FETCHED:
        try:
            console.print(f"{name}: {fetch(name, folder)}")
        except DiscreetError as error:
            console.print(f"{name}: {error}", style="red")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
