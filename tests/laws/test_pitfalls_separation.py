"""T06 to T15, found by an outside attack on this library: by what other ways than its own gradient
a record could act.

Each test uses a model or a loop that people write. Where records touch each other they are computed
one by one, and one record moves the clipped sum by at most the clip norm; where something of a
record would be kept, the pass is refused by name.
"""

from __future__ import annotations

import os
import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from discreet.errors import (
    CheckpointError,
    CoupledRecords,
    DiscreetError,
    ModelError,
    NumericsError,
)
from discreet.training import augmented
from discreet.training.engine import Engine, Loss
from discreet.training.separation import operation
from laws.test_pitfalls_engine import JUST_ABOVE, RECORDS, clipped, moves, right, squares
from support.tally import Tally
from unit.training.test_run import data, keyed, network, plan
from unit.training.test_run import loss as labelled

_SPECIAL = 100.0  # what ordinary records never hold
_SMALL = 1e-3  # gradients of ordinary records, in clip norms


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def ordinary() -> tuple[Tensor, ...]:
    """Records of short gradients."""
    return (_SMALL * torch.randn(RECORDS, 4),)


def with_one_special() -> tuple[Tensor, ...]:
    (x,) = ordinary()
    x[-1] = _SPECIAL
    return (x,)


def assert_alone(its: Loss, *words: str, batch: Any = None) -> None:
    """Records are computed one by one, for a reason with these words, and none moves the sum by
    more than it may.
    """
    special = with_one_special() if batch is None else batch
    model = nn.Linear(4, 3)
    for _ in range(2):  # the second pass goes by what was remembered of the first
        engine = Engine(model)
        list(engine.passes(its, special, RECORDS, RECORDS))
        assert engine.one_by_one is not None
        assert all(word in engine.one_by_one for word in words), engine.one_by_one
    assert max(moves(model, its, special)) <= JUST_ABOVE


def raised(x: Tensor) -> Tensor:
    """Zero for ordinary records."""
    return (x[:, 0] - _SPECIAL / 2).relu()


# --- T06: couplings that some records, some places or some steps trigger ---


