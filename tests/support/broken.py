"""One test of the suite, run by pytest itself on code that a patch has broken."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

import discreet as dp
from support.source import ROOT

NOTICED = (
    AssertionError,
    pytest.fail.Exception,
    dp.errors.DiscreetError,
)  # the last: a guard may be faster than the test
QUIET = (
    "cacheprovider",
    "xdist",
    "faulthandler",
    "unraisableexception",
    "threadexception",
)  # the outer pytest has them
OURS = (f"{ROOT}/src/", f"{ROOT}/tests/")
_SETTINGS = "_hypothesis_internal_use_settings"  # where hypothesis keeps the settings of a law


@dataclass(frozen=True)
class Outcome:
    """What pytest said of a test: cases that passed, the exception that ended one, seconds, and its
    own words.
    """

    passed: int
    noticed_by: type[BaseException] | None
    full: bool
    seconds: float
    text: str = field(repr=False)

    @property
    def caught(self) -> bool:
        """A case failed, in the test itself, by what the test or a guard of the library checks."""
        return self.noticed_by is not None and issubclass(self.noticed_by, NOTICED)

    @property
    def right(self) -> bool:
        """The test exists, and nothing failed."""
        return self.passed > 0 and self.noticed_by is None


class _Watch:
    """A plugin: breaks the code after the tests are collected, and notes how each ends."""

    def __init__(self, patch: Callable[[pytest.MonkeyPatch], None] | None) -> None:
        self.patch = patch
        self.passed = 0
        self.noticed_by: type[BaseException] | None = None
        self.full = False
        self.seconds = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        self.full = any(item.get_closest_marker("full") for item in session.items)
        forget()
        with pytest.MonkeyPatch.context() as monkeypatch:
            for item in session.items:
                _fix_examples(item, monkeypatch)
            if self.patch:
                self.patch(monkeypatch)
            result = yield
        forget()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self.seconds += call.duration
        if call.when == "call":
            self.passed += report.passed
            self.noticed_by = self.noticed_by or (
                call.excinfo.type if call.excinfo and report.failed else None
            )
        elif report.failed:
            self.noticed_by = RuntimeError  # a fixture failed: nobody noticed anything
        return report


def _fix_examples(item: pytest.Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws try the same examples each time, remember none, and do not look for the smallest."""
    test = getattr(item, "obj", None)
    if is_hypothesis_test(test):
        phases = (Phase.explicit, Phase.generate)
        fixed = settings(getattr(test, _SETTINGS), derandomize=True, database=None, phases=phases)
        monkeypatch.setattr(test, _SETTINGS, fixed)


_SEPARATION = "discreet.training.separation"
_REMEMBERED = (
    ("operation", "OPERATIONS"),
    ("effects", "_effects"),
    ("doors", "_kinds"),
)  # dictionaries, for speed


def forget() -> None:
    """Results of right code must not hide wrong code, nor the reverse: every cache of ours is
    emptied.
    """
    for module_name, name in _REMEMBERED:
        module = sys.modules.get(f"{_SEPARATION}.{module_name}")
        if module is not None:
            getattr(module, name).clear()
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None)).startswith(OURS) and isinstance(
            module, ModuleType
        ):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def outcome_of(
    test: str, folder: Path, patch: Callable[[pytest.MonkeyPatch], None] | None = None
) -> Outcome:
    """Run one test, named from the folder `tests`, in this process; with a patch, on the code that
    it breaks.
    """
    watch, text = _Watch(patch), io.StringIO()
    without = [option for plugin in QUIET for option in ("-p", f"no:{plugin}")]
    # Other tests may have left threads, which forks warn of.
    forks = "ignore:This process:DeprecationWarning"
    with contextlib.redirect_stdout(text), pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        environment.chdir(ROOT)
        arguments = [
            f"tests/{test}",
            "-x",
            "-q",
            "--tb=short",
            "-m",
            "full or not full",
            "-W",
            forks,
        ]
        pytest.main(
            [*arguments, *without, "--basetemp", os.fspath(folder / "nested")], plugins=[watch]
        )
    return Outcome(watch.passed, watch.noticed_by, watch.full, watch.seconds, text.getvalue())
