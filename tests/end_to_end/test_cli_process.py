"""The command line among other programs: pipes, colours, interrupts, and installations that lack
something.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support.command import ENVIRONMENT, discreet, make_files, many

PLAN = [
    "plan",
    "--records",
    "60000",
    "--batch-size",
    "600",
    "--steps",
    "50",
    "--noise-multiplier",
    "1.1",
]
WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused}:
            raise ImportError("No module named " + name)
sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("process")
    make_files(made)
    return made


def without(*refused: str, at: Path) -> dict[str, str]:
    """An environment in which these packages cannot be imported."""
    at.mkdir(exist_ok=True)
    (at / "sitecustomize.py").write_text(WITHOUT.format(refused=set(refused)))
    return {"PYTHONPATH": f"{at}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}


def test_without_torch_every_command_but_the_demo_works(folder: Path, tmp_path: Path) -> None:
    environment = without("torch", "sklearn", "matplotlib", at=tmp_path / "site")
    script = (
        "import os, sys, scipy.fft, scipy.optimize, scipy.special, discreet.report\n"
        "from discreet.cli import main\n"
        "for case in sys.argv[1].split(';'):\n"
        "    if not os.fork():\n        main(case.split())\n"
        "    print('code', os.waitstatus_to_exitcode(os.wait()[1]), flush=True)\n"
    )
    cases = [
        " ".join([*PLAN, "--json"]),
        "account train.ledger --delta 1e-6 --json",
        "verify train.ledger --plan plan.toml --delta 1e-6",
        f"report train.ledger --delta 1e-6 --out {tmp_path}/new.html",
        "ledger show train.ledger",
        f"ledger export train.ledger {tmp_path}/new.jsonl",
        f"ledger import train.jsonl {tmp_path}/new.ledger",
        "plan show train.ledger",
        "account train.ledger again.ledger --delta 1e-6",
        f"verify train.ledger --report {tmp_path}/new.html",
        f"demo --into {tmp_path}/out",
        " ".join([*PLAN, "--plot", f"{tmp_path}/new.png"]),
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, ";".join(cases)],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [int(code) for code in re.findall(r"^code (\d+)$", done.stdout, re.MULTILINE)] == [
        0
    ] * 10 + [2, 2], done.stderr
    assert "Expected PyTorch, for the demo." in done.stderr
    assert "pip install 'discreet[demo,torch]'" in done.stderr
    assert "Expected matplotlib, to draw a figure." in done.stderr
    assert "pip install 'discreet[plots]'" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "new.html",
        "new.jsonl",
        "new.ledger",
        "site",
    ]


def test_nothing_heavy_is_imported_before_it_is_needed(folder: Path) -> None:
    heavy = [
        "torch",
        "sklearn",
        "matplotlib",
        "jinja2",
        "scipy.optimize",
        "scipy.special",
        "scipy.fft",
    ]
    script = f"import sys, discreet.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_reader_that_goes_away_is_no_error_message(folder: Path) -> None:
    command = (
        f"{sys.executable} -m discreet ledger show train.ledger | true; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("141", "")


def test_a_full_disk_behind_stdout_is_told(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "discreet", "ledger", "show", "train.ledger"]
        done = subprocess.run(
            command,
            cwd=folder,
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("discreet: ")
    assert "Traceback" not in done.stderr


def test_no_color_is_respected_in_a_terminal_and_ascii_terminals_get_ascii(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "NO_COLOR", "1")
    (plain,) = many([[*PLAN, "--curve", "epsilon"]], cwd=folder, terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain.out)  # no colour; bold is none
    monkeypatch.setitem(ENVIRONMENT, "PYTHONIOENCODING", "ascii")
    (ascii_only,) = many([[*PLAN, "--curve", "epsilon"]], cwd=folder, terminal=True)
    assert ascii_only.code == 0
    assert ascii_only.out.isascii()
    assert "#### <- this plan" in ascii_only.out


def test_a_width_of_twenty_columns_cuts_nothing_off_where_it_is_piped(folder: Path) -> None:
    wide = discreet("ledger", "show", "train.ledger", cwd=folder)
    narrow = discreet("ledger", "show", "train.ledger", cwd=folder, environment={"COLUMNS": "20"})
    assert narrow == wide


COMMANDS = (
    ["plan"],
    ["plan", "show"],
    ["account"],
    ["verify"],
    ["report"],
    ["audit"],
    ["ledger", "show"],
    ["ledger", "export"],
    ["ledger", "import"],
    ["ledger", "budget"],
    ["ledger", "stop"],
    ["demo"],
)


def test_the_help_of_every_command_has_an_example(folder: Path) -> None:
    cases = [
        ["--help"],
        ["ledger", "--help"],
        *([*command, "--help"] for command in COMMANDS),
        ["plan", "-h"],
        ["--version"],
    ]
    found = many(cases, cwd=folder)
    assert [outcome.code for outcome in found] == [0] * len(cases)
    for command, outcome in zip(COMMANDS, found[2:], strict=False):
        assert f"discreet {' '.join(command)} " in outcome.out.split("Example")[1]
        assert "--json" in outcome.out
        assert not outcome.err
    assert all(
        name in found[0].out
        for name in ("plan", "account", "verify", "report", "ledger", "demo", "Exit codes")
    )
    assert found[-1].out == f"discreet {dp.__version__}\n"


def test_flags_are_shown_as_flags_and_examples_can_be_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "COLUMNS", "80")
    cases = [["--help"], ["ledger", "--help"], *([*command, "--help"] for command in COMMANDS)]
    for case, outcome in zip(cases, many(cases, cwd=folder), strict=True):
        assert "bool" not in outcome.out.lower(), case
        assert re.search(r"--help +-h +Show this message", outcome.out), case
        examples = outcome.out.partition("Example")[2].partition("\n")[2]
        assert bool(examples) is (case not in (["--help"], ["ledger", "--help"])), case
        # A backslash at the very end of a line goes on in the next; everything else is a command of
        # one line.
        commands = examples.replace("\\\n", " ").split("\n")
        for command in filter(None, commands):
            assert command.startswith("  discreet "), (case, command)
            assert shlex.split(command)[0] == "discreet"


def test_a_ledger_that_is_being_written_can_be_read_meanwhile(folder: Path, tmp_path: Path) -> None:
    plan = dp.Plan.load(folder / "plan.toml")
    with dp.Ledger.open(tmp_path / "live.ledger") as ledger:
        run = ledger.begin(plan.run_info("live"), [(plan.step, plan.steps)])
        with run.reserve(plan.step, count=10) as lease:
            lease.take()
            shown, claimed = many(
                [
                    ["ledger", "show", "live.ledger", "--json"],
                    ["account", "live.ledger", "--delta", "1e-6", "--json"],
                ],
                cwd=tmp_path,
            )
    assert json.loads(shown.out)["unsettled"] == 10
    assert (
        "reserved steps that are not settled count as taken"
        in json.loads(claimed.out)["guarantees"][0]["assumptions"]
    )
