"""A remembered operation leaves the same states as one that is judged: also where a memory could be
fooled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.errors import CoupledRecords
from discreet.training.separation import effects
from discreet.training.separation.effects import Effects
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import FILLED, NOISE, PUBLIC, Mixed, OneByOne, Rows, State

B, T = 3, 4
Program = Callable[[Proof, Tensor], list[Tensor]]


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_effects", {})


def states(program: Program, rows: Tensor | None = None) -> list[State]:
    """Of what a program makes of three records, in one pass."""
    proof = Proof(B)
    x = proof.begin(torch.randn(B, T) if rows is None else rows, Rows(0))
    with proof:
        return [proof.state(tensor) for tensor in program(proof, x)]


def remembered() -> int:
    return len(Effects.of(B).by_key)


def layers(_: Proof, x: Tensor) -> list[Tensor]:
    weight = torch.ones(T, T)
    hidden = torch.relu(x @ weight + 1.0)
    hidden.mul_(2.0)
    return [
        hidden,
        hidden.sum(0),
        hidden.mT.contiguous(),
        torch.cat([hidden, x]),
        torch.stack([x, hidden], 1),
    ]


def written(_: Proof, x: Tensor) -> list[Tensor]:
    buffer = torch.zeros(B, 2 * T)
    buffer[:, :T] = x
    other = torch.ones(B, T)
    other.copy_(x)
    return [buffer, other]


def pooled(_: Proof, x: Tensor) -> list[Tensor]:
    values, places = x.max(1)
    return [
        values,
        places,
        torch.softmax(x, 1),
        x.cumsum(1),
        x.cumsum(0),
        torch.dropout(x, 0.5, train=True),
    ]


@pytest.mark.parametrize("program", [layers, written, pooled])
def test_a_second_pass_is_like_the_first(program: Program) -> None:
    first = states(program)
    assert remembered() > 0
    known = remembered()
    assert states(program) == first
    assert remembered() == known  # nothing new was judged
    Effects.forget()
    assert states(program) == first


def test_a_remembered_reason_names_the_layer_that_runs_now() -> None:
    def named(name: str) -> str:
        class Summing(torch.nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.sum(0)

        layer = Summing()
        proof = Proof(B, {id(layer): name})
        x = proof.begin(torch.randn(B, T), Rows(0))
        with proof:
            layer(x)
        return proof.reasons[0]

    assert "'first'" in named("first")
    assert "'second'" in named("second")


# --- made to fool the memory ---


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_written_views_with_other_offsets(order: tuple[int, int]) -> None:
    """The same operation on views of the same shape and strides: in one place they are a record's
    own row, in the other not.
    """

    def program(shift: int) -> Program:
        def run(_: Proof, x: Tensor) -> list[Tensor]:
            twice = torch.zeros(B + 1, T)
            twice[:B].copy_(x)  # rows of memory are records from the first byte on
            twice[shift : B + shift].add_(x)
            return [twice[:B]]

        return run

    found = {shift: states(program(shift))[0] for shift in order}
    assert found[0] == Rows(0)
    assert isinstance(found[1], Mixed)


@pytest.mark.parametrize("first", [True, False])
def test_memory_that_was_made_here_and_memory_from_before(first: bool) -> None:
    """A write into a tensor of the pass is remembered; into one from before it is refused all the
    same.
    """
    before = torch.zeros(B, T)

    def write(x: Tensor, *, here: bool) -> list[Tensor]:
        target = torch.zeros(B, T) if here else before
        return [target.add_(x)]

    for here in (first, not first, first):
        if here:
            assert states(lambda _, x: write(x, here=True)) == [Rows(0)]
        else:
            with pytest.raises(CoupledRecords):
                states(lambda _, x: write(x, here=False))
            assert not bool(before.any())


def test_a_buffer_of_another_size_behind_the_same_view() -> None:
    """Constants beside the records make them tell places: that is the storage's size, and not the
    view's.
    """

    def program(size: int) -> Program:
        def run(_: Proof, x: Tensor) -> list[Tensor]:
            target = torch.arange(float(size * T)).reshape(size, T)
            return [target[:B].copy_(x)]

        return run

    assert states(program(B)) == [Rows(0)]
    assert isinstance(states(program(2 * B))[0], Mixed)
    assert states(program(B)) == [Rows(0)]


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_public_values_that_are_alike_and_others_of_the_same_key(order: tuple[bool, bool]) -> None:
    """A constant with a row for each place: what its rule read must be read each time."""

    def program(alike: bool) -> Program:
        constant = (
            torch.tensor([[2.0]]).repeat(B, 1) if alike else torch.arange(float(B)).unsqueeze(1)
        )
        return lambda _, x: [x * constant]

    for alike in (*order, *order):
        (state,) = states(program(alike))
        assert (state == Rows(0)) is alike


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_public_indices_of_the_same_key(order: tuple[bool, bool]) -> None:
    """An index of all records in their order, and one of the same shape that moves them."""

    def program(sound: bool) -> Program:
        places = torch.arange(B) if sound else torch.arange(B).roll(1)
        return lambda _, x: [
            x[places],
            x.index_select(0, places),
            x.gather(0, places[:, None].expand(B, T)),
        ]

    for sound in (*order, *order):
        for state in states(program(sound)):
            assert isinstance(state, (Rows, Mixed))
            if not sound:
                assert isinstance(state, Mixed)


@pytest.mark.parametrize("dim", [0, 1])
def test_static_arguments_are_part_of_the_key(dim: int) -> None:
    def program(axis: int) -> Program:
        return lambda _, x: [x.softmax(axis)]

    for axis in (dim, 1 - dim, dim):
        (state,) = states(program(axis))
        assert (state == Rows(0)) is (axis == 1)


def test_other_strides_of_the_same_shape() -> None:
    """Square: records along the first axis, or along the second."""
    square = torch.randn(B, B)
    for _ in range(2):
        assert states(lambda _, x: [x.sum(1)], square) == [Rows(0)]
        assert isinstance(states(lambda _, x: [x.mT.sum(1)], square)[0], Mixed)


def test_another_number_of_records() -> None:
    def program(x: Tensor) -> Tensor:
        return x.reshape(B, -1, T).sum(1)

    assert states(lambda _, x: [program(x)]) == [Rows(0)]
    proof = Proof(2 * B)
    x = proof.begin(torch.randn(2 * B, T), Rows(0))
    with proof:
        joined = program(x)
    assert isinstance(proof.state(joined), Mixed)


def test_arguments_that_share_memory() -> None:
    """The same shapes, strides and offsets as with a tensor of its own; the other way round is
    another key.
    """
    wide = torch.randn(B, 2 * B)

    def apart(_: Proof, x: Tensor) -> list[Tensor]:
        target = x.clone()
        target[:, :B].add_(x[:, B:])
        return [target]

    def shared(_: Proof, x: Tensor) -> list[Tensor]:
        x[:, :B].add_(x[:, B:])
        return [x]

    def turned(_: Proof, x: Tensor) -> list[Tensor]:
        x[:, :B].add_(x[:, B:].mT)
        return [x]

    for _ in range(2):
        assert states(apart, wide) == [Rows(0)]
        assert states(shared, wide) == [Rows(0)]
        assert isinstance(states(turned, wide)[0], Mixed)


def test_doors_and_shapes_are_looked_at_each_time() -> None:
    def ask(_: Proof, x: Tensor) -> list[Tensor]:
        x.sum().item()
        return []

    def choose(_: Proof, x: Tensor) -> list[Tensor]:
        return [x[x > 0]]

    for program in (ask, choose, ask, choose):
        with pytest.raises(OneByOne):
            states(program)


def test_an_error_of_a_remembered_operation_is_noted() -> None:
    def look_up(_: Proof, x: Tensor) -> list[Tensor]:
        return [torch.nn.functional.embedding(x.long(), torch.eye(T))]

    rows = torch.zeros(B, T)
    assert states(look_up, rows) == [Rows(0)]
    assert states(look_up, rows) == [Rows(0)]
    proof = Proof(B)
    x = proof.begin(rows + 9, Rows(0))
    with proof, pytest.raises(IndexError):
        look_up(proof, x)
    assert proof.error.startswith("embedding")


def test_kinds_of_public_memory_are_part_of_the_key() -> None:
    def program(make: Callable[[], Tensor]) -> list[State]:
        def run(proof: Proof, x: Tensor) -> list[Tensor]:
            constant = make()
            assert proof.state(constant) in (PUBLIC, NOISE, FILLED)
            return [x + constant]

        return states(run)

    makers: list[Callable[[], Any]] = [
        lambda: torch.rand(B, T),
        lambda: torch.zeros(B, T),
        lambda: torch.arange(float(B * T)).reshape(B, T),
    ]
    for _ in range(2):
        assert program(makers[0]) == [Rows(0)]
        assert program(makers[1]) == [Rows(0)]
        assert isinstance(program(makers[2])[0], Mixed)


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_LIMIT", 5)
    monkeypatch.setattr(effects, "_SIZES", 2)
    for size in range(1, 20):
        states(lambda _, x: [x.exp()], torch.randn(B, size))
    assert remembered() <= 5
    for count in range(2, 9):
        Effects.of(count)
    assert len(effects._effects) <= 2
