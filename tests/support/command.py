"""The command line as a user meets it: real processes, pipes and terminals, and a folder of files
to try it on.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.canaries import Scores
from discreet.cli import main
from discreet.ledger.rules import HasTerms
from support.source import ROOT

PLAN = dp.Plan.dpsgd(records=60_000, expected_batch_size=600, steps=50, noise_multiplier=1.1)
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in {"FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS"}
} | {
    "PYTHONPATH": str(ROOT / "src"),
    "OMP_NUM_THREADS": "1",
    "TERM": "xterm-256color",
    "PYTHONWARNINGS": "error",
}


@dataclass(frozen=True)
class Outcome:
    """Of one process."""

    code: int
    out: str
    err: str


def discreet(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> Outcome:
    """`python -m discreet ...` in a process of its own."""
    command = [sys.executable, "-m", "discreet", *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def in_process(*arguments: object) -> Outcome:
    """`discreet ...` in this process: fast, and without what a shell adds."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Outcome(int(ended.value.code or 0), *texts)


def answered(*arguments: object, code: int = 0) -> Any:
    """The JSON object that a command answers with, for its exit code."""
    done = in_process(*arguments, "--json")
    assert done.code == code, done.err
    return json.loads(done.out)


def many(cases: Sequence[Sequence[str]], *, cwd: Path, terminal: bool = False) -> list[Outcome]:
    """Each command line in a process of its own, forked after the imports, which are what takes
    long.

    Args:
        cases: arguments of each.
        cwd: where.
        terminal: whether stdin, stdout and stderr are a pseudo-terminal; all output is `out` then.
    """
    request = json.dumps({"cases": [list(case) for case in cases], "terminal": terminal})
    command = [sys.executable, str(ROOT / "tests" / "support" / "forked_commands.py")]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        input=request,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Outcome(**one) for one in json.loads(done.stdout)]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file's bytes, and every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def executed(
    path: Path, plan: dp.Plan, *, label: str = "example", budget: HasTerms | None = None
) -> dp.Ledger:
    """A ledger on which this plan was executed."""
    ledger = dp.Ledger.open(path, budget=budget)
    execute(ledger, plan, label=label)
    return ledger


def execute(
    ledger: dp.Ledger, plan: dp.Plan, *, label: str = "example", steps: int | None = None
) -> dp.ledger.Run:
    """A run of this plan, as an engine would leave it; with `steps`, one that was stopped early."""
    run = ledger.begin(plan.run_info(label), [(plan.step, plan.steps)], plan=plan.as_row())
    for _ in run.steps(plan.step, plan.steps if steps is None else steps):
        pass
    run.end()
    return run


def make_files(folder: Path) -> None:
    """Good and bad inputs."""
    PLAN.save(folder / "plan.toml")
    PLAN.save(folder / "plan.json")
    (folder / "plan.txt").write_text(PLAN.to_toml())
    replace(PLAN, sampler=dp.Sampler(dp.Poisson(0.01), records=60_000, steps=40)).save(
        folder / "shorter.toml"
    )
    with executed(folder / "train.ledger", PLAN) as ledger:
        ledger.export(folder / "train.jsonl")
    (folder / "renamed.toml").write_bytes((folder / "train.ledger").read_bytes())
    executed(folder / "again.ledger", PLAN).close()
    with dp.Ledger.open(folder / "void.ledger") as ledger:
        execute(ledger, PLAN).mark("unsafe_example")
    with dp.Ledger.open(
        folder / "chosen.ledger", budget=dp.Filter(epsilon=3.0, delta=1e-6)
    ) as ledger:
        run = ledger.begin(
            PLAN.run_info(parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS), [(PLAN.step, 3)]
        )
        run.reserve(PLAN.step, count=3)
    dp.Ledger.open(folder / "empty.ledger").close()
    executed(folder / "user.ledger", replace(PLAN, unit=dp.Unit.USER)).close()
    executed(folder / "replaced.ledger", replace(PLAN, adjacency=dp.Adjacency.REPLACE_ONE)).close()
    dp.Ledger.load(
        ROOT / "tests" / "data" / "schema1" / "one_run.jsonl", folder / "old.ledger"
    ).close()
    whole = (folder / "train.ledger").read_bytes()
    assert b'"probability":0.01' in whole
    (folder / "corrupt.ledger").write_bytes(
        whole.replace(b'"probability":0.01', b'"probability":0.02')
    )
    (folder / "half.ledger").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.jsonl").write_bytes(
        b"".join((folder / "train.jsonl").read_bytes().splitlines(keepends=True)[:-1])
    )
    (folder / "nothing.ledger").touch()
    (folder / "text.txt").write_text("not a ledger\n")
    (folder / "bytes.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "list.json").write_text("[1, 2]\n")
    Scores([1.0, 0.0], [True, False]).save(folder / "scores.json")
    (folder / "folder").mkdir()
