"""What engines share: samples that are charged, bits that are given out once, a state that follows
releases.
"""

import pickle
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dp
from discreet.aggregation import Session
from discreet.mechanisms import AdaptiveClip, Gaussian
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import permutation
from discreet.sampling import Sampler

KEY = bytes(range(32))


def plan(mechanism: Any = None, *, records: int = 40, steps: int = 4, **declared: Any) -> dp.Plan:
    return dp.Plan(
        sampler=Sampler(declared.pop("policy", dp.Poisson(0.5)), records=records, steps=steps),
        mechanism=mechanism or Gaussian(clip_norm=1.0, noise_multiplier=1.0),
        leaves={"x": 2},
        **declared,
    )


def keyed(its: dp.Plan | None = None) -> Session:
    return Session(
        its or plan(),
        ledger=dp.Ledger.in_memory(),
        numerics=dp.Numerics.EXACT,
        source=Source.unsafe_test_key(KEY),
    )


@pytest.mark.parametrize("numerics", list(dp.Numerics))
def test_any_numerics_that_an_engine_names_reach_the_ledger(numerics: dp.Numerics) -> None:
    session = Session(
        plan(numerics=dp.Numerics.IDEALISED),
        ledger=dp.Ledger.in_memory(),
        numerics=numerics,
        label="mine",
    )
    for sample in session.samples():
        session.spend(sample)
    (charge,) = session.ledger.charges()
    assert (charge.run.numerics, charge.run.label, charge.count) == (numerics, "mine", 4)


def test_samples_are_charged_before_they_are_drawn() -> None:
    session = keyed()
    samples = session.samples()
    assert next(samples).step == 0
    assert sum(charge.count for charge in session.ledger.charges()) >= 1


# --- only the run's own samples, once ---


def test_p16_a_sample_is_spent_once() -> None:
    session = keyed()
    sample = next(session.samples())
    session.spend(sample)
    with pytest.raises(dp.errors.SampleMisuse, match="second time"):
        session.spend(sample)


@pytest.mark.parametrize(
    "use",
    [
        lambda session, sample: session.check_issued(sample),
        lambda session, sample: session.number(sample),
        lambda session, sample: session.sample_id(sample),
        lambda session, sample: session.noise_stream(sample, 0),
        lambda session, sample: session.slots_stream(sample, 0),
        lambda session, sample: session.order(sample),
        lambda session, sample: session.spend(sample),
    ],
)
def test_a_sample_of_another_run_serves_for_nothing(use: Any) -> None:
    session, other = keyed(), keyed()
    sample = next(other.samples())
    for _ in range(2):  # before and after the session's own samples begin
        with pytest.raises(dp.errors.SampleMisuse, match="another run"):
            use(session, sample)
        if session.ledger.runs() == ():
            next(session.samples())
    other.spend(sample)  # nothing was used up


def test_a_second_pass_is_refused() -> None:
    session = keyed()
    session.samples()
    with pytest.raises(dp.errors.SampleMisuse, match="second one"):
        session.samples()


def test_no_two_samples_share_a_number_or_a_place() -> None:
    policy = dp.ledger.BallsInBins(3)
    session, other = (keyed(plan(policy=policy, adjacency=dp.Adjacency.ZERO_OUT)) for _ in range(2))
    drawn, elsewhere = list(session.samples()), list(other.samples())
    assert [session.number(sample) for sample in drawn] == list(range(12))
    places = {session.sample_id(sample) for sample in drawn} | {
        other.sample_id(sample) for sample in elsewhere
    }
    assert len(places) == 24


# --- bits once ---


def test_p20_noise_of_a_group_is_given_out_once() -> None:
    session = keyed()
    first, second = list(session.samples())[:2]
    words = [session.noise_stream(first, lane).words(4).tolist() for lane in (0, 1)]
    words.append(session.noise_stream(second, 0).words(4).tolist())
    assert len({word for some in words for word in some}) == 12
    for sample in (first, second):
        with pytest.raises(dp.errors.RandomnessMisuse, match="given out"):
            session.noise_stream(sample, 0)


def test_an_order_is_given_out_once_and_is_of_the_samples_records() -> None:
    session = keyed()
    orders = []
    for sample in session.samples():
        order = session.order(sample)
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(len(sample)))
        orders.append(order.tolist())
        with pytest.raises(dp.errors.RandomnessMisuse, match="given out"):
            session.order(sample)
    assert orders[0][:8] != orders[1][:8]


