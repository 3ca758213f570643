"""One table: what rows hold is the same whenever and however often they are read."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import SampleMisuse
from discreet.randomness import Purpose, Source
from discreet.randomness.walk import Clock, Walk
from discreet.training.tables.held import HeldTable, Series

KEY = bytes(range(32))
ROWS, WIDTH, STEPS = 20, 3, 6


def started(scale: float = 7.3, unit: float = 0.5) -> tuple[HeldTable, nn.Parameter]:
    parameter = nn.Parameter(torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH))
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=0)
    walk = Walk(stream, Clock((1,) * STEPS), scale=scale, rows=ROWS, width=WIDTH)
    table = HeldTable(parameter)
    table.conceal(Series(walk, unit))
    return table, parameter


def read(table: HeldTable, *rows: int) -> Tensor:
    present, slots = table.look_up(torch.tensor(rows))
    return present[slots[torch.tensor(rows)]].clone()


def step(table: HeldTable, *rows: int, by: int = 3) -> None:
    table.add(np.array(rows, np.int64), np.full((len(rows), WIDTH), by))


def test_before_the_first_step_rows_are_what_they_were() -> None:
    table, _ = started()
    assert read(table, 4, 4, 2).tolist() == [[12, 13, 14], [12, 13, 14], [6, 7, 8]]


def test_a_row_holds_the_same_however_often_it_was_read() -> None:
    """Also when it is settled; rows that were read or summed first have other slots."""
    often, _ = started()
    seldom, parameter = started()
    for number in range(4):
        read(often, 5, number)
        step(often, 5, 7)
        step(seldom, 5, 7)
    rows = read(often, 5, 7)
    assert torch.equal(read(seldom, 7, 5), rows.flip(0))
    seldom.settle()
    assert torch.equal(parameter.data[[5, 7]], rows)


def test_sums_and_noise_of_all_steps_are_in_what_rows_hold() -> None:
    table, parameter = started(scale=2.0**-20, unit=0.5)
    step(table, 1, 2)
    step(table, 2, by=-10)
    step(table)
    table.settle()
    taken = torch.zeros(ROWS, WIDTH)
    taken[1], taken[2] = 1.5, -3.5
    begun = torch.arange(ROWS * WIDTH).view(ROWS, WIDTH)
    assert torch.equal(parameter.data, begun - taken)


def test_p25_every_row_has_noise_when_it_is_settled() -> None:
    table, parameter = started(scale=1000.1)
    step(table, 3)
    read(table, 4)
    table.settle()
    begun = torch.arange(ROWS * WIDTH).view(ROWS, WIDTH)
    assert bool((parameter.data != begun).any(1).all())


def test_rows_are_hidden_between_steps() -> None:
    """Rows that were read at different times would show when."""
    table, parameter = started()
    for _ in range(2):
        read(table, 3)
        step(table, 3)
        assert bool(parameter.isnan().all())
    table.settle()
    assert not bool(parameter.isnan().any())
    assert table.is_open


def test_a_view_of_the_table_from_before_sees_nothing() -> None:
    table, parameter = started()
    table.settle()
    view = parameter.data
    before = view.clone()
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=1)
    walk = Walk(stream, Clock((1, 1)), scale=7.3, rows=ROWS, width=WIDTH)
    table.conceal(Series(walk, 1.0))
    step(table, 1)
    read(table, 1, 2)
    assert torch.equal(view, before)
    assert not torch.equal(read(table, 1)[0], before[1])


def test_ids_that_the_table_does_not_have() -> None:
    table, _ = started()
    for row in (-1, ROWS):
        with pytest.raises(IndexError, match="out of range"):
            table.look_up(torch.tensor([0, row]))


def test_a_step_that_was_interrupted_leaves_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a step is no function of what was released."""
    table, parameter = started()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HeldTable, "_slots_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(table, 1)
    for use in (table.settle, lambda: read(table, 1), lambda: step(table, 1)):
        with pytest.raises(SampleMisuse, match="half changed"):
            use()
    assert bool(parameter.isnan().all())


def test_settling_an_open_table_does_nothing() -> None:
    table, parameter = started()
    table.settle()
    memory = parameter.data_ptr()
    table.settle()
    assert parameter.data_ptr() == memory
