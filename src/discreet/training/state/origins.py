"""Whose code is it? By the file in which it is, since names can lie.

own          the user's: scripts, notebooks, packages that are not installed
installed    packages of others, which may keep state for a loss
library      Python's own, torch, NumPy and this one: their state is not a loss's
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["Origin", "origin_of_class", "origin_of_namespace"]


class Origin(Enum):
    """Whose code something is."""

    OWN = auto()
    INSTALLED = auto()
    LIBRARY = auto()


_NAMES_OF_LIBRARIES = frozenset(
    {"builtins", "discreet", "numpy", "torch"} | sys.stdlib_module_names
)
_FOLDERS_OF_LIBRARIES = tuple(
    f"{folder}/"
    for folder in (
        *(Path(package.__file__).parent for package in (torch, np) if package.__file__),
        Path(__file__).parents[2],
    )
)
_FOLDERS_OF_PYTHON = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")


@lru_cache(maxsize=4096)
def _origin_of_module(file: str, name: str) -> Origin:
    # What has no file was built in, or is made by hand, as a notebook is.
    if not Path(file).is_absolute():
        is_library = name.partition(".")[0] in _NAMES_OF_LIBRARIES
        return Origin.LIBRARY if is_library else Origin.OWN

    if file.startswith(_FOLDERS_OF_LIBRARIES):
        return Origin.LIBRARY

    # Before Python's own folder, in which installed packages are, too.
    if any(folder in file for folder in _INSTALLED):
        return Origin.INSTALLED

    return Origin.LIBRARY if file.startswith(_FOLDERS_OF_PYTHON) else Origin.OWN


def origin_of_namespace(namespace: Mapping[str, Any]) -> Origin:
    """Whose the globals of a module are."""
    file, name = namespace.get("__file__"), namespace.get("__name__")
    return _origin_of_module(file if isinstance(file, str) else "", str(name))


@lru_cache(maxsize=4096)
def origin_of_class(kind: type) -> Origin:
    """Whose a class is."""
    module = sys.modules.get(str(kind.__module__))
    origin = Origin.OWN if module is None else origin_of_namespace(vars(module))
    if origin is not Origin.LIBRARY or kind.__module__ == "builtins":
        return origin

    # What Python's library makes for a user (`types.new_class`) says that it is Python's.
    place: Any = module
    for name in kind.__qualname__.split("."):
        if name == "<locals>":
            return origin

        place = getattr(place, name, None)

    return origin if place is kind else Origin.OWN