def test_p18_a_seed_for_entries_is_given_out_once_and_has_bits_of_its_own() -> None:
    session, again = keyed(), keyed()
    samples, others = list(session.samples()), list(again.samples())
    seeds = [session.entries_seed(sample) for sample in samples]
    assert seeds == [again.entries_seed(sample) for sample in others]
    assert len(set(seeds)) == len(samples)
    assert max(seeds).bit_length() > 200  # all below with probability under 2^-50
    with pytest.raises(dp.errors.RandomnessMisuse, match="given out"):
        session.entries_seed(samples[0])
    with pytest.raises(dp.errors.SampleMisuse):
        session.entries_seed(others[-1])


def test_an_empty_sample_has_an_order() -> None:
    session = keyed(plan(policy=dp.Poisson(1e-12)))
    assert session.order(next(session.samples())).size == 0


def test_the_order_has_bits_of_its_own() -> None:
    """A stream is its address, so no purpose shares a word with another (that old ones kept theirs:
    tests/golden).
    """
    source = Source.unsafe_test_key(KEY)
    words = {purpose: source.stream(purpose, step=0).words(64) for purpose in Purpose}
    assert len(np.unique(np.concatenate(list(words.values())))) == 64 * len(Purpose)
    session = keyed()
    sample = next(session.samples())
    expected = permutation(Source.unsafe_test_key(KEY).stream(Purpose.ORDER, step=0), len(sample))
    assert np.array_equal(session.order(sample), expected)


def test_places_and_seed_have_words_of_their_own_and_are_given_out_once() -> None:
    """Wrong: a seed from the first word, which decides a place too, or the same one for a second
    attempt.
    """
    session = keyed()
    sample = next(session.samples())
    seeds = []
    for attempt in range(2):
        found, seed = session.places(sample, 64, attempt)
        seeds.append(seed)
        assert sorted(found[found >= 0].tolist()) == list(range(len(sample)))
        assert found.size == 64
        words = (
            Source.unsafe_test_key(KEY).stream(Purpose.ORDER, step=0, lane=1 + attempt).words(65)
        )
        assert seed == int(words[64])
        assert seed not in words[:64].tolist()
        with pytest.raises(dp.errors.RandomnessMisuse):
            session.places(sample, 64, attempt)
    assert seeds[0] != seeds[1]


def orders_are_uniform() -> bool:
    """Each of the 24 orders of four records equally often.

    3000 independent orders, chi-square with 23 degrees of freedom at alpha = 1e-6. The wrong
    alternative, records in the order
    of the data set, puts all of them into one cell: the statistic is 3000 * 23, beyond any
        threshold, with certainty.
    """
    session = keyed(plan(records=4, steps=3000, policy=dp.Poisson(1.0)))
    counts = Counter(tuple(session.order(sample).tolist()) for sample in session.samples())
    found = np.array([*counts.values()] + [0] * (24 - len(counts)))
    return bool(np.sum((found - 125.0) ** 2) / 125.0 < stats.chi2.isf(1e-6, 23))


def test_p15_orders_are_uniform() -> None:
    assert orders_are_uniform()  # tests/mutations: the order of the data set is caught


# --- state ---


def test_the_state_follows_what_was_released_and_nothing_else() -> None:
    session = keyed(plan(AdaptiveClip(Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=5.0)))
    assert dict(session.state) == {"all": 1.0}
    for _ in session.samples(state={"all": 2.0}):
        before = session.state["all"]
        assert session.groups()[0].scales == (before,)
        session.update(
            {"x": np.zeros(2), "all/below": np.array([20.0])}
        )  # more norms below than the quantile
        assert session.state["all"] < before


def test_a_session_does_not_travel() -> None:
    with pytest.raises(dp.errors.DiscreetError):
        pickle.dumps(keyed())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"plan": None}, "plan"),
        ({"ledger": "train.ledger"}, "ledger"),
        ({"source": 0}, "source"),
        ({"numerics": "exact"}, "numerics"),
        ({"numerics": dp.Numerics.IDEALISED}, "numerics"),  # below what the plan asks for
        ({"label": "two\nlines"}, "label"),
        ({"parameters": "fixed"}, "parameters"),
    ],
)
def test_what_is_not_of_its_kind_is_refused(change: dict[str, Any], match: str) -> None:
    arguments: dict[str, Any] = {
        "plan": plan(),
        "ledger": dp.Ledger.in_memory(),
        "numerics": dp.Numerics.EXACT,
    } | change
    with pytest.raises(dp.errors.ParameterError, match=match):
        Session(arguments.pop("plan"), **arguments)


# --- budgets ---


def budgeted(epsilon: float, steps: int) -> Session:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(epsilon=epsilon, delta=1e-5))
    return Session(
        plan(policy=dp.Everything(), steps=steps), ledger=ledger, numerics=dp.Numerics.EXACT
    )