def summed_over_all(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * (1.0 + 1e3 * raised(batch[0]).sum())


def largest_of_all(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * (1.0 + 1e3 * raised(batch[0]).amax(0))


def multiplied_with_all(model: Any, batch: Any) -> Tensor:
    hidden = raised(batch[0]).unsqueeze(0)
    return squares(model, batch) * (1.0 + 1e3 * (hidden @ hidden.T)[0, 0])


def in_another_order(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * (1.0 + 1e3 * raised(batch[0]).flip(0))


def one_for_all(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * (1.0 + 1e3 * raised(batch[0])[-1])


@pytest.mark.parametrize(
    "its", [summed_over_all, largest_of_all, multiplied_with_all, in_another_order, one_for_all]
)
def test_t06_a_coupling_that_only_some_records_trigger_is_seen_without_them(its: Loss) -> None:
    """Tried out on ordinary records, each of these is a loss of single records."""
    assert_alone(its)
    calm = Engine(nn.Linear(4, 3))
    list(calm.passes(its, ordinary(), RECORDS, RECORDS))
    assert calm.one_by_one is not None


def test_t06_a_coupling_that_begins_at_a_later_pass_is_found_in_that_pass() -> None:
    passes, step = 70, 0

    def ramped(network: Any, batch: Any) -> Tensor:
        return summed_over_all(network, batch) if step > passes else squares(network, batch)

    engine = Engine(nn.Linear(4, 3))
    while engine.one_by_one is None and step < 10 * passes:
        step += 1
        list(engine.passes(ramped, with_one_special(), RECORDS, RECORDS))
    assert engine.one_by_one is not None
    assert "several records" in engine.one_by_one


def test_t06_a_constant_that_becomes_another_one_for_each_place_is_read_again_in_every_pass() -> (
    None
):
    weights, engine = torch.ones(RECORDS), Engine(nn.Linear(4, 3))

    def weighted(model: Any, batch: Any) -> Tensor:
        return squares(model, batch) * weights[: len(batch[0])]

    list(engine.passes(weighted, ordinary(), RECORDS, RECORDS))
    reasons = [engine.one_by_one]
    weights[0] = 2.0  # also the same memory
    list(engine.passes(weighted, ordinary(), RECORDS, RECORDS))
    assert reasons == [None]
    assert "other values for other places" in str(engine.one_by_one)


@pytest.mark.parametrize("name", ["ranked", "first_half", "own_row"])
def test_t06_what_a_record_contributes_does_not_depend_on_its_place(name: str) -> None:
    table = torch.arange(1.0, RECORDS + 1)

    def by_place(model: Any, batch: Any) -> Tensor:
        losses = squares(model, batch)
        if name == "ranked":
            return losses * torch.arange(len(losses))
        if name == "own_row":
            return losses * table[: len(losses)]
        return torch.cat([losses[:2] * 3.0, losses[2:]])

    model, (x,) = nn.Linear(4, 3), ordinary()
    engine = Engine(model)
    found = clipped(engine, by_place, (x,), RECORDS)
    torch.testing.assert_close(clipped(engine, by_place, (x.flip(0),), RECORDS), found)
    assert engine.one_by_one is not None
    assert "place" in engine.one_by_one


def test_t06_memory_that_nobody_has_written_holds_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could hold records of earlier passes.
    Here torch fills it with NaN to show who reads it.
    """
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        engine = Engine(nn.Linear(4, 3))
        sums = clipped(
            engine,
            lambda model, batch: squares(model, (batch[0] + torch.empty(4),)),
            ordinary(),
            RECORDS,
        )
    finally:
        torch.use_deterministic_algorithms(before)
    assert engine.one_by_one is None
    assert bool(sums.isfinite().all())
    assert float(sums.norm()) > 0.0


class Repeated(nn.Module):
    """A weight that is repeated as often as there are records, for the positions of each."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.token.expand(RECORDS, -1)


def test_t06_a_weight_repeated_as_often_as_there_are_records_is_not_taken_for_one_of_each() -> None:
    right(Repeated(), squares, (torch.randn(RECORDS, RECORDS, 4),))


def test_t06_on_a_version_of_torch_that_was_not_tried_nothing_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operation, "TESTED", frozenset({"0.0.1"}))
    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(squares, ordinary(), RECORDS, RECORDS))
    assert engine.one_by_one is not None
    assert torch.__version__.split("+")[0] in engine.one_by_one


LIBRARY: Any = torch.library.Library("discreet_laws", "FRAGMENT")  # type: ignore[no-untyped-call]


def _defined(name: str, tags: tuple[torch.Tag, ...]) -> Any:
    """An operator of the user's own that subtracts the largest entry of all records."""
    if name not in dir(torch.ops.discreet_laws):
        LIBRARY.define(f"{name}(Tensor x) -> Tensor", tags=tags)
        LIBRARY.impl(name, lambda x: x + 1e3 * (x.amax() - _SPECIAL / 2).relu(), "CPU")
    return getattr(torch.ops.discreet_laws, name)


@pytest.mark.parametrize(
    ("name", "tags"), [("centred", ()), ("called_pointwise", (torch.Tag.pointwise,))]
)
def test_t06_an_operator_that_nobody_knows_is_not_believed(
    name: str, tags: tuple[torch.Tag, ...]
) -> None:
    operator = _defined(name, tags)
    assert_alone(lambda model, batch: squares(model, (operator(batch[0]),)), name)


def mixed_up(rows: Any) -> Any:
    return (rows[0] * (1.0 + 1e3 * raised(rows[0]).amax()),)


def test_t06_p11_an_augmentation_that_mixes_records_is_given_one_at_a_time() -> None:
    assert (
        max(moves(nn.Linear(4, 3), augmented(squares, mixed_up, copies=2), with_one_special()))
        <= JUST_ABOVE
    )


# --- T07: numbers, truth values, texts, shapes and exceptions of Python ---


def by_item(x: Tensor) -> float:
    return float(raised(x).sum().item())


def by_truth(x: Tensor) -> float:
    return _SPECIAL if (x > _SPECIAL / 2).any() else 0.0


def by_numpy(x: Tensor) -> float:
    return float(np.maximum(x.numpy() - _SPECIAL / 2, 0.0).sum())


def by_list(x: Tensor) -> float:
    return float(max(0.0, *(value - _SPECIAL / 2 for row in x.tolist() for value in row)))


def by_index(x: Tensor) -> float:
    special: Any = torch.tensor([[0.0, _SPECIAL]])[0, [(x.max() > _SPECIAL / 2).long()]]
    number: float = special  # a tensor that looks like a constant
    return number


def by_text(x: Tensor) -> float:
    return _SPECIAL if "100." in repr(x) else 0.0


def by_shape(x: Tensor) -> float:
    return float(len((x[:, 0] > _SPECIAL / 2).nonzero()))


def by_error(x: Tensor) -> float:
    """The number of one record is no row of the table."""
    try:
        torch.zeros(int(_SPECIAL / 2)).index_select(0, x[:, 0].long().clamp(min=0))
    except IndexError:
        return _SPECIAL
    return 0.0


def by_caught_failure(x: Tensor) -> float:
    try:
        return raised(x).sum().item()
    except Exception:  # noqa: BLE001  (as people write it around what may fail)
        return 0.0


_WAYS: dict[Callable[[Tensor], float], str] = dict.fromkeys(
    [by_item, by_truth, by_numpy, by_list, by_index, by_text], "leave for Python"
)
_WAYS |= {by_shape: "a shape that depends on records"}


@pytest.mark.parametrize("number", _WAYS)
def test_t07_nothing_of_a_record_leaves_for_python_while_others_are_computed(
    number: Callable[[Tensor], float],
) -> None:
    """The proof says so, not only the comparison with torch's own gradients, which sees what
    happens to a few records.
    """
    assert_alone(
        lambda model, batch: squares(model, batch) * (1.0 + 1e3 * number(batch[0])), _WAYS[number]
    )


def test_t07_an_error_that_the_loss_catches_ends_the_step() -> None:
    """Computing records one by one from then on would tell that one of them caused it (T14)."""
    engine = Engine(nn.Linear(4, 3))
    loss = lambda model, batch: squares(model, batch) * (1.0 + 1e3 * by_error(batch[0]))  # noqa: E731
    list(engine.passes(loss, ordinary(), RECORDS, RECORDS))
    with pytest.raises(ModelError, match="caught an error of index_select"):
        list(engine.passes(loss, with_one_special(), RECORDS, RECORDS))
    assert engine.one_by_one is None


def failing_for_the_special_one(model: Any, batch: Any) -> Tensor:
    """Several rows raise an error for one of them; a row alone never does."""
    (x,) = batch
    if len(x) > 1:
        x.gather(1, (x[:, :1] > _SPECIAL / 2).long() * 9)
    return squares(model, batch)


def test_t14_an_error_of_one_record_does_not_decide_how_the_others_are_computed() -> None:
    """Wrong: the records of the pass are computed one by one,
    where the error need not come again.
    """
    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(squares, ordinary(), RECORDS, RECORDS))
    with pytest.raises(RuntimeError, match="out of bounds"):
        list(engine.passes(failing_for_the_special_one, with_one_special(), RECORDS, RECORDS))
    assert engine.one_by_one is None


def test_t14_how_many_rows_a_pass_has_is_learned_from_made_up_records() -> None:
    """Wrong: a few records of the sample are tried, and an error of one leaves it unlearned."""
    sizes = []
    for batch in (ordinary(), with_one_special()):
        engine = Engine(nn.Linear(4, 3))
        batch[0][0] = batch[0][-1]
        sizes.append(engine.fitting(failing_for_the_special_one, batch, RECORDS, 500, 1000))
    assert sizes[0] == sizes[1] < 1000


SEEN: list[float] = []


def test_t09_a_number_that_python_has_seen_is_not_written_into_a_buffer() -> None:
    """Wrong: the operation has public arguments alone, so what it writes counts as public; it is
    saved with the model.
    """
    model = nn.Linear(4, 3)
    model.register_buffer("average", torch.zeros(()))

    def loss(its: Any, batch: Any) -> Tensor:
        its.average.mul_(0.9).add_(0.1 * batch[0].mean().item())
        its.history = [*getattr(its, "history", []), batch[0].mean().item()]
        SEEN.append(batch[0].mean().item())
        return squares(its, batch)

    records = ordinary()
    list(Engine(model).passes(loss, records, RECORDS, RECORDS))
    assert model.average == 0.0
    assert not hasattr(model, "history")
    numbers = {round(float(row.mean()), 9) for row in records[0]}
    assert numbers.isdisjoint({round(number, 9) for number in SEEN})  # but those of made-up records


def with_fewer_keys(x: Tensor) -> Tensor:
    """The kernel takes the number of keys from the values, and reads those of the next record."""
    queries, values = (
        torch.ones(len(x), 1, 4, 1) + 0.0 * x[:, None, :1, None],
        x.reshape(-1, 1, 4, 1),
    )
    attended = nn.functional.scaled_dot_product_attention(
        queries, x[:, :1].reshape(-1, 1, 1, 1), values
    )
    return attended.reshape(-1, 4)


def halved_copies(x: Tensor) -> Tensor:
    """The kernel sorts a copy in which entries share their memory."""
    return x.expand(3, *x.shape).median(0)[0]


def test_t06_kernels_that_read_other_records_are_not_believed() -> None:
    """Wrong: to go by what a function should compute, and not by the sizes and strides that its
    kernel takes for granted.
    """
    engine = Engine(nn.Linear(4, 3))
    list(
        engine.passes(
            lambda model, batch: squares(model, (with_fewer_keys(batch[0]),)),
            ordinary(),
            RECORDS,
            RECORDS,
        )
    )
    assert "sizes do not fit" in str(engine.one_by_one)


def test_t06_kernels_are_given_memory_of_which_they_read_no_other() -> None:
    """Wrong: to let torch sort entries that share their memory, alone or together."""
    engine, records = Engine(nn.Linear(4, 3)), ordinary()
    engine.compute_one_by_one()
    loss = lambda model, batch: squares(model, (halved_copies(batch[0]),))  # noqa: E731
    assert torch.equal(
        clipped(engine, loss, records, RECORDS), clipped(engine, squares, records, RECORDS)
    )


def test_t06_what_is_written_through_data_after_its_use_is_seen() -> None:
    """Wrong: the version counter alone is compared, and the gradient of a weight is made of another
    record's row.
    """

    def loss(model: Any, batch: Any) -> Tensor:
        entries = batch[0] * 1.0
        losses = squares(model, (entries,))
        entries.data.copy_(entries.roll(1, 0))
        return losses

    assert_alone(loss, "changed in place")


def test_t07_a_failure_that_the_loss_catches_stays_one() -> None:
    assert_alone(
        lambda model, batch: squares(model, batch) * (1.0 + 1e3 * by_caught_failure(batch[0])),
        "for Python",
    )


def test_t07_a_draw_that_takes_as_many_numbers_as_a_record_asks_for_is_not_shared() -> None:
    def noisy(model: Any, batch: Any) -> Tensor:
        drawn = torch.poisson(batch[0].abs() * 1e4) * 1e-4
        return squares(model, (batch[0] + drawn,))

    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(noisy, with_one_special(), RECORDS, RECORDS))
    assert engine.one_by_one is not None
    assert "random numbers" in engine.one_by_one


