"""Deliberate privacy bugs in the NumPy engine, each applied to the real code, and the test that catches it."""

from collections.abc import Callable
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
from support.noise_statistics import MECHANISMS, WITHIN, clipped_mean_is_far_off, deviations, errors
from unit.aggregation import test_aggregator as unit
from unit.aggregation import test_session

DATA = np.random.default_rng(1).normal(size=(100, 2))


def noise_of_the_mean_on_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Aggregator._noised

    def wrong(self: Aggregator, its: PartialSums, group: Group, sample: Sample, lane: int) -> Any:
        clean = its.integers(group) * sums.grid_of(group).spacing
        return clean + (right(self, its, group, sample, lane) - clean) / self.plan.expected_batch_size

    monkeypatch.setattr(Aggregator, "_noised", wrong)


def skips_empty_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Session._charged
    monkeypatch.setattr(Session, "_charged", lambda self, draw, steps: (s for s in right(self, draw, steps) if len(s)))


def divides_by_the_realised_size(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Aggregator.release

    def wrong(self: Aggregator, sample: Sample, records: Any) -> dp.aggregation.Release:
        released = right(self, sample, records)
        object.__setattr__(released, "divisors", dict.fromkeys(released.divisors, max(1, len(sample))))
        return released

    monkeypatch.setattr(Aggregator, "release", wrong)


def the_divisor_is_public() -> None:
    run = unit.keyed(unit.plan())
    sample = next(run.samples())
    assert run.release(sample, {"x": DATA[sample.indices]}).divisors == {"x": 50.0}


def the_clipped_sum_is_released() -> None:
    assert not clipped_mean_is_far_off()


def the_noise_is_what_the_plan_states() -> None:
    assert max(deviations(errors(MECHANISMS["flat"]))) < WITHIN


def orders_are_random() -> None:
    assert test_session.orders_are_uniform()


def recorder(mechanism: Any) -> Callable[[], None]:
    def check() -> None:
        with pytest.MonkeyPatch.context() as inner:
            unit.test_an_interposed_recorder_sees_the_noise_of_the_ledger(mechanism, inner)

    return check


MUTATIONS = [
    Mutation(
        "P01 no clipping",
        replaced(Group, "weights", lambda self, norms: np.ones(len(norms))),
        the_clipped_sum_is_released,  # a record above its bound is dropped by the integer check
    ),
    Mutation(
        "P23 noise of the mean on the sum",
        noise_of_the_mean_on_the_sum,
        the_noise_is_what_the_plan_states,
    ),
    Mutation(
        "P16 a sample released twice",
        replaced(Sample, "spend", lambda self: None),
        lambda: unit.test_p16_a_sample_is_released_once(DATA),
    ),
    Mutation("P28 empty samples skipped", skips_empty_samples, unit.test_p28_an_empty_sample_releases_noise),
    Mutation("P29 realised size as divisor", divides_by_the_realised_size, the_divisor_is_public),
    Mutation(
        "P10 rows not counted",
        replaced(PartialSums, "check_complete", lambda *_: None),
        lambda: unit.test_p10_as_many_rows_as_were_drawn(DATA, 1),
    ),
    Mutation(
        "P15 records stand in the order of the data set",
        replaced(session, "permutation", lambda stream, count: np.arange(count)),
        orders_are_random,
    ),
    Mutation(
        "P20 every sample has the order of the first",
        replaced(Session, "number", lambda self, sample: 0),
        test_session.test_an_order_is_given_out_once_and_is_of_the_samples_records,
    ),
    Mutation(
        "P16 another run's sample",
        replaced(Session, "check_issued", lambda self, sample: None),
        lambda: test_session.test_a_sample_of_another_run_serves_for_nothing(Session.spend),
    ),
    Mutation(
        "P24 the threshold never moves",
        replaced(Bound, "update", lambda self, state, released, *, expected_batch_size: state),
        unit.test_adaptive_clipping_follows_what_was_released,
    ),
    Mutation(
        "P02 noise of another group",
        replaced(Grid, "scale", lambda self, noise_std: 2.0**22),
        recorder(dp.Gaussian(clip_norm=0.7, noise_multiplier=1.3)),
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
