"""What `golden.py` has the library draw, release, measure and refuse, beside what it says.

Bits come from a test key, or from the stand-in for the operating system that `golden.py` puts in.
"""  # noqa: INP001

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from golden_library import (
    CHOSEN,
    DELTA,
    LEAVES,
    MECHANISMS,
    PAIRS,
    POLICIES,
    RECORDS,
    Entries,
    Question,
    answer,
    dp,
    dpsgd,
    execute,
    plan_of,
    rows_of,
    scores_of,
    shown,
)

__all__ = ["NUMBERS"]


def key(first: int = 0) -> Any:
    """A source of known bits."""
    return dp.Source.unsafe_test_key(bytes(range(first, first + 32)))


# --- releases ---


def samples() -> Entries:
    """What policies draw, also for units that own rows and by ranks; words and noise alone."""
    for name, policy in POLICIES.items():
        drawn = dp.Sampler(policy, records=RECORDS, steps=2).draw(key())
        yield name, shown([(sample, sample.indices) for sample in drawn])
    owners = dp.Owners.from_ids(np.arange(RECORDS) % 70 % 50)
    units = {"records": 50, "owners": owners, "rows_per_unit": 3}
    users = dp.Sampler(dp.Poisson(0.2), steps=2, **units)
    yield "users", shown([(sample.rows, sample.offsets) for sample in users.draw(key())])
    for rank in range(2):
        part = users.draw(key(), rank=rank, ranks=2)
        yield f"users of rank {rank}", shown([sample.units for sample in part])
    for purpose in dp.Purpose:
        yield purpose.value, shown(key().stream(purpose, step=2, lane=1).words(4))
    for scale in (0.3, 7.5, 1e6):
        numbers, stream = np.zeros(20), key().stream(dp.Purpose.NOISE, step=0)
        dp.GaussianNoise(stream, scale=scale, size=20).add_to(numbers)
        yield f"noise of scale {scale}", shown(numbers)
    sums, grid = np.linspace(-1.0, 1.0, 9), dp.Grid(2.0**-20)
    stream = key().stream(dp.Purpose.NOISE, step=0)
    yield "a release", shown(dp.release(sums, grid=grid, noise_std=0.5, stream=stream))


def releases() -> Entries:
    """What the NumPy engines release, with the rows that they charge."""
    rng = np.random.default_rng(7)
    rows = {leaf: rng.normal(size=(RECORDS, size)) for leaf, size in LEAVES.items()}
    rows["grad/b"][::100] = np.nan
    for policy, mechanism in PAIRS:
        ledger, plan = dp.Ledger.in_memory(), plan_of(policy, mechanism, steps=3)
        run = dp.Aggregator(plan, ledger=ledger, source=key())
        released = [
            run.release(sample, {leaf: row[sample.indices] for leaf, row in rows.items()})
            for sample in run.samples()
        ]
        yield f"{policy}, {mechanism}", shown(released, run.state, rows_of(ledger))

    vectors = dp.unit_ball(rng.normal([3.0, 0.0, 1.0], [2.0, 0.5, 1.0], (RECORDS, 3)))
    size = {"records": RECORDS, "dimension": 3, "noise_multiplier": 2.0}
    plans = {"moments": dp.standardise_plan(**size), "directions": dp.whiten_plan(**size)}
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=dp.Programme(plans)))
    standardised = dp.standardise(vectors, plan=plans["moments"], ledger=ledger, source=key())
    whitened = dp.whiten(vectors, plan=plans["directions"], ledger=ledger, source=key(1))
    applied = whitened(standardised(vectors[:5]))
    yield "features", shown(standardised, whitened, applied, rows_of(ledger))


def statistics() -> Entries:
    """Queries that encode values and decode what was released of them."""
    rng = np.random.default_rng(7)
    sampler = dp.Sampler(dp.Poisson(0.5), records=RECORDS, steps=1)
    values = rng.integers(0, 4, RECORDS)
    for query in (dp.Count(), dp.Histogram(4), dp.Moments(low=0.0, high=3.0)):
        mechanism, leaves = dp.Gaussian(query.clip_norm, 1.0), {"x": query.dimension}
        plan = dp.Plan(sampler=sampler, mechanism=mechanism, leaves=leaves)
        how = {"ledger": dp.Ledger.in_memory(), "source": key()}
        released = dp.aggregate({"x": query.encode(values)}, plan, **how)
        yield type(query).__name__, shown(released, query.decode(released["x"]))
    norm = dp.BatchNorm(channels=2)
    encoded = norm.encode(rng.normal(size=(9, 2, 4)))
    yield "BatchNorm", shown(encoded, norm.decode(encoded.sum(0), expected_batch_size=9))


# --- tuning and audits ---


