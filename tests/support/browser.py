"""A real browser for what only a browser can tell."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Its path. Without one the test fails: a page that nobody looked at is not tested."""
    wanted = os.environ.get("DISCREET_CHROMIUM")
    for name in (wanted,) if wanted else NAMES:
        found = shutil.which(name)
        if found:
            return found
    how = (
        "Run scripts/chromium (Debian: apt-get install chromium), or set DISCREET_CHROMIUM to the "
        "path of one."
    )
    pytest.fail(f"No Chromium was found ({wanted or ', '.join(NAMES)}). {how}")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield started
        finally:
            started.close()
