"""A process that takes steps as fast as it can, and says so after each: one byte in a file, there even if it is killed.

    python taker.py LEDGER RELEASED BLOCK STEPS [late]

`late` is a deliberately wrong implementation, for showing that the crash test notices it: it charges after it releases.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import discreet as dp
from support.examples import INFO, STEP


def main() -> None:
    path, released, block, total = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    late = sys.argv[5:] == ["late"]
    out = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = dp.Ledger.open(path)
    killed = [run.number for run in ledger.runs()]
    # What a run before planned is the list; this one takes its place and draws on what is left of it.
    run = ledger.begin(INFO, continues=killed[-1]) if killed else ledger.begin(INFO, [(STEP, total)])
    taken = 0
    while taken < total:
        count = min(block, total - taken)
        if late:
            os.write(out, b"x" * count)
            run.reserve(STEP, count=count)
        else:
            with run.reserve(STEP, count=count) as lease:
                while lease.left:
                    lease.take()
                    os.write(out, b"x")
        taken += count


if __name__ == "__main__":
    main()
