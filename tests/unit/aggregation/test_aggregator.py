"""The NumPy engine: what it releases is what was planned and charged, once, whatever the records
hold.
"""

import math
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import discreet as dp
from discreet.aggregation import Aggregator, PartialSums, aggregate
from discreet.mechanisms import (
    AdaptiveClip,
    Bound,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    NotPrivate,
)
from discreet.numerics import ExactSum
from discreet.randomness import GaussianNoise, Source
from discreet.sampling import Owners, Sampler

KEY = bytes(range(32))
Array = NDArray[np.float64]


def plan(
    mechanism: Any = None,
    *,
    records: int = 100,
    steps: int = 3,
    probability: float = 0.5,
    leaves: Any = None,
) -> dp.Plan:
    return dp.Plan(
        sampler=Sampler(dp.Poisson(probability), records=records, steps=steps),
        mechanism=mechanism or Gaussian(clip_norm=1.0, noise_multiplier=1.0),
        leaves=leaves or {"x": 2},
    )


def keyed(its: dp.Plan, ledger: dp.Ledger | None = None) -> Aggregator:
    return Aggregator(
        its, ledger=ledger or dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY)
    )


@pytest.fixture
def data() -> Array:
    return np.random.default_rng(1).normal(size=(100, 2))


def releases(run: Aggregator, rows: Array) -> list[Array]:
    return [run.release(sample, {"x": rows[sample.indices]})["x"] for sample in run.samples()]


# --- what is charged is what is executed ---


