"""All deliberate bugs of tests/mutations, gathered by a program, and the page that shows them."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from support.mutations import Mutation
from support.source import ROOT

PITFALLS = (
    *(f"P{number:02}" for number in range(1, 49)),
    *(f"T{number:02}" for number in range(1, 16)),
)
PAGE = ROOT / "docs" / "mutations.md"
_INTRODUCTION = """# Deliberate bugs, and the test that notices each

Written by `scripts/mutations.py`; do not edit. A bug is made by patching the real code; then pytest
runs one ordinary test of the suite, which must pass on the right code and fail on the broken one.
`make test` does the second for every row; the script does both, each bug in a process of its own.
Seconds are those of the failing test, with its fixtures, on two shared cores. All of these tests
belong to `make test`.
"""
_HEADER = "| pitfalls | bug | what is patched | caught by | seconds |\n|---|---|---|---|---|"
_ROW = re.compile(
    r"^\| (?P<numbers>[PT\d ]*)\| (?P<bug>.+?) \| `[^|]+` \| `[^|]+` \| (?P<seconds>[\d.]+) \|$",
    re.MULTILINE,
)


def catalogue() -> tuple[Mutation, ...]:
    """The list `MUTATIONS` of every file, sorted by pitfall. Two bugs of one name are an error, as
    is a file without a list.
    """
    files = sorted((ROOT / "tests" / "mutations").glob("test_*_mutations.py"))
    found = [
        mutation
        for file in files
        for mutation in importlib.import_module(f"mutations.{file.stem}").MUTATIONS
    ]
    twice = [
        name for name, count in Counter(mutation.name for mutation in found).items() if count > 1
    ]
    if twice:
        raise ValueError(f"names of several mutations: {twice}")
    return tuple(sorted(found, key=lambda mutation: mutation.pitfalls or ("without",)))


def pitfalls_of(mutations: Sequence[Mutation]) -> tuple[str, ...]:
    """The pitfalls that these bugs reproduce."""
    return tuple(sorted({number for mutation in mutations for number in mutation.pitfalls}))


def seconds_on_page() -> dict[str, float]:
    """What the page says, by name."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {
        found["numbers"] + found["bug"]: float(found["seconds"]) for found in _ROW.finditer(text)
    }


def page(mutations: Sequence[Mutation], seconds: Mapping[str, float]) -> str:
    """The whole page, with the seconds that were measured."""
    return "\n".join(_lines(mutations, seconds)) + "\n"


def _lines(mutations: Sequence[Mutation], seconds: Mapping[str, float]) -> Iterator[str]:
    reproduced = pitfalls_of(mutations)
    yield _INTRODUCTION
    yield (
        f"{len(mutations)} bugs, which reproduce {len(reproduced)} of the {len(PITFALLS)} "
        "[pitfalls](pitfalls.md)."
    )
    yield ""
    yield _HEADER
    for one in mutations:
        numbers = "".join(f"{number} " for number in one.pitfalls)
        bug, taken = one.name.removeprefix(numbers), max(0.1, seconds[one.name])
        patched = ", ".join(name.removeprefix("discreet.") for name in one.patched)
        yield f"| {numbers}| {bug} | `{patched}` | `{one.caught_by}` | {taken:.1f} |"
