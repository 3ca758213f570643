"""Deliberate bugs in the proof of separation, and in what guards state, data, gradients, settings
and hooks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.training import checkpoint, engine, gradients, run
from discreet.training.data import batch, collating, datasets, seeding, trees
from discreet.training.data.signature import Signature
from discreet.training.data.trees import begun
from discreet.training.engine import Engine
from discreet.training.gradients import GradientWatch
from discreet.training.passes import hooks, passes, precision_settings, sandbox, scripted
from discreet.training.passes.passes import Passes
from discreet.training.passes.sandbox import Traces
from discreet.training.passes.tape import Tape
from discreet.training.rules import call, guess
from discreet.training.rules.call import Call, Uses
from discreet.training.separation import books, doors, draws, exits, marks, operation, proof
from discreet.training.separation.books import Books
from discreet.training.separation.doors import Doors
from discreet.training.separation.draws import Draws
from discreet.training.separation.effects import Effect, Effects
from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.operation import Operation
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OWN, PUBLIC, OneByOne, Rows
from discreet.training.separation.table import RULES, operands, products
from discreet.training.separation.table.operands import Operands
from discreet.training.state import moved, processes, reach
from discreet.training.state.holders import Kind
from discreet.training.state.moved import Moved, Noted
from discreet.training.state.reach import Reach
from support.mutations import Mutation, Patch, assert_caught, by_name, replaced

LAWS = "laws/test_pitfalls_separation.py"
SOME = f"{LAWS}::test_t06_a_coupling_that_only_some_records_trigger_is_seen_without_them"
PLACES = f"{LAWS}::test_t06_what_a_record_contributes_does_not_depend_on_its_place"
PYTHON = f"{LAWS}::test_t07_nothing_of_a_record_leaves_for_python_while_others_are_computed"
KEPT = f"{LAWS}::test_t09_nothing_of_a_record_is_kept_on_the_model"
LATE = f"{LAWS}::test_t08_what_enters_the_sums_is_what_was_proved"
GUESSES = "unit/training/rules/test_guess.py"
SHARED_DRAWS = (
    "laws/test_shared_draws.py"
    "::test_t09_what_is_drawn_for_all_records_is_the_same_in_all_passes_of_a_step"
)
STATE = "laws/test_pitfalls_state.py::test_t09_public_state_moves_once_a_step_wherever_it_is"
COUNTED = "laws/test_public_state.py::test_t09_what_a_loss_counts_moves_once_a_step"
THROUGH = (
    "laws/test_public_state.py::test_t09_what_code_counts_that_a_loss_reaches_moves_once_a_step"
)
HOOKS = (
    f"{LAWS}::"
    "test_t15_a_hook_that_would_be_shown_numbers_of_a_record_is_refused_before_anything_is_charged"
)
UNTOLD = f"{LAWS}::test_t14_whether_a_pass_is_proved_and_why_not_does_not_depend_on_its_records"
OBJECTS = "laws/test_pitfalls_objects.py"
ATTEMPTS = "laws/test_pitfalls_attempts.py"
NO_OTHER = "test_t14_after_a_refusal_that_a_record_may_have_caused_there_is_no_other_loss"
_EFFECTS_OF = Effects.of
DATA = "unit/training/data"
SETTINGS = "unit/training/passes/test_precision_settings.py"

right_require, right_begin, right_leak = Proof.require_rows, Proof.begin, exits.leak_of
right_rule, right_seen, right_fail = Operation._listed_rule, marks.seen_in, Proof.fail
right_entries, right_seeded = collating._entries, seeding.seeded
right_together = Passes.together


def nothing(*_: object, **__: object) -> None:
    """In the place of a check."""


def registers_alone(model: Any, _: Any = None) -> Any:
    """In the place of everything that a loss reaches."""
    return Reach(model)


class InThisProcess:
    """In the place of a process of a record's own."""

    def __init__(self, task: Callable[[], Any], _: float) -> None:
        self._result = task()

    def result(self) -> Any:
        return self._result


