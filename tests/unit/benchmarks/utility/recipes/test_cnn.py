"""The convolutional recipe at small scale: it learns, with privacy and without, and spends what it
says.
"""

from pathlib import Path

import pytest
from benchmarks.utility.recipes import cnn, recipes

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from support.utility import epsilon_of_charges, write_images

pytestmark = pytest.mark.full  # it trains models


def test_it_is_found_by_its_name() -> None:
    assert recipes()["cnn"] is cnn.RECIPES[0]


def test_it_learns_and_its_ledger_is_within_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cnn, "STEPS", 12)
    monkeypatch.setattr(cnn, "PROBABILITY", 1.0)
    write_images(tmp_path, "mnist", train=120)
    prepared = cnn.prepare(tmp_path)
    path = tmp_path / "run.ledger"
    accuracy = cnn.train(prepared, Target(100.0, 1e-5), path, Source.unsafe_test_key(b"u" * 32))
    assert accuracy > 0.5  # chance is 0.1
    with dp.Ledger.open(path, "r") as ledger:
        (charge,) = ledger.verify().charges()
        assert charge.count == 12
        assert 90.0 < epsilon_of_charges(ledger, 1e-5) <= 100.0


def test_it_learns_without_privacy_and_leaves_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cnn, "STEPS", 12)
    monkeypatch.setattr(cnn, "PROBABILITY", 1.0)
    write_images(tmp_path, "mnist", train=120)
    assert cnn.train(cnn.prepare(tmp_path), None, tmp_path / "run.ledger") > 0.9
    assert not (tmp_path / "run.ledger").exists()


def test_inputs_are_functions_of_single_images(tmp_path: Path) -> None:
    """Standardising by statistics of the data set would be a use of the data that nobody
    charged.
    """
    write_images(tmp_path, "mnist")
    images = cnn.prepare(tmp_path).train.tensors[0]
    write_images(tmp_path, "mnist", train=10)
    assert bool((cnn.prepare(tmp_path).train.tensors[0] == images[:10]).all())