def test_t07_texts_and_numbers_beside_the_tensors_are_seen_for_one_record_at_a_time() -> None:
    batch = (*ordinary(), [0.0] * (RECORDS - 1) + [_SPECIAL])

    def its(model: Any, rows: Any) -> Tensor:
        out: Tensor = squares(model, rows[:1]) * (1.0 + 1e3 * sum(rows[1]))
        return out

    assert_alone(its, "Python", batch=batch)


# --- T08: functions of the user's own in the backward pass ---


class Centred(torch.autograd.Function):
    """As it is on the way forward; backward, gradients of all records are mixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * (1.0 + 1e3 * raised(x).sum())


class Counted(torch.autograd.Function):
    """Backward, the gradient of the losses tells which records are there."""

    way = "item"

    @staticmethod
    def forward(ctx: Any, losses: Tensor) -> Tensor:
        return losses * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        present = (
            gradients[0].sum().item()
            if Counted.way == "item"
            else float(gradients[0].numpy().sum())
        )
        return gradients[0] * present


def test_t08_a_backward_function_that_mixes_gradients_is_not_believed() -> None:
    def its(model: Any, batch: Any) -> Tensor:
        hidden = torch.cat([model(batch[0]), batch[0][:, :1]], 1)
        return Centred.apply(hidden.roll(1, 1)).square().sum(1)  # type: ignore[no-any-return,no-untyped-call]

    assert_alone(its, "the gradient of", "several records")


@pytest.mark.parametrize("way", ["item", "numpy"])
def test_t08_a_backward_function_does_not_see_how_many_records_there_are(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counted, "way", way)
    assert_alone(lambda model, batch: Counted.apply(squares(model, batch)), "for Python")  # type: ignore[no-untyped-call]


def test_t08_a_hook_on_an_activation_may_look_at_its_own_record_only() -> None:
    def its(model: Any, batch: Any) -> Tensor:
        hidden = model(batch[0])
        hidden.register_hook(
            lambda gradient: gradient * (1.0 + 1e3 * (gradient.abs().amax() - _SPECIAL).relu())
        )
        out: Tensor = hidden.square().sum(1)
        return out

    assert_alone(its, "the gradient of", "several records")


def woken(x: Tensor) -> Tensor:
    """A thousand for all records, if the special one is among them."""
    return 1.0 + 999.0 * (x.max() > _SPECIAL / 2)


def by_a_late_activation(model: Any, x: Tensor) -> Tensor:
    """What a layer was given is changed when its gradient was taken."""
    hidden: Any = nn.functional.pad(model(x), (0, 1)) * 1.0

    def hook(_: Tensor) -> None:
        hidden.data.mul_(woken(x))

    hidden.register_hook(hook)
    out: Tensor = model(hidden)
    return out


def by_a_late_gradient(model: Any, x: Tensor) -> Tensor:
    """A gradient is changed in place, when another branch has taken it."""
    branch = model(x) * 1.0

    def hook(gradient: Tensor) -> Tensor:
        before = gradient.clone()
        gradient.mul_(woken(x))
        return before

    branch.register_hook(hook)
    out: Tensor = branch + model.bias
    return out


def by_a_late_constant(model: Any, x: Tensor) -> Tensor:
    """What a weight was computed from is changed when the weight was used."""
    mask = torch.ones(3, 4)
    out = nn.functional.linear(x, model.weight * mask)
    mask.data.mul_(woken(x))
    return out


def by_a_hook_on_a_weight(model: Any, x: Tensor) -> Tensor:
    weight = model.weight * 1.0
    if weight.requires_grad:
        weight.register_hook(lambda gradient: gradient * woken(x))
    return nn.functional.linear(x, weight)


def by_a_node_of_a_weight(model: Any, x: Tensor) -> Tensor:
    weight = model.weight * 1.0
    if weight.grad_fn is not None:
        weight.grad_fn.register_prehook(lambda gradients: (gradients[0] * woken(x),))
    return nn.functional.linear(x, weight)


class _Late:
    def __init__(self, hidden: Tensor, x: Tensor) -> None:
        self._hidden, self._x = hidden, x

    def __del__(self) -> None:
        with torch.no_grad():
            self._hidden.mul_(woken(self._x))


def by_a_finalizer(model: Any, x: Tensor) -> Tensor:
    """It runs when the graph is let go of."""
    hidden: Any = nn.functional.pad(model(x), (0, 1)) * 1.0
    late = _Late(hidden.detach(), x)
    if hidden.requires_grad:
        hidden.register_hook(lambda _, late=late: None)
    out: Tensor = model(hidden)
    return out


_LATE = [
    by_a_late_activation,
    by_a_late_gradient,
    by_a_late_constant,
    by_a_hook_on_a_weight,
    by_a_node_of_a_weight,
    by_a_finalizer,
]


@pytest.mark.parametrize("late", _LATE)
def test_t08_what_enters_the_sums_is_what_was_proved(late: Callable[[Any, Tensor], Tensor]) -> None:
    """Wrong: it is looked at when it is received, and changed afterwards."""
    assert_alone(lambda model, batch: late(model, batch[0]).square().sum(1))


def test_t08_a_statistic_that_is_changed_later_is_looked_at_again() -> None:
    def its(model: Any, batch: Any) -> Any:
        (x,) = batch
        hidden = model(x)
        metric = x[:, 0] * 0 + 1

        def hook(_: Tensor) -> None:
            metric.mul_(woken(x))

        hidden.register_hook(hook)
        return hidden.square().sum(1), {"metric/a": metric}

    engine = Engine(nn.Linear(4, 3))
    passes = engine.passes(its, with_one_special(), RECORDS, RECORDS)
    values = torch.cat([statistics["metric/a"].clone() for _, statistics in passes])
    assert float(values[:-1].max()) == 1.0


# --- T09: records in frozen parameters, buffers, attributes, closures and the data set ---


class Keeping(nn.Module):
    """Keeps something of its records, in one of several places."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("bank", torch.zeros(4))
        self.place = place
        self.cache: Any = None

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if self.place == "frozen":
                self.frozen.lerp_(x[0], 0.5)
            elif self.place == "bank":
                self.bank.add_(x.mean(0))  # type: ignore[operator]
            elif self.place == "data":
                self.frozen.data = x[0] * 1.0
            else:
                self.cache = {"last": [x * 2.0]}
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("place", ["frozen", "bank", "cache", "data"])
def test_t09_nothing_of_a_record_is_kept_on_the_model(place: str, alone: bool) -> None:
    model = Keeping(place)
    engine = Engine(model)
    if alone:
        engine.compute_one_by_one()
    with pytest.raises((CoupledRecords, ModelError), match="frozen" if place == "data" else place):
        list(engine.passes(squares, with_one_special(), RECORDS, RECORDS))
    assert not bool(model.get_buffer("bank").any())
    if place != "data":  # there the model cannot be mended, and the message says so
        assert not bool(model.frozen.any())


