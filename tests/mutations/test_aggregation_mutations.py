"""Deliberate privacy bugs in the NumPy engine, each applied to the real code, and the test that
catches it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation import session, sums
from discreet.aggregation.aggregator import Aggregator
from discreet.aggregation.session import Session
from discreet.aggregation.sums import PartialSums
from discreet.mechanisms import Bound, Group
from discreet.numerics import Grid
from discreet.sampling import Sample
from support.mutations import Mutation, assert_caught, by_name, replaced

NOISE = "statistics/test_aggregation.py"
UNIT = "unit/aggregation/test_aggregator.py"
SESSION = "unit/aggregation/test_session.py"


def noise_of_the_mean_on_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Aggregator._noised

    def wrong(self: Aggregator, integers: Any, group: Group, sample: Sample, lane: int) -> Any:
        clean = integers * sums.grid_of(group).spacing
        return (
            clean
            + (right(self, integers, group, sample, lane) - clean) / self.plan.expected_batch_size
        )

    monkeypatch.setattr(Aggregator, "_noised", wrong)


def skips_empty_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Session._charged
    monkeypatch.setattr(
        Session,
        "_charged",
        lambda self, *rest: (sample for sample in right(self, *rest) if len(sample)),
    )


def divides_by_the_realised_size(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Aggregator.release

    def wrong(self: Aggregator, sample: Sample, records: Any) -> dp.aggregation.Release:
        released = right(self, sample, records)
        object.__setattr__(
            released, "divisors", dict.fromkeys(released.divisors, max(1, len(sample)))
        )
        return released

    monkeypatch.setattr(Aggregator, "release", wrong)


MUTATIONS = [
    Mutation(
        "P01 no clipping",
        replaced(Group, "weights", lambda self, norms: np.ones(len(norms))),
        # A record above its bound is dropped by the integer check.
        f"{NOISE}::test_the_mean_of_the_release_is_the_clipped_sum",
    ),
    Mutation(
        "P23 noise of the mean on the sum",
        noise_of_the_mean_on_the_sum,
        f"{NOISE}::test_p23_the_noise_of_every_mechanism_is_what_the_plan_states[flat]",
    ),
    Mutation(
        "P16 a sample released twice",
        replaced(Sample, "spend", lambda self: None),
        f"{UNIT}::test_p16_a_sample_is_released_once",
    ),
    Mutation(
        "P28 the engine skips empty samples",
        skips_empty_samples,
        f"{UNIT}::test_p28_an_empty_sample_releases_noise",
    ),
    Mutation(
        "P29 realised size as divisor",
        divides_by_the_realised_size,
        "unit/aggregation/test_release.py::test_p29_the_divisor_is_public",
    ),
    Mutation(
        "P10 rows not counted",
        replaced(PartialSums, "check_complete", lambda *_: None),
        f"{UNIT}::test_p10_as_many_rows_as_were_drawn[1]",
    ),
    Mutation(
        "P15 records stand in the order of the data set",
        replaced(session, "permutation", lambda stream, count: np.arange(count)),
        f"{SESSION}::test_p15_orders_are_uniform",
    ),
    Mutation(
        "P20 every sample has the order of the first",
        replaced(Session, "number", lambda self, sample: 0),
        f"{SESSION}::test_an_order_is_given_out_once_and_is_of_the_samples_records",
    ),
    Mutation(
        "P16 another run's sample",
        replaced(Session, "check_issued", lambda self, sample: None),
        f"{SESSION}::test_a_sample_of_another_run_serves_for_nothing",
    ),
    Mutation(
        "P24 the threshold never moves",
        replaced(Bound, "update", lambda self, state, released, *, expected_batch_size: state),
        f"{UNIT}::test_adaptive_clipping_follows_what_was_released",
    ),
    Mutation(
        "P02 noise of another group",
        replaced(Grid, "scale", lambda self, noise_std: 2.0**22),
        f"{UNIT}::test_an_interposed_recorder_sees_the_noise_of_the_ledger[mechanism0]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
