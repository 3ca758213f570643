"""Every command that docs/cli.md shows prints what is shown, whatever the date, the digests, the
versions and the processor.
"""

import re
from itertools import takewhile
from pathlib import Path

import pytest

import discreet as dp
from support.command import executed, many
from support.meaning import difference, same
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
                found.append(
                    (
                        line[2:],
                        list(takewhile(lambda one: not one.startswith("$ "), lines[number + 1 :])),
                    )
                )
    return found


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    plan = dp.Plan.dpsgd(records=60_000, expected_batch_size=512, epochs=20, epsilon=3.0)
    executed(tmp_path / "train.ledger", plan, label="first run").close()
    pairs = shown()
    cases = [
        command.removeprefix("discreet ").split()
        for command, _ in pairs
        if command.startswith("discreet ")
    ]
    outcomes = iter(many(cases, cwd=tmp_path))
    code = 0
    for command, expected in pairs:
        if command == "echo $?":
            assert expected == [str(code)], command
            continue
        outcome = next(outcomes)
        code = outcome.code
        assert not difference(expected, (outcome.out + outcome.err).splitlines()), command
    assert len(cases) == 20


HEAD = "d462dc41187e487c4a2a921d41722cf4808d9d1619b57620072f3fe3afe5e605"
SAME = {
    "the last digits": (
        '"hit_rate": 0.04251497331942686',
        '"hit_rate": 0.042514973319465875',
    ),  # 16 decimals are no digest
    "decimals that could be hexadecimal": (
        "0.1234567890123456",
        "0.12345678901234561234567890123456",
    ),
    "a border of rounding": ("at most 3. Numerics", "at most 2.999. Numerics"),
    "a power of ten": ("delta 9.9999999e-06", "delta 1e-05"),
    "an infinitesimal": ("3.0000000000000004", "2.9999999999999996"),
    "columns": ("| a   | 1.5 |", "| a | 1.50000000001 |"),
    "rules of tables": ("|-----|---|", "|----------|---|"),
    "heads": (f"Head: {HEAD}", f"Head: {'0' * 64}"),
    "identities": ("342dc1b3082202fd3bdf496934bfcfb9", "bdf496934bfcfb9342dc1b3082202fd3"),
    "the beginning of a head": (
        "ends in d462dc41187e487c... and",
        "ends in 0000000000000000... and",
    ),
    "dates": ("opened 2026-11-16T07:45:02+00:00", "opened 2031-01-02T00:00:00+00:00"),
    "software": (
        "| numpy 2.4.6, python 3.11.7, scipy 1.17.1 |",
        "| cryptography 50.0.2, numpy 2.5, python 3.12.0 |",
    ),
}
OTHER = {
    "the fourth digit by two": ("epsilon 2.994", "epsilon 2.996"),
    "the third digit of long numbers": ("0.04251497331942686", "0.04351497331942686"),
    "a sign": ("1.234", "-1.234"),
    "an exponent": ("delta 1e-05", "delta 1e-06"),
    "nothing": ("0.0", "1e-300"),
    "counts": ("60000 records", "60001 records"),
    "negative counts": ("-10000", "-10001"),
    "words": ("tier 2: reasonable", "tier 2: strong"),
    "versions outside a list": ("discreet 0.1.0", "discreet 0.2.0"),
    "a number for a digest": (f"Head: {HEAD}", "Head: 0.04251497331942686"),
    "a shorter digest": (f"Head: {HEAD}", f"Head: {HEAD[:32]}"),
    "more words": ("a b", "a b c"),
}


@pytest.mark.parametrize("case", SAME)
def test_what_a_run_or_a_processor_decides_is_the_same(case: str) -> None:
    assert same(*SAME[case])
    assert same(*SAME[case][::-1])


@pytest.mark.parametrize("case", OTHER)
def test_what_means_something_else_is_not(case: str) -> None:
    assert not same(*OTHER[case])
    assert not same(*OTHER[case][::-1])


def test_a_page_that_shows_something_else_is_found() -> None:
    assert not difference(["a", "...", "c"], ["a", "b", "b", "c"])
    assert not difference(["a", "..."], ["a"])
    assert difference(["a", "..."], ["b", "c"]) == "expected 'a', found ['b']"
    assert difference(["...", "d"], ["a", "b"]) == "expected 'd', found ['a', 'b']"
    assert difference(["a"], ["a", "b"]) == "not expected: ['b']"
    assert difference(["a", "b"], ["a"]) == "expected 'b', found []"
