"""Samples that a user's own code draws: everything that the event rules out is refused, and what
cannot be seen voids the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.errors import ParameterError, SampleMisuse
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.randomness.draws import bernoulli
from discreet.sampling import Sampler
from support.written_streams import source

Own = Callable[[int, Any], Any]


def drawn(policy: Sampling, batches: list[Any]) -> list[list[int]]:
    sampler = Sampler(policy, records=6, steps=1, unsafe_drawn_by=lambda *_: batches)
    return [sample.indices.tolist() for sample in sampler.draw(source())]


def by_stratum(records: int, stream: Any) -> list[Any]:
    """A coin of 0.5 for everybody, and a second one for the later half."""
    first, second = (bernoulli(stream.child(name), 0.5, 0, records) for name in ("a", "b"))
    return [first[(first < records // 2) | np.isin(first, second)]]


ALLOWED: list[tuple[Sampling, list[Any]]] = [
    (Everything(), [range(6)]),
    (Poisson(0.5), [[]]),
    (Poisson(0.5), [(5, 0, 3)]),
    (TruncatedPoisson(0.5, 2, 6), [np.array([4, 1])]),
    (FixedSize(2, 6), [np.array([4, 1], np.uint8)]),
    (Shuffled(2), [[0, 2, 4], [5, 3, 1]]),
    (BallsInBins(3), [[], [0, 1, 2, 3, 4], [5]]),
]
RULED_OUT: list[tuple[Sampling, list[Any], str]] = [
    (Everything(), [[0, 1, 2, 3, 4]], "a size that the policy never has"),
    (Poisson(1.0), [[]], "a size that the policy never has"),
    (Poisson(0.5), [[0, 0]], "twice in a batch"),
    (Poisson(0.5), [[6]], "outside of the data set"),
    (Poisson(0.5), [[-1]], "outside of the data set"),
    (Poisson(0.5), [np.array([2**63], np.uint64)], "outside of the data set"),
    (Poisson(0.5), [[0.5]], "whole numbers"),
    (Poisson(0.5), [[True]], "whole numbers"),
    (Poisson(0.5), [[[0, 1]]], "whole numbers"),
    (Poisson(0.5), [], "another number of batches"),
    (Poisson(0.5), [[0], [1]], "another number of batches"),
    (TruncatedPoisson(0.5, 2, 6), [[0, 1, 2]], "a size that the policy never has"),
    (FixedSize(2, 6), [[0]], "a size that the policy never has"),
    (Shuffled(2), [[0, 1, 2], [2, 3, 4]], "every record once"),
    (Shuffled(2), [[0], [1, 2, 3, 4, 5]], "a size that the policy never has"),
    (BallsInBins(2), [[0, 1, 2], []], "every record once"),
    (BallsInBins(2), [range(6)], "another number of batches"),
]


@pytest.mark.parametrize(("policy", "batches"), ALLOWED, ids=str)
def test_what_the_event_allows_is_taken_and_sorted(policy: Sampling, batches: list[Any]) -> None:
    assert drawn(policy, batches) == [sorted(batch) for batch in batches]


@pytest.mark.parametrize(("policy", "batches", "words"), RULED_OUT, ids=str)
def test_what_the_event_rules_out_is_refused(
    policy: Sampling, batches: list[Any], words: str
) -> None:
    with pytest.raises(SampleMisuse, match=words):
        drawn(policy, batches)


def test_a_refusal_shows_no_record_and_no_size() -> None:
    with pytest.raises(SampleMisuse) as caught:
        drawn(FixedSize(2, 6), [[3, 4, 5]])
    assert "3" not in str(caught.value)
    assert "[" not in str(caught.value)


def test_the_parts_of_ranks_are_cut_from_one_sample() -> None:
    sampler = Sampler(Poisson(0.5), records=6, steps=1, unsafe_drawn_by=lambda *_: [[0, 3, 5]])
    parts = [
        sample.indices.tolist()
        for rank in range(2)
        for sample in sampler.draw(source(), rank=rank, ranks=2)
    ]
    assert parts == [[0], [3, 5]]


def test_the_law_of_an_own_draw_is_nobodys_guarantee() -> None:
    """The plan says so, its run marks the ledger, and the guarantee is void."""
    sampler = Sampler(Poisson(0.5), records=20, steps=3, unsafe_drawn_by=by_stratum)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 2.0), leaves={"v": 2})
    assert plan.marks() == ("unsafe_own_draw",)
    assert "unsafe_own_draw" in plan.explain()
    ledger = dp.Ledger.in_memory()
    run = dp.Aggregator(plan, ledger=ledger)
    for sample in run.samples():
        sums = run.partial(sample)
        sums.add({"v": np.ones((len(sample), 2))})
        run.release(sample, sums)
    assert ledger.snapshot().marks == ("unsafe_own_draw",)
    for held in (plan, ledger):
        assert dp.account(held, delta=1e-6).voided_by == ("unsafe_own_draw",)


def test_no_file_holds_code() -> None:
    sampler = Sampler(Poisson(0.5), records=20, steps=3, unsafe_drawn_by=by_stratum)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 2.0))
    with pytest.raises(ParameterError, match="a file holds no code"):
        plan.to_json()
    assert plan.as_row() == ""


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ParameterError, match="unsafe_drawn_by"):
        Sampler(Poisson(0.5), records=6, steps=1, unsafe_drawn_by=[0, 1])  # type: ignore[arg-type]
