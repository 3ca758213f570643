"""For all tests: no law is timed, machines are noisy. No test dies of instructions that a virtual
machine only announces.
"""

import os

import pytest
from hypothesis import settings

from support.processors import AMX, WITHOUT_AMX, announces_amx_in_vain
from support.slow import slow_tests

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Once, before torch computes; worker processes inherit it."""
    if not hasattr(config, "workerinput") and announces_amx_in_vain():
        os.environ[AMX] = WITHOUT_AMX


def pytest_report_header() -> str:
    return f"oneDNN: {AMX}={os.environ.get(AMX, '')}"


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make quick` leaves out: the one place that says so is tests/slow.txt."""
    slow = slow_tests()
    for item in items:
        name = item.nodeid.split("[")[0].removeprefix("tests/")
        if name in slow:
            item.add_marker("slow")