def shown_alone(its: Proof, why: str) -> None:
    if its.count > 1:
        right_fail(its, why)


def with_rules(**rules: Any) -> Patch:
    """A table in which these operations have other rules."""
    return lambda monkeypatch: monkeypatch.setattr(operation, "RULES", {**RULES, **rules})


def without(words: str) -> Callable[..., str | None]:
    """One of the ways out of a pass is not looked at."""

    def leak(its: Any, arguments: Any, states: Any) -> str | None:
        found = right_leak(its, arguments, states)
        return None if found is not None and words in found else found

    return leak


def unless(beginning: str) -> Callable[..., None]:
    """Some of what must be rows of records is not looked at."""

    def require(self: Proof, tensor: Tensor, rows: Rows, what: str) -> None:
        if not what.startswith(beginning):
            right_require(self, tensor, rows, what)

    return require


def only_the_first_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[int] = []

    def require(self: Proof, tensor: Tensor, rows: Rows, what: str) -> None:
        first.append(self._books.number)
        if self._books.number < first[0] + 8:
            right_require(self, tensor, rows, what)

    monkeypatch.setattr(Proof, "require_rows", require)


def zeros_prove_themselves(self: Proof, tensor: Tensor, rows: Rows, what: str) -> None:
    """What is zero everywhere is taken for separate: whether a pass is proved depends on its
    records.
    """
    with no_functions(), out_of_sight():
        harmless = not bool(tensor.any())
    if not harmless:
        right_require(self, tensor, rows, what)


def told(self: Doors, name: str, args: Any, kwargs: Any) -> None:
    """The reason says what would have been let out."""
    del kwargs
    with no_functions(), out_of_sight():
        largest = max(float(tensor.max()) for tensor in operands.tensors_among(list(args)))
    self.proof.fail(f"{name} lets {largest} leave for Python")


right_sum = RULES["sum"]


def total_is_public(its: Operands) -> Any:
    """Of sums along axes, which have a rule of their own, the right state."""
    return right_sum(its) if its.has("dim") else PUBLIC


def vectors_are_public(
    self: Proof, tensor: Tensor, rows: Rows, *args: Any, **kwargs: Any
) -> Tensor:
    """Among them the shares of the losses, which tell who is there."""
    own = right_begin(self, tensor, rows, *args, **kwargs)
    if tensor.ndim == 1:
        self._books.set(own.untyped_storage(), PUBLIC)
    return own


def lent(self: Proof, tensor: Tensor, rows: Rows, places: Tensor | None = None) -> Tensor:
    """In earnest a pass is given the batch itself, where it has all rows as they are."""
    if places is not None or self.count < 8:
        return right_begin(self, tensor, rows, places)
    entry = tensor.detach()
    self._books.set_new(entry, rows if self.count > 1 else OWN)
    return entry


def without_variables(device_type: str) -> Any:
    settings = precision_settings._settings_for(device_type)
    return [setting.read for setting in settings if "DEFAULT_FPMATH" not in setting.name]


def always_public(self: Books, storage: Any, mark: Any) -> Any:
    del mark
    storage._separation = (self.number, PUBLIC, False)
    return PUBLIC


def every_part_is_all(its: Any, offset: int, sizes: Any, strides: Any, itemsize: int) -> Any:
    """A part of the records, or one of them for all, counts as public."""
    found = right_seen(its, offset, sizes, strides, itemsize)
    return PUBLIC if "part of the records" in str(found) else found


def assumed(self: Operation) -> Any:
    """What is not known works entry by entry."""
    return right_rule(self) or RULES["pointwise"]


def all_at_once(dataset: Any, indices: list[int]) -> list[Any]:
    return [collating._copy(entry) for entry in right_entries(dataset, indices)]