def tuned() -> Entries:
    """Searches on public and on private data, and their records."""
    plan = dpsgd(expected_batch_size=100, steps=10)
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=6.0, delta=DELTA))
    private = dp.Private(ledger, "patients", records=400, noise_std=8.0)
    public = dp.Public("a formula", "made up")
    rates, noises = {"learning_rates": [0.1, 0.5, 2.0]}, {"average_noises": [0.002, 0.004, 0.008]}

    def trial(settings: Any) -> object:
        execute(ledger, settings.plan, settings.label, parameters=CHOSEN)
        return np.arange(400) < 300 * settings.learning_rate

    def noisy(settings: Any) -> object:
        return 1.0 - 30.0 * settings.values["average_noise"]

    searches: dict[str, Question] = {
        "clip norm": partial(dp.clip_search, lambda s: min(0.9, s.clip_norm), plan, data=public),
        "compute": partial(
            dp.tune_for_compute, lambda s: s.learning_rate * s.clip_norm, plan, **rates, data=public
        ),
        "accuracy": partial(
            dp.tune_for_accuracy, noisy, plan, **noises, accuracy=0.85, data=public
        ),
        "private": partial(dp.tune_for_compute, trial, plan, **rates, data=private),
        "private, without noise": partial(dp.clip_search, trial, plan, data=private),
    }
    for title, search in searches.items():
        yield title, answer(search)
    yield "ledger of the private search", rows_of(ledger)


def audits() -> Entries:
    """Every estimator on the same scores, attacks, the white box with a key, verdicts."""
    scores, apart = scores_of(2000), scores_of(2000, trials=np.arange(2000))
    levels = {"delta": DELTA, "confidence": 0.9}
    losses, inside = np.exp(-scores.values), scores.inside
    references = np.random.default_rng(8).normal(size=(6, 2000))
    profile = {"epsilon": lambda s: 4.0 / s, "profile": lambda s: lambda _: 0.4 / max(s, 0.4)}
    questions: dict[str, Question] = {
        "one run": partial(dp.one_run, scores, **levels),
        "Gaussian": partial(dp.gaussian, scores, **levels),
        "scaled": partial(dp.scaled, scores, **profile, **levels),
        "threshold": partial(dp.threshold, apart, **levels),
        "threshold, one run": partial(dp.threshold, scores, **levels),
        "hits": partial(dp.hits, scores, false_positive_rate=0.1),
        "losses": partial(dp.loss_attack, losses, inside),
        "lira": partial(dp.lira, scores.values, inside, references, references > 0.0),
        "exposure": partial(dp.exposure_by_rank, 0.3, losses),
        "exposure by fit": partial(dp.exposure_by_fit, 0.3, losses),
        "secrets": partial(dp.SecretText(length=4).draw, 5, source=key()),
        "coins": lambda: dp.Canaries(range(50), source=key()).inside,
        "wrong labels": partial(dp.mislabelled, [3, 1, 2] * 9, 5, source=key()),
        "strange inputs": partial(dp.out_of_distribution, 3, (2, 2), classes=9, source=key()),
    }
    for title, question in questions.items():
        yield title, answer(question)
    for policy, mechanism in PAIRS:
        plan = plan_of(policy, mechanism, steps=3)
        attack = partial(dp.white_box, plan, canaries=20, trials=2, source=key())
        yield f"{policy}, {mechanism}", answer(partial(verdict_on, plan, attack))
    ledger = dp.Ledger.in_memory()
    execute(ledger, dpsgd())
    for assume in (False, True):
        verdict = dp.audit(ledger, apart, delta=DELTA, assume_scaled=assume)
        yield f"verdict, {assume}", shown(verdict, verdict.audit.to_json())


def verdict_on(plan: Any, white_box: Question) -> str:
    """The scores of a white box, and what they say of the plan's claim."""
    scores: Any = white_box()
    same = dp.Scores.from_json(scores.to_json()).to_json() == scores.to_json()
    return shown(scores.to_json(), same, dp.audit(plan, scores, delta=DELTA))


# --- errors ---


