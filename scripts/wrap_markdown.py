"""Wrap the prose of Markdown files at 100 columns.

    python scripts/wrap_markdown.py FILE ...           rewrites files
    python scripts/wrap_markdown.py --check FILE ...   names wider lines; exit code 1 if any

Only paragraphs, list items and quotations with a wide line are wrapped anew. Tables, code, headings
and lines without a blank to break at stay as they are.
"""  # noqa: INP001

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
_FENCE = re.compile(r"^\s*(```|~~~)")
_OTHER = re.compile(r"^\s*(\||#|<|!\[|\[\w+\]:|---)")
_ITEM = re.compile(r"^(?P<indent>[\s>]*)(?P<marker>(?:[-*+]|\d+\.)\s+)?")
# At the start of a line these would begin a list, a heading, a quotation or a table.
_MARKERS = re.compile(r" (?=>|(?:[-*+#|]|=+|\d+\.)(?: |$))")
_GLUE = "\0"


def main() -> int:
    """Wrap, or check; the number of wide lines decides about the exit code."""
    names = [name for name in sys.argv[1:] if name != "--check"]
    wide = 0
    for path in map(Path, names):
        text = path.read_text()
        if "--check" not in sys.argv:
            text = wrapped(text)
            path.write_text(text)
        for number in wide_lines(text):
            sys.stdout.write(f"{path}:{number}: wider than {WIDTH} columns\n")
            wide += 1
    return int(wide > 0)


def wrapped(text: str) -> str:
    """The text with its wide paragraphs wrapped."""
    lines: list[str] = []
    for block, is_prose in _blocks(text):
        wide = is_prose and any(len(line) > WIDTH for line in block)
        lines += _paragraph(block) if wide else block
    return "\n".join(lines) + "\n"


def wide_lines(text: str) -> list[int]:
    """Numbers of the lines of prose that are too wide, and could be broken."""
    numbers, line_number = [], 0
    for block, is_prose in _blocks(text):
        for line in block:
            line_number += 1
            if is_prose and len(line) > WIDTH and " " in line.strip():
                numbers.append(line_number)
    return numbers


def _blocks(text: str) -> Iterator[tuple[list[str], bool]]:
    """Lines that belong together, and whether they are prose."""
    block: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        is_other = bool(fence or mark or _OTHER.match(line) or not line.strip(" >"))
        begins = is_other or _ITEM.match(line)["marker"] or _indent(line) != _hanging(block)  # type: ignore[index]
        if block and begins:
            yield block, True
            block = []
        if is_other:
            yield [line], False
        else:
            block.append(line)
        if mark:
            fence = "" if fence == mark[1] else fence or mark[1]
    if block:
        yield block, True


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" >"))]


def _hanging(block: list[str]) -> str:
    """The indentation of the lines that follow the first one of a block."""
    if not block:
        return ""
    if len(block) > 1:
        return _indent(block[1])
    item = _ITEM.match(block[0])
    marker = item["marker"] if item else None
    return _indent(block[0]) + " " * len(marker or "")


def _paragraph(block: list[str]) -> list[str]:
    first = _ITEM.match(block[0])
    head = (first["indent"] + (first["marker"] or "")) if first else ""
    body = [block[0][len(head) :], *(line.lstrip(" >") for line in block[1:])]
    text = _MARKERS.sub(_GLUE, " ".join(part.strip() for part in body))
    lines = textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=head,
        subsequent_indent=_hanging(block),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


if __name__ == "__main__":
    sys.exit(main())
