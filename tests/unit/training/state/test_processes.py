"""A copy of the process leaves everything as it was: memory, places in files, pipes."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest
import torch

from discreet.errors import ModelError
from discreet.training.state import processes
from discreet.training.state.processes import can_copy, in_a_copy, in_copies


def test_nothing_stays_of_what_a_copy_does() -> None:
    count, tensor = itertools.count(), torch.zeros(2)

    def task() -> int:
        tensor.add_(1.0)
        return next(count)

    assert list(in_copies([task, task, task])) == [0, 0, 0]
    assert next(count) == 0
    assert tensor.tolist() == [0.0, 0.0]


def test_a_file_is_read_from_where_it_was(tmp_path: Path) -> None:
    """Wrong: copies share the place in an open file, and this process reads on from another."""
    path = tmp_path / "rows"
    path.write_bytes(bytes(range(200)))
    with path.open("rb", buffering=0) as file:
        file.seek(100)
        assert in_a_copy(lambda: list(file.read(3))) == [100, 101, 102]
        assert file.read(1) == bytes([100])


def test_a_copy_takes_nothing_out_of_a_pipe() -> None:
    exit_, entrance = os.pipe()
    os.write(entrance, b"rows")
    assert in_a_copy(lambda: len(os.read(exit_, 4))) == 0
    assert os.read(exit_, 4) == b"rows"
    os.close(exit_)
    os.close(entrance)


def test_a_copy_that_is_silent_ends() -> None:
    with pytest.raises(ModelError, match="took longer than 0.2 s"):
        list(in_copies([lambda: time.sleep(60.0)], 0.2))


def test_there_is_no_copy_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_copy()
    monkeypatch.setattr(processes, "_fork", None)
    assert not can_copy()
    with pytest.raises(ModelError, match="on this system"):
        in_a_copy(lambda: 1)
