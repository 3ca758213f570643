"""Documents lead to each other, and what tutorials show runs as shown, in a process and a folder of
its own.
"""

import re
from pathlib import Path

import pytest

import discreet as dp
from support import pages
from support.source import PACKAGE, ROOT

DOCS = sorted((ROOT / "docs").rglob("*.md"))
TUTORIALS = ROOT / "docs" / "tutorials"


def tutorial(name: str, folder: Path, *without: str) -> str:
    return pages.run((TUTORIALS / name).read_text(), folder, without=without)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *DOCS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for link in links:
        assert (
            link.startswith(("https://", "#")) or (page.parent / link.partition("#")[0]).exists()
        ), link


def test_the_map_of_documents_is_complete() -> None:
    page = ROOT / "docs" / "README.md"
    linked = {
        (page.parent / link).resolve() for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text())
    }
    assert set(DOCS) - {page} <= linked


def test_the_page_on_extending_runs_and_names_what_is_there(tmp_path: Path) -> None:
    """Every file of its tables exists, and every name in the row of a file stands in that file."""
    text = (ROOT / "docs" / "extending.md").read_text()
    pages.run(text, tmp_path)
    rows = re.findall(r"^\| (`[\w/]+\.py`(?:, `[\w/]+\.py`)*) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) >= 10
    for files, words in rows:
        sources = [PACKAGE / file for file in re.findall(r"`([\w/.]+)`", files)]
        together = "".join(source.read_text() for source in sources)
        for name in re.findall(r"`(_?[A-Za-z_]+)`", words):
            assert name in together, (files, name)


def test_every_tutorial_is_run() -> None:
    names = {path.name for path in TUTORIALS.glob("*.md")}
    assert names == set(re.findall(r'tutorial\("([\w-]+\.md)"', Path(__file__).read_text()))


def test_first_private_training(tmp_path: Path) -> None:
    out = tutorial("first-private-training.md", tmp_path)
    plain, private = (float(found) for found in re.findall(r"test accuracy ([0-9.]+)%", out))
    assert plain > 90.0
    assert private > 85.0  # chance is 10 %
    assert "Ready for private training: proved" in out
    assert "113 steps, epsilon 2.99" in out
    assert "0 deviations" in out
    for name in (
        "digits.ledger",
        "resumed.ledger",
    ):  # a resumed run costs as much as one that was not stopped
        with dp.Ledger.open(tmp_path / name, "r") as ledger:
            assert sum(charge.count for charge in ledger.verify().charges()) == 113
            assert 2.9 < dp.account(ledger, delta=1e-5).epsilon <= 3.0
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "statement.html").exists()


def test_choosing_parameters(tmp_path: Path) -> None:
    out = tutorial("choosing-parameters.md", tmp_path, "torch")
    assert "flattens at 468" in out
    hits = [float(found) for found in re.findall(r"at most ([0-9.]+) are found", out)]
    assert all(
        found <= stated for found, stated in zip(hits, (0.019, 0.043, 0.185), strict=True)
    )  # as the page says
    one, everything, best = (
        float(found)
        for found in re.findall(r"(?:one run: epsilon|all of 10:|on average:) ([0-9.]+)", out)
    )
    assert one < best < everything


def test_tuning(tmp_path: Path) -> None:
    out = tutorial("tuning.md", tmp_path, "torch")
    assert out.count("<- chosen") == 4
    (measured,) = re.findall(r"predicted 0.85, measured ([0-9.]+)", out)
    assert float(measured) > 0.8  # 0.871 in a run; a guess has 0.5
    assert "a trial that charged nothing there" in out
    assert "the next trial does not fit the budget" in out
    for name in ("tuning-clip.png", "tuning-rate.png", "tuning-noise.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with dp.Ledger.open(tmp_path / "patients.ledger", "r") as ledger:
        assert dp.account(ledger.verify()).upper == 2.5
        trained = [charge for charge in ledger.charges() if charge.step.groups != ("score",)]
        assert len(ledger.charges()) == 2 * len(trained)  # one score for each
    (epsilon,) = re.findall(r"^3 trials, epsilon ([0-9.]+)$", out, re.MULTILINE)
    assert (
        1.5 < float(epsilon) < 2.2
    )  # three trainings of epsilon 1, and their scores; a filter of 2.5 holds no fourth
    assert (
        "40 more; 120 of 120 are charged already" in out
    )  # a fourth trial, which the list does not have
    page = (tmp_path / "report.html").read_text()
    assert "private data “patients”" in page
    assert "synthetic data “two clouds”" in page


def test_reading_the_ledger(tmp_path: Path) -> None:
    out = tutorial("reading-the-ledger.md", tmp_path, "torch")
    assert "2 runs, head " in out
    assert "Nothing was charged" in out  # by the run that the budget refused
    assert "wrong " in out  # two runs of a plan for one
    with dp.Ledger.load(tmp_path / "heights.jsonl") as copy:
        assert [charge.count for charge in copy.charges()] == [60, 60]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "report.md").exists()


def test_groups_and_private_metrics(tmp_path: Path) -> None:
    out = tutorial("groups-and-private-metrics.md", tmp_path)
    assert len(re.findall(r"private training accuracy", out)) == 4
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)%", out)
    assert float(accuracy) > 80.0  # chance is 10 %
    assert "80 rows: " in out
    with dp.Ledger.open(tmp_path / "groups.ledger", "r") as ledger:
        (charge,) = ledger.verify().charges()
        assert {query.group for query in charge.step.queries} == {
            "grad/0.*",
            "grad/*",
            "grad/*/below",
            "metric/accuracy",
            "bn/*",
        }
        assert 2.9 < dp.account(ledger, delta=1e-5).epsilon <= 3.0


def test_auditing_a_run(tmp_path: Path) -> None:
    out = tutorial("auditing-a-run.md", tmp_path)
    assert out.count("PASS") == 3  # the plan, the scores by command and in Python
    assert "FAIL" not in out
    assert float(re.findall(r"epsilon is at least ([0-9.]+), by an attack", out)[0]) <= 3.0
    assert "Exposure 10.0 bits of at most 10.0" in out
    assert (tmp_path / "audit.json").exists()
    assert (tmp_path / "report.html").exists()
