"""A table of all cases: `python -m tests.couplings [word ...]`; `--collect` for names alone.

A word chooses the cases whose name has it; `--full` runs the slow ones too.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from . import harness
from .catalogue import CASES
from .scenes import Case, Timing


def _chosen(words: list[str], *, full: bool) -> Iterator[tuple[Case, Timing]]:
    for case in CASES:
        if (full or not case.full) and all(word in case.name for word in words):
            for timing in case.timings:
                yield case, timing


def main(arguments: list[str]) -> int:
    """Print a row for each case and timing; the exit code is 1 if one is unsafe."""
    words = [word for word in arguments if not word.startswith("--")]
    chosen = list(_chosen(words, full="--full" in arguments))
    if "--collect" in arguments:
        for case, timing in chosen:
            print(f"{case.name}, {timing.name}")
        return 0

    warnings.simplefilter("error")  # as in the tests
    torch.set_num_threads(1)
    unsafe: Counter[str] = Counter()
    one_sided = 0
    total: Counter[str] = Counter()
    for case, timing in chosen:
        verdict = harness.judge(case, timing)
        total[case.kind] += 1
        unsafe[case.kind] += not verdict.safe
        one_sided += verdict.one_sided
        print(f"{case.name:<64} {timing.name:<13} {verdict.words}", flush=True)

    print()
    for kind in total:
        cases = len({case.name for case, _ in chosen if case.kind == kind})
        print(f"{kind:<12} {cases:>4} cases {total[kind]:>5} runs {unsafe[kind]:>5} unsafe")
    print(f"{'all':<12} {'':>4}       {total.total():>5} runs {unsafe.total():>5} unsafe")
    print(f"{one_sided} refusals depend on the special record")
    return 1 if unsafe.total() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
