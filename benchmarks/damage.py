"""Random edits of ledger files, by somebody who does not compute the chain anew: is each detected
and named, or harmless?

    python -m benchmarks.damage --edits 10000 [--seed 0]

Harmless: the snapshot is equal in every field, the head is equal, and the ledger verifies. Anything
else that is read without an error, or an error that is not the ledger's own, ends the program. The
edits are in tests/support/edits.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.damage import Outcomes, campaign, kinds_of_damage


def print_table(outcomes: Outcomes) -> None:
    """One line for each kind of edit."""
    print(f"{'of':20}{'edit':44}{'detected':>10}{'harmless':>10}")
    for damage in kinds_of_damage():
        kind = damage.part, damage.name
        print(
            f"{damage.part:20}{damage.name:44}{outcomes.detected[kind]:>10,}{outcomes.harmless[kind]:>10,}"
        )
    print(f"{'all':64}{outcomes.detected.total():>10,}{outcomes.harmless.total():>10,}")


def main() -> None:
    """Make the edits and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=1_000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the edits")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = campaign(Path(folder), options.edits, options.seed)
    print_table(outcomes)
    errors = ", ".join(f"{name} {count:,}" for name, count in outcomes.errors.most_common())
    print(f"{outcomes.total:,} edits in {time.perf_counter() - start:.0f} s; errors: {errors}")


if __name__ == "__main__":
    main()
