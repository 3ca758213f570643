"""Two texts that mean the same: what one run, one installation or one processor decides does not
count.

The last digits of a float depend on the instructions that a library picks for the processor. So a
number is compared as a number, and a digest is told by its form, never by how many digits follow
each other.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

DIGITS = 4  # to which numbers are compared: what the commands print of a bound
ANY = "..."  # a line that stands for any number of lines

_TOKENS = re.compile(
    r"(?P<digest>(?<![\w.])(?:[0-9a-f]{64}|(?=\d*[a-f])[0-9a-f]{32})(?![\w.]*\w)|(?<![\w.])[0-9a-f]{16}(?=\.\.\.))"
    r"|(?P<date>\b\d{4}-\d\d-\d\dT[\d:+]+)"
    r"|(?P<number>(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w))"
    r"|(?P<rule>-{3,})"  # of a table: as long as its column is wide
    r"|(?P<word>\w+(?:\.\w+)*|[^\w\s])"
)
_SOFTWARE = re.compile(
    r"(?:\b[a-z][\w-]* \d[\w.+]*(?:, |(?= \|)))+"
)  # name and version, name and version


def difference(expected: Sequence[str], found: Sequence[str]) -> str:
    """The first line that is missed, or nothing: line for line, and a line `...` stands for any
    number of lines.
    """
    places = {0}  # how many lines of what was found may lie behind us
    for line in expected:
        behind = places
        if line == ANY:
            places = set(range(min(behind), len(found) + 1))
        else:
            places = {
                place + 1 for place in behind if place < len(found) and same(line, found[place])
            }
        if not places:
            return (
                f"expected {line!r}, found "
                f"{[found[place] for place in sorted(behind) if place < len(found)]}"
            )
    return "" if len(found) in places else f"not expected: {list(found[max(places) :])}"


def same(expected: str, found: str) -> bool:
    """One word after the other, whatever the space between them.

    Whole numbers (counts, sizes) are the same if they are equal, others if they differ by at most
    one in the fourth digit. A digest is the same as any other of its length, a date as any other,
    the software of one installation as that of another.
    """
    ours, theirs = (_tokens(text) for text in (expected, found))
    return len(ours) == len(theirs) and all(
        _alike(*pair) for pair in zip(ours, theirs, strict=True)
    )


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kind and text."""
    text = _SOFTWARE.sub("SOFTWARE", text) if "python" in text else text
    return [(str(token.lastgroup), token[0]) for token in _TOKENS.finditer(text)]


def _alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    (kind, ours), (another, theirs) = one, other
    if kind != another:
        return False
    match kind:
        case "digest":
            return len(ours) == len(theirs)
        case "number":
            return _close(Decimal(ours), Decimal(theirs), whole=not set(ours + theirs) & {".", "e"})
        case "date" | "rule":
            return True
        case _:
            return ours == theirs


def _close(one: Decimal, other: Decimal, *, whole: bool) -> bool:
    if whole or not one or not other:
        return one == other
    return abs(one - other) <= Decimal(10) ** (max(one.adjusted(), other.adjusted()) - DIGITS + 1)
