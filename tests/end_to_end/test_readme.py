"""Everything the README shows runs as shown."""

import re
from pathlib import Path

from support import pages
from support.source import ROOT

README = (ROOT / "README.md").read_text()


def test_the_code_of_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    out = pages.run(README, tmp_path, without=["torch"])
    assert "-differentially private for one example under add-or-remove adjacency" in out
    tight = re.findall(r"Accountant: tight, .* at least ([\d.]+) and at most ([\d.]+)\.", out)
    (planned, run) = [(float(lower), float(upper)) for lower, upper in tight[:2]]
    assert 2.99 < planned[0] < planned[1] <= 3.0  # the target, met from below
    assert planned == run  # all steps were taken, and the budget admitted them
    assert "Numerics: exact." in out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_change_that_the_readme_shows_is_that_of_the_examples() -> None:
    plain, private = (
        {
            line.strip().partition("  #")[0]
            for line in (ROOT / "examples" / "training" / name).read_text().splitlines()
        }
        for name in ("plain.py", "private.py")
    )
    ((_, shown),) = pages.blocks(README, "diff")
    lines = [(line[:1], line[1:].strip()) for line in shown.splitlines() if line.strip()]
    assert {mark for mark, _ in lines} == {"+", "-", " "}
    for mark, line in lines:
        assert line in (plain if mark != "+" else private), line
        assert mark == " " or line not in (private if mark == "-" else plain), line
    assert sum(mark == "+" for mark, _ in lines) == 6  # five, and the guarantee printed


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = re.findall(r"^make ([\w-]+)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(commands) <= targets
