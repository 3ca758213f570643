"""What a recording holds, and what is a reason not to execute a pass again."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from discreet.training.replay.program import Program
from discreet.training.replay.recorder import Recorder
from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows

RECORDS = 4
Function = Callable[[Tensor], Tensor]


def recorded(function: Function, x: Tensor) -> tuple[Recorder, Program | None]:
    """A function of records, recorded below a proof; and as a program, if it can be one."""
    proof, recorder = Proof(len(x)), Recorder()
    entry = proof.begin(x, Rows(0))
    recorder.begin(proof, [entry])
    with recorder, proof:
        y = function(entry)

    slots = recorder.slots_of(y)
    return recorder, Program(recorder, slots) if recorder.reason is None else None


def records() -> Tensor:
    return torch.randn(RECORDS, 3)


def in_place(x: Tensor) -> Tensor:
    out = torch.zeros(RECORDS, 3, 2)
    out[:, :, 0] = x
    out[:, :, 1].add_(x).mul_(2.0)
    return out.sum(1)


def through_data(x: Tensor) -> Tensor:
    y = x * 2.0
    z = torch.zeros_like(x)
    z.data = y
    y.add_(1.0)
    return z + x


def split(x: Tensor) -> Tensor:
    first, *others = x.unbind(1)
    values, places = torch.stack([first, *others], 1).sort(1)
    return values + places


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.exp().t().contiguous().t(),
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: x * torch.arange(3).to(x) + torch.tensor(0.5),
        lambda x: x[:, [0, 2]] + x[:, :2],
        lambda x: x @ torch.ones(3, 2) if torch.ones(2).sum().item() == 2 else x,
        in_place,
        through_data,
        split,
    ],
)
def test_a_program_gives_the_same_bits_for_other_records(function: Function) -> None:
    _, program = recorded(function, records())
    assert program is not None
    x = records()
    result, _ = program.run([x.clone()])
    assert torch.equal(result, function(x))


def test_what_autograd_keeps_is_known_by_its_memory() -> None:
    def function(x: Tensor) -> Tensor:
        x.requires_grad_()
        with torch.enable_grad():
            y = x.exp().tanh() * x
        (gradient,) = torch.autograd.grad(y.sum(1), x, torch.ones(len(x)))
        return gradient

    _, program = recorded(function, records())
    assert program is not None
    x = records()
    result, _ = program.run([x.clone()])
    assert torch.equal(result, function(x))


BUFFER = torch.zeros(3)
OWN = torch.Generator()


def counting(x: Tensor) -> Tensor:
    BUFFER.add_(1.0)
    return x + BUFFER


def seeded(x: Tensor) -> Tensor:
    random.random()
    return x


def out_of_the_proofs_sight(x: Tensor) -> Tensor:
    with out_of_sight():
        y = x.exp()
    return torch.stack([x, y], 1)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (counting, "writes into memory that was there before the pass"),
        (lambda x: x.clone().unsqueeze_(0).squeeze_(0), "changes how a tensor lies in memory"),
        (lambda x: x + torch.rand(3, generator=OWN), "a generator of the user's own"),
        (seeded, "random numbers of Python or NumPy"),
    ],
)
def test_what_cannot_be_executed_again_is_a_reason(function: Function, reason: str) -> None:
    recorder, _ = recorded(function, records())
    assert reason in str(recorder.reason)


def test_a_check_of_numbers_of_records_is_a_reason() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(x.long().clamp(0, 2), 3)

    proof, recorder = Proof(RECORDS), Recorder()
    entry = proof.begin(records(), Rows(0))
    recorder.begin(proof, [entry])
    proof.reads_allowed = True  # as the function mode lets it
    with recorder, proof:
        function(entry)
    assert "looks at numbers of records" in str(recorder.reason)


def test_memory_of_which_the_proof_knows_nothing_is_a_reason_in_code_of_the_library() -> None:
    proof, recorder = Proof(RECORDS), Recorder()
    entry = proof.begin(records(), Rows(0))
    recorder.begin(proof, [entry])
    with recorder, proof, recorder.unjudged():
        with out_of_sight():
            secret = entry.exp()
        secret + 1.0
    assert "made where nobody looks" in str(recorder.reason)


def test_a_result_that_was_made_where_nobody_looks_is_a_reason() -> None:
    proof, recorder = Proof(RECORDS), Recorder()
    entry = proof.begin(records(), Rows(0))
    recorder.begin(proof, [entry])
    with recorder, proof, out_of_sight():
        secret = entry.exp()
    assert recorder.slots_of({"grad/weight": secret}) is None
    assert "what it gives uses memory" in str(recorder.reason)


def test_code_of_the_library_is_recorded_and_not_judged() -> None:
    proof, recorder = Proof(RECORDS), Recorder()
    entry = proof.begin(records(), Rows(0))
    recorder.begin(proof, [entry])
    with recorder, proof, recorder.unjudged():
        total = entry.sum(0)  # over all records
    assert proof.reasons == []
    program = Program(recorder, recorder.slots_of(total))
    x = records()
    assert torch.equal(program.run([x.clone()])[0], x.sum(0))


def test_a_second_begin_drops_what_was_recorded() -> None:
    recorder, _ = recorded(torch.exp, records())
    assert recorder.steps
    proof = Proof(RECORDS)
    recorder.begin(proof, [proof.begin(records(), Rows(0))])
    assert not recorder.steps
    assert len(recorder.entries) == 1
