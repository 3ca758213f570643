"""Pictures of a report for the docs: phone, desktop, dark.

python scripts/screenshots.py out/demo.ledger --delta 1e-5 [--plan plan.toml] [--into docs/images]
"""  # noqa: INP001

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import discreet as dp

_PICTURES = (
    ("phone", 400, 1400, "light"),
    ("desktop", 1400, 1500, "light"),
    ("dark", 1000, 1100, "dark"),
)


def main() -> None:
    """Write the report of a ledger to a temporary file, and photograph it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    chromium = subprocess.run(
        [Path(__file__).parent / "chromium"], check=True, capture_output=True, text=True
    )
    plan = None if options.plan is None else dp.Plan.load(options.plan)
    with (
        tempfile.TemporaryDirectory() as folder,
        dp.Ledger.open(options.ledger, "r") as ledger,
        sync_playwright() as playwright,
    ):
        page = dp.Report.of(ledger, delta=options.delta, plan=plan).write(
            Path(folder) / "report.html"
        )
        browser = playwright.chromium.launch(
            executable_path=chromium.stdout.strip(), args=["--no-sandbox"]
        )
        for name, width, height, scheme in _PICTURES:
            window = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            window.goto(page.as_uri())
            window.screenshot(path=options.into / f"report-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
