"""Print the verdict of every model: `python -m tests.architectures [--json FILE] [--page FILE]`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from .catalogue import entries
from .harness import Verdict, judge


def main() -> int:
    """Judge the models that match a pattern, or all; return 1 if one is not acceptable."""
    parser = argparse.ArgumentParser(prog="tests.architectures", description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], help='such as "vision/*"')
    parser.add_argument("--json", type=Path, help="a file for the verdicts")
    parser.add_argument(
        "--page", type=Path, help="a Markdown file for those that are not computed together"
    )
    options = parser.parse_args()
    logging.disable(logging.WARNING)

    verdicts: dict[str, Verdict] = {}
    faults = 0
    for entry in entries():
        if not any(fnmatch(entry.name, pattern) for pattern in options.patterns):
            continue
        verdict = judge(entry)
        verdicts[entry.name] = verdict
        faults += verdict.outcome not in entry.acceptable
        _print_row(entry.name, verdict, is_acceptable=verdict.outcome in entry.acceptable)
        if options.json is not None:
            options.json.write_text(json.dumps(_as_json(verdicts), indent=1))

    counts = Counter((verdict.outcome, verdict.route) for verdict in verdicts.values())
    summary = ", ".join(f"{count} {outcome} {route}" for (outcome, route), count in counts.items())
    if options.page is not None:
        options.page.write_text(_as_page(verdicts))
    seconds = sum(verdict.seconds for verdict in verdicts.values())
    _print(f"{len(verdicts)} models in {seconds:.0f} s: {summary}; {faults} faults")
    return min(faults, 1)


def _print_row(name: str, verdict: Verdict, *, is_acceptable: bool) -> None:
    mark = " " if is_acceptable else "!"
    reason = " ".join(verdict.reason.split())[:160]
    columns = f"{mark} {name:<60} {verdict.outcome:<8} {verdict.route:<6} {verdict.seconds:6.2f} s"
    _print(f"{columns}  {verdict.distance:8.2g}  {reason}")


def _print(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def _as_page(verdicts: dict[str, Verdict]) -> str:
    """Counts, and every model that is not computed together, with the reason."""
    slow = {name: verdict for name, verdict in verdicts.items() if not verdict.is_fast}
    rows = []
    for name, verdict in slow.items():
        reason = _in_a_cell(verdict.reason)
        rows.append(f"| `{name}` | {verdict.outcome} | {reason} |")
    fast = len(verdicts) - len(slow)
    return _PAGE.format(models=len(verdicts), fast=fast, rows="\n".join(rows))


_PAGE = """# Which models are computed together

{models} models and losses of torch, transformers and peft were held against a loop over single
records (`python -m tests.architectures --page docs/models.md` writes this page). {fast} of them are
proved and computed for all records at once; none is wrong. The others are computed record by
record, or refused because they keep something of a record. The reason names the operation.

| model | outcome | why not together |
|---|---|---|
{rows}
"""


def _in_a_cell(reason: str) -> str:
    return " ".join(reason.split())[:200].replace("|", "\\|")


def _as_json(verdicts: dict[str, Verdict]) -> dict[str, dict[str, object]]:
    return {
        name: {
            "verdict": verdict.outcome,
            "fast": verdict.is_fast,
            "reason": verdict.reason,
            "distance": verdict.distance,
            "seconds": round(verdict.seconds, 3),
        }
        for name, verdict in verdicts.items()
    }


if __name__ == "__main__":
    sys.exit(main())