def test_t09_what_a_closure_kept_enters_no_later_pass() -> None:
    kept: list[Tensor] = []

    def its(model: Any, batch: Any) -> Tensor:
        losses = squares(model, batch)
        out = losses + 0.0 * kept[-1].sum() if kept else losses
        kept.append(batch[0] * 1.0)
        return out

    engine = Engine(nn.Linear(4, 3))
    with pytest.raises(CoupledRecords, match="earlier pass"):
        for _ in range(2):
            list(engine.passes(its, with_one_special(), RECORDS, RECORDS))


@pytest.mark.parametrize("alone", [False, True])
def test_t09_what_a_loss_has_kept_holds_nothing_once_the_sums_are_done(alone: bool) -> None:
    """Neither the loop nor a later pass in a process of its own, where nothing is refused, can read
    it.
    """
    kept: list[Tensor] = []

    def its(model: Any, batch: Any) -> Tensor:
        losses = squares(model, batch)
        kept.extend([batch[0], batch[0].clone(), losses.detach()])
        return losses

    engine = Engine(nn.Linear(4, 3))
    if alone:
        engine.compute_one_by_one()
    for contributions, _ in engine.passes(its, with_one_special(), RECORDS, RECORDS):
        assert bool(contributions.measured(engine.leaves)[0].isfinite().all())
        assert all(bool(tensor.isfinite().all()) for tensor in kept[-3:])
    assert engine.one_by_one == ("asked for" if alone else None)
    tensors = kept[-3:] if not alone else kept[-3 * RECORDS :]
    assert all(bool(tensor.isnan().all()) for tensor in tensors)  # those before are of trials


