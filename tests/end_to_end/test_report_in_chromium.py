"""The page in a real browser: narrow and wide, light and dark, on paper; no script, no request,
nothing cut off.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import discreet as dp
from discreet.report import Subject
from discreet.report.formats.stamp import read_stamp
from support import browser as support
from support.reports import DELTA, INFO, audit_of, executed, extend, ledger_of, listed, planned

SECTIONS = (
    "headline",
    "deviations",
    "curves",
    "statement",
    "comparison",
    "held",
    "runs",
    "charges",
    "verify",
    "signature",
)
ITEMS = ("1", "2a", "2b", "2c", "2d", "3a", "3b", "3c", "4")
DRAWN = {
    "good": ["tradeoff", "spending", "groups-1"],
    "bad": ["tradeoff", "spending", "groups-1", "groups-2"],
    "void": ["groups-1"],
    "odometer": ["tradeoff", "groups-1"],
}
WIDTHS = (400, 1400)
SCHEMES = ("light", "dark")
LONG = "<script>alert(1)</script>" + "x" * 150

# What reaches over the right edge of the window and does not scroll inside a box of its own.
OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    const outside = box.right > document.documentElement.clientWidth + 1;
    return box.width && outside && !e.closest('.scroll');
}).map(e => e.tagName + '.' + e.className)"""
RED = """element => {
    const [r, g, b] = getComputedStyle(element).color.match(/\\d+/g).map(Number);
    return r > 120 && r > 2 * Math.max(g, b);
}"""
BRIGHTNESS = """selector => {
    const style = getComputedStyle(document.querySelector(selector));
    const [r, g, b] = style.backgroundColor.match(/\\d+/g).map(Number);
    return (r + g + b) / 765;
}"""


def good(folder: Path) -> Path:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    subject = Subject(
        data_set="admissions", model="triage", purpose="research", who="A. Mustermann"
    )
    return dp.Report.of(ledger, plan=plan, audit=audit_of(ledger), subject=subject).write(
        folder / "good.html"
    )


def bad(folder: Path) -> Path:
    """Deviations, long names that are markup, several kinds of step."""
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum(LONG, 1.0, 5.0), dp.ledger.GaussianSum("z" * 180, 1.0, 9.0)],
    )
    laplace = dp.ledger.Step(dp.Everything(), dp.ledger.LaplaceSum("grad", 1.0, 9.0))
    ledger = ledger_of(
        (step, 30), info=replace(INFO, label=LONG), budget=listed((step, 30), (laplace, 5))
    )
    extend(ledger, (laplace, 1), info=INFO)
    ledger.change_budget(500.0, delta=DELTA, reason=LONG)
    stopped = ledger.begin(INFO, [(laplace, 3)])
    stopped.reserve(laplace, count=1).settle()
    stopped.end(LONG)
    ledger.begin(INFO, [(laplace, 1)]).reserve(laplace, count=1)
    subject = Subject(data_set=LONG, model="y" * 190)
    report = dp.Report.of(
        ledger, delta=DELTA, plan=planned(), audit=audit_of(ledger, 40.0), subject=subject
    )
    return report.write(folder / "bad.html")


def void(folder: Path) -> Path:
    ledger = executed(planned())
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    return dp.Report.of(ledger, delta=DELTA).write(folder / "void.html")


def odometer(folder: Path) -> Path:
    ledger = executed(planned(), budget=dp.Odometer(delta=DELTA))
    extend(ledger, (planned().step, 20), info=planned().run_info("second"))
    return dp.Report.of(ledger).write(folder / "odometer.html")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with support.browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {make.__name__: make(folder) for make in (good, bad, void, odometer)}


class Opened:
    """A page, and everything it complained about or asked for."""

    def __init__(self, chromium: Browser, path: Path, width: int, scheme: str) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page: Page = chromium.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["good", "bad", "void", "odometer"])
