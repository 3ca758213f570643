"""When, and with which software: what a ledger notes about whoever writes to it. Public."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["now", "script_name", "software"]

# Characters of a name; a longer one is no name for people.
_LONGEST = 100

# The packages that computed something; noted if they were imported.
_RECORDED = ("numpy", "scipy", "torch", "cryptography")


def software() -> tuple[tuple[str, str], ...]:
    """Versions of what is executing, of a fixed list of packages."""
    used = ["discreet", *(name for name in _RECORDED if name in sys.modules)]
    return tuple(
        sorted([("python", platform.python_version()), *((name, _version(name)) for name in used)])
    )


def now() -> str:
    """Date and time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def script_name() -> str:
    """The name of the script or notebook that is executing: the default name of a run."""
    # Jupyter sets the variable; inside a notebook `__main__` has no file.
    notebook = os.environ.get("JPY_SESSION_NAME", "")
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""

    # `python -m package` executes a file whose own name says nothing.
    path = Path(notebook or main)
    name = path.parent.name if path.name == "__main__.py" else path.name

    # A default must never make a run fail: a name that no label could be is left out.
    return name if name.isprintable() and len(name) <= _LONGEST else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # Vendored, or a stand-in: the ledger says that it was there all the same.
        return "unknown"
