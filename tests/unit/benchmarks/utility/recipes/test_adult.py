"""Logistic regression on Adult at small scale: it learns, spends what it says, and its columns are
public.
"""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.utility.census import DIMENSION, vectors
from benchmarks.utility.recipes import adult, recipes

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from support.utility import epsilon_of_charges
from support.utility_text import POOR, RICH, write_adult


def test_it_is_found_by_its_name() -> None:
    assert recipes()["adult"] is adult.RECIPES[0]


def test_it_learns_and_its_ledger_is_within_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adult, "STEPS", 10)
    write_adult(tmp_path)
    prepared, path = adult.prepare(tmp_path), tmp_path / "run.ledger"
    assert adult.train(prepared, Target(20.0, 1e-5), path, Source.unsafe_test_key(b"a" * 32)) == 1.0
    with dp.Ledger.open(path, "r") as ledger:
        (charge,) = ledger.verify().charges()
        assert charge.count == 10
        assert 19.0 < epsilon_of_charges(ledger, 1e-5) <= 20.0


def test_it_learns_without_privacy_and_leaves_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adult, "STEPS", 10)
    write_adult(tmp_path)
    assert adult.train(adult.prepare(tmp_path), None, tmp_path / "run.ledger") == 1.0
    assert not (tmp_path / "run.ledger").exists()


def test_rows_are_functions_of_single_lines_and_have_length_one() -> None:
    """Ranges or categories that are looked up in the data would be a use of the data that nobody
    charged.
    """
    rows, labels = vectors([RICH, POOR, RICH + "."])
    assert labels.tolist() == [1, 0, 1]
    assert rows.shape == (3, DIMENSION)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    for row, line in zip(rows, (RICH, POOR, RICH), strict=True):
        assert np.array_equal(vectors([line])[0][0], row)


def test_the_label_is_not_among_the_columns() -> None:
    assert np.array_equal(vectors([RICH])[0], vectors([RICH.replace(">50K", "<=50K")])[0])


def test_whatever_is_unknown_is_one_category() -> None:
    assert np.array_equal(vectors([POOR])[0], vectors([POOR.replace("Atlantis", "?")])[0])
    assert not np.array_equal(vectors([POOR])[0], vectors([POOR.replace("Atlantis", "Cuba")])[0])
