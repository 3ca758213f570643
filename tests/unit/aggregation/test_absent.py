"""Records of a sample that contribute nothing: counted, and nothing else."""

import numpy as np
import pytest

import discreet as dp

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
