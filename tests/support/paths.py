"""Which code sums and norms run through, for tests that compare the two."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from discreet.numerics import _compiled

Result = TypeVar("Result")


@contextmanager
def compiled_from(numbers: float) -> Iterator[None]:
    """Compiled code from the first number on (-1), or never (infinity)."""
    before = _compiled._WORTH, _compiled.worth_it
    _compiled._WORTH = numbers  # type: ignore[assignment]
    if math.isinf(numbers):
        _compiled.worth_it = lambda _: False  # type: ignore[assignment]
    try:
        yield
    finally:
        _compiled._WORTH, _compiled.worth_it = before


def on_both(compute: Callable[[], Result]) -> tuple[Result, Result]:
    """What the NumPy path gives, and what the compiled one does."""
    with compiled_from(math.inf):
        numpy = compute()
    with compiled_from(-1):
        return numpy, compute()