def steps_within(epsilon: float) -> int:
    step, adjacency = plan(policy=dp.Everything()).step, dp.Adjacency.ADD_OR_REMOVE
    return max(
        count
        for count in range(1, 60)
        if dp.account([(step, count)], delta=1e-5, adjacency=adjacency).upper <= epsilon
    )


def test_p38_a_plan_that_does_not_fit_is_refused_before_anything_is_charged() -> None:
    fit = steps_within(20.0)
    session = budgeted(20.0, fit + 1)
    with pytest.raises(dp.errors.BudgetExceeded, match=f"of which {fit} fit"):
        session.samples()
    assert session.ledger.runs() == ()
    assert len(list(budgeted(20.0, fit).samples())) == fit


def test_p38_until_budget_ends_with_the_last_step_that_fits() -> None:
    fit = steps_within(20.0)
    assert 1 < fit < 31  # less than a block: it is cut
    session = budgeted(20.0, 500)
    assert len(list(session.samples(until_budget=True))) == fit
    assert [charge.count for charge in session.ledger.charges()] == [fit]


def test_an_exhausted_budget_ends_a_run_before_its_first_step() -> None:
    assert list(budgeted(0.1, 5).samples(until_budget=True)) == []


# --- stops, and what takes their place ---


def session_on(ledger: dp.Ledger, steps: int = 10) -> Session:
    return Session(
        plan(policy=dp.Everything(), steps=steps), ledger=ledger, numerics=dp.Numerics.EXACT
    )


def taken(session: Session, most: int, **options: Any) -> list[int]:
    """Numbers of the steps that the session took before it was stopped."""
    samples = session.samples(**options)
    numbers = [sample.step for sample in islice(samples, most)]
    samples.close()
    return numbers


def counted(ledger: dp.Ledger) -> list[int]:
    return [count for _, count in ledger.snapshot().counted()]


def test_t04_a_run_that_stops_early_counts_in_full_unless_the_reason_was_public() -> None:
    ledger = dp.Ledger.in_memory()
    session = session_on(ledger)
    with pytest.raises(dp.errors.SampleMisuse, match="a run that began"):
        session.stop("power failure")
    assert taken(session, 3) == [0, 1, 2]
    assert (ledger.snapshot().steps, counted(ledger)) == (3, [10])
    session.stop("power failure")
    assert counted(ledger) == [3]
    with pytest.raises(dp.errors.BudgetExceeded):
        session_on(ledger, steps=1).samples()


def test_a_run_that_is_resumed_takes_the_place_of_the_one_before() -> None:
    ledger = dp.Ledger.in_memory()
    assert taken(session_on(ledger), 4) == [0, 1, 2, 3]
    assert taken(session_on(ledger), 99, start=4) == list(range(4, 10))
    first, second = ledger.runs()
    assert (second.continues, second.planned_steps) == (first.number, 6)
    assert counted(ledger) == [10]


def test_t04_steps_that_a_crash_lost_are_taken_again_for_a_public_reason_only() -> None:
    ledger = dp.Ledger.in_memory()
    assert taken(session_on(ledger), 4) == [0, 1, 2, 3]
    with pytest.raises(dp.errors.BudgetExceeded, match="of which 6 fit"):
        session_on(ledger).samples(start=2)  # back to a checkpoint: 8 steps, and 6 are left
    assert len(ledger.runs()) == 1
    assert taken(session_on(ledger), 99, start=2, lost="power failure") == list(range(2, 10))
    assert counted(ledger) == [12]
    assert any("'power failure'" in line for line in dp.account(ledger, delta=1e-5).assumptions)


def test_until_budget_takes_what_is_left_of_a_list() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.ParameterError, match="until_budget"):
        session_on(ledger).samples(until_budget=True)
    assert len(taken(session_on(ledger), 4)) == 4
    assert len(taken(session_on(ledger), 99, until_budget=True)) == 6
    assert taken(session_on(ledger), 99, until_budget=True) == []
    assert (ledger.snapshot().steps, counted(ledger)) == (10, [10])


def test_a_second_run_is_refused_on_a_list_and_welcome_on_an_odometer() -> None:
    ledger = dp.Ledger.in_memory()
    assert len(taken(session_on(ledger), 99)) == 10
    with pytest.raises(dp.errors.BudgetExceeded, match="of which 0 fit"):
        session_on(ledger).samples()
    measured = dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-5))
    for _ in range(2):
        assert len(taken(session_on(measured), 99)) == 10
    assert counted(measured) == [20]