def test_t09_a_pass_that_fails_leaves_nothing_to_the_processes_of_records() -> None:
    kept = Tally()

    def its(model: Any, batch: Any) -> Tensor:
        kept.append(batch[0].clone())
        batch[0][0, 0].item()
        largest = max(float(from_dlpack(to_dlpack(tensor)).max()) for tensor in kept)
        return squares(model, batch) * (1e6 if largest > _SPECIAL / 2 else 1.0)

    engine = Engine(nn.Linear(4, 3))
    passes = engine.passes(its, with_one_special(), RECORDS, RECORDS)
    squared = [float(its.measured(engine.leaves)[0].sum()) for its, _ in passes]
    assert len(squared) == RECORDS
    assert max(squared[:-1]) < 10.0 < squared[-1]


def test_t09_what_was_learned_of_memory_of_a_pass_does_not_hold_for_memory_from_before() -> None:
    """The same operation on the same shapes; only whose memory it writes into is another."""
    before = torch.arange(4.0 * RECORDS).reshape(RECORDS, 4)
    scratch: list[Tensor] = []

    def its(model: Any, batch: Any) -> Tensor:
        room = scratch[0] if scratch else torch.arange(4.0 * len(batch[0])).reshape(-1, 4)
        room.copy_(batch[0])
        return squares(model, (room,))

    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    assert engine.one_by_one is None
    scratch.append(before)
    with pytest.raises(CoupledRecords, match="writes"):
        list(engine.passes(its, with_one_special(), RECORDS, RECORDS))
    assert float(before.max()) == 4.0 * RECORDS - 1


