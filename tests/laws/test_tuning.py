"""Laws of tuning: what is written is what is read; the clip norm that is taken is the smallest that
is good enough.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.tuning import Method, Public, Settings, Trial, Tuning, TuningKind, clip_search

PLAN = dp.Plan.dpsgd(records=100, expected_batch_size=10, steps=2, noise_multiplier=1.0)
LABELS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCORES = st.none() | NUMBERS


@st.composite
def records(draw: st.DrawFn) -> Tuning:
    kind = draw(st.sampled_from(TuningKind))
    private = kind is TuningKind.PRIVATE
    names = draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))
    labels = [
        draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))
        for _ in range(draw(st.integers(1, 4)))
    ]
    trials = tuple(
        Trial(
            {name: draw(NUMBERS) for name in names},
            draw(SCORES),
            tuple(f"{number}: {label}" for label in its)
            if private
            else (),  # each run is that of one trial
        )
        for number, its in enumerate(labels)
    )
    scored = [number for number, trial in enumerate(trials) if trial.score is not None]
    return Tuning(
        method=draw(st.sampled_from([Method.COMPUTE, Method.ACCURACY, Method.OTHER])),
        kind=kind,
        name=draw(LABELS),
        about=draw(LABELS | st.just("")),
        trials=trials,
        chosen=draw(st.none() | st.sampled_from(scored)) if scored else None,
        score_noise=draw(st.floats(0.0, 1.0, exclude_min=private)),
        ledger_head="0f" * 32 if private else None,
        made="2026-01-31T12:00:00+00:00",
    )


@given(records())
@settings(max_examples=50, deadline=None)
def test_a_record_survives_its_file(record: Tuning) -> None:
    assert Tuning.from_json(record.to_json()) == record


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_no_smaller_clip_norm_is_good_enough(found: list[int], tolerance: int) -> None:
    def trial(tried: Settings) -> int:
        return found[round(tried.clip_norm) - 1]

    clip_norms = range(1, len(found) + 1)
    chosen = clip_search(
        trial, PLAN, clip_norms, data=Public("numbers"), tolerance=tolerance, progress=False
    ).clip_norm
    good = [clip_norm for clip_norm in clip_norms if found[clip_norm - 1] >= max(found) - tolerance]
    assert chosen == min(good)
