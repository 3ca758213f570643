"""docs/utility.md says what the results say."""

from pathlib import Path

import pytest
from benchmarks.utility import curves, page
from benchmarks.utility.published import PUBLISHED
from benchmarks.utility.recipe import Goal, Recipe
from benchmarks.utility.recipes import recipes
from benchmarks.utility.results import FOLDER, Certified, Results, Run

RECIPE: Recipe[None] = Recipe(
    name="made-up",
    data_set="mnist",
    model="A model in words.",
    epsilons=(1.2, 3.0),
    goals=(Goal(1.2, accuracy=0.984), Goal(3.0, gap=0.005)),
    tuned="nothing.",
    without_privacy="in the same way.",
    prepare=lambda folder: None,
    train=lambda prepared, target, ledger, source=None: 0.0,
)


def run(accuracy: float, upper: float | None) -> Run:
    certified = (
        None
        if upper is None
        else Certified(upper - 0.01, upper, 1e-5, "a statement", ("a charge in words",))
    )
    return Run(accuracy, certified, 10.0, 60.0, 90.0, 2, {"torch": "2.13.0"}, "2026-01-02")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs at 1.2, two at 3, one without privacy; the one recipe that there is."""
    for epsilon, accuracies in (
        (1.2, (0.983, 0.984, 0.985)),
        (3.0, (0.98, 0.99)),
        (None, (0.995,)),
    ):
        upper = None if epsilon is None else epsilon - 0.0004
        Results("made-up", epsilon, tuple(run(accuracy, upper) for accuracy in accuracies)).write(
            tmp_path
        )
    monkeypatch.setattr(page, "recipes", lambda: {"made-up": RECIPE})
    return tmp_path


def test_the_page_is_what_the_results_say() -> None:
    """Of the repository itself: whoever changes results, recipes or the program writes the page
    anew.
    """
    assert page.PAGE.read_text() == page.text(FOLDER)
    assert page.PICTURE.exists()


def test_every_result_belongs_to_a_recipe_and_an_epsilon_of_the_page() -> None:
    shown = {
        f"{recipe.name}-{epsilon:g}" for recipe in recipes().values() for epsilon in recipe.epsilons
    }
    shown |= {f"{name}-without-privacy" for name in recipes()}
    assert {path.stem for path in FOLDER.glob("*.json")} <= shown


def test_every_result_was_certified_within_its_target() -> None:
    for recipe in recipes().values():
        for epsilon in recipe.epsilons:
            for one in Results.read(FOLDER, recipe.name, epsilon).runs:
                assert one.certified is not None
                assert one.certified.lower <= one.certified.upper <= epsilon
                assert one.certified.delta == recipe.delta


def test_a_row_has_mean_spread_claim_gap_and_goal(written: Path) -> None:
    row = next(
        line
        for line in page.text(written).splitlines()
        if line.startswith("| [MNIST: made-up](#made-up) | 1.2 ")
    )
    assert row.split(" | ")[2:] == [
        "1.2",  # 1.1996, rounded up
        "3",
        "**98.40%** ± 0.10 (98.30 to 98.50)",
        "99.50%",
        "1.10",
        "98.1% at 1.2",
        "98.4%: reached",
        "90 s CPU (60 s) + (10 s), 2 threads |",
    ]


def test_a_goal_that_is_missed_says_by_how_much_and_two_runs_are_not_enough(written: Path) -> None:
    text = page.text(written)
    assert "gap 0.50: missed by 0.50" in text
    Results("made-up", 3.0, (run(0.995, 2.9), run(0.995, 2.9))).write(written)
    assert "gap 0.50: not yet 3 runs" in page.text(written)


def test_what_was_not_run_is_said(written: Path) -> None:
    (written / "made-up-3.json").unlink()
    (written / "made-up-without-privacy.json").unlink()
    rows = [
        line for line in page.text(written).splitlines() if line.startswith("| [MNIST: made-up]")
    ]
    assert " | not run | " in rows[0]
    assert " | 0 | not run | " in rows[1]


def test_charges_tuning_and_how_it_goes_without_privacy_are_on_the_page(written: Path) -> None:
    text = page.text(written)
    for sentence in (
        "* a charge in words",
        "*Tuned:* nothing.",
        "*Without privacy:* in the same way.",
        "98.30%, 98.40%, 98.50%",
    ):
        assert sentence in text


def test_figures_that_were_not_checked_are_marked(written: Path) -> None:
    text = page.text(written)
    unchecked = [
        figure for figures in PUBLISHED.values() for figure in figures if not figure.read_in
    ]
    assert text.count("not checked: from memory") == len(unchecked) > 0
    assert "98.7%? at 2.93" in text


def test_the_picture_is_drawn(written: Path) -> None:
    curves.draw([RECIPE], written, written / "images" / "curve.png")
    assert (written / "images" / "curve.png").read_bytes().startswith(b"\x89PNG")
