"""Sums over the rows that were looked up are those of the whole table."""

import pytest
import torch

from discreet.errors import ModelError
from discreet.training.factors.factors import Dense, Lookups
from discreet.training.tables.rows import RowSums

ROWS, WIDTH = 12, 3


def lookups(seed: int) -> Lookups:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(-1, ROWS, (5, 4), generator=generator)
    return Lookups(ids, torch.randn(5, 4, WIDTH, generator=generator), (ROWS, WIDTH))


def test_sums_have_the_bits_of_the_sums_over_the_whole_table() -> None:
    """Otherwise rounding to the grid could differ from the path with noise on all rows."""
    weights = torch.linspace(0.1, 1.0, 5, dtype=torch.float64)
    sums, whole = RowSums("grad/table", WIDTH), torch.zeros(ROWS * WIDTH, dtype=torch.float64)
    for seed in range(3):
        sums.add(lookups(seed), weights)
        lookups(seed).add_to(whole.view(ROWS, WIDTH), weights, 1.0)
    everywhere = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    everywhere[sums.rows] = sums.values
    assert torch.equal(everywhere, whole.view(ROWS, WIDTH))
    assert sums.rows.tolist() == sorted(set(sums.rows.tolist()))


def test_nothing_was_looked_up() -> None:
    sums = RowSums("grad/table", WIDTH)
    nowhere = Lookups(torch.full((2, 1), -1), torch.ones(2, 1, WIDTH), (ROWS, WIDTH))
    sums.add(nowhere, torch.ones(2, dtype=torch.float64))
    assert sums.rows.tolist() == []
    assert sums.values.shape == (0, WIDTH)


def test_another_form_of_gradient_is_refused_by_the_name_of_the_table() -> None:
    with pytest.raises(ModelError, match="the table embedding"):
        RowSums("grad/embedding", WIDTH).add(
            Dense(torch.ones(2, ROWS, WIDTH)), torch.ones(2, dtype=torch.float64)
        )