def numbers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the two modes of torch looks."""
    monkeypatch.setattr(proof, "leak_of", without("for Python"))
    monkeypatch.setattr(Doors, "_refuse_secrets", nothing)


def no_net(self: GradientWatch) -> None:
    """Hooks on parameters and optimizers are missing."""


def called_as_it_is(self: Any, name: str, func: Any, args: Any, kwargs: Any) -> Any:
    return self._called(func, args, kwargs)


def in_a_row(self: Call, tensor: Tensor, place: Rows) -> Tensor:
    """The rows of each record are taken to follow each other."""
    return torch.unflatten(tensor.movedim(place.dim, 0), 0, (self.m, place.fold))


def forgiving(self: Uses, *_: object) -> None:
    """Every write so far is one that autograd has seen."""
    self._writes[:] = marks.writes_of(self._watched)


def errors_go_alone(self: Passes, *args: Any, **kwargs: Any) -> Any:
    """Whatever raises is computed record by record, where it may not raise."""
    try:
        return right_together(self, *args, **kwargs)
    except RuntimeError as error:
        raise OneByOne("an error") from error


MUTATIONS = [
    # --- T06 ---
    Mutation(
        "T06 a sum over records counts as public",
        with_rules(sum=total_is_public),
        f"{SOME}[summed_over_all]",
    ),
    Mutation(
        "T06 a maximum over records counts as public",
        with_rules(amax=lambda _: PUBLIC),
        f"{SOME}[largest_of_all]",
    ),
    Mutation(
        "T06 a product of records with others counts as public",
        with_rules(mm=lambda _: PUBLIC, matmul=lambda _: PUBLIC),
        f"{SOME}[multiplied_with_all]",
    ),
    Mutation(
        "T06 records in another order count as their own",
        with_rules(flip=lambda its: its.in_all(its.require_rows("self"))),
        f"{SOME}[in_another_order]",
    ),
    Mutation(
        "T06 one record for all counts as public",
        replaced(books, "seen_in", every_part_is_all),
        f"{SOME}[one_for_all]",
    ),
    Mutation(
        "T06 only the first passes are proved",
        only_the_first_passes,
        f"{LAWS}::test_t06_a_coupling_that_begins_at_a_later_pass_is_found_in_that_pass",
    ),
    Mutation(
        "T06 constants are not compared from place to place",
        replaced(operands, "uniform", lambda *_: True),
        PLACES,
    ),
    Mutation(
        "T06 effects are remembered although values decided",
        replaced(Operands, "looked", property(lambda _: False, lambda *_: None)),
        f"{LAWS}::"
        "test_t06_a_constant_that_becomes_another_one_for_each_place_is_read_again_in_every_pass",
    ),
    Mutation(
        "T06 memory that nobody has written is not filled",
        replaced(books, "fill_grown", nothing),
        f"{LAWS}::test_t06_memory_that_nobody_has_written_holds_zeros",
    ),
    Mutation(
        "T06 a guess is not verified",
        replaced(Proof, "require_rows", unless("the gradient of expand")),
        f"{LAWS}::"
        "test_t06_a_weight_repeated_as_often_as_there_are_records_is_not_taken_for_one_of_each",
    ),
    Mutation(
        "T06 a constant of another value for each place is taken for the records' own",
        replaced(guess, "uniform", lambda *_: True),
        f"{GUESSES}::"
        "test_p12_t06_a_map_of_other_constants_for_other_places_is_not_computed_together[1]",
    ),
    Mutation(
        "T06 rows of neighbours are counted to a record",
        replaced(Call, "split", in_a_row),
        "unit/training/rules/recurrent/test_rule.py"
        "::test_several_rows_of_one_record_are_its_positions[True-GRUCell]",
    ),
    Mutation(
        "T06 any version of torch will do",
        replaced(passes, "require_tested_version", nothing),
        f"{LAWS}::test_t06_on_a_version_of_torch_that_was_not_tried_nothing_is_proved",
    ),
    Mutation(
        "T06 tags of custom operators are believed",
        replaced(operation, "_is_aten", lambda _: True),
        f"{LAWS}::test_t06_an_operator_that_nobody_knows_is_not_believed",
    ),
    Mutation(
        "T06 an operation without a rule is assumed to work entry by entry",
        replaced(Operation, "_listed_rule", assumed),
        f"{LAWS}::test_t06_an_operator_that_nobody_knows_is_not_believed[centred-tags0]",
    ),
    Mutation(
        "T06 P11 an augmentation does not have to be proved",
        replaced(Proof, "require_rows", unless("the augmentation")),
        f"{LAWS}::test_t06_p11_an_augmentation_that_mixes_records_is_given_one_at_a_time",
    ),
    # --- T07 ---
    Mutation("T07 item is allowed", numbers_leave, f"{PYTHON}[by_item]"),
    Mutation("T07 truth values are allowed", numbers_leave, f"{PYTHON}[by_truth]"),
    Mutation(
        "T07 numpy is no door", replaced(Doors, "_watched", called_as_it_is), f"{PYTHON}[by_numpy]"
    ),
    Mutation(
        "T07 a list of tensors as an index is no door",
        replaced(doors, "_lists_in", lambda _: []),
        f"{PYTHON}[by_index]",
    ),
    Mutation(
        "T09 a record whose numbers Python sees is computed where others are",
        replaced(processes, "_Process", InThisProcess),
        f"{LAWS}::test_t09_a_number_that_python_has_seen_is_not_written_into_a_buffer",
    ),
    Mutation(
        "T07 a pass over one record shows Python its numbers",
        replaced(Proof, "fail", shown_alone),
        f"{LAWS}::test_t09_a_number_that_python_has_seen_is_not_written_into_a_buffer",
    ),
    Mutation(
        "T06 axes that meet may have other lengths",
        replaced(products, "_require_lengths", nothing),
        f"{LAWS}::test_t06_kernels_that_read_other_records_are_not_believed",
    ),
    Mutation(
        "T06 medians of expanded tensors are computed",
        replaced(doors, "MENDED", {}),
        f"{LAWS}::test_t06_kernels_are_given_memory_of_which_they_read_no_other",
    ),
    Mutation(
        "T06 factors of a user's rule are believed",
        replaced(call, "own_rule", nothing),
        "unit/training/test_extending.py::"
        "test_a_rule_whose_factors_depend_on_other_records_is_not_believed",
    ),
    Mutation(
        "T09 checkpoints are not looked through",
        replaced(checkpoint, "holds_records", lambda _: False),
        f"{LAWS}::test_t09_what_a_model_hands_to_its_checkpoint_from_afar_is_not_saved",
    ),
    Mutation(
        "T10 optimizers are not looked through",
        replaced(gradients, "holds_records", lambda _: False),
        f"{LAWS}::test_t09_t10_an_optimizer_that_holds_records_takes_no_step_and_is_not_saved[lr]",
    ),
    Mutation(
        "T10 models for several devices are not refused",
        replaced(run, "refuse_parallel", nothing),
        f"{LAWS}::test_t10_a_run_refuses_models_that_exchange_gradients_themselves",
    ),
    Mutation(
        "T11 the memory of a batch is a constant",
        replaced(batch, "mark_dataset", nothing),
        f"{DATA}/test_loading.py::"
        "test_t11_a_loss_that_reaches_for_the_whole_batch_past_what_it_is_given_is_refused",
    ),
    Mutation(
        "T14 a caught error is computed around",
        replaced(Proof, "refuse_caught_errors", nothing),
        f"{LAWS}::test_t07_an_error_that_the_loss_catches_ends_the_step",
    ),
    Mutation(
        "T14 an error of one record sends all of them one by one",
        replaced(Passes, "together", errors_go_alone),
        f"{LAWS}::test_t14_an_error_of_one_record_does_not_decide_how_the_others_are_computed",
    ),
    Mutation(
        "T14 records of the sample are tried",
        replaced(engine, "made_up", lambda batch: batch),
        f"{LAWS}::test_t14_how_many_rows_a_pass_has_is_learned_from_made_up_records",
    ),
    Mutation(
        "T07 tolist is no door", replaced(Doors, "_refuse_secrets", nothing), f"{PYTHON}[by_list]"
    ),
    Mutation(
        "T07 a shape that depends on records is allowed",
        replaced(proof, "leak_of", without("a shape")),
        f"{PYTHON}[by_shape]",
    ),
    Mutation(
        "T07 errors of kernels are swallowed",
        replaced(Proof, "_raised", nothing),
        f"{LAWS}::test_t07_an_error_that_the_loss_catches_ends_the_step",
    ),
    Mutation(
        "T07 a failure that a loss catches is forgotten",
        replaced(Proof, "check", nothing),
        f"{LAWS}::test_t07_a_failure_that_the_loss_catches_stays_one",
    ),
    Mutation(
        "T07 draws that depend on values are shared",
        replaced(proof, "leak_of", without("random numbers")),
        f"{LAWS}::test_t07_a_draw_that_takes_as_many_numbers_as_a_record_asks_for_is_not_shared",
    ),
    Mutation(
        "T07 texts and numbers of a batch are proved",
        replaced(passes, "begun", lambda batch, begin, **_: begun(batch, begin, strict=False)),
        f"{LAWS}::test_t07_texts_and_numbers_beside_the_tensors_are_seen_for_one_record_at_a_time",
    ),
    # --- T08 ---
    Mutation(
        "T08 a step in place forgives what else was written there",
        replaced(Uses, "watch_on", forgiving),
        "unit/training/passes/test_tape.py"
        "::test_t08_a_write_that_autograd_does_not_see_is_no_step_in_place[before]",
    ),
    Mutation(
        "T08 gradients at taps are not looked at",
        replaced(Proof, "require_rows", unless("the gradient of")),
        f"{LAWS}::test_t08_a_backward_function_that_mixes_gradients_is_not_believed",
    ),
    Mutation(
        "T08 gradients at taps are not looked at, and a hook changes them",
        replaced(Proof, "require_rows", unless("the gradient of")),
        f"{LAWS}::test_t08_a_hook_on_an_activation_may_look_at_its_own_record_only",
    ),
    Mutation(
        "T08 shares of the losses are public",
        replaced(Proof, "begin", vectors_are_public),
        f"{LAWS}::test_t08_a_backward_function_does_not_see_how_many_records_there_are[item]",
    ),
    Mutation(
        "T12 a pass writes into the batch itself, and erases it",
        replaced(Proof, "begin", lent),
        "unit/training/test_run.py::"
        "test_t12_a_loss_that_writes_into_its_batch_writes_into_a_copy[entries-everyone]",
    ),
    Mutation(
        "T08 doors are open during the backward pass",
        replaced(passes, "Doors", lambda _: nullcontext()),
        f"{LAWS}::test_t08_a_backward_function_does_not_see_how_many_records_there_are[numpy]",
    ),
    Mutation(
        "T08 what a factor is made of may change after it was received",
        replaced(Uses, "require_untouched", nothing),
        f"{LATE}[by_a_late_activation]",
    ),
    Mutation(
        "T08 what a weight was computed from may change",
        replaced(Uses, "watch", nothing),
        f"{LATE}[by_a_late_constant]",
    ),
    Mutation(
        "T08 hooks on weights run where nobody looks",
        replaced(Tape, "_refuse_hooks", nothing),
        f"{LATE}[by_a_hook_on_a_weight]",
    ),
    Mutation(
        "T08 what finalizers of a graph change is not looked at",
        replaced(passes.Passes, "_require_unchanged", nothing),
        f"{LATE}[by_a_finalizer]",
    ),
    Mutation(
        "T08 statistics are looked at before the backward pass alone",
        replaced(passes.Passes, "_require_unchanged", nothing),
        f"{LAWS}::test_t08_a_statistic_that_is_changed_later_is_looked_at_again",
    ),
    # --- T09 ---
    Mutation(
        "T09 writes into frozen parameters are allowed",
        replaced(proof, "targets_of_records", lambda *_: iter(())),
        f"{KEPT}[frozen-False]",
    ),
    Mutation(
        "T09 writes into buffers are allowed, one by one too",
        replaced(proof, "targets_of_records", lambda *_: iter(())),
        f"{KEPT}[bank-True]",
    ),
    Mutation(
        "T09 attributes of modules are not looked at",
        replaced(passes, "refuse_kept", nothing),
        f"{KEPT}[cache-False]",
    ),
    Mutation(
        "T09 memory put into parameters is not looked at",
        replaced(passes, "refuse_kept", nothing),
        f"{KEPT}[data-True]",
    ),
    Mutation(
        "T09 marks of earlier passes are ignored",
        replaced(Books, "meet", always_public),
        f"{LAWS}::test_t09_what_a_closure_kept_enters_no_later_pass",
    ),
    Mutation(
        "T09 a remembered effect holds for memory that was there before",
        replaced(Effect, "applies", lambda *_: True),
        f"{LAWS}::"
        "test_t09_what_was_learned_of_memory_of_a_pass_does_not_hold_for_memory_from_before",
    ),
    Mutation(
        "T09 writes that no schema declares are not known",
        replaced(exits, "undeclared_by", lambda *_: []),
        f"{LAWS}::"
        "test_t09_running_statistics_are_refused_where_no_schema_says_that_they_are_written",
    ),
    Mutation(
        "T09 T11 the memory of the data set is not marked",
        replaced(datasets.Marking, "renew", nothing),
        f"{LAWS}::test_t09_t11_the_memory_of_the_data_set_enters_no_pass_past_the_sample",
    ),
    Mutation(
        "T09 what a loss has kept is not erased",
        replaced(Proof, "erase", nothing),
        f"{LAWS}::test_t09_what_a_loss_has_kept_holds_nothing_once_the_sums_are_done[False]",
    ),
    Mutation(
        "T09 a pass that fails is not erased",
        replaced(Traces, "erase", nothing),
        f"{LAWS}::test_t09_a_pass_that_fails_leaves_nothing_to_the_processes_of_records",
    ),
    Mutation(
        "T09 public state moves with every pass",
        replaced(Proof, "put_back", lambda _: Moved()),
        f"{LAWS}::test_t09_public_state_moves_once_a_step_however_many_passes_there_are[3-False]",
    ),
    Mutation(
        "T09 attributes of modules move with every record",
        replaced(Noted, "put_back", nothing),
        f"{LAWS}::test_t09_public_state_moves_once_a_step_however_many_passes_there_are[1-True]",
    ),
    Mutation(
        "T09 public state stays where it is in a step without records",
        replaced(Engine, "rest", nothing),
        f"{LAWS}::test_t09_public_state_moves_in_a_step_without_records_too",
    ),
    Mutation(
        "T09 Python and NumPy draw on from pass to pass",
        replaced(sandbox, "shared_numbers", lambda _: nullcontext(nothing)),
        f"{LAWS}::test_t09_what_python_and_numpy_draw_is_the_same_in_all_passes_of_a_step",
    ),
    # --- T10 ---
    Mutation(
        "T10 nobody watches what autograd adds",
        replaced(GradientWatch, "open", no_net),
        f"{LAWS}::test_t10_a_backward_that_was_left_in_the_loop_is_refused_and_leaves_nothing",
    ),
    Mutation(
        "T10 any gradient counts as released",
        replaced(gradients, "_is_foreign", lambda _: False),
        f"{LAWS}::test_t10_an_optimizer_takes_no_gradient_that_no_release_wrote",
    ),
    # --- T11 ---
    Mutation(
        "T11 repeated records are accepted",
        replaced(datasets, "_has_repetitions", lambda _: False),
        f"{DATA}/test_datasets.py::test_p30_a_record_that_occurs_twice_is_refused",
    ),
    Mutation(
        "T11 batches may have other sizes",
        replaced(Signature, "check", nothing),
        f"{DATA}/test_loading.py::test_p11_batches_of_other_sizes_are_refused",
    ),
    Mutation(
        "T11 entries that are fetched together are not tried out",
        replaced(collating, "_refuse_mixed_entries", nothing),
        f"{DATA}/test_collating.py::test_p11_entries_that_depend_on_others_are_refused",
    ),
    Mutation(
        "T11 entries are fetched together",
        replaced(collating, "_entries_apart", all_at_once),
        f"{DATA}/test_collating.py::test_p11_entries_are_fetched_one_by_one_whatever_wakes_later",
    ),
    Mutation(
        "T11 collate functions are not tried out",
        replaced(collating, "_refuse_mixed_rows", nothing),
        f"{DATA}/test_collating.py::test_p11_rows_that_depend_on_other_entries_are_refused",
    ),
    # --- T12 ---
    Mutation(
        "T12 transforms draw from public seeds",
        replaced(collating, "seeded", lambda _: right_seeded(0)),
        f"{DATA}/test_loading.py::test_p18_transforms_draw_from_the_secret_source",
    ),
    # --- T13 ---
    Mutation(
        "T13 settings of precision are not read",
        replaced(precision_settings, "_readers_for", lambda _: ()),
        f"{LAWS}::test_t13_settings_for_shorter_formats_are_refused_whichever_way_they_were_made",
    ),
    Mutation(
        "T13 variables of oneDNN are not read",
        replaced(precision_settings, "_readers_for", without_variables),
        f"{SETTINGS}::test_the_variables_of_onednn",
    ),
    # --- code of users' objects, and random numbers that are known ---
    Mutation(
        "T06 random numbers that were read are still unknown",
        replaced(Books, "use_up_noise", nothing),
        f"{OBJECTS}::test_t06_random_numbers_that_were_looked_at_tell_places_apart[read]",
    ),
    Mutation(
        "T06 where the generator stands is not compared",
        replaced(draws, "_generator_state", lambda: 0),
        f"{OBJECTS}::test_t06_random_numbers_are_not_drawn_twice[set_back]",
    ),
    Mutation(
        "T07 objects with code of their own are passed on to torch",
        replaced(doors, "_are_known", lambda _: True),
        f"{OBJECTS}::test_t07_torch_asks_no_object_of_the_user_for_numbers[index]",
    ),
    Mutation(
        "T07 the class of a batch is built again",
        replaced(trees, "_is_known", lambda _: True),
        f"{OBJECTS}::test_t07_classes_of_users_are_not_built_again_with_rows_of_others",
    ),
    # --- T09, random numbers ---
    Mutation(
        "T09 what serves all records is drawn anew in every pass",
        replaced(Traces, "shared_draw", lambda *_: nullcontext()),
        f"{SHARED_DRAWS}[a number]",
    ),
    Mutation(
        "T09 numbers with an axis for records may serve all of them",
        replaced(Proof, "_find_shared_draws", nothing),
        f"{SHARED_DRAWS}[as long as a pass]",
    ),
    Mutation(
        "T09 modules that only the loss has at hand move with every pass",
        replaced(Reach, "_add_function", nothing),
        f"{STATE}[a criterion in a closure]",
    ),
    Mutation(
        "T09 what a loss counts in containers and variables moves with every pass",
        replaced(moved, "Reach", registers_alone),
        f"{COUNTED}[a list]",
    ),
    Mutation(
        "T09 variables of enclosing functions move with every pass",
        replaced(reach, "_content_of", lambda _: None),
        f"{COUNTED}[a bound method]",
    ),
    Mutation(
        "T09 globals that a loss assigns move with every pass",
        replaced(Reach, "_note_globals", nothing),
        f"{COUNTED}[a global]",
    ),
    Mutation(
        "T09 what a loss calls in another module of Python moves with every pass",
        replaced(Reach, "_add_space", nothing),
        f"{THROUGH}[a function of a module of Python]",
    ),
    Mutation(
        "T09 what is called without a name moves with every pass",
        replaced(reach, "_unnamed_calls", lambda _: frozenset()),
        f"{THROUGH}[a context]",
    ),
    Mutation(
        "T09 attributes of classes move with every pass",
        replaced(reach, "CLASS", Kind(nothing, lambda *_: True, nothing)),
        f"{THROUGH}[a method and its class]",
    ),
    Mutation(
        "T09 counters of scripted modules move with every pass",
        replaced(scripted, "_is_created_here", lambda _: True),
        f"{COUNTED}[a scripted module]",
    ),
    Mutation(
        "T09 a loss with state that fails on made-up records shows empty samples",
        replaced(Engine, "_remember", nothing),
        "laws/test_public_state.py"
        "::test_t09_state_that_a_step_without_records_could_not_move_is_refused_by_name",
    ),
    Mutation(
        "T09 the mode of a model moves with every pass",
        replaced(moved, "_REGISTERS_AND_HOOKS", reach.OF_TORCH),
        f"{STATE}[training mode]",
    ),
    Mutation(
        "T12 a seed at the end of a loss decides what the next pass draws",
        replaced(Draws, "end", nothing),
        "unit/training/separation/test_draws.py"
        "::test_t12_a_seed_of_the_users_own_is_not_proved[_seeds_at_the_end]",
    ),
    # --- what a sixth attack found ---
    Mutation(
        "T09 an empty first sample moves no state where the loop has looked at it",
        replaced(run, "rehearse", nothing),
        f"{ATTEMPTS}::test_t09_an_empty_first_sample_moves_state_as_any_other",
    ),
    Mutation(
        "T14 every refusal by name counts as public",
        replaced(Engine, "error_may_tell", False),
        f"{ATTEMPTS}::{NO_OTHER}[_catching]",
    ),
    Mutation(
        "T15 modes of functions around the loop are let through",
        replaced(hooks, "_function_modes", tuple),
        f"{ATTEMPTS}::test_t15_a_mode_around_the_loop_is_refused_by_name[Watching]",
    ),
    Mutation(
        "T15 modes of operations around the loop are let through",
        replaced(hooks, "_dispatch_modes", tuple),
        f"{ATTEMPTS}::test_t15_a_mode_around_the_loop_is_refused_by_name[Following]",
    ),
    Mutation(
        "T09 a generator without a seed is another one in every pass",
        replaced(sandbox, "random", SimpleNamespace(getrandbits=lambda _: time.perf_counter_ns())),
        f"{LAWS}::test_t09_generators_without_a_seed_are_the_same_in_all_passes_of_a_step",
    ),
    Mutation(
        "T09 chance decides in a trial",
        replaced(sandbox, "_public_numbers", nullcontext),
        f"{LAWS}::test_t09_chance_does_not_decide_in_a_trial",
    ),
    Mutation(
        "P42 what a record's process prints is seen",
        replaced(processes, "_leave_files_alone", nothing),
        f"{ATTEMPTS}::test_p42_a_process_of_a_record_prints_and_logs_nowhere",
    ),
    Mutation(
        "T07 what was learned from made-up records hides a door",
        replaced(Effects, "of", staticmethod(lambda count, **_: _EFFECTS_OF(count))),
        f"{ATTEMPTS}::test_t07_what_was_learned_where_python_may_look_serves_no_other_pass",
    ),
    # --- T14 ---
    Mutation(
        "T14 what is zero needs no proof",
        replaced(Proof, "require_rows", zeros_prove_themselves),
        f"{UNTOLD}[weight_zero]",
    ),
    Mutation(
        "T14 a reason has a number of a record",
        replaced(Doors, "_refuse_secrets", told),
        f"{UNTOLD}[by_largest]",
    ),
    # --- T15 ---
    Mutation(
        "T15 hooks on parameters are let through",
        replaced(run, "refuse_hooks", nothing),
        f"{HOOKS}[gradient hook]",
    ),
    Mutation(
        "T15 hooks on modules are let through",
        replaced(run, "refuse_hooks", nothing),
        f"{HOOKS}[forward hook]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
