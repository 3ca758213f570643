"""When, and with which software: what a ledger notes about whoever writes to it. Public."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

__all__ = ["now", "software"]

_RECORDED = ("numpy", "scipy", "torch", "cryptography", "numba")


def software() -> tuple[tuple[str, str], ...]:
    """Versions of what is executing, of a fixed list of packages."""
    used = ["discreet", *(name for name in _RECORDED if name in sys.modules)]
    return tuple(sorted([("python", platform.python_version()), *((name, _version(name)) for name in used)]))


def now() -> str:
    """Date and time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # vendored, or a stand-in
        return "unknown"
