"""Partial sums: records that contribute nothing, records that are wrong, sums that are merged."""

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation.sums import PartialSums, bare, grid_of

PLAN = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=9, steps=1),
    mechanism=dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=5.0),
    leaves={"x": 2},
)


def released(rows: int, nothing: int) -> dp.aggregation.Release:
    run = dp.Aggregator(
        PLAN, ledger=dp.Ledger.in_memory(), source=dp.randomness.Source.unsafe_test_key(bytes(32))
    )
    (sample,) = run.samples()
    sums = run.partial(sample)
    sums.add({"x": np.full((rows, 2), 0.1)})
    sums.add_nothing(nothing)
    return run.release(sample, sums)


def test_they_count_as_records_and_move_no_sum() -> None:
    some, all_zero = released(4, 5), released(0, 9)
    added = {leaf: some[leaf] - all_zero[leaf] for leaf in some}
    assert added["x"] == pytest.approx([0.4, 0.4], abs=1e-4)
    assert added["all/below"] == pytest.approx(
        [2.0], abs=1e-3
    )  # a bit of each of the four, none of the others


@pytest.mark.parametrize(("rows", "nothing"), [(4, 4), (4, 6), (9, 1)])
def test_p10_all_together_are_as_many_as_were_drawn(rows: int, nothing: int) -> None:
    with pytest.raises(dp.errors.SampleMisuse, match="another number of rows"):
        released(rows, nothing)


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "all"])
def test_what_is_no_number_of_records_is_refused(wrong: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match="records"):
        released(4, wrong)  # type: ignore[arg-type]


# --- sums by themselves ---

TWO = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=9, steps=1),
    mechanism=dp.Groups({"a": dp.Gaussian(1.0, 2.0), "b": dp.Gaussian(1.0, 2.0)}),
    leaves={"a": 2, "b": 1},
)


def sums(step: int = 0, piece: int = 0) -> PartialSums:
    bound = TWO.bound
    return PartialSums(bound, bound.initial_state, sample_id=("run", step, 0), piece=piece)


def totals(partial: PartialSums) -> list[float]:
    """All sums, leaf after leaf, in the unit of the leaves."""
    groups = TWO.bound.start
    units = [partial.integers(group) * grid_of(group).spacing for group in groups]
    return np.concatenate(units).round(4).tolist()  # type: ignore[no-any-return]


def test_p13_a_number_that_is_none_costs_its_group_and_no_other_record() -> None:
    """Summed before the check, one NaN would make every number of the release NaN."""
    partial = sums()
    partial.add({"a": np.array([[np.nan, 0.5], [0.5, 0.25]]), "b": np.array([[0.5], [np.inf]])})
    assert totals(partial) == [0.5, 0.25, 0.5]
    assert partial.records == 2


def test_a_record_that_is_too_long_is_clipped_by_itself() -> None:
    """A sum that is clipped, and not each record, would let one record take all of it."""
    partial = sums()
    partial.add(
        [
            {"a": np.array([30.0, 40.0]), "b": np.array([0.5])},
            {"a": np.array([0.1, 0.2]), "b": np.array([5.0])},
        ]
    )
    assert totals(partial) == pytest.approx([0.7, 1.0, 1.5], abs=1e-4)


@pytest.mark.parametrize(
    "records",
    [
        {"a": np.ones((2, 2))},
        {"a": np.ones((2, 3)), "b": np.ones((2, 1))},
        {"a": np.ones((2, 2)), "b": np.ones((3, 1))},
        {"a": np.full((2, 2), "x"), "b": np.ones((2, 1))},
        [{"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)}],
        [{"a": np.ones(2)}],
    ],
)
def test_nothing_is_added_of_records_that_do_not_fit(records: object) -> None:
    partial = sums()
    with pytest.raises(dp.errors.ParameterError):
        partial.add(records)  # type: ignore[arg-type]
    assert totals(partial) == [0.0, 0.0, 0.0]
    assert partial.records == 0


def test_what_was_merged_is_not_there_to_count_twice() -> None:
    """Added without emptying, the same records could be merged into other sums as well."""
    first, second = sums(piece=1), sums(piece=2)
    for partial in (first, second):
        partial.add({"a": np.array([[0.25, 0.5]]), "b": np.array([[0.5]])})
    first.merge(second)
    assert totals(first) == [0.5, 1.0, 1.0]
    assert totals(second) == [0.0, 0.0, 0.0]
    assert (first.records, second.records) == (2, 0)
    with pytest.raises(dp.errors.SampleMisuse, match="already"):
        first.merge(second)


def test_p16_sums_of_another_sample_do_not_merge() -> None:
    with pytest.raises(dp.errors.SampleMisuse, match="another sample"):
        sums(step=0, piece=1).merge(sums(step=1, piece=2))


def test_a_masked_number_is_not_a_number() -> None:
    """Filled with what lies under the mask, a missing value would count."""
    assert np.isnan(bare(np.ma.array([1, 2], mask=[False, True]))).tolist() == [False, True]
