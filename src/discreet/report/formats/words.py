"""Numbers and events in words. A bound is never rounded to its flattering side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from discreet._digits import downward
from discreet.ledger.events import Query
from discreet.ledger.folding import folded_noise_multiplier
from discreet.units import Adjacency, Unit

__all__ = [
    "EMPTY_CELL",
    "adjacency_words",
    "cell_text",
    "exact",
    "label_words",
    "mark_words",
    "measured",
    "moment",
    "multiplier",
    "people",
    "percent",
    "plain_json",
]

_T = TypeVar("_T")

EMPTY_CELL = "—"
"""What stands in a cell that has nothing to say."""


def exact(number: float) -> str:
    """A parameter, as it is: the shortest text that reads back as the same number.

    >>> exact(600.0), exact(0.1), exact(1e-06)
    ('600', '0.1', '1e-06')
    """
    # Below 1e15 every whole number is one of its own, and its digits are all there.
    is_whole = number.is_integer() and abs(number) < 1e15
    return f"{number:.0f}" if is_whole else repr(number)


def cell_text(value: _T | None, write: Callable[[_T], str], otherwise: str = EMPTY_CELL) -> str:
    """What `write` makes of a value, or another text where there is none.

    >>> cell_text(0.5, exact), cell_text(None, exact, "no limit")
    ('0.5', 'no limit')
    """
    return otherwise if value is None else write(value)


def percent(share: float) -> str:
    """A share for people, rounded up to a tenth of a percent.

    >>> percent(0.03921), percent(1.0)
    ('4 %', '100 %')
    """
    # 2^-50 is more than the product is rounded by: a share of 0.04 stays 4 %, and is not 4.1 %.
    return f"{math.ceil(1000.0 * share * (1.0 - 2.0**-50)) / 10.0:g} %"


def people(share: float) -> str:
    """How many of a hundred people a share is, rounded up to a tenth.

    >>> people(0.03921)
    '4'
    """
    return percent(share).removesuffix(" %")


def measured(number: float) -> str:
    """A measured lower bound: as it was written down, in few digits, rounded down.

    >>> measured(1.2), measured(1.23456)
    ('1.2', '1.234')
    """
    return downward(Decimal(repr(number)))


def moment(text: str) -> str:
    """A date and time in UTC for people; anything else as it is.

    >>> moment("2026-01-31T12:00:05+00:00")
    '2026-01-31 12:00:05 UTC'
    """
    # Texts of a ledger are other people's: what has another form is shown, not guessed at.
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\+00:00", text)
    return f"{match[1]} {match[2]} UTC" if match else text


def plain_json(value: Any) -> Any:
    """A value with tuples as lists, and infinity, for which JSON has no number, as a text.

    >>> plain_json({"epsilon": float("inf"), "sampling": ("full batch",)})
    {'epsilon': 'infinity', 'sampling': ['full batch']}
    """
    match value:
        case Mapping():
            return {str(name): plain_json(entry) for name, entry in value.items()}

        case list() | tuple():
            return [plain_json(entry) for entry in value]

        # Not NaN: no bound may be one, and whoever writes the text refuses it.
        case float() if math.isinf(value):
            return "infinity" if value > 0 else "-infinity"

    return value


# --- events ---


def multiplier(query: Query) -> float | None:
    """Noise over sensitivity, rounded down; None for queries that have no such number."""
    # Folding a single query gives its ratio, rounded down.
    if query.gaussian_cost is not None:
        return folded_noise_multiplier([query])

    if query.sensitivity_and_noise is None:
        return None

    sensitivity, noise = query.sensitivity_and_noise
    return noise / sensitivity


def label_words(label: str) -> str:
    """The name of a run, for a sentence.

    >>> label_words("final"), label_words("")
    ('“final”', 'without a name')
    """
    return f"“{label}”" if label else "without a name"


def adjacency_words(adjacency: Adjacency, unit: Unit) -> str:
    """Which two data sets cannot be told apart."""
    match adjacency:
        case Adjacency.ADD_OR_REMOVE:
            return (
                f"Two data sets are neighbours if one has exactly one {unit} more than the other. "
                "How many records there are is protected as well, as far as the releases tell; a "
                "number that the plan names is public."
            )
        case Adjacency.ZERO_OUT:
            return (
                f"Two data sets are neighbours if they differ in one {unit}, which in one of them "
                "contributes nothing (zeros in place of its vectors). How many records there are "
                "counts as public."
            )
        case Adjacency.REPLACE_ONE:
            return (
                f"Two data sets are neighbours if one {unit} is exchanged for any other. How many "
                "records there are counts as public. For the same release, epsilon is larger here "
                "than under add-or-remove or zero-out."
            )


_MARKS = {
    "unsafe_test_key": "noise and samples came from a fixed test key, which others can know",
    "unsafe_no_privacy": "something was released without clipping and without noise",
    "unsafe_own_draw": "samples were drawn by the user's own code, whose law nobody checked",
}


def mark_words(mark: str) -> str:
    """A mark with what it means, where that is known.

    >>> mark_words("unsafe_example")
    'unsafe_example'
    """
    return f"{mark} ({_MARKS[mark]})" if mark in _MARKS else mark
