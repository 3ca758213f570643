"""The record of a tuning: a closed vocabulary,
and private trials with their charges or not at all.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.tuning import Method, Trial, Tuning, TuningKind
from support.tunings import public_record

HEAD = "ab" * 32
RECORD = public_record()
PRIVATE = replace(
    RECORD,
    kind=TuningKind.PRIVATE,
    ledger_head=HEAD,
    score_noise=0.01,
    trials=tuple(
        replace(t, runs=(f"run {number}", f"score {number}"))
        for number, t in enumerate(RECORD.trials)
    ),
)


@pytest.mark.parametrize("record", [RECORD, PRIVATE], ids=["public", "private"])
def test_what_is_saved_is_what_is_loaded(record: Tuning, tmp_path: Path) -> None:
    record.save(tmp_path / "tuning.json")
    assert Tuning.load(tmp_path / "tuning.json") == record
    with pytest.raises(dp.errors.ParameterError):  # what was tried is never overwritten
        record.save(tmp_path / "tuning.json")
    assert record.names == ("learning_rate", "momentum")


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(PRIVATE.to_json()) | fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nan",
        changed(schema=2),
        changed(schema=True),
        changed(method="guessing"),
        changed(kind="not private"),
        changed(extra=1),
        changed(trials={}),
        changed(trials=[]),
        changed(trials=[3]),
        changed(trials=[{"values": {"x": 1.0}, "score": 0.5}]),
        changed(trials=[{"values": {"x": "1"}, "score": 0.5, "runs": ["a"]}]),
        changed(trials=[{"values": {}, "score": 0.5, "runs": ["a"]}]),
        changed(trials=[{"values": {"x": 1.0}, "score": "good", "runs": ["a"]}]),
        changed(trials=[{"values": {"x": 1.0}, "score": 0.5, "runs": "a"}]),
        changed(
            trials=[{"values": {"x": 1.0}, "score": 0.5, "runs": []}]
        ),  # private, and nothing charged
        changed(
            trials=2 * [{"values": {"x": 1.0}, "score": 0.5, "runs": ["a"]}]
        ),  # one run, named twice
        changed(trials=[{"values": {"x": 1.0}, "score": 0.5, "runs": ["a", "a"]}]),
        changed(score_noise=0.0),  # private scores without noise
        changed(ledger_head=None),
        changed(ledger_head="ab"),
        changed(kind="public"),  # and runs that were charged
        changed(method=Method.CLIP_SEARCH.value),  # without noise on private data
        changed(chosen=1),  # has no score
        changed(chosen=2),
        changed(chosen=-1),
        changed(score_noise=-1),
        changed(made="yesterday"),
        changed(name=""),
        PRIVATE.to_json().replace('"schema": 1', '"schema": 1, "schema": 1'),
        PRIVATE.to_json().replace("0.91", "Infinity"),
    ],
)
def test_p46_a_file_that_says_anything_else_is_refused(text: str) -> None:
    with pytest.raises(dp.errors.ParameterError):
        Tuning.from_json(text)


def test_trials_of_one_tuning_try_the_same_names() -> None:
    with pytest.raises(dp.errors.ParameterError, match="same names"):
        replace(RECORD, trials=(Trial({"x": 1.0}, 0.5), Trial({"y": 1.0}, 0.5)))


def test_nothing_of_a_record_can_be_changed() -> None:
    values = {"x": 1.0}
    trial = Trial(values, 0.5)
    values["x"] = 2.0
    assert trial.values["x"] == 1.0
