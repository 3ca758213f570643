"""Warnings of torch about what is new or old: errors in tests, and not our subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """For calls that torch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
