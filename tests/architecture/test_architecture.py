"""The shape of the code, and for each rule a planted violation that the same check must find."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import discreet
from support.source import (
    PACKAGE,
    ROOT,
    forbidden_statements,
    inexact_exports,
    long_files,
    torch_imports,
)

LEDGER_ALONE = f"""
import sys
# A module that is None cannot be imported.
sys.modules.update(dict.fromkeys(["numpy", "scipy", "torch"]))
# The package without its accountants.
sys.modules["discreet"] = type(sys)("discreet")
sys.modules["discreet"].__path__ = [{str(PACKAGE)!r}]
from discreet.ledger import Ledger
Ledger.in_memory().verify()
"""
WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Refuse())
import pkgutil, importlib, discreet
for module in pkgutil.walk_packages(discreet.__path__, "discreet."):
    if not module.name.startswith("discreet.training"):
        importlib.import_module(module.name)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[str, str], Path]:
    """A copy of the package with lines added to one file."""

    def plant(file: str, lines: str) -> Path:
        copy = tmp_path / "src" / "discreet"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        with (copy / file).open("a") as source:
            source.write("\n" + lines + "\n")
        return copy

    return plant


def run(*command: str, source: Path = PACKAGE) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    return run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache", source=source)


def import_without(*refused: str, source: Path = PACKAGE) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", WITHOUT_TORCH.format(refused=set(refused)), source=source)


# --- imports point down ---


def test_imports_point_down() -> None:
    result = lint_imports(PACKAGE)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("errors.py", "from discreet import units"),
        ("units.py", "from discreet.ledger import Ledger"),
        ("ledger/events/step.py", "import numpy"),
    ],
)
def test_an_import_that_points_up_is_found(
    planted: Callable[[str, str], Path], file: str, line: str
) -> None:
    result = lint_imports(planted(file, line))
    assert result.returncode != 0
    assert "BROKEN" in result.stdout


# --- torch stays in its folder ---


def test_everything_but_training_imports_without_torch() -> None:
    result = import_without("torch", "matplotlib", "sklearn")
    assert result.returncode == 0, result.stderr
    assert torch_imports(PACKAGE) == []


def test_the_ledger_works_with_the_standard_library_only() -> None:
    result = run(sys.executable, "-c", LEDGER_ALONE)
    assert result.returncode == 0, result.stderr


def test_an_import_of_torch_elsewhere_is_found(planted: Callable[[str, str], Path]) -> None:
    source = planted("units.py", "import torch")
    assert torch_imports(source) == ["units.py"]
    assert "torch is not installed here" in import_without("torch", source=source).stderr


# --- exports are exact ---


def test_every_module_exports_exactly_what_it_defines() -> None:
    assert inexact_exports(PACKAGE) == []
    assert all(name in vars(discreet) for name in discreet.__all__)


@pytest.mark.parametrize(
    "line", ["def newcomer() -> None: ...", "class Newcomer: ...", "LIMIT = 3"]
)
def test_an_inexact_export_is_found(planted: Callable[[str, str], Path], line: str) -> None:
    assert len(inexact_exports(planted("ledger/lease.py", line))) == 1


# --- no statement through which a privacy check could vanish ---


def test_p45_p46_no_forbidden_statement() -> None:
    assert forbidden_statements(PACKAGE) == []


@pytest.mark.parametrize(
    "line",
    [
        "assert True",
        "if hasattr(print, 'x'): pass",
        "def f(**options: int) -> None: ...",
        "try:\n    pass\nexcept:\n    pass",
        "import pickle",
        "import warnings",
        "from random import random",
        "from importlib import import_module",
        "eval('1')",
    ],
)
def test_p45_p46_a_forbidden_statement_is_found(
    planted: Callable[[str, str], Path], line: str
) -> None:
    assert len(forbidden_statements(planted("ledger/lease.py", line))) == 1


# --- files and versions ---


def test_files_are_small() -> None:
    assert long_files(PACKAGE) == []
    assert long_files(PACKAGE, most=1) != []


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == discreet.__version__
    assert f"version: {discreet.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {discreet.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_extra_the_readme_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {"torch", "plots", "bench", "dev"} <= extras.keys()


def test_every_reference_resolves() -> None:
    """`[Key, ...]` in docstrings and docs is an entry of docs/references.bib."""
    known = set(re.findall(r"@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text()))
    cited = set()
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        cited |= set(
            re.findall(r"(?:\[|; )([A-Z][A-Za-z]+(?:19|20)\d\d[a-z]?)[\],;]", path.read_text())
        )
    assert cited <= known, cited - known
    assert cited
