"""What each sampling policy says about itself, in one table;
and that nobody can add to the list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.ledger.events import (
    SAMPLINGS,
    BallsInBins,
    Everything,
    FixedSize,
    GaussianSum,
    Poisson,
    Sampling,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.sampling import Sampler
from discreet.units import Adjacency
from support.written_streams import source

RECORDS = 40
ADD, ZERO, REPLACE = Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class Facts:
    """What a policy says, for 40 records."""

    batches: int
    expected: float
    smallest: int
    largest: int
    inclusion: float
    stated: int | None = None
    amplifies: tuple[bool, bool, bool] = (True, True, True)  # add-or-remove, zero-out, replace-one
    independent: bool = True


NEVER = (False, False, False)
TABLE: dict[Sampling, Facts] = {
    Everything(): Facts(1, 40.0, 40, 40, 1.0, amplifies=NEVER),
    Poisson(0.25): Facts(1, 10.0, 0, 40, 0.25),
    Poisson(1.0): Facts(1, 40.0, 40, 40, 1.0, amplifies=NEVER),
    TruncatedPoisson(0.25, 12, 40): Facts(1, 10.0, 0, 12, 0.25, 40, independent=False),
    TruncatedPoisson(1.0, 12, 40): Facts(1, 40.0, 12, 12, 1.0, 40, independent=False),
    FixedSize(6, 40): Facts(1, 6.0, 6, 6, 0.15, 40, independent=False),
    FixedSize(40, 40): Facts(1, 40.0, 40, 40, 1.0, 40, NEVER, independent=False),
    Shuffled(3): Facts(3, 40 / 3, 13, 40, 1 / 3, amplifies=NEVER, independent=False),
    BallsInBins(5): Facts(5, 8.0, 0, 40, 0.2, amplifies=(True, True, False)),
    BallsInBins(1): Facts(1, 40.0, 0, 40, 1.0, amplifies=NEVER),
}


@pytest.mark.parametrize(("policy", "facts"), TABLE.items(), ids=str)
def test_a_policy_knows_itself(policy: Sampling, facts: Facts) -> None:
    assert policy.batches_per_step == facts.batches
    assert policy.expected_batch_size(RECORDS) == facts.expected
    assert (policy.smallest_batch(RECORDS), policy.largest_batch(RECORDS)) == (
        facts.smallest,
        facts.largest,
    )
    assert policy.inclusion_probability == facts.inclusion
    assert policy.stated_records == facts.stated
    assert tuple(map(policy.amplifies, (ADD, ZERO, REPLACE))) == facts.amplifies
    assert policy.records_are_independent == facts.independent
    assert policy.is_full_batch == (policy in (Everything(), Poisson(1.0)))


@pytest.mark.parametrize("policy", TABLE, ids=str)
def test_what_is_drawn_is_within_what_the_policy_says(policy: Sampling) -> None:
    """Sizes of batches, and how often record 0 is in one: five standard deviations of a coin."""
    steps = 400
    samples = list(Sampler(policy, records=RECORDS, steps=steps).draw(source()))
    sizes = [len(sample) for sample in samples]
    assert len(samples) == steps * policy.batches_per_step
    assert policy.smallest_batch(RECORDS) <= min(sizes)
    assert max(sizes) <= policy.largest_batch(RECORDS)
    share = float(np.mean([0 in sample.units for sample in samples]))
    probability = policy.inclusion_probability
    if policy.largest_batch(RECORDS) < RECORDS:
        assert share <= probability + 5.0 * 0.5 / len(samples) ** 0.5
    else:
        assert abs(share - probability) <= 5.0 * 0.5 / len(samples) ** 0.5


def test_only_a_sample_that_is_cut_loses_a_record_to_another() -> None:
    for policy in TABLE:
        cut = isinstance(policy, TruncatedPoisson)
        assert policy.displaces(ADD) == cut
        assert not policy.displaces(ZERO)
        assert not policy.displaces(REPLACE)
    assert TruncatedPoisson(0.5, 40, 40).displaces(ADD)  # the forty-first record
    assert not TruncatedPoisson(0.5, 41, 40).displaces(ADD)


def test_phrases_name_every_number() -> None:
    phrases = {policy.phrase for policy in TABLE}
    assert len(phrases) == len(TABLE)
    for policy in TABLE:
        for value in policy.values().values():
            assert repr(value) in policy.phrase
        assert policy.how_drawn.endswith(".")


def test_the_list_is_closed() -> None:
    assert {type(policy) for policy in TABLE} == set(SAMPLINGS)

    class Mine(Poisson):
        """Subclasses could mean anything."""

    with pytest.raises(ParameterError, match="sampling"):
        Step(Mine(0.5), GaussianSum("g", 1.0, 1.0))
    with pytest.raises(ParameterError, match="policy"):
        Sampler(Mine(0.5), records=10, steps=1)


@pytest.mark.parametrize("fields", [(11, 10), (0, 10), (1.0, 10)])
def test_a_size_that_the_records_do_not_have_is_refused(fields: tuple[int, int]) -> None:
    with pytest.raises(ParameterError):
        FixedSize(*fields)
