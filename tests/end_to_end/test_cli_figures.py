"""How long commands take on a long ledger: a million equal steps, charged in blocks that grow."""

import json
import subprocess
import sys
from pathlib import Path

import discreet as dp
from support.command import ENVIRONMENT

STEPS = 1_000_000
PLAN = dp.Plan.dpsgd(records=100_000, expected_batch_size=100, steps=STEPS, noise_multiplier=2.0)

# Processor time, not what a clock says: other programs may be running. After the imports, and in a process that has computed
# nothing before: a second call would find what the first one left.
TIMED = """
import contextlib, io, json, sys, time
import scipy.fft, scipy.optimize, scipy.special, jinja2, rich.console
from discreet.cli import main
with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
    main(["plan", "--epsilon", "words"])  # refused, after typer has imported what it reads options with
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
        done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        answers.append(json.loads(done.stdout))
    return min(answer["seconds"] for answer in answers), answers[0]["shown"]


def test_a_million_equal_steps_are_few_rows_and_accounted_for_and_reported_in_no_time(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "long.ledger") as ledger:
        run = ledger.begin(PLAN.run_info("long"), [(PLAN.step, STEPS)], plan=PLAN.as_row())
        for _ in run.steps(PLAN.step, STEPS):
            pass
        expected = dp.account(ledger, delta=1e-6)
        ledger.export(tmp_path / "long.jsonl")
    assert len((tmp_path / "long.jsonl").read_bytes().splitlines()) < 250  # and not two for every step

    seconds, shown = timed("account", "long.ledger", "--delta", "1e-6", cwd=tmp_path)
    assert str(expected) in shown
    assert seconds < 0.3  # 0.2 were measured

    seconds, shown = timed("report", "long.ledger", "--delta", "1e-6", "--format", "html", cwd=tmp_path)
    assert "Guarantee holds" in shown
    assert seconds < 3.0  # 1.1 were measured
