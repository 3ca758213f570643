"""Every command that docs/cli.md shows prints what is shown, whatever the date, the digests and the versions."""

import re
from itertools import takewhile
from pathlib import Path

import discreet as dp
from support.command import executed, many
from support.source import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)


def shown() -> list[tuple[str, list[str]]]:
    """Commands, each with the lines below it."""
    found = []
    for block in BLOCKS:
        lines = block.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("$ "):
                found.append((line[2:], list(takewhile(lambda one: not one.startswith("$ "), lines[number + 1 :]))))
    return found


def settled(line: str) -> str:
    """The line without what differs from one run to the next, and from one installation to the next."""
    line = re.sub(r"\b[0-9a-f]{16,64}\b", "DIGEST", line)
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+", "DATE", line)
    line = re.sub(r"(\b[a-z]+ [\d.]+(\+\w+)?(, |(?= \|)))+", "VERSIONS", line) if "python" in line else line
    line = re.sub(r"\d+\.\d{7,}", lambda long: f"{float(long[0]):.4g}", line)  # the last digits depend on the processor
    return re.sub(r"-{3,}|\s+", " ", line).strip()


def matches(expected: list[str], found: list[str]) -> bool:
    """Line for line; a line `...` stands for any number of lines."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(settled(line)) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(settled(line) + "\n" for line in found)) is not None


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    plan = dp.Plan.dpsgd(records=60_000, expected_batch_size=512, epochs=20, epsilon=3.0)
    executed(tmp_path / "train.ledger", plan, label="first run").close()
    pairs = shown()
    cases = [command.removeprefix("discreet ").split() for command, _ in pairs if command.startswith("discreet ")]
    outcomes = iter(many(cases, cwd=tmp_path))
    code = 0
    for command, expected in pairs:
        if command == "echo $?":
            assert expected == [str(code)], command
            continue
        outcome = next(outcomes)
        code = outcome.code
        assert matches(expected, (outcome.out + outcome.err).splitlines()), (command, outcome)
    assert len(cases) == 20


def test_a_page_that_shows_something_else_is_found() -> None:
    assert matches(["a", "..."], ["a", "b", "c"])
    assert not matches(["a", "..."], ["b", "c"])
    assert not matches(["a 1"], ["a 2"])