def test_the_page_renders(
    chromium: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    opened = Opened(chromium, pages[name], width, scheme)
    page = opened.page
    assert opened.problems == []
    assert opened.requests == [pages[name].as_uri()]
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert page.evaluate(OVERFLOWING) == []
    for section in SECTIONS:
        assert page.locator(f"#{section}").is_visible(), section
    for item in ITEMS:
        assert page.locator(f"[id='item-{item}'] h3").is_visible(), item
    assert [figure.get_attribute("id") for figure in page.locator("figure").all()] == [
        f"chart-{key}" for key in DRAWN[name]
    ]
    for chart in page.locator("figure svg").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 40
    assert (page.evaluate(BRIGHTNESS, "body") > 0.9) == (scheme == "light")
    assert (page.evaluate(BRIGHTNESS, "body") < 0.2) == (scheme == "dark")
    page.close()


def test_what_deviates_is_red_and_nothing_else(chromium: Browser, pages: dict[str, Path]) -> None:
    for name, expected in (("good", False), ("bad", True), ("void", True)):
        page = Opened(chromium, pages[name], 1400, "light").page
        assert page.locator(".badge").evaluate(RED) is expected
        found = [element.evaluate(RED) for element in page.locator("li.wrong, tr.wrong td").all()]
        assert all(found)
        assert bool(found) is expected
        assert not any(
            element.evaluate(RED)
            for element in page.locator("h2, .item p, .claim, .figures dd").all()
        )
        page.close()


def test_names_of_others_are_shown_and_do_nothing(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    opened = Opened(chromium, pages["bad"], 400, "light")
    assert opened.page.locator("script").count() == 0
    assert opened.page.get_by_text(LONG).count() > 0
    assert opened.problems == []
    opened.page.close()


def test_numbers_open_without_a_script(chromium: Browser, pages: dict[str, Path]) -> None:
    page = Opened(chromium, pages["good"], 400, "light").page
    table = page.locator("#chart-tradeoff details table")
    assert not table.is_visible()
    page.locator("#chart-tradeoff summary").click()
    assert table.is_visible()
    assert page.evaluate(OVERFLOWING) == []
    page.close()


@pytest.mark.parametrize("name", ["good", "bad"])
def test_on_paper_it_is_black_on_white_and_complete(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    page = Opened(
        chromium, pages[name], 680, "dark"
    ).page  # A4 less its margins, at 96 dots per inch
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(BRIGHTNESS, "body") == 1.0
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.locator("#chart-tradeoff .printed table").is_visible()
    assert not page.locator("#chart-tradeoff details").is_visible()
    overflowing = (
        "() => [...document.querySelectorAll('table')].filter(e => "
        "e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert page.evaluate(overflowing) == 0
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


# Pages of A4 on which the signature stands, by what Chromium's own print layout says of the
# element.
SIGNED = (
    "() => { const s = getComputedStyle(document.querySelector('#signature')); return "
    "s.breakInside; }"
)


@pytest.mark.parametrize("name", ["good", "bad", "void", "odometer"])
def test_on_paper_the_signature_is_kept_together_with_the_whole_head_and_room_to_write(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    page = Opened(chromium, pages[name], 680, "light").page
    page.emulate_media(media="print")
    assert page.evaluate(SIGNED) == "avoid"
    block = page.locator("#signature")
    box = block.bounding_box()
    assert box is not None
    assert (
        box["height"] < 0.9 * 1010
    )  # of the height of a page of A4 less its margins: it fits on one
    rooms = block.locator(".sign .room").all()
    assert len(rooms) == 6
    for room in rooms:
        place = room.bounding_box()
        assert place is not None
        assert place["height"] > 30
        assert place["width"] > 60
    stamp = read_stamp(pages[name].read_text())
    for text in (stamp.head, stamp.ledger):
        shown = block.get_by_text(text, exact=True).bounding_box()
        assert shown is not None
        assert shown["x"] + shown["width"] <= 681
    page.close()


def test_the_same_checks_notice_a_page_that_is_too_wide_asks_for_more_and_runs_scripts(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    text = pages["good"].read_text()
    planted = tmp_path / "planted.html"
    outside = tmp_path.as_uri() + "/x.png"
    wide = "<div style='width:3000px;height:9px;background:red'></div>"
    planted.write_text(
        text.replace(
            "<main>", f"<main>{wide}<img src='{outside}'><script>console.log(1)</script>", 1
        )
    )
    opened = Opened(chromium, planted, 400, "light")
    assert opened.page.evaluate(OVERFLOWING) != []
    assert opened.problems != []  # the policy of the page refuses script and image
    free = tmp_path / "free.html"
    free.write_text(planted.read_text().replace("default-src 'none'", "default-src *"))
    assert Opened(chromium, free, 400, "light").requests == [free.as_uri(), outside]


def test_the_page_is_small(pages: dict[str, Path]) -> None:
    assert all(path.stat().st_size < 2_000_000 for path in pages.values())


def test_without_a_browser_the_test_fails_and_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DISCREET_CHROMIUM", raising=False)
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        support.chromium()
    monkeypatch.setenv("DISCREET_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(pytest.fail.Exception, match="/nowhere/chromium"):
        support.chromium()