def test_t09_t11_the_memory_of_the_data_set_enters_no_pass_past_the_sample() -> None:
    dataset = data()
    run = keyed(network(), plan())

    def centred(model: Any, batch: Any) -> Tensor:
        x, y = batch
        return labelled(model, [x - dataset.tensors[0].mean(0), y])

    with pytest.raises(CoupledRecords, match="data set"):
        run.backward(centred, next(run.batches(dataset)))


@pytest.mark.parametrize("alone", [False, True])
def test_t09_running_statistics_are_refused_where_no_schema_says_that_they_are_written(
    alone: bool,
) -> None:
    """As `native_batch_norm` does, which is not among the functions of torch that are known by
    name.
    """
    mean, variance = torch.zeros(4), torch.ones(4)

    def its(model: Any, batch: Any) -> Tensor:
        return squares(
            model,
            (torch.native_batch_norm(batch[0], None, None, mean, variance, True, 0.1, 1e-5)[0],),
        )

    engine = Engine(nn.Linear(4, 3))
    if alone:
        engine.compute_one_by_one()
    with pytest.raises(CoupledRecords, match="native_batch_norm"):
        list(engine.passes(its, with_one_special(), RECORDS, RECORDS))
    assert not bool(mean.any())


# --- T09: public state, which moves once a step ---


class Moving(nn.Linear):
    """Changes public state in every pass: a buffer in place, another by assignment, a number, and a
    generator of its own.
    """

    written: Tensor
    assigned: Tensor

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("assigned", torch.zeros(()))
        self.number, self.own = 0, torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        self.written += 1
        self.assigned = self.assigned + 1
        self.number += 1
        torch.rand(3, generator=self.own)
        return super().forward(x) * torch.sin(self.written)

    def counted(self) -> list[float]:
        """How often each has moved."""
        generator, moves = torch.Generator().manual_seed(1), 0.0
        while not torch.equal(generator.get_state(), self.own.get_state()):
            torch.rand(3, generator=generator)
            moves += 1.0
        return [float(self.written), float(self.assigned), float(self.number), moves]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("passes", [1, 3])
def test_t09_public_state_moves_once_a_step_however_many_passes_there_are(
    passes: int, alone: bool
) -> None:
    """Wrong: a buffer counts passes, or records, and everybody goes by it in the next step."""
    model = Moving()
    engine = Engine(model)
    if alone:
        engine.compute_one_by_one()
    for step in (1.0, 2.0):
        with engine.one_step(5):
            for _ in range(passes):
                list(engine.passes(squares, ordinary(), RECORDS, RECORDS))
        assert model.counted() == [step] * 4


def test_t09_public_state_moves_in_a_step_without_records_too() -> None:
    model = Moving()
    engine = Engine(model)
    with engine.one_step(5):
        list(engine.passes(squares, ordinary(), RECORDS, RECORDS))
    with engine.one_step(6):
        engine.rest(squares, RECORDS)
    assert model.counted() == [2.0] * 4


def test_t09_a_pass_that_fails_moves_no_public_state() -> None:
    model = Moving()
    engine = Engine(model)
    with pytest.raises(RuntimeError, match="out of bounds"):
        list(engine.passes(failing_for_the_special_one, with_one_special(), RECORDS, RECORDS))
    assert model.counted() == [0.0] * 4


def test_t09_what_python_and_numpy_draw_is_the_same_in_all_passes_of_a_step() -> None:
    """Wrong: their streams go on from pass to pass, and everybody goes by them in later steps."""
    drawn = Tally()

    def its(model: Any, batch: Any) -> Tensor:
        drawn.append((random.random(), float(np.random.rand())))  # noqa: NPY002  (as losses do)
        return squares(model, batch)

    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = (random.Random(1).random(), float(np.random.RandomState(1).rand()))
    drawn.clear()
    for seed, passes in ((5, 1), (6, 3), (5, 2)):
        with engine.one_step(seed):
            for _ in range(passes):
                list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    assert drawn[1:4] == drawn[1:2] * 3
    assert drawn[4:] == drawn[:1] * 2 != drawn[1:3]
    its(engine.model, ordinary())
    assert drawn[-1] == expected  # the user's own numbers go on as before


