"""Programs: what they read again, what they let go of, and what errors show."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

from discreet.training.replay.program import Program, Remains, Stale, same_bits
from discreet.training.replay.recorder import Recorder
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows

RECORDS = 4


def program_of(function: Any, *batch: Tensor) -> Program:
    proof, recorder = Proof(len(batch[0])), Recorder()
    entries = [proof.begin(tensor, Rows(0)) for tensor in batch]
    recorder.begin(proof, entries)
    with recorder, proof:
        result = function(*entries)
    slots = recorder.slots_of(result)
    assert recorder.reason is None
    return Program(recorder, slots)


def test_parameters_are_read_where_they_are() -> None:
    weight = torch.ones(3, 2)
    program = program_of(lambda x: x @ weight.t().t(), torch.ones(RECORDS, 3))
    weight.mul_(2.0)
    assert program.run([torch.ones(RECORDS, 3)])[0].tolist() == [[6.0, 6.0]] * RECORDS


def test_an_index_that_a_rule_has_read_must_be_the_same() -> None:
    index = torch.arange(RECORDS)
    program = program_of(lambda x: x[index], torch.ones(RECORDS, 3))
    assert "ValuesRead" in program.names
    program.run([torch.ones(RECORDS, 3)])
    index[0] = 1
    with pytest.raises(Stale):
        program.run([torch.ones(RECORDS, 3)])


def test_a_constant_that_was_the_same_for_all_records_must_stay_so() -> None:
    constant = torch.ones(RECORDS, 3)
    program = program_of(lambda x: x * constant, torch.ones(RECORDS, 3))
    constant.mul_(3.0)
    assert float(program.run([torch.ones(RECORDS, 3)])[0].sum()) == 36.0
    constant[2] = 7.0
    with pytest.raises(Stale):
        program.run([torch.ones(RECORDS, 3)])


def test_a_public_number_that_python_has_seen_must_be_the_same() -> None:
    switch = torch.ones(())
    program = program_of(lambda x: x * 2.0 if switch.item() else x, torch.ones(RECORDS, 3))
    switch.zero_()
    with pytest.raises(Stale):
        program.run([torch.ones(RECORDS, 3)])


def test_a_shape_that_follows_from_public_values_must_be_the_same() -> None:
    mask = torch.tensor([True, False, True])
    program = program_of(lambda x: x[:, mask.nonzero()[:, 0]], torch.ones(RECORDS, 3))
    mask[1] = True
    with pytest.raises(Stale):
        program.run([torch.ones(RECORDS, 3)])


def test_everything_goes_at_its_last_use() -> None:
    program = program_of(lambda x: x.exp().sin().cos().tanh(), torch.ones(RECORDS, 3))
    assert program.names == ("exp.default", "sin.default", "cos.default", "tanh.default")

    places: list[Any] = [torch.ones(RECORDS, 3), *program._before]
    for call, dead in program._calls:
        call(places)
        for place in dead:
            places[place] = None
        assert len([value for value in places if isinstance(value, Tensor)]) == 1


def test_an_entry_goes_with_the_run() -> None:
    program = program_of(torch.exp, torch.ones(RECORDS, 3))
    entries = [torch.ones(RECORDS, 3)]
    storage = ref(entries[0].untyped_storage())
    program.run(entries)
    assert entries == []
    gc.collect()
    assert storage() is None


def test_an_error_of_a_kernel_shows_no_record() -> None:
    table = torch.randn(5, 2)
    ids = torch.arange(RECORDS)
    program = program_of(
        lambda x, i: torch.embedding(table, i) + x.exp(), torch.ones(RECORDS, 2), ids
    )
    before = table.clone()
    secret, wrong = torch.full((RECORDS, 2), 0.125), torch.full((RECORDS,), 9)
    with pytest.raises(IndexError) as error:
        program.run([secret, wrong])

    frames, trace = [], error.value.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    shown = [
        value
        for frame in frames
        if frame.f_code.co_name in ("run", "_run")
        for value in frame.f_locals.values()
        if isinstance(value, Tensor)
    ]
    assert not any(torch.equal(value, torch.full_like(value, 0.125)) for value in shown)
    assert secret.isnan().all()  # its memory, whoever holds it
    assert torch.equal(table, before)


def test_indices_are_compared_with_their_range_going_back() -> None:
    weight = torch.tensor(float(RECORDS))

    def function(x: Tensor, labels: Tensor) -> Tensor:
        losses: Tensor = x[:, 0]
        gradient: Tensor = torch.ops.aten.nll_loss_backward(
            losses, x, labels, None, 0, -100, weight
        )
        return gradient

    scores = torch.zeros(RECORDS, 3)
    program = program_of(function, scores, torch.zeros(RECORDS, dtype=torch.long))
    with pytest.raises(IndexError, match="nll_loss_backward"):
        program.run([scores, torch.full((RECORDS,), 3)])


def test_memory_that_nobody_has_written_is_zero() -> None:
    program = program_of(lambda x: x + x.new_empty(64), torch.zeros(RECORDS, 64))
    junk = [torch.full((64,), 7.0) for _ in range(50)]
    del junk
    assert program.run([torch.zeros(RECORDS, 64)])[0].tolist() == [[0.0] * 64] * RECORDS


def test_remains_are_erased_and_memory_from_before_is_not() -> None:
    table = torch.arange(3.0)
    program = program_of(lambda x: (x.exp(), table[1:]), torch.ones(RECORDS, 3))
    (values, public), remains = program.run([torch.ones(RECORDS, 3)])
    remains.erase()
    assert values.isnan().all()
    assert public.tolist() == [1.0, 2.0]
    assert table.tolist() == [0.0, 1.0, 2.0]


def test_remains_of_nothing() -> None:
    remains = Remains([torch.empty(0)])
    remains.erase()


def test_the_mode_of_gradients_is_as_before() -> None:
    program = program_of(torch.exp, torch.ones(RECORDS, 3))
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            program.run([torch.ones(RECORDS, 3)])
            assert torch.is_grad_enabled() is mode


def test_bits_are_compared_and_not_numbers() -> None:
    nan = float("nan")
    assert same_bits([torch.tensor([nan]), nan], [torch.tensor([nan]), nan])
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.tensor([0]), torch.tensor([0.0]))
    assert not same_bits([torch.zeros(2)], [])
