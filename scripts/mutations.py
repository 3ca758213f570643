"""Break the library in every way of the catalogue, and see which test notices.

    python scripts/mutations.py [--write] [--only NAME]

For each bug two runs of pytest on the test that should catch it, in a process of its own: without
the bug it must pass, with it it must fail. `--write` puts the measured table into
docs/mutations.md, `--only` takes the bugs whose name contains NAME.
"""  # noqa: INP001

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

ROOT = Path(__file__).parents[1]
AT_A_TIME = 2


def main() -> int:
    """0 if every bug is caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write docs/mutations.md")
    parser.add_argument(
        "--only", default="", help="part of the name of a bug, as in docs/mutations.md"
    )
    asked = parser.parse_args()
    sys.path[:1] = [
        str(ROOT / "tests"),
        str(ROOT / "src"),
    ]  # in the place of this folder, where `mutations` is this file
    from support.catalogue import PAGE, catalogue, page, seconds_on_page  # noqa: PLC0415  (found once the path is set)

    everything = catalogue()
    chosen = [mutation for mutation in everything if asked.only in mutation.name]
    if not chosen:
        parser.error(
            f"no bug of the catalogue has {asked.only!r} in its name; docs/mutations.md lists them"
        )
    seconds, missed = seconds_on_page(), 0
    for number, (name, taken, problem) in enumerate(_judged(chosen), 1):
        seconds[name] = taken
        missed += bool(problem)
        said = "MISSED" if problem else "caught"
        print(f"{number:3}/{len(chosen)} {said} in {taken:5.1f} s: {name} {problem}", flush=True)  # noqa: T201
    unmeasured = {mutation.name for mutation in everything} - set(seconds)
    if asked.write and not missed and not unmeasured:
        PAGE.write_text(page(everything, seconds))
    elif asked.write:
        print(f"not written: {missed} missed, {len(unmeasured)} never measured")  # noqa: T201
    print(f"{len(chosen) - missed} of {len(chosen)} bugs are caught")  # noqa: T201
    return 1 if missed else 0


def _judged(chosen: Sequence[object]) -> Iterator[tuple[str, float, str]]:
    """Name, seconds and problem of each, two processes at a time, each forked from this one, which
    has imported everything.
    """
    forking = multiprocessing.get_context("fork")
    waiting = list(chosen)
    running: set[Connection] = set()
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            here, there = forking.Pipe(duplex=False)
            forking.Process(target=_judge, args=(waiting.pop(0), there)).start()
            there.close()
            running.add(here)
        for ready in wait(list(running)):
            if isinstance(ready, Connection):
                running.remove(ready)
                yield ready.recv()


def _judge(mutation: object, answer: Connection) -> None:
    from support.broken import outcome_of  # noqa: PLC0415
    from support.mutations import Mutation, broken  # noqa: PLC0415

    if not isinstance(mutation, Mutation):
        raise TypeError
    with tempfile.TemporaryDirectory() as folder:
        before = outcome_of(mutation.caught_by, Path(folder))
        after = broken(mutation, Path(folder))
    problem = (
        "" if before.right and after.caught else f"\n{before}\n{before.text}\n{after}\n{after.text}"
    )
    answer.send((mutation.name, after.seconds, problem))


if __name__ == "__main__":
    raise SystemExit(main())
