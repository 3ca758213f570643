"""The recipes: each module here has a tuple `RECIPES`, and is found by being here."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from benchmarks.utility.data import DATA_SETS
from benchmarks.utility.recipe import Recipe

__all__ = ["recipes"]


def recipes() -> dict[str, Recipe[Any]]:
    """All of them by name, those of one data set together."""
    modules = [
        import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
        if found.name[0] != "_"
    ]
    order = list(DATA_SETS)
    every: list[Recipe[Any]] = [recipe for module in modules for recipe in module.RECIPES]
    every.sort(key=lambda recipe: (order.index(recipe.data_set), recipe.name))
    return {recipe.name: recipe for recipe in every}
