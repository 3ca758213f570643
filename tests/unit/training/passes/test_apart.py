"""Records one by one: each from its own random numbers, and in a process of its own where Python
sees its numbers.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from discreet.errors import CoupledRecords, ModelError
from discreet.training.passes.apart import one_by_one
from discreet.training.separation.states import OneByOne
from discreet.training.state import processes

KEPT: list[int] = []


def needs_a_process(record: int, is_apart: bool) -> tuple[int, int, int]:
    """Keeps every record that it is shown."""
    if not is_apart:
        raise OneByOne("numbers leave for Python")
    KEPT.append(record)
    return record, len(KEPT), os.getpid()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def test_what_a_record_leaves_behind_ends_with_its_process() -> None:
    results = list(one_by_one(needs_a_process, [0, 2, 3], 4))
    assert [record for record, _, _ in results] == [0, 2, 3]
    assert [kept for _, kept, _ in results] == [1, 1, 1]
    assert len({process for _, _, process in results} | {os.getpid()}) == 4
    assert KEPT == []


def test_without_need_there_is_no_process() -> None:
    assert list(one_by_one(lambda record, _: (record, os.getpid()), [1, 0], 2)) == [
        (1, os.getpid()),
        (0, os.getpid()),
    ]


def test_records_before_the_first_need_are_not_computed_again() -> None:
    computed = []

    def compute(record: int, is_apart: bool) -> bool:
        if not is_apart and record == 2:
            raise OneByOne("an error of this record")
        computed.append(record)
        return is_apart

    assert list(one_by_one(compute, range(4), 4)) == [False, False, True, True]
    assert computed == [0, 1]


@pytest.mark.parametrize("in_process", [True, False])
def test_each_place_has_random_numbers_of_its_own_whoever_else_is_there(in_process: bool) -> None:
    def compute(record: int, is_apart: bool) -> tuple[float, ...]:
        if not is_apart and not in_process:
            raise OneByOne("numbers leave for Python")
        numbers = torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002
        if record == 0:  # tries to set the numbers of the next one
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            random.seed(1)
        return numbers

    def numbers(records: list[int]) -> list[tuple[float, ...]]:
        torch.manual_seed(7)
        return list(one_by_one(compute, records, 3))

    everybody, without_the_first = numbers([0, 1, 2]), numbers([1, 2])
    assert everybody[1:] == without_the_first
    assert len({*everybody}) == 3


class UnlikelyError(Exception):
    """Cannot be sent: it needs two arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("of the user"), ValueError, "of the user"),
        (UnlikelyError("of ", "theirs"), RuntimeError, "UnlikelyError: of theirs"),
        (
            CoupledRecords(expected="x", got="in low_100", do="y"),
            CoupledRecords,
            "keeps what it computed",
        ),
    ],
)
def test_errors_arrive(error: Exception, kind: type[Exception], text: str) -> None:
    def compute(_record: int, is_apart: bool) -> None:
        raise error if is_apart else OneByOne("numbers")

    with pytest.raises(kind, match=text) as caught:
        list(one_by_one(compute, [0], 1))
    assert "low_100" not in str(caught.value)


def test_a_process_that_dies_is_told() -> None:
    def compute(_record: int, is_apart: bool) -> None:
        if not is_apart:
            raise OneByOne("numbers")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ModelError, match="died"):
        list(one_by_one(compute, [0, 1], 2))


def test_who_stops_early_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    started = []

    def noted() -> int:
        started.append(os.fork())
        return started[-1]

    monkeypatch.setattr(processes, "_fork", noted)
    results = one_by_one(needs_a_process, range(6), 6)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(started) == 3
    for process in started:
        with pytest.raises(ChildProcessError):  # it was waited for
            os.waitpid(process, os.WNOHANG)


@pytest.mark.parametrize(
    ("owner", "name", "value"), [(sys, "platform", "darwin"), (processes, "_fork", None)]
)
def test_elsewhere_such_losses_are_refused(
    owner: object, name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(ModelError, match="looks at no numbers"):
        list(one_by_one(needs_a_process, [0], 1))
