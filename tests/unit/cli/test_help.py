"""Help in which flags are flags and examples can be copied."""

import re

import pytest

from discreet.cli.commands.account import ACCOUNT_EXAMPLES
from discreet.cli.commands.plan import PLAN_EXAMPLES
from support.command import in_process

COMMANDS = ("account", "audit", "demo", "plan", "report", "verify")


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_have_no_type(command: str) -> None:
    """Wrong: `--json <bool>`, as if a value had to follow."""
    done = in_process(command, "--help")
    assert done.code == 0
    for line in done.out.splitlines():
        if re.search(r"--(json|force|help)\b", line):
            assert not re.search(r"--(json|force|help)\s+(<|[A-Z]+\b)", line), line


@pytest.mark.parametrize(
    ("command", "examples"), [("account", ACCOUNT_EXAMPLES), ("plan", PLAN_EXAMPLES)]
)
def test_examples_stand_below_the_help_as_they_are_written(command: str, examples: str) -> None:
    """Twice: the first help must not use them up."""
    for _ in range(2):
        assert in_process(command, "--help").out.rstrip().endswith(examples.rstrip())
