"""The figures of the house: each counts what it says, and a limit that is passed is told."""

from pathlib import Path

import pytest
from scripts import house
from scripts.house import LIMITS, Tally, excesses, tally


def figures(folder: Path, *lines: str) -> dict[str, float]:
    (folder / "file.py").write_text("\n".join(lines) + "\n")
    return tally(folder).figures()


@pytest.mark.parametrize(
    ("statement", "branches"),
    [
        ("x = 1", 0),
        ("x = 1 if y else 2", 1),
        ("x = y and z or w", 2),
        ("x = [a for a in y if a if b]", 3),
        ("while y: pass", 1),
        ("with y: pass", 0),
        ("f = lambda: 1 if y else 2", 0),
    ],
)
def test_branches(tmp_path: Path, statement: str, branches: int) -> None:
    found = figures(tmp_path, "def f(y, z, w):", f"    {statement}")
    assert found["branches per line"] == branches
    assert found["complexity"] == branches + 1


def test_a_docstring_is_no_body_and_blank_lines_and_comments_are(tmp_path: Path) -> None:
    found = figures(
        tmp_path,
        "def f(y):",
        '    """A docstring of',
        '    two lines."""',
        "    # why",
        "",
        "    if y:",
        "        pass",
    )
    assert found["branches per line"] == 1 / 4


def test_a_function_inside_another_counts_its_own(tmp_path: Path) -> None:
    found = figures(
        tmp_path,
        "def f(y):",
        "    def g():",
        "        if y: pass",
        "    if y: pass",
        "    return g",
    )
    assert found["complexity"] == 2


def test_wide_lines_and_comments(tmp_path: Path) -> None:
    found = figures(tmp_path, "x = 1  # beside code", "# alone", "y = " + "1" * 97, "z = 2")
    assert found["wide lines"] == 1
    assert found["comments"] == 1 / 4


@pytest.mark.parametrize(
    "code", ["def f(found): pass", "def f():\n    kept = 1", "def f(*, rest): pass"]
)
def test_empty_names(tmp_path: Path, code: str) -> None:
    assert figures(tmp_path, code)["empty names"] == 1


@pytest.mark.parametrize(
    ("docstring", "riddle"),
    [
        ("Say so.", True),
        ("As the one above, but faster than it.", True),
        ("Assert that five words are enough.", False),
        ("", False),
    ],
)
def test_riddles(tmp_path: Path, docstring: str, riddle: bool) -> None:
    assert figures(tmp_path, "class A:", f'    """{docstring}"""')["riddles"] == riddle


def test_names_that_two_files_define(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("def run(): ...\n_private = 1\n__all__ = ['run']\n")
    assert tally(tmp_path).figures()["names twice"] == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("__all__ = ['a', 'b']\nfrom x import a, b, c\n", 2),
        ("from x import a, _b, c as d\n\ndef e(): ...\n", 3),
    ],
)
def test_what_a_package_offers(tmp_path: Path, text: str, count: int) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    assert tally(tmp_path).figures()["top-level names"] == count
    assert tally(package).figures()["top-level names"] == count


def test_each_limit_is_told_when_it_is_passed() -> None:
    assert excesses(dict(LIMITS)) == []
    for name, limit in LIMITS.items():
        worse = limit - 0.01 if name == "comments" else limit + 1
        (sentence,) = excesses({**LIMITS, name: worse})
        assert sentence.startswith(name)


def test_other_trees_are_shown_and_never_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours fails for what another tree is only shown with."""
    (tmp_path / "file.py").write_text("x = 1" + " " * 200 + "\n")
    monkeypatch.setattr("sys.argv", ["house.py", str(tmp_path)])
    assert house.main() == 0
    assert "wide lines 1" in capsys.readouterr().out
    monkeypatch.setattr(house, "OURS", tmp_path)
    assert house.main() == 1
    assert "wide lines: 1, at most 0 allowed" in capsys.readouterr().out


def test_an_empty_tree_has_figures_too(tmp_path: Path) -> None:
    assert tally(tmp_path).figures() == Tally().figures()