def test_the_ledger_says_what_the_plan_said(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    its = plan()
    run = Aggregator(its, ledger=ledger, label="")
    releases(run, data)
    executed = replace(its, numerics=dp.Numerics.EXACT)  # not what was asked for
    (charge,) = ledger.charges()
    assert (replace(charge, number=0),) == executed.charges()
    (record,) = ledger.runs()
    assert record.planned == executed.snapshot().counted()
    assert (dp.Plan.from_json(record.plan), record.over, record.reason) == (its, True, "")
    claim, expected = dp.account(ledger, delta=1e-6), dp.account(executed, delta=1e-6)
    assert (claim.lower, claim.upper, claim.numerics) == (
        expected.lower,
        expected.upper,
        dp.Numerics.EXACT,
    )
    assert "a list that was fixed before the first release; all were charged" in claim.basis
    assert not ledger.marks()


class Recorder:
    """Interposed between engine and noise: what scale, on which sums, in grid units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scales: list[float] = []
        recorder = self

        class Recording(GaussianNoise):
            def __init__(self, stream: Any, *, scale: float, size: int) -> None:
                recorder.scales.append(scale)
                super().__init__(stream, scale=scale, size=size)

        monkeypatch.setattr("discreet.aggregation.aggregator.GaussianNoise", Recording)


@pytest.mark.parametrize(
    "mechanism",
    [
        Gaussian(clip_norm=0.7, noise_multiplier=1.3),
        Joint(clip_norm=1.0, noise_multiplier=1.3, scales={"x": 1.0, "y": 100.0}),
        Groups(
            {
                "x": Gaussian(clip_norm=2.0, noise_multiplier=1.0),
                "y": Gaussian(clip_norm=0.1, noise_multiplier=7.0),
            }
        ),
        AdaptiveClip(
            Gaussian(clip_norm=0.3, noise_multiplier=1.1),
            quantile=0.5,
            count_noise_std=3.0,
            learning_rate=0.3,
        ),
        Microbatches(Gaussian(clip_norm=0.7, noise_multiplier=1.3), slots=5),
    ],
)
def test_an_interposed_recorder_sees_the_noise_of_the_ledger(
    mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    ledger = dp.Ledger.in_memory()
    run = keyed(plan(mechanism, leaves={"x": 2, "y": 1}, steps=4), ledger)
    rng = np.random.default_rng(0)
    moved = []
    for sample in run.samples():
        one, two = (
            run.partial(sample),
            run.partial(sample) if run.plan.bound.start[0].slots is None else None,
        )
        rows = {"x": rng.normal(size=(len(sample), 2)), "y": rng.normal(size=(len(sample), 1))}
        one.add(rows)
        if two is not None:  # a neighbour: one record more, as large as it can be
            two.add(
                {leaf: np.concatenate([values, values[:1] * 1e9]) for leaf, values in rows.items()}
            )
            moved.append(
                {
                    g.name: np.linalg.norm(two.integers(g) - one.integers(g))
                    for g in run.plan.bound.groups(run.state)
                }
            )
        run.release(sample, one)
    (charge,) = ledger.charges()
    queries = {query.group: query for query in charge.step.queries}
    assert set(queries) == {group.name for group in run.plan.bound.start}
    groups = run.plan.bound.start
    assert charge.count == 4
    assert len(recorder.scales) == 4 * len(groups)
    for number, scale in enumerate(recorder.scales):
        group = groups[number % len(groups)]
        query = queries[group.name]
        assert isinstance(query, dp.ledger.GaussianSum)
        spacing = query.noise_std / scale
        assert np.log2(spacing) == round(np.log2(spacing))
        for change in moved:
            assert change[group.name] * spacing <= query.sensitivity
            assert (
                change[group.name] * spacing >= 0.999 * query.sensitivity
            )  # the bound is attained: nothing is wasted


# --- once ---


def test_p16_a_sample_is_released_once(data: Array) -> None:
    run = keyed(plan())
    for sample in run.samples():
        run.release(sample, {"x": data[sample.indices]})
        with pytest.raises(dp.errors.SampleMisuse, match="second time"):
            run.release(sample, {"x": data[sample.indices]})


def test_a_sample_of_another_run_is_refused(data: Array) -> None:
    run, other = keyed(plan()), keyed(plan())
    sample = next(other.samples())
    with pytest.raises(dp.errors.SampleMisuse, match="another run"):
        run.release(sample, {"x": data[sample.indices]})
    next(run.samples())
    with pytest.raises(dp.errors.SampleMisuse, match="another run"):
        run.release(sample, {"x": data[sample.indices]})


def test_a_second_pass_is_refused(data: Array) -> None:
    run = keyed(plan())
    releases(run, data)
    with pytest.raises(dp.errors.SampleMisuse, match="second one"):
        run.samples()


def test_p20_two_runs_of_one_plan_never_share_noise(data: Array) -> None:
    one, two = (releases(Aggregator(plan(), ledger=dp.Ledger.in_memory()), data) for _ in range(2))
    everything = np.concatenate(one + two)
    assert len(np.unique(everything)) == everything.size


@pytest.mark.parametrize("change", [-1, 1])
def test_p10_as_many_rows_as_were_drawn(data: Array, change: int) -> None:
    run = keyed(plan())
    sample = next(run.samples())
    with pytest.raises(dp.errors.SampleMisuse, match="another number of rows"):
        run.release(sample, {"x": np.zeros((len(sample) + change, 2))})
    run.release(sample, {"x": data[sample.indices]})  # nothing was lost


def test_p28_an_empty_sample_releases_noise() -> None:
    run = keyed(plan(probability=1e-12, steps=5))
    out = [run.release(sample, {"x": np.empty((0, 2))})["x"] for sample in run.samples()]
    assert len(out) == 5
    assert np.all(np.abs(out) > 0)
    run = keyed(plan(probability=1e-12, steps=5))
    assert [run.release(sample, [])["x"].shape for sample in run.samples()] == [(2,)] * 5


def test_steps_not_taken_are_not_charged_and_a_resumed_run_goes_on(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    first = Aggregator(plan(steps=10), ledger=ledger)
    samples = first.samples()
    for _ in range(4):
        sample = next(samples)
        first.release(sample, {"x": data[sample.indices]})
    assert isinstance(samples, Iterator)
    samples.close()  # type: ignore[attr-defined]
    second = Aggregator(plan(steps=10), ledger=ledger)
    rest = [
        second.release(sample, {"x": data[sample.indices]}) for sample in second.samples(start=4)
    ]
    assert [release.step for release in rest] == list(range(4, 10))
    assert sum(charge.count for charge in ledger.charges()) == 10


def test_p38_a_budget_refuses_before_anything_is_drawn(data: Array) -> None:
    its = plan(steps=1000)
    small = dp.Budget(epsilon=dp.account(plan(steps=40), delta=1e-6).epsilon, delta=1e-6)
    ledger = dp.Ledger.in_memory(budget=small)
    with pytest.raises(dp.errors.BudgetExceeded):
        releases(Aggregator(its, ledger=ledger), data)
    assert not ledger.runs()


# --- what records hold ---


def test_p13_a_record_that_is_not_finite_changes_nothing_else(data: Array) -> None:
    for poison in (np.nan, np.inf, -np.inf, 1e308):
        bad = data.copy()
        bad[17] = poison
        without = data.copy()
        without[17] = 0.0
        for ours, reference in zip(
            releases(keyed(plan()), bad), releases(keyed(plan()), without), strict=True
        ):
            if np.isfinite(poison):
                assert np.linalg.norm(ours - reference) <= 1.0 + 1e-9
            else:
                assert np.array_equal(ours, reference)


def test_invariant_1_order_split_and_merge_do_not_matter(data: Array) -> None:
    def merged(pieces: int, *, reverse: bool) -> list[Array]:
        run = keyed(plan())
        out = []
        for sample in run.samples():
            rows = data[sample.indices][:: -1 if reverse else 1]
            sums = [run.partial(sample) for _ in range(pieces)]
            for partial, part in zip(sums, np.array_split(rows, pieces), strict=True):
                partial.add({"x": part})
            for other in sums[1:]:
                sums[0].merge(other)
            out.append(run.release(sample, sums[0])["x"])
        return out

    whole = releases(keyed(plan()), data)
    for pieces, reverse in [(1, True), (2, False), (7, True), (100, False)]:
        assert np.array_equal(whole, merged(pieces, reverse=reverse))
    as_dicts = keyed(plan())
    assert np.array_equal(
        whole,
        [
            as_dicts.release(s, [{"x": row} for row in data[s.indices]])["x"]
            for s in as_dicts.samples()
        ],
    )


def summed(partial: PartialSums, rows: Array) -> PartialSums:
    partial.add({"x": rows})
    return partial


def test_workers_in_other_processes_send_partial_sums(data: Array) -> None:
    run = keyed(plan(steps=1))
    (sample,) = run.samples()
    rows = np.array_split(data[sample.indices], 2)
    with ProcessPoolExecutor(2) as pool:
        one, two = pool.map(summed, [run.partial(sample), run.partial(sample)], rows)
    one.merge(two)
    assert np.array_equal(run.release(sample, one)["x"], releases(keyed(plan(steps=1)), data)[0])


def test_an_addition_broken_off_makes_the_sums_useless(
    data: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = keyed(
        plan(Groups({"x": Gaussian(1.0, 1.0), "y": Gaussian(1.0, 1.0)}), leaves={"x": 2, "y": 2})
    )
    sample = next(run.samples())
    records = {"x": data[sample.indices], "y": data[sample.indices]}
    partial, right = run.partial(sample), ExactSum.add
    calls: list[None] = []

    def interrupted(self: ExactSum, *arguments: Any) -> None:
        right(self, *arguments)
        calls.append(None)
        if len(calls) == 1:  # the first group is in, the second is not
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ExactSum, "add", interrupted)
        partial.add(records)
    with pytest.raises(dp.errors.SampleMisuse, match="half changed"):
        partial.add(records)  # the first group would count twice
    with pytest.raises(dp.errors.SampleMisuse, match="half changed"):
        run.release(sample, partial)
    run.release(sample, records)


def test_what_was_merged_counts_once(data: Array) -> None:
    run = keyed(plan(steps=2))
    samples = run.samples()
    sample = next(samples)
    one, two = run.partial(sample), run.partial(sample)
    two.add({"x": data[sample.indices]})
    copy = pickle.loads(pickle.dumps(two))
    one.merge(two)
    for again in (two, copy, one):
        with pytest.raises(dp.errors.SampleMisuse, match="already"):
            one.merge(again)
    run.release(sample, one)
    later = next(samples)
    with pytest.raises(dp.errors.SampleMisuse, match="another sample"):
        run.release(later, one)
    with pytest.raises(dp.errors.SampleMisuse, match="another sample"):
        run.partial(later).merge(one)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"y": np.zeros((1, 2))},
        {"x": np.zeros((1, 2)), "y": np.zeros((1, 2))},
        {"x": np.zeros((1, 3))},
        {"x": np.array(["a"])},
        {"x": np.zeros((1, 2), complex)},
        {"x": 1.0},
        [{"y": np.zeros(2)}],
    ],
)
def test_records_that_do_not_fit_are_refused_and_nothing_is_lost(records: Any, data: Array) -> None:
    run = keyed(plan())
    sample = next(run.samples())
    with pytest.raises(dp.errors.ParameterError):
        run.release(sample, records)
    assert run.release(sample, {"x": data[sample.indices]})["x"].shape == (2,)


def test_shapes_and_kinds_of_numbers() -> None:
    its = plan(leaves={"x": 4}, probability=1.0)
    for kind in (np.float16, np.float32, np.float64, np.int32, np.bool_):
        run = keyed(its)
        sample = next(run.samples())
        released = run.release(sample, {"x": np.ones((100, 2, 2), kind)})
        assert released["x"].shape == (4,)
        assert released.mean("x") == pytest.approx(0.5 * np.ones(4), abs=0.06)


# --- every kind of mechanism ---


def test_joint_clipping_scales_back() -> None:
    its = plan(
        Joint(clip_norm=1.0, noise_multiplier=1e-3, scales={"x": 1.0, "y": 100.0}),
        leaves={"x": 1, "y": 1},
        probability=1.0,
    )
    run = keyed(its)
    sample = next(run.samples())
    released = run.release(sample, {"x": np.zeros((100, 1)), "y": np.full((100, 1), 90.0)})
    assert released.mean("y")[0] == pytest.approx(90.0, abs=0.1)
    assert released.noise_std["y"] == pytest.approx(100 * released.noise_std["x"])


def test_microbatches_average_within_slots_and_charge_twice_the_clip() -> None:
    its = plan(
        Microbatches(Gaussian(clip_norm=1.0, noise_multiplier=1e-3), slots=4),
        leaves={"x": 1},
        probability=1.0,
    )
    (query,) = its.step.queries
    assert isinstance(query, dp.ledger.GaussianSum)
    assert query.sensitivity == 2.0
    run = keyed(its)
    sample = next(run.samples())
    released = run.release(sample, {"x": np.full((100, 1), 0.5)})
    assert released["x"][0] == pytest.approx(4 * 0.5, abs=0.02)  # four averages of 0.5
    assert released.mean("x")[0] == pytest.approx(0.5, abs=0.005)


def test_p15_a_record_more_moves_one_slot_by_twice_the_clip() -> None:
    mechanism = Microbatches(Gaussian(clip_norm=1.0, noise_multiplier=1.0), slots=4)
    bound: Bound = mechanism.bind({"x": 1})
    slot = np.random.default_rng(5).integers(0, 4, 101)

    def sums(rows: Array) -> float:
        partial = PartialSums(
            bound,
            bound.initial_state,
            sample_id=("", 0, 0),
            slots=lambda group, count, slots: slot[:count],
        )
        partial.add({"x": rows})
        (group,) = bound.groups(bound.initial_state)
        return float(partial.integers(group)[0])

    rows = np.ones((100, 1))
    base, more = sums(rows), sums(np.concatenate([rows, [[-1e6]]]))
    assert abs(more - base) / (base / 4) == pytest.approx(2.0, rel=1e-6)  # one slot from +1 to -1


def test_microbatches_refuse_pieces() -> None:
    run = keyed(
        plan(Microbatches(Gaussian(clip_norm=1.0, noise_multiplier=1.0), slots=4), leaves={"x": 1})
    )
    sample = next(run.samples())
    partial = run.partial(sample)
    partial.add({"x": np.zeros((len(sample), 1))})
    with pytest.raises(dp.errors.SampleMisuse, match="at once"):
        partial.add({"x": np.zeros((1, 1))})


def test_adaptive_clipping_follows_what_was_released() -> None:
    mechanism = AdaptiveClip(
        Gaussian(clip_norm=10.0, noise_multiplier=1.0),
        quantile=0.5,
        count_noise_std=5.0,
        learning_rate=0.5,
    )
    ledger = dp.Ledger.in_memory()
    run = keyed(plan(mechanism, records=1000, steps=80, leaves={"x": 1}), ledger)
    norms = np.random.default_rng(2).lognormal(0.0, 1.0, size=(1000, 1))  # median 1
    seen = []
    for sample in run.samples():
        run.release(sample, {"x": norms[sample.indices]})
        seen.append(next(iter(run.state.values())))
    assert np.mean(seen[40:]) == pytest.approx(np.median(norms), rel=0.05)
    (charge,) = ledger.charges()  # one event for all steps: nothing in it depends on the data
    assert charge.count == 80


def test_a_baseline_without_privacy_says_so(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    run = keyed(plan(NotPrivate(), probability=1.0), ledger)
    sample = next(run.samples())
    assert run.release(sample, {"x": data})["x"] == pytest.approx(data.sum(axis=0))
    assert "unsafe_no_privacy" in ledger.marks()
    assert not ledger.charges()


def test_p42_a_test_key_voids_the_guarantee(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    releases(keyed(plan(), ledger), data)
    assert dp.account(ledger, delta=1e-6).voided_by == ("unsafe_test_key",)


@pytest.mark.parametrize("policy", [dp.ledger.Shuffled(4), dp.ledger.BallsInBins(4)])
def test_epochs_are_charged_once_and_release_every_batch(policy: Any, data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    its = dp.Plan(
        sampler=Sampler(policy, records=100, steps=2),
        mechanism=Gaussian(1.0, 1.0),
        leaves={"x": 2},
        adjacency=dp.Adjacency.ZERO_OUT,
    )
    out = releases(keyed(its, ledger), data)
    assert len(out) == 8
    assert sum(charge.count for charge in ledger.charges()) == 2
    assert len(np.unique(np.concatenate(out))) == 16


def test_user_level_records_are_one_row_for_each_user() -> None:
    owners = Owners.from_ids(np.repeat(np.arange(20), 5))
    sampler = Sampler(dp.Poisson(0.5), records=20, steps=2, owners=owners, rows_per_unit=3)
    its = dp.Plan(unit=dp.Unit.USER, sampler=sampler, mechanism=Gaussian(1.0, 1.0), leaves={"x": 1})
    ledger = dp.Ledger.in_memory()
    run = keyed(its, ledger)
    for sample in run.samples():
        assert np.array_equal(np.diff(sample.offsets), np.full(len(sample), 3))  # capped
        assert np.array_equal(np.unique(sample.rows // 5), sample.units)  # each user's own rows
        with pytest.raises(dp.errors.SampleMisuse, match="another number of rows"):
            run.release(sample, {"x": np.zeros((len(sample.rows), 1))})  # rows are not records
        run.release(sample, {"x": np.zeros((len(sample), 1))})
    (charge,) = ledger.charges()
    assert charge.run.unit == dp.Unit.USER


def test_one_release_from_a_data_set(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    one_step = plan(steps=1, probability=1.0)
    released = aggregate({"x": data}, one_step, ledger=ledger)
    assert released["x"].shape == (2,)
    assert ledger.snapshot().charged() == {one_step.step: 1}
    head = ledger.head()
    for records, its in [({"x": data[:99]}, one_step), ({"x": data}, plan(steps=2))]:
        with pytest.raises(dp.errors.ParameterError):
            aggregate(records, its, ledger=ledger)
    assert ledger.head() == head  # nothing was charged for what was refused


def test_p21_the_ledger_says_which_numerics_were_executed(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    releases(Aggregator(replace(plan(), numerics=dp.Numerics.IDEALISED), ledger=ledger), data)
    assert {charge.run.numerics for charge in ledger.charges()} == {dp.Numerics.EXACT}


def test_p18_neither_keys_nor_samples_travel(data: Array) -> None:
    run = keyed(plan())
    with pytest.raises(dp.errors.DiscreetError):
        pickle.dumps(run)


def test_an_accountant_says_why_a_baseline_has_no_guarantee(data: Array) -> None:
    ledger = dp.Ledger.in_memory()
    releases(keyed(plan(NotPrivate()), ledger), data)
    claim = dp.account(ledger, delta=1e-6)
    assert (claim.upper, "unsafe_no_privacy" in claim.voided_by) == (math.inf, True)


def test_a_budget_admits_no_baseline(data: Array) -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(epsilon=1.0, delta=1e-6))
    for mechanism in (NotPrivate(), Groups({"x": Gaussian(1.0, 100.0), "y": NotPrivate()})):
        with pytest.raises(dp.errors.BudgetExceeded, match="without noise"):
            keyed(
                plan(mechanism, leaves={"x": 2} if mechanism == NotPrivate() else {"x": 2, "y": 1}),
                ledger,
            )
    assert not ledger.runs()


def test_rows_that_another_thread_adds_while_sums_are_read_are_not_released(
    monkeypatch: pytest.MonkeyPatch, data: Array
) -> None:
    run = keyed(plan(steps=1))
    (sample,) = run.samples()
    sums = run.partial(sample)
    sums.add({"x": data[sample.indices]})
    read = PartialSums.integers

    def added_first(self: PartialSums, group: Any) -> Array:
        self.add({"x": data[sample.indices]})
        return read(self, group)

    monkeypatch.setattr(PartialSums, "integers", added_first)
    with pytest.raises(dp.errors.SampleMisuse, match="another number of rows"):
        run.release(sample, sums)
