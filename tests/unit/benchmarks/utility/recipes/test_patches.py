"""The recipe on patches at small scale: it learns, with privacy and without, and spends what it
says.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.utility.leaves import crops, dead_leaves
from benchmarks.utility.patches import PatchFeatures
from benchmarks.utility.recipes import patches, recipes

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from support.utility import epsilon_of_charges, write_images

pytestmark = pytest.mark.full  # it trains models


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {
        "LEAVES": 6,
        "PATCHES": 8,
        "DIRECTIONS": 10,
        "SHRUNK": 5,
        "STEPS": 20,
        "PROBABILITY": 1.0,
    }.items():
        monkeypatch.setattr(patches, name, value)
    write_images(tmp_path, "cifar10")
    return tmp_path


def test_it_is_found_by_its_name() -> None:
    assert recipes()["cifar10"] is patches.RECIPES[0]


def test_it_learns_and_its_ledger_is_within_the_target(small: Path) -> None:
    path = small / "run.ledger"
    accuracy = patches.train(
        patches.prepare(small), Target(1000.0, 1e-5), path, Source.unsafe_test_key(b"u" * 32)
    )
    assert accuracy > 0.5  # chance is 0.1
    with dp.Ledger.open(path, "r") as ledger:
        counts = [charge.count for charge in ledger.verify().charges()]
        assert counts == [1, 1, 20]  # means, strong directions, training: every look at the data
        assert epsilon_of_charges(ledger, 1e-5) <= 1000.0


def test_it_learns_without_privacy_and_leaves_no_ledger(small: Path) -> None:
    assert patches.train(patches.prepare(small), None, small / "run.ledger") > 0.9
    assert not (small / "run.ledger").exists()


def test_features_are_functions_of_single_images(small: Path) -> None:
    """Whitening by the covariance of the data set would be a use of the data that nobody
    charged.
    """
    vectors = patches.prepare(small).train
    write_images(small, "cifar10", train=10)
    assert (patches.prepare(small).train == vectors[:10]).all()


def test_a_mirrored_image_has_the_same_features() -> None:
    images = dead_leaves(2)
    some = crops(images, 32, 16)
    describe = PatchFeatures(images, patches=8)
    assert torch.allclose(
        describe(some), describe(np.ascontiguousarray(some[..., ::-1])), atol=1e-3
    )
    assert not torch.allclose(
        describe(some), describe(np.ascontiguousarray(some[..., ::-1, :])), atol=1e-2
    )


def test_a_dictionary_has_the_size_and_order_it_says() -> None:
    images = dead_leaves(2)
    describe = PatchFeatures(images, patches=8, windows=4)
    assert describe.shape == (2, 8, 4, 4)
    found = describe(crops(images, 32, 32))
    assert found.shape == (8, 2 * 8 * 4 * 4)
    assert bool(((found >= 0.0) & (found <= 1.5)).all())
