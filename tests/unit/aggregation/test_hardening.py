"""Attacks on the NumPy engine that once worked, each as a user could stumble into it."""

import copy
import math
import threading
import time
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation import Aggregator, aggregate
from discreet.ledger import Run
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    NotPrivate,
    Split,
)
from discreet.numerics import ExactSum, exact
from discreet.sampling import Sampler


def plan(
    mechanism: Any = None,
    *,
    leaves: Any = None,
    records: int = 4,
    probability: float = 1.0,
    **declared: Any,
) -> dp.Plan:
    return dp.Plan(
        sampler=Sampler(dp.Poisson(probability), records=records, steps=8),
        mechanism=mechanism or Gaussian(clip_norm=1.0, noise_multiplier=1e-3),
        leaves=leaves or {"x": 2},
        **declared,
    )


def fresh(its: dp.Plan, ledger: dp.Ledger | None = None) -> Aggregator:
    return Aggregator(its, ledger=ledger or dp.Ledger.in_memory())


# --- what is charged, and to whom ---


def test_steps_are_charged_to_the_run_that_takes_them() -> None:
    """Two runs that begin on one handle before either takes a step: the first was charged under the
    second's declaration.
    """
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-5))
    first = Aggregator(
        plan(), ledger=ledger, label="first", source=dp.randomness.Source.unsafe_test_key(bytes(32))
    )
    second = Aggregator(plan(), ledger=ledger, label="second")
    samples = first.samples()
    second.samples()
    for sample in samples:
        first.release(sample, {"x": np.zeros((len(sample), 2))})
    (charge,) = ledger.charges()
    assert (charge.run.label, charge.run.randomness) == (
        "first",
        dp.units.Randomness.UNSAFE_TEST_KEY,
    )


@pytest.mark.parametrize(
    "otherwise", [{"adjacency": dp.Adjacency.REPLACE_ONE}, {"unit": dp.Unit.USER}]
)
def test_a_run_that_protects_something_else_is_refused_before_it_begins(
    otherwise: dict[str, Any],
) -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-5))
    fresh(plan(), ledger).samples()
    with pytest.raises(dp.errors.LedgerMisuse, match="Use another ledger"):
        fresh(plan(**otherwise), ledger).samples()
    assert len(ledger.runs()) == 1


def test_runs_that_begin_on_several_threads_are_charged_as_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, begin = dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-5)), dp.Ledger.begin

    def slowly(self: dp.Ledger, info: dp.ledger.RunInfo, planned: Any = (), **options: Any) -> Run:
        run = begin(self, info, planned, **options)
        time.sleep(0.005)  # long enough for another run to begin, if anything allows it
        return run

    monkeypatch.setattr(dp.Ledger, "begin", slowly)
    together = threading.Barrier(8)

    def work(number: int) -> None:
        run = Aggregator(plan(Gaussian(1.0, 1.0 + number)), ledger=ledger, label=f"run {number}")
        together.wait()
        next(run.samples())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charged = {charge.run.label: charge.step.queries[0] for charge in ledger.charges()}
    assert charged == {
        f"run {number}": dp.ledger.GaussianSum("all", 1.0, 1.0 + number) for number in range(8)
    }


@pytest.mark.parametrize(
    "mechanism",
    [
        Gaussian(1.0, 1e12),
        Gaussian(1e-150, 1.0),
        Joint(1.0, 1.0, scales={"x": 1e-200}),
        Microbatches(Gaussian(1e-150, 1.0), slots=3),
        AdaptiveClip(Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=1e12),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_charged(mechanism: Any) -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.DiscreetError):
        fresh(plan(mechanism), ledger)
    assert not ledger.runs()


@pytest.mark.parametrize("policy", [dp.FixedSize(2, 4), dp.ledger.Shuffled(2)])
def test_a_run_about_which_nothing_could_be_said_is_refused_before_it_is_charged(
    policy: Any,
) -> None:
    """It once ran to its end, with a charge that no accountant reads: the whole ledger was lost."""
    ledger = dp.Ledger.in_memory()
    its = dp.Plan(
        sampler=Sampler(policy, records=4, steps=1), mechanism=Gaussian(1.0, 1.0), leaves={"x": 2}
    )
    with pytest.raises(dp.errors.AccountingError, match="adjacency"):
        fresh(its, ledger)
    assert not ledger.runs()


def test_a_run_that_stops_by_what_it_released_can_say_so() -> None:
    """The settled number of steps depends on the outputs then: an accountant for fixed parameters
    would under-count.
    """
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=100.0, delta=1e-5))
    run = Aggregator(
        plan(Gaussian(1.0, 4.0)), ledger=ledger, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS
    )
    for sample in run.samples():
        if run.release(sample, {"x": np.ones((4, 2))})["x"][0] > -1e9:
            break
    assert dp.account(ledger).upper == 100.0
    with pytest.raises(dp.errors.AccountingError, match="fixed before the first release"):
        dp.account(ledger, delta=1e-6)


