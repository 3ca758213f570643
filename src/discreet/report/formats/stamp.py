r"""What a report says, for machines: which state of which ledger, and the claim; on the page
itself, without a script.

    {"stamp": 1, "ledger": "...", "head": "...", "epsilon": 2.99, "delta": 1e-05, ...}

The same line stands in every format, so that `discreet verify --report` can read it back years
later and compute the claim anew. A stamp is no signature: whoever can edit the page can edit it.
What it says is compared with the ledger, and the page's own sentences with what it says.
"""

from __future__ import annotations

import html
import json
import re
import sys
from dataclasses import asdict, dataclass

from discreet._digits import upward
from discreet._strict_json import read_object
from discreet.errors import DiscreetError, ParameterError
from discreet.report.formats.words import exact

__all__ = ["Stamp", "read_stamp"]

_VERSION = 1
# A stamp holds no braces of its own (see `Stamp.line`), so that it ends at the first one.
_LINE = re.compile(r'\{"stamp": 1, [^{}]*\}')
# The claim as `headline.sentence` writes it.
_CLAIM = re.compile(r"\(([^(),]+), ([^(),]+)\)-differentially private")
# What could be markup in some format; none of it is JSON's own.
_MARKUP = re.compile(r"[<>&`*()|'$~]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The claim of a report, and the rows it is about.

    Args:
        ledger: identity of the ledger.
        head: digest of the last row that the report is about.
        epsilon: the claim, not rounded; None where there is no guarantee.
        delta: of the claim.
        limit: the epsilon near which the claim was computed more closely; None for none.
        unit, adjacency: what is protected, against which change of the data.
        voided_by: names of the marks, joined; empty if there are none.
    """

    ledger: str
    head: str
    epsilon: float | None
    delta: float
    limit: float | None
    unit: str
    adjacency: str
    voided_by: str

    def line(self) -> str:
        """The stamp in one line of ASCII that no format takes for markup."""
        text = json.dumps({"stamp": _VERSION, **asdict(self)}, ensure_ascii=True, allow_nan=False)

        # Escapes of JSON's own: whoever reads the line back needs to know nothing of the format.
        body = _MARKUP.sub(lambda character: f"\\u{ord(character[0]):04x}", text[1:-1])
        return "{" + body.replace("{", "\\u007b").replace("}", "\\u007d") + "}"

    def claim(self) -> str:
        """The claim as the page's sentences say it; empty where there is none."""
        if self.epsilon is None:
            return ""

        return f"({upward(self.epsilon)}, {exact(self.delta)})"

    def contradictions(self, text: str) -> tuple[str, ...]:
        """Where the sentences of the report `text` say something else than its stamp; one sentence
        each.
        """
        plain = html.unescape(text)
        stated = {f"({epsilon}, {delta})" for epsilon, delta in _CLAIM.findall(plain)}
        claimed = {self.claim()} - {""}
        problems = []

        # Every sentence counts: a page may not say one thing at its top and another below.
        if stated != claimed:
            said, stamped = (
                ", ".join(sorted(claims)) or "no claim" for claims in (stated, claimed)
            )
            problems.append(f"The report says {said} in its sentences and {stamped} in its stamp.")

        # The head stands in the stamp, and in the text at least once more.
        if plain.count(self.head) < 2:
            problems.append("The report names another head in its text than in its stamp.")

        return tuple(problems)


def read_stamp(text: str) -> Stamp:
    """The stamp of a report, whatever its format.

    Raises:
        DiscreetError: there is none, or several.
    """
    # As a set: a page that repeats its stamp to the letter still says one thing.
    lines = set(_LINE.findall(html.unescape(text))) or _in_json(text)
    if len(lines) != 1:
        raise _wrong(
            "one line that says which ledger the report is about",
            "none" if not lines else f"{len(lines)} of them",
        )

    return _parsed(lines.pop())


def _in_json(text: str) -> set[str]:
    """The stamp of a report in JSON, where it is an object of its own."""
    # What is no JSON object, or has no stamp, is no report; a key that stands twice is refused.
    try:
        return {json.dumps(read_object("Stamp", text)["stamp"])}
    except (ParameterError, KeyError):
        return set()


def _parsed(line: str) -> Stamp:
    # The page may come from anybody: whatever is not exactly a stamp is refused. A field too many
    # or too few is a TypeError of `Stamp` itself.
    try:
        data = read_object("Stamp", line)
        data.pop("stamp", None)
        stamp = Stamp(**data)
    except (ParameterError, TypeError):
        raise _wrong("a stamp that this version can read", "another one") from None

    # Types are checked here, since a dataclass takes whatever it is given.
    texts = (stamp.ledger, stamp.head, stamp.unit, stamp.adjacency, stamp.voided_by)
    numbers = [value for value in (stamp.epsilon, stamp.delta, stamp.limit) if value is not None]
    sound = (
        isinstance(stamp.delta, float)
        and all(map(_is_size, numbers))
        and all(isinstance(value, str) for value in texts)
    )

    if not sound:
        raise _wrong("a stamp with numbers and texts in their places", "other values")

    return stamp


def _is_size(value: object) -> bool:
    """Whether this is a number from 0 to the largest that a float can hold."""
    return isinstance(value, int | float) and 0.0 <= value <= sys.float_info.max


def _wrong(expected: str, got: str) -> DiscreetError:
    return DiscreetError(
        expected=expected,
        got=got,
        do="Pass a report that `discreet report` wrote, as it was written.",
    )
