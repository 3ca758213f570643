"""Everything the README shows runs as shown."""

import re
from pathlib import Path

from support import pages
from support.source import ROOT

README = (ROOT / "README.md").read_text()


def test_the_code_of_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    out = pages.run(README, tmp_path)
    ((_, shown),) = pages.blocks(README, "text")
    lower, upper = intervals(out)[0]
    assert 2.99 < lower < upper <= 3.0  # the target, met from below
    assert intervals(" ".join(shown.split())) == [(lower, upper)]  # as the page says
    assert "What counts: 141 steps" in out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_sums_of_arrays_run_without_torch(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "aggregation.md").read_text()
    out = pages.run(page, tmp_path, without=["torch"])
    assert "-differentially private for one example under add-or-remove adjacency" in out
    planned, executed = intervals(out)[:2]
    assert 2.99 < planned[0] < planned[1] <= 3.0
    assert planned == executed  # all steps were taken, and the budget admitted them
    assert "Numerics: exact." in out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def intervals(text: str) -> list[tuple[float, float]]:
    """Both ends of every epsilon that the tight accountant states in a text."""
    ends = re.findall(r"Accountant: tight, .*? at least ([\d.]+) and at most ([\d.]+)\.", text)
    return [(float(lower), float(upper)) for lower, upper in ends]


def test_the_change_that_the_tutorial_shows_is_that_of_the_examples() -> None:
    plain, private = (
        {
            line.strip().partition("  #")[0]
            for line in (ROOT / "examples" / "training" / name).read_text().splitlines()
        }
        for name in ("plain.py", "private.py")
    )
    page = ROOT / "docs" / "tutorials" / "first-private-training.md"
    ((_, shown),) = pages.blocks(page.read_text(), "diff")
    lines = [(line[:1], line[1:].strip()) for line in shown.splitlines() if line.strip(" )+")]
    assert {mark for mark, _ in lines} == {"+", "-", " "}
    for mark, line in lines:
        assert line in (plain if mark != "+" else private), line
        assert mark == " " or line not in (private if mark == "-" else plain), line
    added = [line for mark, line in lines if mark == "+" and not re.fullmatch(r"\w+=.*", line)]
    assert len(added) == 6  # five statements, and the guarantee printed


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = re.findall(r"^make ([\w-]+)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(commands) <= targets
