"""Several plans on one data set: one cost, one target, one file."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.errors import AccountingError, ParameterError

RECORDS = 2_000
LOOK = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=RECORDS, steps=1), mechanism=dp.Gaussian(1.0, 20.0)
)
TRAIN = dp.Plan.dpsgd(
    records=RECORDS, expected_batch_size=200, steps=50, noise_multiplier=1.0, clip_norm=0.5
)
BOTH = dp.Programme({"look": LOOK, "train": TRAIN})


def test_the_cost_of_a_programme_is_that_of_all_its_charges_not_of_the_last_plan() -> None:
    whole = dp.account(BOTH, delta=1e-6)
    pairs = [(LOOK.step, 1), (TRAIN.step, 50)]
    assert whole.upper == pytest.approx(
        dp.account(pairs, delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE).upper, rel=1e-6
    )
    assert (
        whole.lower > dp.account(TRAIN, delta=1e-6).upper
    )  # a programme that forgets what was looked at before would fail


def test_a_ledger_of_both_runs_says_what_the_programme_said() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=BOTH))
    for name, plan in BOTH.plans.items():
        run = dp.Aggregator(plan.for_leaves({"grad/x": 1}), ledger=ledger, label=name)
        for sample in run.samples():
            run.release(sample, {"grad/x": np.zeros((len(sample), 1))})
    assert dp.account(ledger, delta=1e-6).upper == pytest.approx(
        dp.account(BOTH, delta=1e-6).upper, rel=1e-6
    )


@pytest.mark.parametrize("scale", [None, ["train"], "train", ["look", "train"]])
def test_calibration_meets_the_target_and_wastes_little(scale: list[str] | None) -> None:
    found = BOTH.calibrated(epsilon=2.0, delta=1e-6, scale=scale)
    assert 1.99 < dp.account(found, delta=1e-6).upper <= 2.0
    assert found.target is not None
    assert found.target.epsilon == 2.0
    factor = found["train"].noise_multiplier / TRAIN.noise_multiplier
    kept = found["look"].noise_multiplier / LOOK.noise_multiplier
    assert kept == pytest.approx(factor if scale is None or "look" in scale else 1.0, rel=1e-9)


def test_what_is_fixed_alone_costs_too_much() -> None:
    dear = dp.Programme(
        {"look": dataclasses.replace(LOOK, mechanism=dp.Gaussian(1.0, 0.5)), "train": TRAIN}
    )
    with pytest.raises(AccountingError, match="floor"):
        dear.calibrated(epsilon=1.0, delta=1e-6, scale=["train"])


def test_a_plan_without_privacy_cannot_be_calibrated_and_voids_the_account() -> None:
    open_plan = dp.Plan(sampler=LOOK.sampler, mechanism=dp.NotPrivate())
    programme = dp.Programme({"look": open_plan, "train": TRAIN})
    with pytest.raises(AccountingError, match="look: all without noise"):
        programme.calibrated(epsilon=1.0, delta=1e-6)
    assert dp.account(programme, delta=1e-6).voided_by


def test_plans_of_different_data_are_refused() -> None:
    other = dp.Plan.dpsgd(
        records=RECORDS + 1, expected_batch_size=200, steps=5, noise_multiplier=1.0
    )
    with pytest.raises(ParameterError, match="number of records"):
        dp.Programme({"a": TRAIN, "b": other})
    with pytest.raises(ParameterError, match="adjacency"):
        dp.Programme(
            {"a": TRAIN, "b": dataclasses.replace(LOOK, adjacency=dp.Adjacency.REPLACE_ONE)}
        )
    with pytest.raises(ParameterError, match="unit"):
        dp.Programme({"a": TRAIN, "b": dataclasses.replace(LOOK, unit=dp.Unit.USER)})
    with pytest.raises(ParameterError, match="at least one entry"):
        dp.Programme({})


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ParameterError, match="one of 'look', 'train'"):
        BOTH["training"]
    with pytest.raises(ParameterError, match="one of 'look', 'train'"):
        BOTH.calibrated(epsilon=1.0, delta=1e-6, scale=["training"])
    with pytest.raises(ParameterError, match="at least one name"):
        BOTH.calibrated(epsilon=1.0, delta=1e-6, scale=[])
    with pytest.raises(ParameterError, match="scale"):
        BOTH.calibrated(epsilon=1.0, delta=1e-6, scale=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_file_gives_an_equal_programme(suffix: str, tmp_path: object) -> None:
    path = f"{tmp_path}/programme{suffix}"
    found = BOTH.calibrated(epsilon=2.0, delta=1e-6)
    found.save(path)
    assert dp.Programme.load(path) == found


@pytest.mark.parametrize(
    "wrong",
    [
        '{"schema": 1, "plans": [["a", 3]]}',
        '{"schema": 1, "plans": []}',
        '{"schema": 2, "plans": [["a", {}]]}',
        '{"schema": 1, "plans": [["a", {}]], "epsilon": 3.0}',
        '{"schema": 1, "plans": [["a", {"schema": 1}]]}',
        '{"schema": 1}',
    ],
)
def test_a_file_that_is_not_exactly_a_programme_is_refused(wrong: str) -> None:
    with pytest.raises(ParameterError):
        dp.Programme.from_json(wrong)


def test_phases_change_noise_and_clip_norm_and_every_phase_is_paid_for() -> None:
    phases = [dp.Phase(steps=20, noise=2.0), dp.Phase(steps=30, clip_norm=0.1)]
    schedule = dp.Programme.phases(TRAIN, phases).calibrated(epsilon=2.0, delta=1e-6)
    first, second = schedule["phase 1"], schedule["phase 2"]
    assert (first.steps, second.steps) == (20, 30)
    assert first.noise_multiplier == pytest.approx(2.0 * second.noise_multiplier)
    assert [query.sensitivity for plan in (first, second) for query in plan.queries()] == [0.5, 0.1]
    pairs = [(first.step, 20), (second.step, 30)]
    assert dp.account(pairs, delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE).upper <= 2.0


def test_the_clip_norm_of_a_metric_is_not_scheduled() -> None:
    groups = dp.Groups({"metric/accuracy": dp.Gaussian(1.0, 40.0), "grad/*": dp.Gaussian(1.0, 1.0)})
    changed = groups.with_clip_norm(0.25)
    assert changed.mechanisms["metric/accuracy"] == dp.Gaussian(1.0, 40.0)
    assert list(changed.mechanisms) == list(groups.mechanisms)


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Groups({"grad/a*": dp.Gaussian(1.0, 1.0), "grad/*": dp.Gaussian(1.0, 1.0)}),
        dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=10.0),
        dp.NotPrivate(),
    ],
)
def test_a_clip_norm_that_belongs_to_no_one_group_is_refused(mechanism: Any) -> None:
    with pytest.raises(ParameterError, match="Make a plan for each phase"):
        mechanism.with_clip_norm(0.5)


def test_noise_of_every_kind_is_scaled_and_what_has_none_is_refused() -> None:
    kinds: list[Any] = [
        dp.Gaussian(1.0, 1.0),
        dp.Normalised(1.0, 1.0),
        dp.Split(1.0, 1.0),
        dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=10.0),
        dp.Groups({"a": dp.Gaussian(1.0, 1.0), "b": dp.Gaussian(1.0, 3.0)}),
    ]
    for kind in kinds:
        plain, scaled = (
            mechanism.bind({"a": 2, "b": 2}).noise_multiplier
            for mechanism in (kind, kind.with_noise_times(1.5))
        )
        assert scaled == pytest.approx(1.5 * plain)
    with pytest.raises(ParameterError, match="noise to scale"):
        dp.NotPrivate().with_noise_times(2.0)


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"steps": 2.5}, {"steps": 1, "noise": 0.0}, {"steps": 1, "clip_norm": -1.0}],
)
def test_a_phase_has_steps_noise_and_a_clip_norm(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        dp.Phase(**wrong)  # type: ignore[arg-type]


def test_explain_names_every_plan_and_claims_an_epsilon_only_when_asked() -> None:
    found = BOTH.calibrated(epsilon=2.0, delta=1e-6)
    assert "=== look ===" in found.explain()
    assert "All plans together" not in found.explain()
    assert "All plans together" in found.explain(delta=1e-6)
