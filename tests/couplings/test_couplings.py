"""One record moves what is released by at most one clip norm, whatever the loss, or is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from . import harness
from .catalogue import CASES
from .scenes import FRESH, Case, Relation, Scene, Timing

_CLEARLY = 0.2  # clip norms


@pytest.fixture(autouse=True)
def _left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cases seed generators, write into the environment and register functions of torch.

    The next test finds all of it as before.
    """
    monkeypatch.setenv("COUPLINGS_SMALLEST", "0.0")
    registered = dict(default_collate_fn_map)
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    for kind in default_collate_fn_map.keys() - registered.keys():
        del default_collate_fn_map[kind]


# Of kinds with many near relatives about so many run each time, evenly spread; the full suite has
# all.
_SHARE = 20


def _parameters() -> list[Any]:
    """Cases and timings, with readable names."""
    parameters = []
    relatives = Counter(case.kind for case in CASES)
    met: Counter[str] = Counter()
    for case in CASES:
        is_left_out = met[case.kind] % -(-relatives[case.kind] // _SHARE) != 0
        met[case.kind] += 1
        for timing in case.timings:
            is_slow = is_left_out or case.is_slow(timing)
            marks = [pytest.mark.full] if is_slow else []
            name = f"{case.name}, {timing.name}"
            parameters.append(pytest.param(case, timing, id=name, marks=marks))
    return parameters


@pytest.mark.parametrize(("case", "timing"), _parameters())
def test_one_record_moves_the_sums_by_at_most_one_clip_norm(case: Case, timing: Timing) -> None:
    """Or a typed error says why not. Nothing of a record is left in the model or its checkpoint."""
    verdict = harness.judge(case, timing)
    assert verdict.safe, verdict.words


def test_the_cases_would_move_the_sums_of_who_believed_that_records_are_apart() -> None:
    """Otherwise a case would pass because it does nothing."""
    harmless = []
    for case in CASES:
        if case.teeth and not case.full:
            moved = harness.believed(case, case.timings[-1])
            if moved < case.relation.value + _CLEARLY:
                harmless.append(f"{case.name}: {moved:.2f}")
    assert not harmless


def test_there_are_cases_of_every_kind() -> None:
    kinds = Counter(case.kind for case in CASES)
    assert len(CASES) >= 300
    assert min(kinds.values()) >= 4


# --- the harness itself ---


def test_the_harness_finds_a_sum_that_moved_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the released sums of the second data set off by one clip norm, it would be said."""
    (case,) = (case for case in CASES if case.name == "sound: two layers")
    assert harness.judge(case, FRESH).safe
    sums = iter([torch.zeros(20), torch.full((20,), 1.1 / 20**0.5)])
    monkeypatch.setattr(harness, "summed", lambda *_: next(sums))
    verdict = harness.judge(case, FRESH)
    assert verdict.far
    assert not verdict.safe


def test_the_two_data_sets_differ_in_the_special_record_alone() -> None:
    clock = FRESH.clock()
    with_it = Scene.of(clock, Relation.ADDED, special=True)
    without = Scene.of(clock, Relation.ADDED, special=False)
    replaced = Scene.of(clock, Relation.REPLACED, special=False)
    ordinary = with_it.y < 2
    assert torch.equal(with_it.x[ordinary], without.x)
    assert torch.equal(with_it.x[ordinary], replaced.x[ordinary])
    assert int((~ordinary).sum()) == 1
