"""Random numbers of a pass: new ones, each record's own or the same in all passes of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from discreet.training.separation.proof import Proof
from discreet.training.separation.states import NOISE, PUBLIC, Mixed, OneByOne, Rows, SharedDraws

B = 4


@contextmanager
def _same(number: int) -> Iterator[None]:
    """For a draw: numbers that follow from its number alone."""
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(number)
    yield
    torch.default_generator.set_state(before)


def drawn(compute: Callable[[Tensor], Tensor], *, shared: bool = False) -> tuple[Tensor, Proof]:
    proof = Proof(B, shared_draw=_same, shares_draws=shared)
    x = proof.begin(torch.ones(B, 3), Rows(0))
    with proof:
        out = compute(x)
        proof.end_draws()
        proof.check()
    return out, proof


def test_numbers_without_an_axis_for_records_are_the_same_in_every_pass() -> None:
    first, proof = drawn(lambda _: torch.rand(3))
    second, _ = drawn(lambda _: torch.rand(3))
    assert proof.state(first) is PUBLIC
    assert torch.equal(first, second)


def test_two_draws_of_a_pass_differ() -> None:
    out, _ = drawn(lambda _: torch.stack([torch.rand(3), torch.rand(3)]))
    assert not torch.equal(*out)


def test_numbers_with_an_axis_for_records_are_other_ones_in_every_pass() -> None:
    first, proof = drawn(lambda _: torch.rand(B, 2))
    second, _ = drawn(lambda _: torch.rand(B, 2))
    assert proof.state(first) is NOISE
    assert not torch.equal(first, second)


def test_numbers_that_are_summed_over_records_are_nobodys() -> None:
    out, proof = drawn(lambda x: x * torch.rand(B).sum())
    assert isinstance(proof.state(out), Mixed)


def test_numbers_that_serve_all_are_drawn_again_as_such() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * torch.rand(B)[0]

    with pytest.raises(SharedDraws):
        drawn(scaled)
    out, proof = drawn(scaled, shared=True)
    assert proof.state(out) == Rows(0)
    assert torch.equal(out, drawn(scaled, shared=True)[0])


def test_dropout_of_records_is_their_own() -> None:
    out, proof = drawn(lambda x: torch.nn.functional.dropout(x, 0.5))
    assert proof.state(out) == Rows(0)


def _seeds_at_the_end(x: Tensor) -> Tensor:
    out = torch.nn.functional.dropout(x, 0.5)
    torch.default_generator.manual_seed(4)
    return out


def _seeds_before(x: Tensor) -> Tensor:
    torch.default_generator.manual_seed(4)
    return torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("compute", [_seeds_at_the_end, _seeds_before])
def test_t12_a_seed_of_the_users_own_is_not_proved(compute: Callable[[Tensor], Tensor]) -> None:
    """At the end it would decide what the next pass draws."""
    with torch.random.fork_rng(), pytest.raises(OneByOne, match="sets it back"):
        drawn(compute)