@pytest.mark.parametrize("budget", [None, dp.Budget(epsilon=100.0, delta=1e-5)])
def test_t01_a_run_that_is_chosen_from_outputs_is_refused_on_a_list_at_construction(
    budget: dp.Budget | None,
) -> None:
    ledger = dp.Ledger.in_memory(budget=budget)
    with pytest.raises(dp.errors.LedgerMisuse, match=r"dp\.Filter.* or dp\.Odometer"):
        Aggregator(plan(), ledger=ledger, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
    assert not ledger.runs()


def test_a_budget_does_not_forget_what_was_released_without_noise() -> None:
    """A budget once stated a guarantee for a run that also released a plain sum."""
    ledger = dp.Ledger.in_memory()  # a ledger with a budget would refuse the run
    next(
        fresh(
            plan(Groups({"x": Gaussian(1.0, 4.0), "y": NotPrivate()}), leaves={"x": 1, "y": 1}),
            ledger,
        ).samples()
    )
    claim = dp.account(ledger, delta=1e-5)
    assert (claim.voided_by, claim.upper) == (("unsafe_no_privacy",), math.inf)


def test_a_label_that_no_ledger_takes_is_refused_at_once() -> None:
    with pytest.raises(dp.errors.ParameterError, match="label"):
        Aggregator(plan(), ledger=dp.Ledger.in_memory(), label="two\nlines")


def test_what_is_executed_cannot_be_swapped() -> None:
    run = fresh(plan())
    for name, value in (
        ("plan", plan(probability=0.5)),
        ("sampler", plan(probability=0.5).sampler),
    ):
        with pytest.raises(AttributeError):
            setattr(run, name, value)


def test_a_state_that_is_changed_later_changes_nothing() -> None:
    run = fresh(plan(AdaptiveClip(Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=5.0)))
    state = {"all": 2.0}
    next(run.samples(state=state))
    state["all"] = 1e9
    assert dict(run.state) == {"all": 2.0}


def test_a_state_that_does_not_fit_is_refused_and_nothing_is_lost() -> None:
    run = fresh(plan())
    with pytest.raises(dp.errors.ParameterError):
        run.samples(state={"all": 2.0})
    next(run.samples())


# --- each record once ---


@pytest.mark.parametrize("moment", [1, 2])
def test_sums_that_were_interrupted_are_not_used_again(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while records are added, then the cell once more: the first group held every record
    twice.
    """
    run = fresh(plan(Split(clip_norm=1.0, noise_multiplier=1e-3), leaves={"x": 1, "y": 1}))
    sample = next(run.samples())
    records = {"x": np.ones((4, 1)), "y": np.ones((4, 1))}
    sums, add, calls = run.partial(sample), ExactSum.add, []

    def interrupted(self: ExactSum, leaves: Any, weights: Any) -> None:
        calls.append(self)
        if len(calls) == moment:
            raise KeyboardInterrupt
        add(self, leaves, weights)

    with monkeypatch.context() as patch:
        patch.setattr(ExactSum, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sums.add(records)
    other = run.partial(sample)
    for again in (
        lambda: sums.add(records),
        lambda: sums.merge(other),
        lambda: other.merge(sums),
        lambda: run.release(sample, sums),
    ):
        with pytest.raises(dp.errors.SampleMisuse, match="half changed"):
            again()
    assert run.release(sample, records)["x"] == pytest.approx(
        4 * 0.5**0.5, abs=0.02
    )  # the sample is still there


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_array_that_is_filled_anew_meanwhile_changes_nothing(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's buffer, changed after the record was checked and before it was summed."""
    run, rows, within = fresh(plan()), np.ones((4, 2), kind), exact._within

    def then_filled_anew(*its: Any) -> Any:
        kept = within(*its)
        rows[:] = 1e6
        return kept

    monkeypatch.setattr(exact, "_within", then_filled_anew)
    assert run.release(next(run.samples()), {"x": rows})["x"] == pytest.approx(
        4 * np.full(2, 0.5**0.5), abs=0.02
    )


def test_an_interrupted_merge_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fresh(plan())
    sample = next(run.samples())
    left, right = run.partial(sample), run.partial(sample)
    right.add({"x": np.ones((4, 2))})

    def interrupted(self: ExactSum, other: ExactSum) -> None:
        for name, total in self._sums.items():
            np.add(total, other._sums[name], out=total)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ExactSum, "merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            left.merge(right)
    with pytest.raises(dp.errors.SampleMisuse, match="half changed"):
        left.merge(right)


def test_sums_of_one_run_are_not_released_by_another() -> None:
    """The same sample under two charges is not two independent samples."""
    its = plan()
    first, second = fresh(its), fresh(its)
    sums = first.partial(next(first.samples()))
    sums.add({"x": np.ones((4, 2))})
    with pytest.raises(dp.errors.SampleMisuse, match="run"):
        second.release(next(second.samples()), copy.deepcopy(sums))


# --- nothing but noised sums comes out ---


@pytest.mark.parametrize("leaves", [{"x": 1}, {"x": 4}])
@pytest.mark.parametrize("in_rows", [True, False])
def test_the_shape_of_a_release_does_not_tell_an_empty_sample(
    leaves: dict[str, int], *, in_rows: bool
) -> None:
    run = fresh(plan(leaves=leaves, records=1, probability=0.5))
    record, shapes, sizes = np.ones((leaves["x"], 1, 1)), set(), set()
    for sample in run.samples():
        drawn = [record for _ in sample.indices]
        records: Any = {"x": np.array(drawn)} if in_rows else [{"x": one} for one in drawn]
        shapes.add(run.release(sample, records)["x"].shape)
        sizes.add(len(sample))
    assert shapes == {(leaves["x"],)}
    assert sizes <= {0, 1}


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((37, 3)),
        np.ones((37, 2), complex),
        np.array([["a", "b"]] * 37),
        np.ones((37, 2), "m8[s]"),
    ],
)
def test_no_error_says_how_many_records_were_drawn(rows: Any) -> None:
    run = fresh(plan(records=37))
    sample = next(run.samples())
    for records in ({"x": rows}, [{"x": row} for row in rows]):
        with pytest.raises(dp.errors.ParameterError) as caught:
            run.release(sample, records)
        assert "37" not in str(caught.value)


