"""What is known, in one pass, of memory: what was there before, what was made, and of whom."""

import pytest
import torch
from torch import Tensor

from discreet.training.separation.books import Books
from discreet.training.separation.states import NOISE, PUBLIC, Mixed, Rows


@pytest.fixture
def books() -> Books:
    return Books(4, lambda: " in the layer '1'", lambda: None)


def secret(books: Books) -> Tensor:
    tensor = torch.zeros(4, 3)
    assert books.set_new(tensor, Rows(0))
    return tensor


def test_memory_that_nobody_marked_is_public(books: Books) -> None:
    weight = torch.zeros(3)
    assert books.state(weight) is PUBLIC
    assert not books.made_here(weight.untyped_storage())


def test_views_show_where_records_are_in_their_memory(books: Books) -> None:
    tensor = secret(books)
    assert books.state(tensor) == Rows(0)
    assert books.state(tensor.mT) == Rows(1)
    assert isinstance(books.state(tensor[:2]), Mixed)
    assert books.made_here(tensor.untyped_storage())


def test_what_an_earlier_pass_made_of_records_is_kept_and_never_public(books: Books) -> None:
    tensor = secret(books)
    later = Books(4, lambda: "", lambda: None)
    state = later.state(tensor)
    assert isinstance(state, Mixed)
    assert state.kept


def test_what_an_earlier_pass_made_of_public_things_stays_public(books: Books) -> None:
    constant = torch.zeros(3)
    assert books.set_new(constant, PUBLIC)
    assert Books(4, lambda: "", lambda: None).state(constant) is PUBLIC


def test_reasons_are_told_once_with_the_layer(books: Books) -> None:
    state = books.mixed("sum: runs over records")
    assert books.reasons == ["sum: runs over records in the layer '1'"]
    assert books.named(state, "add") is state
    unnamed = books.named(Mixed.of("a sum over records"), "add.Tensor")
    assert isinstance(unnamed, Mixed)
    assert unnamed.why == "add.Tensor: a sum over records"


def test_random_numbers_belong_to_the_records_that_met_them_first(books: Books) -> None:
    noise = torch.zeros(4, 3)
    assert books.set_new(noise, NOISE)
    books.assign(noise, Rows(0))
    assert books.state(noise) == Rows(0)


def test_random_numbers_that_all_records_met_belong_to_nobody_later(books: Books) -> None:
    noise = torch.zeros(4, 3)
    assert books.set_new(noise, NOISE)
    books.share(noise)
    books.assign(noise, Rows(0))
    assert books.state(noise) is PUBLIC


def test_what_was_made_of_records_is_overwritten_in_the_end(books: Books) -> None:
    tensor = secret(books)
    tensor.fill_(7.0)
    books.erase()
    assert not (tensor == 7.0).any()
