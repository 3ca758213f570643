"""Tests that `make quick` leaves out, as tests/slow.txt lists them."""

from pathlib import Path

LIST = Path(__file__).parents[1] / "slow.txt"


def slow_tests() -> set[str]:
    """Names of the tests, each with its file, from the folder `tests`."""
    names: set[str] = set()
    file = ""
    for line in LIST.read_text().splitlines():
        if line.startswith(" "):
            names.add(f"{file}::{line.strip()}")
        elif not line.startswith("#"):
            file = line
    return names
