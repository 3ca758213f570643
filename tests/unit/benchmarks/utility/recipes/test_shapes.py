"""The recipe for grey images at small scale: it learns, with privacy and without, and spends what
it says.
"""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.utility.recipes import recipes, shapes
from benchmarks.utility.shapes import shapes as synthetic

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from support.utility import epsilon_of_charges, write_images

pytestmark = pytest.mark.full  # it trains models


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> shapes.Vectors:
    for name, value in (
        ("STEPS", 15),
        ("PATCHES", 8),
        ("IMAGES", 100),
        ("AXES", 40),
        ("LOOKED_AT", 10),
    ):
        monkeypatch.setattr(shapes, name, value)
    write_images(tmp_path, "mnist")
    return shapes.prepare(tmp_path, "mnist")


def test_both_are_found_by_their_names() -> None:
    assert (
        {recipe.name for recipe in shapes.RECIPES} == {"mnist", "fashion-mnist"} <= set(recipes())
    )


def test_it_learns_and_one_ledger_covers_every_query(tmp_path: Path, small: shapes.Vectors) -> None:
    path = tmp_path / "run.ledger"
    assert (
        shapes.train(small, Target(100.0, 1e-5), path, Source.unsafe_test_key(b"s" * 32)) > 0.5
    )  # chance is 0.1
    with dp.Ledger.open(path, "r") as ledger:
        assert [charge.count for charge in ledger.verify().charges()] == [1, 1, 15]
        assert 90.0 < epsilon_of_charges(ledger, 1e-5) <= 100.0


def test_it_learns_without_privacy_and_leaves_no_ledger(
    tmp_path: Path, small: shapes.Vectors
) -> None:
    assert shapes.train(small, None, tmp_path / "run.ledger") > 0.9
    assert not (tmp_path / "run.ledger").exists()


def test_features_are_functions_of_single_images(tmp_path: Path, small: shapes.Vectors) -> None:
    """Statistics of the data set, or of a batch, would be a use of the data that nobody charged."""
    write_images(tmp_path, "mnist", train=13)
    assert np.array_equal(shapes.prepare(tmp_path, "mnist").train, small.train[:13])


def test_synthetic_images_are_the_same_every_time() -> None:
    once, again = synthetic(20, 28, seed=3), synthetic(20, 28, seed=3)
    assert once.shape == (20, 28, 28)
    assert bool((once == again).all())
    assert 0.0 <= float(once.min()) < 0.1
    assert 0.9 < float(once.max()) <= 1.0
    assert float(once.flatten(1).std(1).min()) > 0.01  # none is empty
