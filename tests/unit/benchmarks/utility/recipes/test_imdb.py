"""The bag of words on IMDb at small scale: it learns, its counts of words are charged too, and
hashing needs no vocabulary.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipes import imdb, recipes
from benchmarks.utility.words import bags

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from support.utility import epsilon_of_charges
from support.utility_text import write_imdb


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STEPS": 10,
        "BUCKETS": 256,
        "LENGTH": 16,
        "WORDS": 9.0,
        "COUNT_NOISE": 0.5,
    }.items():
        monkeypatch.setattr(imdb, name, value)


def test_it_is_found_by_its_name() -> None:
    assert recipes()["imdb"] is imdb.RECIPES[0]


def test_it_learns_and_both_uses_of_the_data_are_charged(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    path = tmp_path / "run.ledger"
    assert (
        imdb.train(
            imdb.prepare(tmp_path), Target(50.0, 1e-5), path, Source.unsafe_test_key(b"i" * 32)
        )
        > 0.9
    )
    with dp.Ledger.open(path, "r") as ledger:
        assert [charge.count for charge in ledger.verify().charges()] == [1, 10]
        assert 45.0 < epsilon_of_charges(ledger, 1e-5) <= 50.0


def test_it_learns_without_privacy_and_leaves_no_ledger(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    assert imdb.train(imdb.prepare(tmp_path), None, tmp_path / "run.ledger") == 1.0
    assert not (tmp_path / "run.ledger").exists()


def test_counts_are_reviews_with_the_word_over_the_root_of_their_lengths(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    reviews = imdb.prepare(tmp_path).train
    words, taken, _ = reviews.tensors
    expected = np.zeros(256)
    for numbers, places in zip(words.numpy(), taken.numpy() > 0, strict=True):
        expected[numbers[places]] += 1.0 / np.sqrt(places.sum())
    model = imdb.bag()
    found = imdb.counted(model, PlainRun(model, batch_size=len(reviews), steps=1), reviews)
    assert np.allclose(found.numpy(), expected, atol=1e-3)


def test_rare_words_weigh_more_and_noise_does_not_make_a_word_rarer_than_the_least_count() -> None:
    rarity = imdb.rarity_of(torch.tensor([-5.0, 1.0, 2.0, 30.0, 1e6]), 100, least=2.0)
    assert rarity[0] == rarity[1] == rarity[2] > rarity[3] > rarity[4]
    assert rarity[4] == pytest.approx(0.05)


def test_bags_are_functions_of_single_texts_with_each_bucket_once() -> None:
    """Two words of one bucket would weigh twice; a vocabulary or a longest text of the data set
    would be a use of the data.
    """
    texts = ["The film, the FILM!<br />the end", "", "a b c d e f g"]
    words, taken = bags(texts, buckets=1000, length=6)
    assert taken.sum(axis=1).tolist() == [4.0, 0.0, 6.0]  # the, film, !, end
    for row, text in enumerate(texts):
        (alone,), (places,) = bags([text], buckets=1000, length=6)
        assert np.array_equal(alone, words[row])
        assert np.array_equal(places, taken[row])
    few, present = bags(["a b c d e f g h"], buckets=3, length=6)
    assert sorted(few[0][present[0] > 0].tolist()) == sorted(set(few[0][present[0] > 0].tolist()))
