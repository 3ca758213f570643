"""For all tests: no law is timed, machines are noisy. No test dies of instructions that a virtual
machine only announces.
"""

import os

import pytest
from hypothesis import settings

from support.processors import AMX, WITHOUT_AMX, announces_amx_in_vain

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Once, before torch computes; worker processes inherit it."""
    if not hasattr(config, "workerinput") and announces_amx_in_vain():
        os.environ[AMX] = WITHOUT_AMX


def pytest_report_header() -> str:
    return f"oneDNN: {AMX}={os.environ.get(AMX, '')}"