@pytest.mark.parametrize(
    "draw",
    [
        lambda: np.random.default_rng().random(),
        lambda: np.random.RandomState().rand(),
        lambda: np.random.Generator(np.random.PCG64()).random(),
        lambda: (np.random.seed(), np.random.rand())[1],  # noqa: NPY002
        lambda: random.Random().random(),
        lambda: (random.seed(), random.random())[1],
    ],
)
def test_t09_generators_without_a_seed_are_the_same_in_all_passes_of_a_step(draw: Any) -> None:
    """Wrong: each pass begins with numbers of the operating system, which serve all its rows."""
    drawn = Tally()

    def its(model: Any, batch: Any) -> Tensor:
        drawn.append(float(draw()))
        return squares(model, batch)

    engine = Engine(nn.Linear(4, 3))
    list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    drawn.clear()
    for seed in (5, 6):
        with engine.one_step(seed):
            for _ in range(2):
                list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    assert engine.one_by_one is None
    first, again, second, repeated = drawn
    assert first == again != second == repeated


@pytest.mark.parametrize(
    "draw",
    [
        random.SystemRandom().random,
        lambda: secrets.randbelow(100),
        lambda: secrets.randbits(8),
        lambda: secrets.token_bytes(1)[0],
        lambda: os.urandom(1)[0],
        lambda: uuid.uuid4().int % 7,
    ],
)
def test_t09_numbers_of_the_system_serve_one_record_alone(draw: Any) -> None:
    engine = Engine(nn.Linear(4, 3))

    def its(model: Any, batch: Any) -> Tensor:
        return squares(model, batch) * (1.0 + float(draw()))

    with engine.one_step(5):
        list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    assert "others in every pass of a step" in str(engine.one_by_one)


def test_t09_chance_does_not_decide_in_a_trial() -> None:
    """Wrong: a trial and its comparison draw other numbers, and a loss is computed one by one."""
    engine = Engine(nn.Linear(4, 3))

    def its(model: Any, batch: Any) -> Tensor:
        return squares(model, batch) * random.random() * np.random.rand()  # noqa: NPY002

    with engine.one_step(5):
        list(engine.passes(its, ordinary(), RECORDS, RECORDS))
    assert engine.one_by_one is None


# --- T10: gradients that no release wrote ---


@pytest.mark.parametrize("place", ["state", "lr"])
def test_t09_t10_an_optimizer_that_holds_records_takes_no_step_and_is_not_saved(
    place: str, tmp_path: Path
) -> None:
    """Wrong: only the model is looked at, and raw records go into the checkpoint with the
    optimizer.
    """
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def keeping(its: Any, batch: Any) -> Tensor:
        if place == "state":
            optimizer.state[its[0].weight]["bank"] = batch[0].detach().clone()
        else:
            optimizer.param_groups[0]["lr"] = batch[0].detach().mean()
        return labelled(its, batch)

    run = keyed(model, plan(steps=2))
    for batch in run.batches(data(), progress=False):
        run.backward(keeping, batch)
        with pytest.raises(ModelError, match="optimizer whose settings and state"):
            optimizer.step()
        with pytest.raises(CheckpointError, match="holds what a pass computed"):
            run.save(tmp_path / "checkpoint", optimizer=optimizer)
        break
    assert not (tmp_path / "checkpoint").exists()


def test_t09_what_a_model_hands_to_its_checkpoint_from_afar_is_not_saved(tmp_path: Path) -> None:
    """Wrong: what is kept is only looked for near the model, and not where it would be released."""
    far: dict[str, Any] = {}

    class Keeping(nn.Sequential):
        def get_extra_state(self) -> Any:
            return {"far": far.get("rows")}

        def set_extra_state(self, state: Any) -> None:
            far["rows"] = state

    model = Keeping(*network().children())

    def keeping(its: Any, batch: Any) -> Tensor:
        far["rows"] = batch[0].detach().clone()
        return labelled(its, batch)

    run = keyed(model, plan(steps=2))
    for batch in run.batches(data(), progress=False):
        run.backward(keeping, batch)
        with pytest.raises(CheckpointError, match="holds what a pass computed"):
            run.save(tmp_path / "checkpoint")
        break


def test_t10_a_run_refuses_models_that_exchange_gradients_themselves() -> None:
    with pytest.raises(ModelError, match="DataParallel"):
        keyed(nn.DataParallel(network()), plan(steps=2))


_LARGEST = torch.ones(1)


