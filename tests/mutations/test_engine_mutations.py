"""Deliberate bugs in the PyTorch engine, each applied to the real code, and the test that catches it."""

from collections.abc import Callable
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
from laws import test_pitfalls_engine as laws
from support.mutations import Check, Mutation, assert_caught, by_name, replaced
from unit.training import test_isolation as trials


def seeded(check: Callable[[], None]) -> Check:
    def run() -> None:
        torch.manual_seed(3)
        check()

    return run


def with_patches(check: Callable[[pytest.MonkeyPatch], None]) -> Check:
    def run() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            check(monkeypatch)

    return seeded(run)


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


def means_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_parts", one_mean)
    monkeypatch.setattr(engine, "isolated", unchecked)


MUTATIONS = [
    Mutation(
        "tied weights without their cross term",
        replaced(factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64)),
        seeded(laws.test_p03_a_weight_used_as_a_function_counts_in_the_norm),
    ),
    Mutation(
        "only the first use of a parameter counts",
        replaced(contributions, "_merged", lambda factors: factors[0]),
        seeded(laws.test_p08_a_module_called_twice_is_one_gradient_of_two_uses),
    ),
    Mutation(
        "a bias without the sum over positions",
        replaced(linear, "bias_factor", first_position_only),
        seeded(laws.test_p10_a_token_is_not_taken_for_a_record),
    ),
    Mutation(
        "ghost norms in float32, not rounded up",
        replaced(factors, "_share", lambda terms, dtype: 0.0),
        seeded(laws.test_p14_a_ghost_norm_that_cancels_in_float32_stays_an_upper_bound),
    ),
    Mutation(
        "no cap on the spread",
        replaced(sums, "raised_squares", lambda squares, spreads, most: squares),
        seeded(laws.test_p14_a_record_whose_terms_cancel_is_held_to_their_sizes),
    ),
    Mutation(
        "a record that is not finite is kept",
        replaced(Contributions, "keep", lambda self, kept: self),
        seeded(lambda: laws.test_p13_a_record_that_is_not_finite_adds_nothing(torch.nan)),
    ),
    Mutation(
        "the first axis is taken for that of the records",
        replaced(structure, "_axis", first_axis),
        seeded(laws.test_p12_a_batch_axis_of_one_is_not_the_record_axis),
    ),
    Mutation(
        "rows that fill up a pass count as records",
        replaced(Engine, "_recorded", lambda self, its, batch, records, _: right_recorded(self, its, batch, records, records)),
        seeded(lambda: laws.test_p15_microbatches_by_place_do_not_change_the_bound(2)),
    ),
    Mutation(
        "a mean over the batch is spread over its records",
        means_for_all,
        seeded(laws.test_p01_a_record_of_any_size_moves_the_sum_by_at_most_the_clip_norm),
    ),
    Mutation(
        "parameters may change during a run",
        replaced(Engine, "_check_parameters", lambda self: None),
        seeded(laws.test_p06_what_is_unfrozen_later_is_refused),
    ),
    Mutation(
        "isolation is not checked",
        replaced(engine, "isolated", unchecked),
        seeded(lambda: trials.test_p09_a_layer_that_couples_records_is_named(trials.HandWritten())),
    ),
    Mutation(
        "isolation is not checked, and a loss couples records",
        replaced(engine, "isolated", unchecked),
        seeded(trials.test_p11_a_contrast_within_the_batch_is_refused),
    ),
    Mutation(
        "no record is changed",
        replaced(isolation, "another", lambda few, batch, row: few),
        seeded(trials.test_a_statistic_that_depends_on_other_records_is_refused),
    ),
    Mutation(
        "buffers are not looked at",
        replaced(isolation, "_moved_buffers", lambda before, after: iter(())),
        seeded(trials.test_a_buffer_that_takes_up_records_is_refused_by_name),
    ),
    Mutation(
        "isolation is checked once and never again",
        replaced(Engine, "_check_due", lambda self, its, batch: self._count == 1),
        seeded(trials.test_the_check_is_repeated_when_the_data_can_show_more),
    ),
    Mutation(
        "the self-test trusts every gradient",
        replaced(isolation, "agree", lambda found, row, truth, tolerance: True),
        with_patches(trials.test_gradients_that_are_not_those_of_torch_are_never_used),
    ),
    Mutation(
        "the loop takes any model",
        replaced(engine, "uncoupled", lambda *_: None),
        seeded(lambda: trials.test_the_loop_refuses_what_is_not(trials.NextMinusOwn())),
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)


def test_p03_without_the_self_test_a_missing_cross_term_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guards are for: the same bug, with them off, lets a record through that is longer than the clip norm."""
    monkeypatch.setattr(factors.Tied, "_cross", lambda self: torch.zeros(self.records, dtype=torch.float64))
    monkeypatch.setattr(isolation, "agree", lambda found, row, truth, tolerance: True)
    torch.manual_seed(3)
    model: nn.Module = laws.TiedHead()
    batch = (torch.randint(7, (laws.RECORDS, 4)),)
    its = Engine(model, form="ghost")
    alone = [float(laws.clipped(its, laws.squares, (batch[0][row : row + 1],), 1).norm()) for row in range(laws.RECORDS)]
    assert max(alone) > 1.01
