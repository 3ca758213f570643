"""docs/mutations.md is what the catalogue of bugs says, and the tests that it names are ordinary
tests of the suite.
"""

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from support import catalogue as catalogues
from support.catalogue import PAGE, PITFALLS, catalogue, page, pitfalls_of, seconds_on_page
from support.mutations import Mutation
from support.source import ROOT

MUTATIONS = catalogue()
ORDINARY = re.compile(
    r"(architecture|audits|end_to_end|golden|laws|statistics|unit)/[\w/]+\.py::test_\w+(\[.+\])?"
)
# Where our code calls them by name; and an example, whose theorems a page quotes.
NOT_OURS = {"numpy.load", "numpy.trunc", "torch.load", "examples.accounting.composition.math"}


class Collected:
    """A plugin that sees which tests there are, and which of them `make test` leaves out."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            full = item.get_closest_marker("full") is not None
            name = item.nodeid.removeprefix("tests/")
            for known in (name, name.split("[")[0]):
                self.names[known] = full and self.names.get(known, True)


@cache
def collected(mutations: tuple[Mutation, ...]) -> dict[str, bool]:
    """Tests by name, and whether they are for `make test-full` only."""
    seen = Collected()
    tests = sorted({f"{ROOT}/tests/{mutation.caught_by.split('[')[0]}" for mutation in mutations})
    options = [
        "-q",
        "--collect-only",
        "-m",
        "full or not full",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        pytest.main([*options, *tests], plugins=[seen])
    return seen.names


def test_the_page_is_what_the_program_writes() -> None:
    seconds = seconds_on_page()
    assert set(seconds) == {mutation.name for mutation in MUTATIONS}
    assert PAGE.read_text() == page(MUTATIONS, seconds), "run: python scripts/mutations.py --write"


def test_every_bug_is_in_our_code_and_every_test_is_one_of_the_suite() -> None:
    names = collected(MUTATIONS)
    for mutation in MUTATIONS:
        assert ORDINARY.fullmatch(mutation.caught_by), mutation
        assert mutation.caught_by in names, mutation
        assert mutation.patched, mutation
        assert all(name.startswith("discreet.") or name in NOT_OURS for name in mutation.patched), (
            mutation
        )


def test_every_pitfall_is_reproduced_and_caught_by_make_test() -> None:
    """Asked for: 35 of them caught by all tests, 25 by `make test`."""
    names = collected(MUTATIONS)
    quick = [mutation for mutation in MUTATIONS if not names[mutation.caught_by]]
    assert len(quick) == len(MUTATIONS)  # as the page says
    assert pitfalls_of(MUTATIONS) == pitfalls_of(quick) == PITFALLS


def test_these_checks_would_notice() -> None:
    """A test that is gone, one that is marked full, a page of other rows, two bugs of one name."""
    gone = replace(MUTATIONS[0], caught_by="unit/test_units.py::test_that_never_was")
    assert gone.caught_by not in collected((gone,))
    slow = replace(
        MUTATIONS[0],
        caught_by=(
            "statistics/test_attacks.py::test_p27_the_rate_of_rare_records_is_the_one_asked_for"
        ),
    )
    assert collected((slow,))[slow.caught_by]
    assert page((gone, *MUTATIONS[1:]), seconds_on_page()) != PAGE.read_text()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="several"):
        patch.setattr(catalogues, "Counter", lambda names: dict.fromkeys(names, 2))
        catalogue()


@pytest.mark.full
def test_the_program_finds_every_bug_caught() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "mutations.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(MUTATIONS)} of {len(MUTATIONS)} bugs are caught" in done.stdout
