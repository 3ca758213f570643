"""Everything that the library says and releases, as text: does a change of the code change a word?

    python scripts/golden.py [--only NAME] --write FILE.json      what this tree says
    python scripts/golden.py [--only NAME] --compare OTHER_SRC    this tree and an earlier one

The questions are in two files:

    golden_words.py      plans and their files, calibration, guarantees in full precision, ledgers
                         row by row, what budgets admit and refuse, reports in every format, the
                         command line
    golden_numbers.py    samples, noise and what the NumPy engines release with a test key, tuning,
                         audits, errors

They use public names alone, so the same script runs on an older and on a newer source tree. Not
asked here: what the PyTorch engine releases, which is the subject of `digests.py`.

Whatever differs from one run to the next is taken from elsewhere before the library is imported:
the date, the versions of installed packages, random names, and the keys of the operating system.
So digests of ledgers are compared too, and with them every byte of every row. A tree that takes
names or keys in another order within a part has other digests from there on.

`--compare` runs both trees in processes of their own, puts the words of `RENAMED` into what the
earlier one says, and prints all differences. Both run on one machine, because another processor may
give other bits. Exit code 1 if anything differs, 2 if a tree cannot be run or nothing was asked.
"""  # noqa: INP001

from __future__ import annotations

import argparse
import datetime as dt
import difflib
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import TypeAlias

SOURCE = Path(__file__).parents[1] / "src"

RENAMED: dict[str, str] = {}
"""Words of the earlier tree, and what they are called now."""

BROKEN_OFF = "broken off"
"""Title in the place of the answers that a part still owed when an error ended it."""

Answers: TypeAlias = dict[str, list[str]]
"""The lines of every answer, by the title of its question."""


def main() -> int:
    """0, or 1 if two trees differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--write", metavar="FILE", type=Path, help="write what this tree says")
    task.add_argument("--compare", metavar="OTHER_SRC", type=Path, help="source of an earlier tree")
    parser.add_argument("--only", default="", metavar="NAME", help="parts with this in their name")
    parser.add_argument("--source", default=SOURCE, metavar="SRC", type=Path, help="of this tree")
    asked = parser.parse_args()
    if asked.compare is not None:
        return compare(asked.source, asked.compare, asked.only)
    answers = answers_of(asked.source.resolve(), asked.only)
    text = json.dumps(answers, indent=1, sort_keys=True) + "\n"
    asked.write.write_text(text, encoding="utf-8")
    return 0


def _say(text: str, *, aside: bool = False) -> None:
    print(text, file=sys.stderr if aside else sys.stdout, flush=True)


# --- one tree ---


def answers_of(tree: Path, part_of_name: str) -> Answers:
    """All answers of the parts with this in their name."""
    names = Names()
    freeze(names)
    sys.path.insert(0, str(tree))
    # Imported here: what they take from the system must be replaced before.
    from golden_numbers import NUMBERS  # noqa: PLC0415
    from golden_words import WORDS  # noqa: PLC0415

    import discreet  # noqa: PLC0415

    if not Path(discreet.__file__).is_relative_to(tree):
        raise ImportError(f"{tree} was asked for, and {discreet.__file__} was imported")
    answers: Answers = {}
    for part in (*WORDS, *NUMBERS):
        if part_of_name in part.__name__:
            start = time.perf_counter()
            names.restart()
            answers |= answers_of_part(part)
            _say(f"{time.perf_counter() - start:5.1f} s  {part.__name__}", aside=True)
    return answers


def answers_of_part(part: Callable[[], Iterator[tuple[str, str]]]) -> Answers:
    """The lines of all answers; an error ends a part, and the next one is asked nevertheless."""
    answers: Answers = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        try:
            for title, text in part():
                lines = text.replace(folder, "FOLDER").splitlines()
                answers.setdefault(f"{part.__name__}: {title}", []).extend(lines)
        except Exception:  # noqa: BLE001
            answers[f"{part.__name__}: {BROKEN_OFF}"] = traceback.format_exc().splitlines()
    return answers


class Names:
    """Bytes in the place of random ones: different in every call, the same in every run."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count()

    def restart(self) -> None:
        """Begin again, so that one part does not depend on how many names another took."""
        self._numbers = itertools.count()

    def take(self, size: int) -> bytes:
        """The next bytes."""
        return hashlib.shake_256(str(next(self._numbers)).encode()).digest(size)


def freeze(names: Names) -> None:
    """Replace what differs from run to run: the date, versions, names and keys, the terminal."""
    os.environ.update(OMP_NUM_THREADS="1", COLUMNS="100", NO_COLOR="1")
    # Packages look at versions and at the date while they are imported: so they are imported first.
    # All of them, because a ledger lists those that are loaded, whatever a tree imports when.
    for package in ("cryptography", "scipy.stats", "typer"):
        importlib.import_module(package)

    class Noon(dt.datetime):
        """A clock that stands still."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Noon:
            return cls(2026, 1, 31, 12, tzinfo=tz)

    replaced = {
        (dt, "datetime"): Noon,
        (importlib.metadata, "version"): lambda _: "1.0",
        (platform, "python_version"): lambda: "3.0",
        (secrets, "token_hex"): lambda size: names.take(size).hex(),
        (os, "urandom"): names.take,
    }
    for (module, name), stand_in in replaced.items():
        setattr(module, name, stand_in)


# --- two trees ---


def compare(source: Path, earlier: Path, part_of_name: str) -> int:
    """Print where two trees differ; 1 if they do, 2 if there is nothing to compare."""
    try:
        now = written_answers(source.resolve(), part_of_name)
        before = written_answers(earlier.resolve(), part_of_name)
    except ImportError as error:
        _say(str(error), aside=True)
        return 2
    renamed = {
        _renamed(title): [_renamed(line) for line in lines] for title, lines in before.items()
    }
    titles = sorted({*now, *renamed})
    if not titles:
        _say(f"no part has {part_of_name!r} in its name", aside=True)
        return 2
    differing = [title for title in titles if not same(title, now, renamed)]
    for title in differing:
        pair = renamed.get(title, []), now.get(title, [])
        changes = difflib.unified_diff(*pair, "before", "now", lineterm="", n=1)
        _say("\n".join([f"=== {title}", *changes]))
    words = f"{len(differing)} differ" if differing else "identical"
    _say(f"{words}: {len(titles)} answers, {sum(map(len, now.values()))} lines")
    return 1 if differing else 0


def same(title: str, now: Answers, before: Answers) -> bool:
    """Whether two trees give the same answer; one that was broken off is none."""
    return now.get(title) == before.get(title) and not title.endswith(BROKEN_OFF)


def written_answers(tree: Path, part_of_name: str) -> Answers:
    """What this script writes for a tree, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.json"
        options = ["--source", str(tree), "--only", part_of_name, "--write", str(file)]
        command = [sys.executable, __file__, *options]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            raise ImportError(f"{tree} cannot be run:\n{result.stderr}")
        answers: Answers = json.loads(file.read_text(encoding="utf-8"))
    return answers


def _renamed(line: str) -> str:
    for word, word_now in RENAMED.items():
        line = line.replace(word, word_now)
    return line


if __name__ == "__main__":
    sys.exit(main())
