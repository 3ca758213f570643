"""Real processes, killed at every named point of the charging path and at random times: does the
ledger cover everything?

    python -m benchmarks.crashes --kills 10000 [--jobs 4] [--seed 0] [--folder DIR] [--bug NAME]
    [--json FILE]

Each ledger loses several processes, is reopened after each and compared with what they really
released, by their own
word: one byte a step, written before the step could have been seen. Goals: no step released and not
charged, no file that cannot be read, no process that cannot go on. Exit code 1 otherwise. What a
victim does is in tests/support/victims.py, where it dies in killing.py, what is compared in
crashes.py. The time goes into waiting for the disk: about ten durable commits for each victim,
several processes at once (`--jobs`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.crashes import BUGS, Tally, Verdict, campaigns


def print_table(verdict: Verdict) -> None:
    """One line for each point."""
    print(
        f"{'point':44}{'kills':>8}{'released':>10}{'charged':>10}{'excess':>8}{'under':>7}{'damaged':>9}"
    )
    for name, tally in [*verdict.points.items(), ("all", verdict.total)]:
        print(f"{name:44}{row(tally)}")


def row(tally: Tally) -> str:
    """The numbers of one line."""
    excess = tally.charged - tally.released + tally.under
    return (
        f"{tally.kills:>8,}{tally.released:>10,}{tally.charged:>10,}{excess:>8,}"
        f"{tally.under:>7,}{tally.damaged:>9,}"
    )


def main() -> int:
    """Run a campaign and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=1_000, help="processes to kill (default: 1000)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        help="ledgers at once (default: 2 a core)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of points and lives; random times stay random"
    )
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to write (default: a temporary folder)"
    )
    parser.add_argument(
        "--bug", choices=BUGS, default="", help="put a deliberate bug in, to see it noticed"
    )
    parser.add_argument("--json", type=Path, default=None, help="also write the numbers there")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        verdict = campaigns(
            Path(folder), options.kills, jobs=options.jobs, seed=options.seed, bug=options.bug
        )
    seconds = time.perf_counter() - start
    print_table(verdict)
    for error in verdict.errors[:20]:
        print(error)
    total = verdict.total
    print(
        f"{total.kills:,} kills on {verdict.ledgers:,} ledgers in {seconds:.0f} s: {total.under} "
        "under-counts, "
        f"{total.damaged} damaged files, {len(verdict.errors)} other errors; "
        f"{verdict.journals:,} left a transaction under way"
    )
    if options.json is not None:
        options.json.write_text(verdict.as_json())
    return 0 if verdict.sound else 1


if __name__ == "__main__":
    sys.exit(main())