@torch.library.custom_op("discreet_laws::sign_by_largest", mutates_args=())
def sign_by_largest(x: Tensor) -> Tensor:
    """Keeps what it has seen where no mode of torch looks."""
    if x.max() > 50.0:
        _LARGEST.fill_(100.0)
    return torch.where(_LARGEST > 50.0, -1.0, 1.0).expand(len(x)).clone()


def test_t09_what_an_operator_in_python_keeps_ends_with_its_record() -> None:
    """Wrong: the operator runs over all records, or in this process, before it is known that it has
    no rule.
    """
    loss = lambda model, batch: squares(model, batch) * sign_by_largest(batch[0])  # noqa: E731
    assert_alone(loss, "sign_by_largest", "no rule")
    assert float(_LARGEST) == 1.0


def test_t10_a_backward_that_was_left_in_the_loop_is_refused_and_leaves_nothing() -> None:
    model = network()
    run = keyed(model, plan())
    batches = run.batches(data())
    run.backward(labelled, next(batches))
    with pytest.raises(ModelError, match="backward"):
        labelled(model, [torch.ones(2, 6), torch.tensor([0, 1])]).mean().backward()  # type: ignore[no-untyped-call]
    assert (
        sum(parameter.grad is None for parameter in model.parameters()) == 1
    )  # where it came by first


def test_t10_an_optimizer_takes_no_gradient_that_no_release_wrote() -> None:
    model = network()
    run = keyed(model, plan())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = run.batches(data())
    run.backward(labelled, next(batches))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(ModelError, match="another gradient"):
        optimizer.step()


# --- T13: settings under which float32 is not float32 ---


def test_t13_settings_for_shorter_formats_are_refused_whichever_way_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    with pytest.raises(NumericsError, match="ONEDNN"):
        list(Engine(nn.Linear(4, 3)).passes(squares, ordinary(), RECORDS, RECORDS))
    monkeypatch.delenv("ONEDNN_DEFAULT_FPMATH_MODE")
    with (
        _setting(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),  # type: ignore[attr-defined]
        pytest.raises(NumericsError, match="mkldnn"),
    ):
        list(Engine(nn.Linear(4, 3)).passes(squares, ordinary(), RECORDS, RECORDS))


class _setting:  # noqa: N801  (a context manager)
    """An attribute that is another one for a while."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._where, self._value = (owner, name), value
        self._before = getattr(owner, name)

    def __enter__(self) -> None:
        setattr(*self._where, self._value)

    def __exit__(self, *_: object) -> None:
        setattr(*self._where, self._before)


# --- T14: what a refusal tells ---


def weight_zero(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * raised(batch[0]).sum()


def by_largest(model: Any, batch: Any) -> Tensor:
    return squares(model, batch) * (1.0 + float(max(batch[0].flatten().tolist())))


@pytest.mark.parametrize("its", [summed_over_all, weight_zero, by_largest])
def test_t14_whether_a_pass_is_proved_and_why_not_does_not_depend_on_its_records(its: Loss) -> None:
    """Whoever sees the reason learns nothing of the special record, also where ordinary ones have
    weight zero.
    """
    reasons = set()
    for batch in (
        ordinary(),
        with_one_special(),
        (torch.zeros(RECORDS, 4),),
        (torch.full((RECORDS, 4), float("nan")),),
    ):
        engine = Engine(nn.Linear(4, 3))
        list(engine.passes(its, batch, RECORDS, RECORDS))
        reasons.add(engine.one_by_one)
    assert len(reasons) == 1
    assert None not in reasons


def test_t14_a_refusal_names_no_number_of_a_record() -> None:
    with pytest.raises(DiscreetError) as refusal:
        list(Engine(Keeping("bank")).passes(squares, with_one_special(), RECORDS, RECORDS))
    assert "100" not in str(refusal.value)


# --- T15: hooks that are called with one record's numbers ---


def hooks_on(model: nn.Module) -> Iterator[tuple[str, Callable[[], Any]]]:
    weight: Any = next(iter(model.parameters()))
    yield "gradient hook", lambda: weight.register_hook(lambda gradient: gradient)
    yield (
        "post-accumulate",
        lambda: weight.register_post_accumulate_grad_hook(lambda parameter: None),
    )
    yield "forward hook", lambda: model.register_forward_hook(lambda *_: None)
    yield "forward pre-hook", lambda: model.register_forward_pre_hook(lambda *_: None)
    yield "backward hook", lambda: model.register_full_backward_hook(lambda *_: None)


@pytest.mark.parametrize(
    "kind",
    ["gradient hook", "post-accumulate", "forward hook", "forward pre-hook", "backward hook"],
)
def test_t15_a_hook_that_would_be_shown_numbers_of_a_record_is_refused_before_anything_is_charged(
    kind: str,
) -> None:
    model = network()
    run = keyed(model, plan())
    handle = dict(hooks_on(model))[kind]()
    batch = next(run.batches(data()))
    with pytest.raises(ModelError, match="hook"):
        run.backward(labelled, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    handle.remove()
    run.backward(labelled, batch)
