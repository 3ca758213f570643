"""How long commands take on a long ledger: a million equal steps, charged in blocks that grow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support.command import ENVIRONMENT

STEPS, FEW = 1_000_000, 1_000

# Processor time, not what a clock says: other programs may be running. After the imports, and in a
# process that has computed nothing before: a second call would find what the first one left.
TIMED = """
import contextlib, io, json, sys, time
import scipy.fft, scipy.optimize, scipy.special, jinja2, rich.console
from discreet.cli import main
with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
    # Refused, after typer has imported what it reads options with.
    main(["plan", "--epsilon", "words"])
out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
began = time.process_time()
with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
seconds = time.process_time() - began
out.seek(0)
print(json.dumps({"seconds": seconds, "shown": out.read()}))
"""


def timed(*arguments: str, cwd: Path) -> tuple[float, str]:
    """Seconds of processor time, the best of three processes, and what was printed."""
    command = [sys.executable, "-c", TIMED, *arguments]
    answers = []
    for _ in range(3):
        done = subprocess.run(
            command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    return min(answer["seconds"] for answer in answers), answers[0]["shown"]


def ledger_of(path: Path, steps: int) -> dp.Guarantee:
    """A ledger of so many equal steps, and what it costs."""
    plan = dp.Plan.dpsgd(
        records=100_000, expected_batch_size=100, steps=steps, noise_multiplier=2.0
    )
    with dp.Ledger.open(path) as ledger:
        run = ledger.begin(plan.run_info("long"), [(plan.step, steps)], plan=plan.as_row())
        for _ in run.steps(plan.step, steps):
            pass
        ledger.export(path.with_suffix(".jsonl"))
        return dp.account(ledger, delta=1e-6)


@pytest.mark.full
def test_a_million_equal_steps_are_few_rows_and_cost_little_more_to_read_than_a_thousand(
    tmp_path: Path,
) -> None:
    """Wrong: something that is done for every step, which would take a thousand times as long."""
    expected = ledger_of(tmp_path / "long.ledger", STEPS)
    ledger_of(tmp_path / "short.ledger", FEW)
    assert (
        len((tmp_path / "long.jsonl").read_bytes().splitlines()) < 250
    )  # and not two for every step

    for command, phrase in (("account", str(expected)), ("report", "Guarantee holds")):
        options = ("--delta", "1e-6", *(("--format", "html") if command == "report" else ()))
        short, _ = timed(command, "short.ledger", *options, cwd=tmp_path)
        long, shown = timed(command, "long.ledger", *options, cwd=tmp_path)
        assert phrase in shown
        assert long < 10 * short  # 1.2 and 1.6 were measured
