"""Tests mirror the tree: src/discreet/a/b/c.py has tests/unit/a/b/test_c.py, and the other way
round.
"""

from pathlib import Path

import pytest

from support.slow import slow_tests
from support.source import PACKAGE, ROOT

UNIT = ROOT / "tests" / "unit"

# Files of source without tests of their own: what they hold is tested with what they name.
WITHOUT_TESTS = frozenset({"__init__.py", "__main__.py"})

# Trees beside the package whose files may have tests, in folders of the same names.
OTHER_TREES = ("benchmarks", "examples", "scripts")

# Tests that belong to no single file.
ACROSS_FILES = {
    "test_hardening.py": "attacks and bad inputs that once got through a whole room",
    "test_early_stop.py": "the end of a run, whichever of run, ledger and checkpoint ends it",
}


def expected_tests(package: Path) -> set[Path]:
    """Where the tests of every source file belong; underscores at the beginning are dropped."""
    sources = [path for path in package.rglob("*.py") if path.name not in WITHOUT_TESTS]
    return {_mirrored(path.relative_to(package)) for path in sources}


def _mirrored(source: Path) -> Path:
    return source.parent / f"test_{source.stem.strip('_')}.py"


def missing_tests(package: Path, unit: Path) -> list[str]:
    """Source files without a test file."""
    return sorted(str(path) for path in expected_tests(package) if not (unit / path).is_file())


def homeless_tests(package: Path, unit: Path, root: Path = ROOT) -> list[str]:
    """Test files that belong to no source file."""
    homes = expected_tests(package)
    for tree in OTHER_TREES:
        homes |= {_mirrored(path.relative_to(root)) for path in (root / tree).rglob("*.py")}

    tests = [path.relative_to(unit) for path in unit.rglob("*.py")]
    return sorted(
        str(path) for path in tests if path not in homes and path.name not in ACROSS_FILES
    )


def empty_tests(unit: Path) -> list[str]:
    """Test files without a test."""
    return [str(path) for path in sorted(unit.rglob("*.py")) if "def test_" not in path.read_text()]


def test_every_source_file_has_its_tests() -> None:
    assert missing_tests(PACKAGE, UNIT) == []
    assert empty_tests(UNIT) == []


def test_every_test_file_belongs_to_a_source_file() -> None:
    assert homeless_tests(PACKAGE, UNIT) == []


@pytest.mark.parametrize("name", sorted(ACROSS_FILES))
def test_what_belongs_to_no_single_file_is_still_there(name: str) -> None:
    """An exception that nobody needs any more goes."""
    assert list(UNIT.rglob(name)) != []


def test_these_checks_would_notice(tmp_path: Path) -> None:
    package, unit = tmp_path / "package", tmp_path / "unit"
    for path in (package / "room" / "_file.py", unit / "room" / "test_other.py"):
        path.parent.mkdir(parents=True)
        path.write_text("")
    (package / "room" / "__init__.py").write_text("")
    assert missing_tests(package, unit) == ["room/test_file.py"]
    assert homeless_tests(package, unit, tmp_path) == ["room/test_other.py"]
    assert empty_tests(unit) == [str(unit / "room" / "test_other.py")]
    (unit / "room" / "test_other.py").rename(unit / "room" / "test_file.py")
    (unit / "room" / "test_hardening.py").write_text("")
    assert missing_tests(package, unit) == homeless_tests(package, unit, tmp_path) == []


def test_every_slow_test_exists() -> None:
    """Wrong: a name that was changed, whose test `make quick` would run again, and take longer."""
    for name in slow_tests():
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name