# --- any container of numbers ---


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((4, 2), ">f8"),
        np.ones((4, 2), ">f4"),
        np.ones((4, 2), np.longdouble),
        np.ones((4, 4))[::-1, ::-2],
        np.asfortranarray(np.ones((4, 2))),
        np.broadcast_to(np.ones(2), (4, 2)),
        [[1.0, 1.0]] * 4,
        np.ma.MaskedArray(np.ones((4, 2))),
    ],
)
def test_any_array_of_numbers_serves(rows: Any) -> None:
    run = fresh(plan())
    assert run.release(next(run.samples()), {"x": rows})["x"] == pytest.approx(
        4 * np.full(2, 0.5**0.5), abs=0.02
    )


def test_a_masked_value_is_missing() -> None:
    masked: Any = np.ma.MaskedArray(np.ones((4, 2)), mask=[[True, False]] + [[False, False]] * 3)
    for records in ({"x": masked}, [{"x": row} for row in masked]):
        run = fresh(plan())
        assert run.release(next(run.samples()), records)["x"] == pytest.approx(
            3 * np.full(2, 0.5**0.5), abs=0.02
        )
    one_step = dp.Plan(
        sampler=Sampler(dp.Poisson(1.0), records=4, steps=1),
        mechanism=Gaussian(1.0, 1e-3),
        leaves={"x": 2},
    )
    released = aggregate({"x": masked}, one_step, ledger=dp.Ledger.in_memory())
    assert released["x"] == pytest.approx(3 * np.full(2, 0.5**0.5), abs=0.02)
