"""Wrong input, for every command: a message on stderr that says what to do, exit code 2 (1 for
findings), nothing written.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest

from support.command import Outcome, contents, discreet, make_files, many

PLAN = ["plan", "--records", "60000", "--batch-size", "600"]
WHOLE = [*PLAN, "--steps", "50", "--noise-multiplier", "1.1"]
AUDIT = ["audit", "train.ledger", "--scores", "scores.json", "--delta", "1e-6"]
NUMBERS = ["-1", "0", "nan", "inf", "1e400", "words", ""]

WRONG: dict[str, list[list[str]]] = {
    "nothing": [[], ["nonsense"], ["--nonsense"], ["ledger"], ["ledger", "nonsense"]],
    "plan": [
        ["plan"],
        PLAN,
        ["plan", "show"],
        ["plan", "show", "missing.ledger"],
        ["plan", "show", "plan.toml"],
        ["plan", "show", "empty.ledger"],
        ["plan", "show", "chosen.ledger"],  # charged by hand: no plan in its row
        ["plan", "show", "train.ledger", "--run", "9"],
        ["plan", "show", "train.ledger", "--run", "words"],
        ["plan", "show", "train.ledger", "--save", "plan.toml"],
        ["plan", "show", "train.ledger", "--save", "new.txt"],
        ["plan", "--records", "60000", "show", "train.ledger"],  # would be ignored
        [*PLAN, "--epsilon", "3"],
        [*WHOLE, "--epsilon", "3"],
        [*WHOLE, "--epochs", "3"],
        [*WHOLE, "--probability", "0.1"],
        [*WHOLE, "extra"],
        [*WHOLE, "--nonsense"],
        [*WHOLE, "--epsilon"],
        [*WHOLE, "--unit", ""],
        [*WHOLE, "--adjacency", "nonsense"],
        [*WHOLE, "--numerics", "nonsense"],
        [*WHOLE, "--curve", "nonsense"],
        [
            "plan",
            "--probability",
            "0.1",
            "--steps",
            "50",
            "--noise-multiplier",
            "1.1",
        ],  # no delta, and no records to tell it by
        [
            "plan",
            "--probability",
            "0.1",
            "--steps",
            "5",
            "--noise-multiplier",
            "1.1",
            "--delta",
            "1e-6",
            "--curve",
            "noise",
        ],
        [
            "plan",
            "--records",
            "60000",
            "--batch-size",
            "60001",
            "--steps",
            "5",
            "--noise-multiplier",
            "1.1",
        ],
        [
            *PLAN,
            "--steps",
            "100000",
            "--noise-multiplier",
            "1e-9",
            "--epsilon",
            "0.001",
            "--delta",
            "1e-6",
        ],
        [
            "plan",
            "--records",
            "60000",
            "--epochs",
            "1e9",
            "--noise-multiplier",
            "0.1",
            "--epsilon",
            "0.001",
        ],  # no batch can
        *([*PLAN, "--steps", "50", "--epsilon", number] for number in NUMBERS),
        *(
            [*PLAN, "--steps", "50", "--epsilon", "3", "--delta", number]
            for number in [*NUMBERS, "1", "2"]
        ),
        *(
            [*PLAN, "--steps", number, "--noise-multiplier", "1.1"]
            for number in [*NUMBERS, "1.5", "9" * 5000, str(2**63)]
        ),
        *([*PLAN, "--epochs", number, "--noise-multiplier", "1.1"] for number in NUMBERS),
        *([*PLAN, "--steps", "50", "--noise-multiplier", number] for number in NUMBERS),
        *([*WHOLE, "--clip-norm", number] for number in NUMBERS),
        *(
            [
                "plan",
                "--records",
                number,
                "--batch-size",
                "6",
                "--steps",
                "5",
                "--noise-multiplier",
                "1",
            ]
            for number in NUMBERS
        ),
        *(
            [
                "plan",
                "--probability",
                number,
                "--steps",
                "5",
                "--noise-multiplier",
                "1",
                "--delta",
                "1e-6",
            ]
            for number in NUMBERS
        ),
        [*WHOLE, "--save", "plan.toml"],
        [*WHOLE, "--save", "plan.txt"],
        [*WHOLE, "--save", "new.ledger"],
        [*WHOLE, "--save", "folder"],
        [*WHOLE, "--save", "folder", "--force"],
        [*WHOLE, "--save", "missing/plan.toml"],
        [*WHOLE, "--save", "text.txt/plan.toml"],
        [*WHOLE, "--save", "/proc/plan.toml"],
        [*WHOLE, "--save", ""],
        [*WHOLE, "--plot", "new.pdf"],
        [*WHOLE, "--plot", "missing/new.png"],
        [*WHOLE, "--save", "new.toml", "--plot", "missing/new.png"],
        [
            *WHOLE,
            "--save",
            "new.toml",
            "--plot",
            "/proc/new.png",
        ],  # the second cannot be written: neither is
    ],
    "account": [
        ["account"],
        ["account", "train.ledger"],
        ["account", "train.ledger", "--delta", "1e-6", "--epsilon", "1"],
        ["account", "train.ledger", "--epsilon", "1", "--at-most", "3"],
        ["account", "train.ledger", "train.ledger", "--delta", "1e-6"],  # twice the same
        ["account", "train.ledger", "train.jsonl", "--delta", "1e-6"],  # a copy of it
        ["account", "train.ledger", "user.ledger", "--delta", "1e-6"],  # another unit
        ["account", "train.ledger", "replaced.ledger", "--delta", "1e-6"],  # another adjacency
        ["account", "train.ledger", "missing.ledger", "--delta", "1e-6"],
        [
            "account",
            "train.ledger",
            "chosen.ledger",
            "--delta",
            "1e-6",
        ],  # chosen from outputs: no sum is proved
        ["account", "train.ledger", "--delta", "1e-6", "--accountant", "nonsense"],
        *(["account", "train.ledger", "--delta", number] for number in [*NUMBERS, "1", "2"]),
        *(["account", "plan.toml", "--epsilon", number] for number in NUMBERS if number != "0"),
        *(
            ["account", "train.ledger", "--delta", "1e-6", "--at-most", number]
            for number in NUMBERS
        ),
        *(
            ["account", file, "--delta", "1e-6"]
            for file in ("missing.ledger", "folder", "text.txt", "bytes.bin", "list.json")
        ),
        [
            "account",
            "empty.ledger",
            "--delta",
            "1e-6",
        ],  # nothing was charged: there is nothing to state
        ["account", "chosen.ledger", "--delta", "1e-5"],  # another delta than the filter's
        ["account", "chosen.ledger", "--epsilon", "1"],
        ["account", "chosen.ledger", "--accountant", "rdp"],
        ["account", "/dev/null", "--delta", "1e-6"],
        ["account", "", "--delta", "1e-6"],
    ],
    "verify": [
        ["verify"],
        *(
            ["verify", file]
            for file in (
                "missing.ledger",
                "folder",
                "text.txt",
                "bytes.bin",
                "plan.toml",
                "list.json",
            )
        ),
        ["verify", "train.ledger", "--plan", "missing.toml"],
        ["verify", "train.ledger", "--plan", "train.ledger"],
        ["verify", "train.ledger", "--plan", "text.txt"],
        ["verify", "train.ledger", "--plan", "folder"],
        [
            "verify",
            "train.ledger",
            "--plan",
            "plan.toml",
        ],  # made without a target: there is no delta to state anything at
        ["verify", "train.ledger", "--head", ""],
        *(["verify", "train.ledger", "--delta", number] for number in NUMBERS),
        ["verify", "train.ledger", "again.ledger"],
        *(
            ["verify", "train.ledger", "--report", file]
            for file in ("missing.html", "folder", "text.txt", "bytes.bin", "list.json")
        ),
        ["verify", "train.ledger", "--report", "train.ledger"],
    ],
    "report": [
        ["report"],
        ["report", "train.ledger"],
        *(["report", "train.ledger", "--delta", number] for number in NUMBERS),
        *(
            ["report", file, "--delta", "1e-6"]
            for file in ("missing.ledger", "folder", "text.txt", "plan.toml", "empty.ledger")
        ),
        ["report", "train.ledger", "--delta", "1e-6", "--out", "new.pdf"],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "missing/new.html"],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "plan.json"],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "new.html", "--out", "new.html"],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "new.html", "--out", "new.pdf"],
        [
            "report",
            "train.ledger",
            "--delta",
            "1e-6",
            "--out",
            "new.html",
            "--out",
            "/proc/new.html",
        ],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "new.html", "--format", "md"],
        ["report", "train.ledger", "--delta", "1e-6", "--out", "new.html", "--out", "-"],
        ["report", "train.ledger", "--delta", "1e-6", "--format", "md", "--json"],
        ["report", "train.ledger", "--delta", "1e-6", "--format", "pdf"],
        [
            "report",
            "train.ledger",
            "--plan",
            "plan.json",
            "--delta",
            "1e-6",
            "--out",
            "plan.json",
            "--force",
        ],  # its own input
        [
            "report",
            "train.ledger",
            "--delta",
            "1e-6",
            "--audit",
            "missing.json",
            "--out",
            "new.html",
        ],
        ["report", "train.ledger", "--delta", "1e-6", "--audit", "list.json", "--out", "new.html"],
        [
            "report",
            "train.ledger",
            "--delta",
            "1e-6",
            "--budget-delta",
            "1e-6",
            "--out",
            "new.html",
        ],
        [
            "report",
            "train.ledger",
            "--delta",
            "1e-6",
            "--budget-epsilon",
            "3",
            "--out",
            "new.html",
        ],  # named afterwards
        [
            "report",
            "chosen.ledger",
            "--budget-epsilon",
            "3",
            "--budget-delta",
            "1e-6",
            "--out",
            "new.html",
        ],  # the right one
        ["report", "train.ledger", "--budget-epsilon", "words", "--out", "new.html"],
        [
            "report",
            "chosen.ledger",
            "--delta",
            "1e-5",
            "--out",
            "new.html",
        ],  # another delta than the filter's
        ["report", "train.ledger", "--delta", "1e-6", "--model", "x" * 201, "--out", "new.html"],
        ["report", "train.ledger", "--delta", "1e-6", "--by", "\x07", "--out", "new.html"],
    ],
    "audit": [
        ["audit"],
        ["audit", "train.ledger"],
        ["audit", "train.ledger", "--delta", "1e-6"],
        ["audit", "--scores", "scores.json", "--delta", "1e-6"],  # of which ledger?
        ["audit", "train.ledger", "--scores", "scores.json"],  # no delta
        ["audit", "--plan", "plan.toml"],  # no target
        [*AUDIT, "--plan", "plan.toml"],
        [*AUDIT, "extra"],
        [
            "audit",
            "--plan",
            "plan.toml",
            "--delta",
            "1e-6",
            "--output",
            "new.json",
        ],  # about which ledger?
        ["audit", "--plan", "plan.toml", "--delta", "1e-6", "--assume-scaled"],
        *(
            [*AUDIT, option, "2"] for option in ("--canaries", "--trials", "--processes")
        ),  # would be ignored
        [
            "audit",
            "train.ledger",
            "--plan",
            "shorter.toml",
            "--delta",
            "1e-6",
        ],  # not what the ledger holds
        [
            "audit",
            "chosen.ledger",
            "--plan",
            "plan.toml",
            "--budget-epsilon",
            "3",
            "--delta",
            "1e-6",
        ],
        [
            "audit",
            "--plan",
            "plan.toml",
            "--delta",
            "1e-6",
            "--confidence",
            "2",
        ],  # before anything long
        *(
            ["audit", "--plan", file, "--delta", "1e-6"]
            for file in ("missing.toml", "train.ledger", "text.txt", "folder")
        ),
        *(
            ["audit", file, "--scores", "scores.json", "--delta", "1e-6"]
            for file in ("missing.ledger", "plan.toml", "folder")
        ),
        [
            "audit",
            "empty.ledger",
            "--scores",
            "scores.json",
            "--delta",
            "1e-6",
        ],  # nothing was charged
        [
            "audit",
            "chosen.ledger",
            "--scores",
            "scores.json",
            "--delta",
            "1e-5",
        ],  # another delta than the filter's
        [*AUDIT, "--budget-delta", "1e-6"],
        [*AUDIT, "--budget-epsilon", "3"],
        *(
            ["audit", "train.ledger", "--scores", file, "--delta", "1e-6"]
            for file in ("missing.json", "list.json", "plan.json", "bytes.bin", "folder")
        ),
        *([*AUDIT[:-1], number] for number in NUMBERS),
        *([*AUDIT, "--confidence", number] for number in [*NUMBERS, "1"]),
        *(
            ["audit", "--plan", "plan.toml", "--delta", "1e-6", "--canaries", number]
            for number in [*NUMBERS, "1.5"]
        ),
        *(
            ["audit", "--plan", "plan.toml", "--delta", "1e-6", "--trials", number]
            for number in NUMBERS
        ),
        *(
            ["audit", "--plan", "plan.toml", "--delta", "1e-6", "--processes", number]
            for number in ("0", "words")
        ),
        *(
            [*AUDIT, "--output", file]
            for file in ("scores.json", "plan.json", "new.txt", "missing/new.json", "folder", "")
        ),
        [
            "audit",
            "train.ledger",
            "--plan",
            "plan.toml",
            "--delta",
            "1e-6",
            "--output",
            "list.json",
        ],  # before anything long
    ],
    "ledger show": [
        ["ledger", "show"],
        *(
            ["ledger", "show", file]
            for file in ("missing.ledger", "folder", "text.txt", "plan.toml")
        ),
        ["ledger", "show", "chosen.ledger", "--delta", "1e-5"],  # another delta than the filter's
        *(["ledger", "show", "train.ledger", "--delta", number] for number in NUMBERS),
    ],
    "ledger budget": [
        ["ledger", "budget"],
        ["ledger", "budget", "train.ledger"],
        ["ledger", "budget", "train.ledger", "--epsilon", "3"],
        ["ledger", "budget", "train.ledger", "--reason", "why"],
        [
            "ledger",
            "budget",
            "train.ledger",
            "--epsilon",
            "3",
            "--reason",
            "why",
        ],  # a list without a delta
        [
            "ledger",
            "budget",
            "train.ledger",
            "--epsilon",
            "0.01",
            "--delta",
            "1e-6",
            "--reason",
            "why",
        ],  # more was spent
        ["ledger", "budget", "train.ledger", "--epsilon", "3", "--delta", "1e-6", "--reason", ""],
        [
            "ledger",
            "budget",
            "chosen.ledger",
            "--epsilon",
            "3",
            "--delta",
            "1e-5",
            "--reason",
            "why",
        ],  # delta is fixed
        [
            "ledger",
            "budget",
            "empty.ledger",
            "--epsilon",
            "3",
            "--delta",
            "1e-6",
            "--reason",
            "why",
        ],
        *(
            ["ledger", "budget", file, "--epsilon", "3", "--delta", "1e-6", "--reason", "why"]
            for file in (
                "missing.ledger",
                "folder",
                "text.txt",
                "train.jsonl",
                "plan.toml",
                "old.ledger",
            )
        ),
        *(
            ["ledger", "budget", "chosen.ledger", "--epsilon", number, "--reason", "why"]
            for number in NUMBERS
        ),
    ],
    "ledger stop": [
        ["ledger", "stop"],
        ["ledger", "stop", "train.ledger", "--run", "2"],
        ["ledger", "stop", "train.ledger", "--reason", "why"],
        ["ledger", "stop", "train.ledger", "--run", "2", "--reason", ""],
        *(
            ["ledger", "stop", "train.ledger", "--run", number, "--reason", "why"]
            for number in ("0", "1", "3", "-1", "words")
        ),
        *(
            ["ledger", "stop", file, "--run", "2", "--reason", "why"]
            for file in (
                "missing.ledger",
                "folder",
                "text.txt",
                "train.jsonl",
                "empty.ledger",
                "old.ledger",
            )
        ),
    ],
    "ledger export": [
        ["ledger", "export", "train.ledger"],
        ["ledger", "export", "missing.ledger", "new.jsonl"],
        ["ledger", "export", "text.txt", "new.jsonl"],
        ["ledger", "export", "train.ledger", "train.jsonl"],
        ["ledger", "export", "train.ledger", "new.ledger"],
        ["ledger", "export", "train.ledger", "missing/new.jsonl"],
        ["ledger", "export", "train.ledger", "/proc/new.jsonl"],
    ],
    "ledger import": [
        ["ledger", "import", "train.jsonl"],
        ["ledger", "import", "missing.jsonl", "new.ledger"],
        ["ledger", "import", "text.txt", "new.ledger"],
        ["ledger", "import", "plan.json", "new.ledger"],
        ["ledger", "import", "train.ledger", "new.ledger"],
        ["ledger", "import", "train.jsonl", "train.ledger"],
        ["ledger", "import", "train.jsonl", "folder"],
        ["ledger", "import", "train.jsonl", "missing/new.ledger"],
        ["ledger", "import", "train.jsonl", "/proc/new.ledger"],
    ],
    "demo": [
        ["demo", "extra"],
        *(["demo", "--epsilon", number, "--into", "new"] for number in NUMBERS),
        *(["demo", "--delta", number, "--into", "new"] for number in NUMBERS),
        ["demo", "--into", "text.txt"],
        ["demo", "--into", "."],  # plan.toml is there, and no earlier demo wrote it
        ["demo", "--into", "text.txt/new"],
    ],
}
FINDINGS = [
    *(
        [*command, file]
        for command in (["verify"], ["ledger", "show"])
        for file in ("corrupt.ledger", "half.ledger", "cut.jsonl")
    ),
    *(
        ["account", file, "--delta", "1e-6"]
        for file in ("corrupt.ledger", "half.ledger", "cut.jsonl", "nothing.ledger")
    ),
    ["verify", "nothing.ledger"],
    ["verify", "train.ledger", "--head", "ab" * 32],
    ["verify", "train.ledger", "--head", "nonsense"],
    ["report", "corrupt.ledger", "--delta", "1e-6", "--out", "new.html"],
    [
        "audit",
        "corrupt.ledger",
        "--scores",
        "scores.json",
        "--delta",
        "1e-6",
        "--output",
        "new.json",
    ],
    ["ledger", "export", "corrupt.ledger", "new.jsonl"],
    ["ledger", "import", "cut.jsonl", "new.ledger"],
]


MESSAGES = {
    ("ledger",): "discreet: A command is missing. Try: discreet ledger --help",
    ("plann",): "Did you mean 'plan'? Try: discreet --help",
    (
        "plan",
        "--epsilon",
        "words",
    ): "'--epsilon': Expected a finite number. Got 'words'. Try: discreet plan --help",
    (
        *PLAN,
        "--epsilon",
        "3",
    ): "--steps and --noise-multiplier left out. Leave out exactly the one that is to be found.",
    (
        *PLAN,
        "--steps",
        "-1",
        "--noise-multiplier",
        "1",
    ): "--steps must be a whole number, at least 1 and below 2^63. Got -1.",
    (*WHOLE, "--unit", ""): "--unit must be a printable text of at most 200 characters, not empty.",
    ("verify", "train.ledger", "--head", ""): "--head must be a printable text",
    ("report", "train.ledger"): "--delta must be ",
    (
        "report",
        "train.ledger",
        "--budget-epsilon",
        "3",
    ): "A budget is a row of the ledger, written before its first charge",
    (
        *AUDIT,
        "--budget-epsilon",
        "3",
    ): "Got one named afterwards, by --budget-epsilon or --budget-delta, which proves nothing.",
    (
        "account",
        "train.ledger",
        "train.jsonl",
        "--delta",
        "1e-6",
    ): "Got two copies of the same one. Name each ledger once",
    (
        "account",
        "train.ledger",
        "user.ledger",
        "--delta",
        "1e-6",
    ): "Expected one unit in all runs. Got example, user.",
    ("account", "train.ledger"): "Expected --delta, or --epsilon, where the ledger names no delta.",
    (
        "plan",
        "--records",
        "60000",
        "show",
        "train.ledger",
    ): "Got --records before it. Put its own options after it",
    (
        "plan",
        "show",
        "train.ledger",
        "--run",
        "9",
    ): "Got --run 9. Runs of train.ledger: 2. Give --run.",
    (
        "verify",
        "train.ledger",
        "--report",
        "text.txt",
    ): "Pass a report that `discreet report` wrote, as it was written.",
    (
        "ledger",
        "budget",
        "train.ledger",
        "--epsilon",
        "0.01",
        "--delta",
        "1e-6",
        "--reason",
        "why",
    ): "Expected charges within (0.01, 1e-06).",
    (
        "ledger",
        "stop",
        "train.ledger",
        "--run",
        "0",
        "--reason",
        "why",
    ): "--run must be a whole number, at least 1",
    (
        "ledger",
        "stop",
        "train.ledger",
        "--run",
        "2",
        "--reason",
        "",
    ): "--reason must be a printable text",
    (
        *AUDIT,
        "--trials",
        "3",
    ): "Expected --trials with --plan. Got it with --scores. Leave it out: the scores say how many",
    (
        "audit",
    ): "Expected --scores or --plan, but not both. Got neither. Give what is to be attacked.",
    (*AUDIT, "--confidence", "1"): "--confidence must be a number in (0, 1). Got 1.0.",
    (
        "audit",
        "--plan",
        "plan.toml",
        "--delta",
        "1e-6",
        "--canaries",
        "0",
    ): "--canaries must be a whole number, at least 1",
    (
        *AUDIT,
        "--output",
        "plan.json",
    ): "plan.json: it exists. Choose another path. Nothing was written.",
    (
        "demo",
        "--epsilon",
        "-1",
        "--into",
        "new",
    ): "--epsilon must be a finite number above 0. Got -1.0.",
    ("account", "train.ledger", "--delta", "2"): "--delta must be a number in (0, 1). Got 2.0.",
    (
        "account",
        "text.txt",
        "--delta",
        "1e-6",
    ): "Expected a ledger, a JSON Lines export of one, or a plan or programme (TOML or JSON).",
    (
        "verify",
        "missing.ledger",
    ): "Expected a ledger, or a JSON Lines export of one, at missing.ledger. Got nothing there.",
    ("verify", "corrupt.ledger"): "Row 1 of the ledger is wrong. Expected digest ",
    (
        *WHOLE,
        "--save",
        "plan.toml",
    ): "plan.toml: it exists. Choose another path, or pass --force. Nothing was written.",
}


@dataclass(frozen=True)
class Tried:
    """All of the above, tried one after the other in one folder."""

    folder: Path
    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    outcomes: dict[tuple[str, ...], Outcome]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("wrong")
    make_files(folder)
    before = contents(folder)
    cases = [tuple(case) for case in (*chain(*WRONG.values()), *FINDINGS, *MESSAGES)]
    outcomes = many(cases, cwd=folder)
    return Tried(folder, before, contents(folder), dict(zip(cases, outcomes, strict=True)))


def check_refused(case: list[str], outcome: Outcome, code: int) -> None:
    assert outcome.code == code, (case, outcome)
    assert outcome.err.startswith("discreet: "), (case, outcome)
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) == 1, (case, outcome)
    assert not outcome.out, (case, outcome)


def test_wrong_input_is_refused_with_a_message(tried: Tried) -> None:
    for case in chain(*(cases for command, cases in WRONG.items() if command != "nothing")):
        check_refused(case, tried.outcomes[tuple(case)], 2)


def test_what_is_no_command_is_refused(tried: Tried) -> None:
    for case in WRONG["nothing"]:
        outcome = tried.outcomes[tuple(case)]
        assert outcome.code == 2, (case, outcome)
        assert "Traceback" not in outcome.err
        assert "Usage: discreet" in outcome.out or outcome.err.startswith("discreet: No such")


def test_findings_exit_with_one(tried: Tried) -> None:
    for case in FINDINGS:
        check_refused(case, tried.outcomes[tuple(case)], 1)


def test_nothing_was_written_by_any_of_them(tried: Tried) -> None:
    assert tried.after == tried.before


def test_messages_say_what_was_expected_what_came_and_what_to_do(tried: Tried) -> None:
    for case, message in MESSAGES.items():
        assert message in tried.outcomes[case].err, (case, tried.outcomes[case])


def test_in_a_process_of_its_own_it_is_the_same(tried: Tried) -> None:
    """The tables above fork after the imports; this starts Python anew."""
    for case, code in ((("verify", "text.txt"), 2), (("verify", "corrupt.ledger"), 1)):
        outcome = discreet(*case, cwd=tried.folder)
        assert outcome.code == code
        assert outcome == tried.outcomes[case]
