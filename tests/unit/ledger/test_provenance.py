"""Which software executes a run, and when it began."""

import sys
from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest

import discreet as dp
from discreet.ledger import Run, _provenance
from discreet.ledger._provenance import script_name, software
from support.examples import INFO, roomy_ledger


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


@pytest.fixture
def run(ledger: dp.Ledger) -> Run:
    return ledger.begin(INFO)


def test_software_and_time_of_a_run_are_recorded(ledger: dp.Ledger, run: Run) -> None:
    (record,) = ledger.runs()
    assert record.number == run.number
    assert dict(record.software)["discreet"] == dp.__version__
    assert "python" in dict(record.software)
    assert record.began.endswith("+00:00")


def test_packages_that_were_not_imported_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "scipy", raising=False)
    names = [name for name, _ in software()]
    assert "scipy" not in names
    assert names == sorted(names)


def test_a_package_without_metadata_is_of_an_unknown_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(_provenance, "version", version)
    assert dict(software())["discreet"] == "unknown"


@pytest.mark.parametrize(
    ("notebook", "file", "name"),
    [
        ("", "/home/a/train.py", "train.py"),
        ("/work/private.ipynb", "/usr/bin/kernel.py", "private.ipynb"),
        ("", "/home/a/package/__main__.py", "package"),
        ("", None, ""),
        ("", "/home/a/" + "n" * 101, ""),
        ("", "/home/a/two\nlines.py", ""),
    ],
    ids=["script", "notebook", "package", "interactive", "too long", "not for people"],
)
def test_the_default_name_of_a_run_is_that_of_its_script(
    monkeypatch: pytest.MonkeyPatch, notebook: str, file: str | None, name: str
) -> None:
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    monkeypatch.setenv("JPY_SESSION_NAME", notebook)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert script_name() == name
