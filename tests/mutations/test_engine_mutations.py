"""Deliberate bugs in the PyTorch engine, each applied to the real code, and the test that catches it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training import contributions, engine, factors, isolation, structure, sums
from discreet.training.contributions import Contributions
from discreet.training.engine import Engine
from discreet.training.factors import Dense, Factor
from discreet.training.isolation import Isolation
from discreet.training.rules import linear
from discreet.training.structure import Axis
from laws.test_pitfalls_engine import RECORDS, TiedHead, clipped, squares
from support.mutations import Mutation, assert_caught, by_name, replaced

LAWS = "laws/test_pitfalls_engine.py"
TRIALS = "unit/training/test_isolation.py"


def first_position_only(rows: Tensor) -> Factor:
    return Dense(linear.positions(rows)[:, 0])


def first_axis(two: tuple[int, ...], three: tuple[int, ...]) -> Axis | None:
    return Axis(0) if two != three or two[:1] == (1,) else None


right_recorded = Engine._recorded
right_parts = engine._parts


def unchecked(*_: object) -> Isolation:
    return Isolation(own_bits=True, place_independent=True, random=False, moved=(True,))


def one_mean(result: Any, records: int, noted: dict[str, Tensor]) -> Any:
    return right_parts(result.expand(records) if isinstance(result, Tensor) and not result.ndim else result, records, noted)


def isolation_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither among few records, nor in the whole batch, nor one by one: any of the three would still refuse coupled ones."""
    monkeypatch.setattr(engine, "isolated", unchecked)
    monkeypatch.setattr(engine, "undisturbed", lambda *_: True)
    monkeypatch.setattr(engine, "uncoupled", lambda *_: None)


def means_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_parts", one_mean)
    isolation_unchecked(monkeypatch)


MUTATIONS = [
    Mutation(
        "P03 tied weights without their cross term",
        replaced(factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)),
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
        replaced(sums, "raised_squares", lambda squares, spreads, most: squares),
        f"{LAWS}::test_p14_a_record_whose_terms_cancel_is_held_to_their_sizes",
    ),
    Mutation(
        "P13 a record that is not finite is kept",
        replaced(Contributions, "keep", lambda self, kept: self),
        f"{LAWS}::test_p13_a_record_that_is_not_finite_adds_nothing[nan]",
    ),
    Mutation(
        "P12 the first axis is taken for that of the records",
        replaced(structure, "_axis", first_axis),
        f"{LAWS}::test_p12_a_batch_axis_of_one_is_not_the_record_axis",
    ),
    Mutation(
        "P15 rows that fill up a pass count as records",
        replaced(Engine, "_recorded", lambda self, its, batch, records, _: right_recorded(self, its, batch, records, records)),
        f"{LAWS}::test_p15_microbatches_by_place_do_not_change_the_bound[2]",
    ),
    Mutation(
        "P01 a mean over the batch is spread over its records",
        means_for_all,
        f"{LAWS}::test_p01_a_record_of_any_size_moves_the_sum_by_at_most_the_clip_norm",
    ),
    Mutation(
        "P06 parameters may change during a run",
        replaced(Engine, "_check_parameters", lambda self: None),
        f"{LAWS}::test_p06_what_is_unfrozen_later_is_refused",
    ),
    Mutation(
        "P09 isolation is not checked",
        isolation_unchecked,
        f"{TRIALS}::test_p09_a_layer_that_couples_records_is_named[layer1]",
    ),
    Mutation(
        "P11 isolation is not checked, and a loss couples records",
        isolation_unchecked,
        f"{TRIALS}::test_p11_a_contrast_within_the_batch_is_refused",
    ),
    Mutation(
        "P11 no record is changed to see whether others move",
        replaced(isolation, "another", lambda few, batch, row: few),
        f"{TRIALS}::test_a_statistic_that_depends_on_other_records_is_refused",
    ),
    Mutation(
        "P09 buffers are not looked at",
        replaced(isolation, "_moved_buffers", lambda before, after: iter(())),
        f"{TRIALS}::test_a_buffer_that_takes_up_records_is_refused_by_name",
    ),
    Mutation(
        "isolation is checked once and never again",
        replaced(Engine, "_check_due", lambda self, its, batch: self._count == 1),
        f"{TRIALS}::test_the_check_is_repeated_when_the_data_can_show_more",
    ),
    Mutation(
        "the self-test trusts every gradient",
        replaced(isolation, "agree", lambda found, row, truth, tolerance: True),
        f"{TRIALS}::test_gradients_that_are_not_those_of_torch_are_never_used",
    ),
    Mutation(
        "the loop takes any model",
        replaced(engine, "uncoupled", lambda *_: None),
        f"{TRIALS}::test_the_loop_refuses_what_is_not[layer1]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)


def test_p03_without_the_self_test_a_missing_cross_term_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guards are for: the same bug, with them off, lets a record through that is longer than the clip norm."""
    monkeypatch.setattr(factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64))
    monkeypatch.setattr(isolation, "agree", lambda found, row, truth, tolerance: True)
    torch.manual_seed(3)
    model: nn.Module = TiedHead()
    batch = (torch.randint(7, (RECORDS, 4)),)
    its = Engine(model, form="ghost")
    alone = [float(clipped(its, squares, (batch[0][row : row + 1],), 1).norm()) for row in range(RECORDS)]
    assert max(alone) > 1.01
