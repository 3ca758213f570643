"""Deliberate bugs in tuning, each applied to the real code, and the test that catches it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import discreet as dp
from discreet.ledger import Snapshot, decisions
from discreet.report.facts import gathered as facts
from discreet.tuning import Private, clipping, score, sweep
from support.mutations import Mutation, assert_caught, by_name, replaced

TERMS = "unit/tuning/test_sweep.py"
TUNED = "unit/report/sections/test_tuned.py"
RIGHT_PLAN = score.score_plan


def noise_on_the_share(data: Private, plan: dp.Plan) -> dp.Plan:
    """The noise of the score, in the place of that of the sum."""
    return replace(
        RIGHT_PLAN(data, plan), mechanism=dp.Groups({"score": dp.Gaussian(1.0, data.score_noise)})
    )


MUTATIONS = [
    Mutation(
        "P39 a trial that skips the ledger is believed",
        replaced(sweep, "_check_charged", lambda *_: None),
        "unit/tuning/test_sweep.py::test_p39_a_trial_that_charged_nothing_is_refused_and_no_score_released",
    ),
    Mutation(
        "P39 any charge counts as that of the trial",
        replaced(
            sweep, "_charged", lambda ledger, _: sum(charge.count for charge in ledger.charges())
        ),
        "unit/tuning/test_sweep.py::test_another_run_on_the_ledger_meanwhile_is_not_taken_for_the_trial",
    ),
    Mutation(
        "P39 P42 scores are read off, neither noised nor charged",
        replaced(sweep, "released_score", lambda values, *_: float(np.mean(values))),
        "unit/tuning/test_sweep.py::test_every_trial_and_every_score_is_charged_to_the_ledger",
    ),
    Mutation(
        "P39 scores are declared as fixed in advance under a filter",
        replaced(Private, "parameters", property(lambda _: dp.units.Parameters.FIXED_IN_ADVANCE)),
        "unit/tuning/test_sweep.py::test_every_trial_and_every_score_is_charged_to_the_ledger",
    ),
    Mutation(
        "P39 of a list only the trials that were made count",
        replaced(Snapshot, "counted", lambda self: tuple(self.charged().items())),
        f"{TERMS}::test_every_listed_trial_counts_though_a_good_score_ends_the_sweep",
    ),
    Mutation(
        "P23 noise for the average on the sum of right answers",
        replaced(score, "score_plan", noise_on_the_share),
        "statistics/test_tuning.py::test_p23_scores_have_the_noise_that_is_stated",
    ),
    Mutation(
        "P38 a handle that was told of no budget is held to none",
        replaced(decisions, "_admit", lambda _: None),
        "unit/tuning/test_sweep.py::test_p38_a_handle_that_was_told_of_no_budget_is_held_to_it_too",
    ),
    Mutation(
        "a trial begins without room for its score",
        replaced(sweep, "_without_room", lambda *_: ""),
        "unit/tuning/test_sweep.py::test_without_room_for_one_trial_and_its_score_nothing_is_tried",
    ),
    Mutation(
        "ClipSearch takes private data",
        replaced(clipping, "Private", SimpleNamespace),
        "unit/tuning/test_clipping.py::test_without_noise_private_data_are_refused_before_any_trial",
    ),
    Mutation(
        "P39 the report believes any record of private tuning",
        replaced(facts, "_tuning", lambda _, __, given: (given,)),
        f"{TUNED}::test_p39_a_record_of_another_ledger_is_refused",
    ),
    Mutation(
        "P39 the report does not ask which ledger a tuning charged",
        replaced(facts, "_has_head", lambda *_: True),
        f"{TUNED}::test_p39_the_right_names_on_another_ledger_are_not_enough",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
