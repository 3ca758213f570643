"""The guide's three searches on public and synthetic data: what is tried, what is chosen, what is
said.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import discreet as dp
from discreet.tuning import (
    Kind,
    Public,
    Settings,
    Synthetic,
    clip_search,
    tune_for_accuracy,
    tune_for_compute,
)
from support.tunings import PLAN, private

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)
SCORES = {0.01: 0.2, 0.1: 0.895, 1.0: 0.9, 10.0: 0.88, 100.0: 0.86}


def by_clip(settings: Settings) -> float:
    return SCORES[settings.clip_norm]


# --- ClipSearch ---


def test_the_smallest_clip_norm_that_hurts_only_slightly_is_taken() -> None:
    assert clip_search(by_clip, DPSGD, data=DATA).clip_norm == 0.1
    assert clip_search(by_clip, DPSGD, data=DATA, tolerance=0.0).clip_norm == 1.0
    found = clip_search(by_clip, DPSGD, data=DATA, tolerance=0.9)
    assert (found.clip_norm, found.best) == (0.01, 0.9)
    assert "Try smaller ones" in str(found)
    assert "Try smaller ones" not in str(clip_search(by_clip, DPSGD, data=DATA))


def test_clip_norms_come_in_any_order_and_plans_have_next_to_no_noise() -> None:
    seen = []

    def trial(settings: Settings) -> float:
        seen.append((settings.plan.noise_multiplier, settings.plan.target, settings.plan.steps))
        return by_clip(settings)

    assert clip_search(trial, DPSGD, [10.0, 0.1, 1.0], data=DATA).clip_norm == 0.1
    assert set(seen) == {(1e-6, None, 10)}


def test_without_noise_private_data_are_refused_before_any_trial() -> None:
    def trial(_: Settings) -> float:
        raise AssertionError("must not be tried")

    with pytest.raises(dp.errors.ParameterError, match="AdaptiveClip.*Normalised") as wrong:
        clip_search(trial, DPSGD, data=private())
    assert "no privacy at all" in str(wrong.value)


def test_a_trial_that_diverges_has_no_score_and_is_not_chosen() -> None:
    found = clip_search(
        lambda s: np.float32(math.nan) if s.clip_norm < 1 else by_clip(s), DPSGD, data=DATA
    )
    assert found.clip_norm == 1.0
    assert found.tuning.trials[0].score is None
    assert "none" in str(found)
    with pytest.raises(dp.errors.ParameterError, match="finite score"):
        clip_search(lambda _: math.nan, DPSGD, data=DATA)


@pytest.mark.parametrize(
    "wrong", [[1.0], [1.0, 1.0], [0.0, 1.0], [math.inf, 1.0], "12", 3.0, ["1", 2.0]]
)
def test_sweeps_of_other_things_are_refused(wrong: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match="clip_norms"):
        clip_search(by_clip, DPSGD, wrong, data=DATA)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", ["0.9", None, [0.9], True])
def test_scores_of_other_kinds_are_refused(score: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match="score"):
        clip_search(lambda _: score, DPSGD, data=DATA)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(dp.errors.ParameterError, match="data"):
        clip_search(by_clip, DPSGD, data="public")  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="trial"):
        clip_search(0.5, DPSGD, data=DATA)  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="tolerance"):
        clip_search(by_clip, DPSGD, data=DATA, tolerance=-0.1)
    with pytest.raises(dp.errors.ParameterError, match="single clip norm"):
        clip_search(
            by_clip, replace(DPSGD, mechanism=dp.Normalised(1.0, 1.0), target=None), data=DATA
        )
    with pytest.raises(dp.errors.ParameterError, match="number of records"):
        clip_search(
            by_clip,
            dp.Plan.dpsgd(sampling_probability=0.1, steps=5, noise_multiplier=1.0),
            data=DATA,
        )
    with pytest.raises(dp.errors.ParameterError, match="private plan"):
        tune_for_compute(
            by_clip, replace(PLAN, mechanism=dp.NotPrivate()), learning_rates=[1.0], data=DATA
        )
    with pytest.raises(dp.errors.ParameterError, match="learning rate"):
        clip_search(lambda settings: settings.learning_rate, DPSGD, data=DATA)


# --- given computation and privacy ---


def test_the_best_pair_wins_and_its_plan_has_the_same_epsilon() -> None:
    def trial(settings: Settings) -> float:
        assert settings.plan.target == DPSGD.target
        assert settings.plan.noise_multiplier == pytest.approx(DPSGD.noise_multiplier)
        return (
            -abs(math.log(settings.learning_rate * settings.clip_norm / 2.0)) - settings.clip_norm
        )  # 4 at 0.5, 20 at 0.1

    found = tune_for_compute(
        trial,
        DPSGD,
        learning_rates=[4.0, 20.0, 100.0],
        clip_norms=[0.5, 0.1],
        data=Synthetic("made up"),
    )
    assert (found.learning_rate, found.best.values["clip_norm"]) == (20.0, 0.1)
    assert found.plan.queries()[0].sensitivity == 0.1
    assert found.plan.target == DPSGD.target
    assert dp.account(found.plan, delta=1e-5).upper <= 2.0
    assert len(found.tuning.trials) == 6
    assert found.tuning.kind is Kind.SYNTHETIC
    assert "lies at the end" not in str(found)  # of two clip norms, one always does
    found = tune_for_compute(
        lambda s: s.learning_rate, DPSGD, learning_rates=[4.0, 20.0, 100.0], data=DATA
    )
    assert "The best learning_rate lies at the end" in str(found)


def test_any_private_plan_will_do_where_its_clip_norm_stays() -> None:
    plan = replace(
        PLAN,
        mechanism=dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=20.0),
        leaves=None,
    )
    found = tune_for_compute(
        lambda settings: -settings.learning_rate, plan, learning_rates=[2.0, 1.0], data=DATA
    )
    assert (found.plan, found.learning_rate) == (plan, 1.0)
    with pytest.raises(dp.errors.ParameterError, match="single clip norm"):
        tune_for_compute(lambda _: 0.0, plan, learning_rates=[1.0], clip_norms=[1.0], data=DATA)


def test_clip_norms_are_those_of_gradients_and_metrics_keep_theirs() -> None:
    parts = {"grad/*": dp.Gaussian(1.0, 2.0), "metric/*": dp.Gaussian(1.0, 40.0)}
    plan = replace(DPSGD, mechanism=dp.Groups(parts), target=None)
    found = tune_for_compute(
        lambda s: -s.clip_norm, plan, learning_rates=[1.0], clip_norms=[0.5, 0.1], data=DATA
    )
    assert [query.sensitivity for query in found.plan.queries()] == [0.1, 1.0]
    assert found.plan.noise_multiplier == pytest.approx(plan.noise_multiplier)


def test_a_plan_for_a_public_data_set_of_another_size() -> None:
    settings = Settings(label="x", plan=DPSGD, values={"clip_norm": 1.0})
    plan = settings.plan_for(400)
    assert (plan.expected_batch_size, plan.steps, plan.noise_multiplier) == (
        200.0,
        10,
        DPSGD.noise_multiplier,
    )
    assert plan.target is None  # epsilon is another one there
    with pytest.raises(dp.errors.ParameterError, match="expected batch size"):
        settings.plan_for(199)
    with pytest.raises(dp.errors.ParameterError, match="Poisson"):
        replace(settings, plan=PLAN).plan_for(400)


# --- given accuracy and privacy ---

NOISES = (0.002, 0.004, 0.008)


def test_the_most_noise_that_is_tolerated_becomes_a_batch() -> None:
    def trial(settings: Settings) -> float:
        query = settings.plan.queries()[0]
        assert settings.plan.expected_batch_size == 200.0
        return 1.0 - 30.0 * query.noise_std / 200.0

    found = tune_for_accuracy(trial, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA)
    assert found.average_noise == 0.004
    assert found.plan is not None
    query = found.plan.queries()[0]
    assert query.noise_std / found.plan.expected_batch_size == pytest.approx(0.004)
    assert (query.sensitivity, found.plan.steps) == (0.5, DPSGD.steps)
    assert dp.account(found.plan, delta=1e-5).upper <= 2.0
    for words in ("Predicted, not measured", "assumes", "noise in the average gradient"):
        assert words in str(found)


def test_a_noise_beyond_one_that_failed_is_not_trusted() -> None:
    scores = {0.002: 0.9, 0.004: 0.7, 0.008: 0.9}
    found = tune_for_accuracy(
        lambda settings: scores[settings.values["average_noise"]],
        DPSGD,
        average_noises=NOISES,
        accuracy=0.85,
        data=DATA,
    )
    assert found.average_noise == 0.002


def test_where_nothing_reaches_the_accuracy_or_no_batch_epsilon_there_is_no_plan() -> None:
    found = tune_for_accuracy(lambda _: 0.5, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA)
    assert (found.plan, found.average_noise, found.tuning.chosen) == (None, None, None)
    assert "not even the least noise" in str(found)
    found = tune_for_accuracy(lambda _: 0.9, DPSGD, average_noises=[1e-5], accuracy=0.85, data=DATA)
    assert (found.plan, found.average_noise) == (None, 1e-5)
    assert "not even all records" in str(found)
    with pytest.raises(dp.errors.ParameterError, match="target"):
        tune_for_accuracy(
            lambda _: 0.9,
            replace(DPSGD, target=None),
            average_noises=NOISES,
            accuracy=0.85,
            data=DATA,
        )


# --- pictures and bars ---


def test_pictures_are_written_whole_by_their_suffix(tmp_path: Path) -> None:
    searched = clip_search(by_clip, DPSGD, data=DATA)
    rates = tune_for_compute(
        lambda s: s.learning_rate,
        DPSGD,
        learning_rates=[1.0, 2.0],
        clip_norms=[0.1, 1.0],
        data=DATA,
    )
    tolerated = tune_for_accuracy(
        lambda _: 0.5, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA
    )
    for number, plot in enumerate((searched.plot, rates.plot, tolerated.plot)):
        assert plot(tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in searched.plot(tmp_path / "clip.svg").read_bytes()
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg"}
    with pytest.raises(dp.errors.ParameterError, match=".png or .svg"):
        searched.plot(tmp_path / "clip.jpg")
    with pytest.raises(dp.errors.ParameterError, match="to write to"):
        searched.plot(tmp_path / "nowhere" / "clip.png")


def test_without_matplotlib_a_picture_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(dp.errors.DiscreetError, match="discreet\\[plots\\]"):
        clip_search(by_clip, DPSGD, data=DATA).plot(tmp_path / "clip.png")
    assert list(tmp_path.iterdir()) == []


def test_a_bar_is_shown_on_demand_and_not_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    clip_search(by_clip, DPSGD, data=DATA)
    assert capsys.readouterr() == ("", "")
    clip_search(by_clip, DPSGD, data=DATA, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "5/5" in shown.err
    assert "best score 0.9" in shown.err
