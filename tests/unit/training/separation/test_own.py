"""Operations of our own say where their records are; what they are given is checked."""

from __future__ import annotations

import pytest
import torch

from discreet.training.separation.own import current_proof, own_operation, proving
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import PUBLIC, OneByOne, Rows

B = 3


def test_results_have_the_records_that_were_declared() -> None:
    proof = Proof(B)
    x = proof.begin(torch.randn(2, B, 4).movedim(1, 0), Rows(0)).movedim(0, 1)
    with proving(proof), proof:
        assert current_proof() is proof
        with own_operation("scan", [(x, Rows(1))]) as declare:
            total, untold = x.sum(0), x.sum(1)
            declare(total, Rows(0))
    assert current_proof() is None
    assert proof.state(total) == Rows(0)
    assert (
        proof.state(untold) is PUBLIC
    )  # what is not declared must not hold records: the tests of the operation see to it


def test_records_in_another_place_are_refused() -> None:
    proof = Proof(B)
    x = proof.begin(torch.randn(B, 4), Rows(0))
    with (
        proving(proof),
        proof,
        pytest.raises(OneByOne, match="an argument of scan"),
        own_operation("scan", [(x, Rows(1))]),
    ):
        raise AssertionError
    with pytest.raises(OneByOne):
        proof.check()


def test_records_that_were_joined_are_refused() -> None:
    proof = Proof(B)
    x = proof.begin(torch.randn(B, 4), Rows(0))
    with proving(proof), proof:
        joined = x + x.sum(0)
        with pytest.raises(OneByOne, match=r"an argument of scan depends on several records: sum"):  # noqa: SIM117
            with own_operation("scan", [(joined, Rows(0))]):
                raise AssertionError


@pytest.mark.parametrize(("alike", "size"), [(True, B), (False, B), (False, 1)])
def test_constants_must_be_the_same_for_every_record(alike: bool, size: int) -> None:
    proof = Proof(B)
    constant = torch.full((size, 2), 7.0) if alike else torch.arange(2.0 * size).reshape(size, 2)
    with proving(proof), proof:
        if alike or size == 1:
            with own_operation("scan", [(constant, Rows(0))]):
                pass
        else:
            with (
                pytest.raises(OneByOne, match="other places"),
                own_operation("scan", [(constant, Rows(0))]),
            ):
                raise AssertionError


@pytest.mark.parametrize("proof", [None, Proof(1)])
def test_outside_of_a_pass_and_with_one_record_nothing_is_checked(proof: Proof | None) -> None:
    x = torch.randn(4, 2)
    if proof is None:
        with own_operation("scan", [(x, Rows(1))]) as declare:
            declare(x, Rows(1))
        return
    with proving(proof), own_operation("scan", [(x, Rows(1))]) as declare:
        declare(x, Rows(1))
