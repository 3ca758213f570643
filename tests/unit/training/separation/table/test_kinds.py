"""Operations that are special: every name is one of torch's, and each kind is what it says."""

import pytest
import torch

from discreet.training.separation.table import kinds


@pytest.mark.parametrize("name", sorted(kinds.FILLS & {"zeros", "ones"}))
def test_every_entry_of_what_fills_is_the_same_number(name: str) -> None:
    assert getattr(torch, name)(3, 2).unique().numel() == 1


@pytest.mark.parametrize("name", ["zeros_like", "new_zeros", "rand_like"])
def test_of_a_tensor_only_the_shape_is_taken(name: str) -> None:
    assert name in kinds.SHAPE_ONLY


def test_what_draws_by_value_is_not_taken_for_what_draws_by_shape() -> None:
    """Wrong: a record would shift the random numbers of those after it, unseen."""
    assert not kinds.DRAWS_BY_VALUE & {name.partition(".")[0] for name in kinds.RANDOM}
    assert "poisson" in kinds.DRAWS_BY_VALUE


def test_memory_that_nobody_wrote_is_neither_filled_nor_random() -> None:
    assert not kinds.UNINITIALISED & kinds.FILLS
    assert not kinds.UNINITIALISED & kinds.RANDOM


def test_batch_norm_writes_its_statistics_although_no_schema_says_so() -> None:
    schema = str(torch.ops.aten.native_batch_norm.default._schema)
    assert "Tensor(a!)" not in schema
    assert kinds.UNDECLARED_WRITES["native_batch_norm"] == ("running_mean", "running_var")