def refusals() -> Entries:
    """The families of errors, and what is said of bad parameters."""
    for name in ERRORS.split():
        yield name, shown([parent.__name__ for parent in getattr(dp, name).__mro__])
    plan, gaussian, ledger = plan_of("Poisson"), dp.Gaussian(1.0, 1.0), dp.Ledger.in_memory()
    sampler = partial(dp.Sampler, dp.Poisson(0.1), records=9)
    batch = {"records": 9, "expected_batch_size": 10}
    questions: list[Question] = [
        partial(dp.Poisson, 0.0),
        partial(dp.Poisson, "half"),
        partial(dp.FixedSize, 5, 4),
        partial(dp.Shuffled, 2.5),
        partial(dp.BallsInBins, 0),
        partial(dp.TruncatedPoisson, 0.5, True, 9),
        partial(dp.GaussianSum, "", 1.0, 1.0),
        partial(dp.GaussianSum, "grad", 1.0, float("nan")),
        partial(dp.RandomizedResponse, "answer", 4, 0.2),
        partial(dp.CorrelatedGaussianSum, "series", 1.0, 1.0, 1.0, 4, 3, 2),
        partial(dp.Step, dp.Everything(), []),
        partial(dp.Step, "everything", [dp.GaussianSum("grad", 1.0, 1.0)]),
        partial(dp.Gaussian, -1.0, 1.0),
        partial(dp.Joint, 1.0, 1.0, {}),
        partial(dp.Joint(2.0, 1.0, {"*": 1.0}).bind, {"a": 1}),
        partial(dp.Normalised, 1.0, 1.0, stability=1e-30),
        partial(dp.AdaptiveClip, gaussian, quantile=0.5, count_noise_std=0.1),
        partial(dp.AdaptiveClip, dp.NotPrivate(), quantile=0.5, count_noise_std=9.0),
        partial(dp.Split, 1.0, 1.0, "every leaf"),
        partial(dp.Split, 1.0, 1.0, {"a": "*"}, {"b": 1.0}),
        partial(dp.Microbatches, MECHANISMS["Groups"], 4),
        partial(dp.Groups({"grad/*": gaussian}).bind, {"grad/w": 1, "metric": 1}),
        partial(dp.Groups({"*": gaussian, "grad/*": gaussian}).bind, {"grad/w": 1}),
        partial(sampler, steps=0),
        partial(sampler, steps=1, rows_per_unit=2),
        partial(dp.Sampler, dp.FixedSize(2, 8), records=9, steps=1),
        partial(sampler(steps=2).draw, key(), start=3),
        partial(dp.Owners.from_ids, [1, None]),
        partial(dp.Plan.from_toml, "schema = 9\n"),
        partial(dp.Plan.from_json, plan.to_json().replace("gaussian", "laplace")),
        partial(plan.for_leaves, {"grad/w": 6}),
        partial(plan.certified, dp.Target(0.1, DELTA)),
        partial(plan.run_info, numerics=dp.Numerics.IDEALISED),
        partial(replace, plan, mechanism="Gaussian"),
        partial(dp.Plan.dpsgd, records=9, steps=1),
        partial(dp.Plan.dpsgd, **batch, steps=1, noise_multiplier=1.0),
        partial(dp.Programme, {"a": plan, "b": replace(plan, unit=dp.Unit.USER)}),
        partial(dp.Phase, steps=1, noise=0.0),
        partial(dp.Budget, epsilon=1.0),
        partial(dp.Filter, epsilon=1.0, delta=0.0),
        partial(dp.Filter, epsilon=1.0, delta=DELTA, order=1.0),
        partial(dp.Odometer, delta=2.0),
        partial(dp.Ledger.open, "missing.ledger", "r"),
        partial(dp.Ledger.open, "missing.ledger", "w"),
        partial(ledger.begin, "train"),
        partial(ledger.change_budget, 1.0, reason="none yet"),
        partial(ledger.end, 7),
        partial(dp.account, ledger, delta=DELTA),
        partial(dp.account, plan, delta=DELTA, epsilon=1.0),
        partial(dp.account, plan, delta=DELTA, accountant="moments"),
        partial(dp.account, plan, delta=DELTA, adjacency=dp.Adjacency.REPLACE_ONE),
        partial(dp.Aggregator, replace(plan, leaves=None), ledger=ledger),
        partial(dp.Aggregator, plan, ledger=ledger, parameters=CHOSEN),
        partial(dp.aggregate, {"grad/w": [1.0]}, plan, ledger=ledger),
        partial(dp.SecondMoments, plan, ledger=ledger),
        partial(dp.unit_ball, np.ones(3)),
        partial(dp.Source.unsafe_test_key, b"short"),
        partial(key().stream, "noise", step=0),
        partial(dp.Scores, [1.0, float("inf")], [True, False]),
        partial(dp.one_run, scores_of(4), delta=DELTA),
        partial(dp.Audit.from_json, "{}"),
        partial(dp.Canaries, [1, 1]),
        partial(dp.Private, ledger, "patients", records=9, noise_std=1.0),
        partial(dp.Unit, "two\nlines"),
    ]
    for number, question in enumerate(questions, 1):
        yield f"{number}", answer(question)
    run = dp.Aggregator(plan, ledger=ledger, source=key())
    sample = next(run.samples())
    rows = {leaf: np.ones((len(sample), size)) for leaf, size in LEAVES.items()}
    release = partial(run.release, sample)
    fewer = {leaf: row[1:] for leaf, row in rows.items()}
    yield (
        "misuse of a sample",
        answer(
            sample.__bool__,
            partial(release, {}),
            partial(release, fewer),
            partial(release, rows),
            partial(release, rows),
            sample.spend,
            run.samples,
        ),
    )


ERRORS = """
AccountingError BudgetExceeded CheckpointError CoupledRecords DiscreetError LedgerCorrupt
LedgerError LedgerExists LedgerMisuse LedgerNotFound LedgerUnavailable ModelError NumericsError
ParameterError RandomnessError RandomnessMisuse RandomnessUnavailable SampleMisuse UnknownEvent
"""

NUMBERS = (samples, releases, statistics, tuned, audits, refusals)
