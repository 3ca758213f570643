"""Deliberate bugs of whole runs, each applied to the real code, and the test of its pitfall that catches it."""

from pathlib import Path
from typing import Any

import discreet as dp
from discreet.training import PrivateRun
from support.mutations import Mutation, assert_caught, by_name, replaced

LAWS = "laws/test_pitfalls_run.py"

right_backward = PrivateRun.backward


def hook_left_behind(self: PrivateRun, loss: Any, batch: Any) -> Any:
    self._model.register_forward_hook(lambda *_: None)
    return right_backward(self, loss, batch)


def halved(right: Any) -> Any:
    def wrong(self: dp.Ledger) -> tuple[dp.Charge, ...]:
        return tuple(dp.Charge(one.run, one.step, -(-one.count // 2), one.unsettled) for one in right(self))

    return wrong


MUTATIONS = [
    Mutation(
        "P31 two draws are charged as one",
        replaced(dp.Ledger, "charges", halved(dp.Ledger.charges)),
        f"{LAWS}::test_p31_accumulation_over_two_draws_is_two_steps",
    ),
    Mutation(
        "P41 the plan is charged and not the run",
        replaced(dp.Lease, "settle", lambda self: None),
        f"{LAWS}::test_p41_what_ran_is_charged_and_not_what_was_planned[3]",
    ),
    Mutation(
        "P47 a hook is left behind",
        replaced(PrivateRun, "backward", hook_left_behind),
        f"{LAWS}::test_p47_optimizers_and_models_stay_what_they_were",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
