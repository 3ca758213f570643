"""Deliberate bugs in the PyTorch engine, each applied to the real code, and the test that catches
it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training import clipping
from discreet.training.engine import Engine
from discreet.training.factors import factors
from discreet.training.factors.factors import Dense, Factor
from discreet.training.passes import contributions, oracle, passes
from discreet.training.passes.batch_norm import Noting
from discreet.training.passes.contributions import Contributions
from discreet.training.passes.oracle import SelfTest
from discreet.training.passes.passes import Passes
from discreet.training.passes.tape import Tape
from discreet.training.rules import linear
from discreet.training.separation import proof
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows
from laws.test_pitfalls_engine import RECORDS, TiedHead, clipped, squares
from support.mutations import Mutation, assert_caught, by_name, replaced

LAWS = "laws/test_pitfalls_engine.py"
PROOF = "unit/training/separation/test_proof.py"


def first_position_only(rows: Tensor) -> Factor:
    return Dense(linear.by_position(rows)[:, 0])


right_together, right_results = Engine._together, contributions.losses_and_statistics
right_axes = Tape._axes


def first_axis(self: Tape, func: Any, tensors: list[Tensor]) -> dict[int, Rows | None]:
    """Whatever is as long as there are records along its first axis is taken for one row of
    each.
    """
    records = self.proof.count
    first = {id(tensor): Rows(0) for tensor in tensors if tensor.shape[:1] == (records,)}
    return {**right_axes(self, func, tensors), **first}


def padding_too(self: Engine, loss: Any, rows: Any, mask: Tensor, copies: int) -> Any:
    return right_together(self, loss, rows, torch.ones_like(mask), copies)


def one_mean(result: Any, rows: int, moments: Any) -> Any:
    losses, statistics = result
    scalar = isinstance(losses, Tensor) and not losses.ndim
    return right_results((losses.expand(rows) if scalar else losses, statistics), rows, moments)


def as_it_is(self: Noting, func: Any, args: Any, kwargs: Any) -> Any:
    return args, dict(kwargs)


def no_proof(self: Proof, *_: object) -> None:
    """Neither losses nor statistics nor gradients have to be rows of records."""


def normalised_over_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the name of the function, nor because running statistics are written."""
    monkeypatch.setattr(Noting, "released_only", as_it_is)
    monkeypatch.setattr(proof, "targets_of_records", lambda *_: iter(()))


def neither_proved_nor_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not compared with torch's own gradients either, which shows what happens to a few records."""
    monkeypatch.setattr(Proof, "require_rows", no_proof)
    monkeypatch.setattr(SelfTest, "passes", lambda self, loss, rows, trial: True)


MUTATIONS = [
    Mutation(
        "P03 tied weights without their cross term",
        replaced(
            factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)
        ),
        f"{LAWS}::test_p03_a_weight_used_as_a_function_counts_in_the_norm",
    ),
    Mutation(
        "P08 only the first use of a parameter counts",
        replaced(contributions, "_merged", lambda factors: factors[0]),
        f"{LAWS}::test_p08_a_module_called_twice_is_one_gradient_of_two_uses",
    ),
    Mutation(
        "P10 a bias without the sum over positions",
        replaced(linear, "bias_factor", first_position_only),
        f"{LAWS}::test_p10_a_token_is_not_taken_for_a_record",
    ),
    Mutation(
        "P14 ghost norms in float32, not rounded up",
        replaced(factors, "_share", lambda terms, dtype: 0.0),
        f"{LAWS}::test_p14_a_ghost_norm_that_cancels_in_float32_stays_an_upper_bound",
    ),
    Mutation(
        "P14 no cap on the spread",
        replaced(clipping, "raised_squares", lambda squares, spreads, limit: squares),
        f"{LAWS}::test_p14_a_record_whose_terms_cancel_is_held_to_their_sizes",
    ),
    Mutation(
        "P13 a record that is not finite is kept",
        replaced(Contributions, "keep", lambda self, kept: self),
        f"{LAWS}::test_p13_a_record_that_is_not_finite_adds_nothing[nan]",
    ),
    Mutation(
        "P12 the first axis is taken for that of the records",
        replaced(Tape, "_axes", first_axis),
        f"{LAWS}::test_p12_a_batch_axis_of_one_is_not_the_record_axis",
    ),
    Mutation(
        "P15 rows that fill up a pass count as records",
        replaced(Engine, "_together", padding_too),
        f"{LAWS}::test_p15_microbatches_by_place_do_not_change_the_bound[2]",
    ),
    Mutation(
        "P01 a mean over the batch is spread over its records",
        replaced(passes, "losses_and_statistics", one_mean),
        f"{LAWS}::test_p01_a_record_of_any_size_moves_the_sum_by_at_most_the_clip_norm",
    ),
    Mutation(
        "P06 parameters may change during a run",
        replaced(Engine, "_check_parameters", lambda self: None),
        f"{LAWS}::test_p06_what_is_unfrozen_later_is_refused",
    ),
    Mutation(
        "P09 batch normalisation in train mode is let through",
        normalised_over_the_batch,
        f"{LAWS}::test_p09_batch_norm_couples_also_without_parameters_and_is_refused[True]",
    ),
    Mutation(
        "P09 T06 nothing has to be proved, nor is it compared",
        neither_proved_nor_compared,
        "laws/test_pitfalls_separation.py::"
        "test_t06_a_coupling_that_only_some_records_trigger_is_seen_without_them",
    ),
    Mutation(
        "P11 nothing has to be proved, and a loss couples records",
        replaced(Proof, "require_rows", no_proof),
        f"{LAWS}::"
        "test_p11_a_mean_over_the_tokens_of_the_batch_becomes_one_over_those_of_each_record",
    ),
    Mutation(
        "P11 statistics are not looked at",
        replaced(Passes, "_require_unchanged", lambda *_: None),
        f"{PROOF}::test_p11_a_statistic_that_depends_on_other_records_goes_one_by_one",
    ),
    Mutation(
        "the self-test trusts every gradient",
        replaced(oracle, "agree", lambda found, row, truth, tolerance: True),
        f"{PROOF}::test_gradients_that_are_not_those_of_torch_are_never_used",
    ),
    Mutation(
        "what the self-test finds is forgotten",
        replaced(SelfTest, "passes", lambda self, loss, rows, trial: True),
        f"{PROOF}::test_gradients_that_are_not_those_of_torch_are_never_used",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)


def test_p03_without_the_self_test_a_missing_cross_term_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the guards are for: the same bug, with them off, lets a record through that is longer
    than the clip norm.
    """
    monkeypatch.setattr(
        factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)
    )
    monkeypatch.setattr(oracle, "agree", lambda found, row, truth, tolerance: True)
    torch.manual_seed(3)
    model: nn.Module = TiedHead()
    batch = (torch.randint(7, (RECORDS, 4)),)
    its = Engine(model, form="ghost")
    twice = [
        batch[0][row : row + 1].repeat(2, 1) for row in range(RECORDS)
    ]  # a pass over one row has torch's gradients
    assert max(float(clipped(its, squares, (rows,), 2).norm()) / 2 for rows in twice) > 1.01
