"""The compatibility check: what is proved, what is computed alone, what is refused with a fix for
each, and no trace left.
"""

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import discreet as dp
from discreet.training import Problems, check
from support.tally import Tally

READY = "Ready for private training: proved that no record touches another."


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(2)


def labelled(model: Any, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


IMAGES, LABELS = torch.randn(6, 4, 5, 5), torch.tensor([0, 1, 2, 0, 1, 1])


class Everything(nn.Module):
    """As many mistakes as fit into one model."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 3)
        self.first = nn.BatchNorm2d(8)
        self.second = nn.BatchNorm2d(8, affine=False)
        self.third = nn.InstanceNorm2d(8, track_running_stats=True)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.third(self.second(self.first(self.stem(x)))).mean((2, 3))
        out: Tensor = self.head(x - 0.1 * x.mean(0))
        return out


def wheres(problems: Problems) -> list[str]:
    return [problem.where for problem in problems]


# --- what is refused ---


def test_layers_that_normalise_over_the_batch_are_listed_at_once() -> None:
    found = check(Everything(), labelled, (IMAGES, LABELS))
    assert not found.ok
    assert wheres(found) == ["layer 'first'", "layer 'second'"]
    assert str(found).startswith("2 to mend")
    assert 'model.set_submodule("first", torch.nn.GroupNorm(2, 8))' in str(found)


def test_the_fixes_it_prints_mend_the_model_step_by_step() -> None:
    model = Everything()
    for problem in check(model, labelled, (IMAGES, LABELS)):
        exec(problem.fix.split(";")[0], {"model": model, "torch": torch})
    (problem,) = check(model, labelled, (IMAGES, LABELS))
    assert problem.refused
    assert "third.running_mean" in problem.what
    assert "track_running_stats=False" in problem.fix
    model.third = nn.InstanceNorm2d(8)
    found = check(model, labelled, (IMAGES, LABELS))
    assert found.ok
    assert wheres(found) == ["speed", "unused.weight, unused.bias"]
    model.unused.requires_grad_(requires_grad=False)

    def each_by_itself(x: Tensor) -> Tensor:
        out: Tensor = model.head(model.third(model.second(model.first(model.stem(x)))).mean((2, 3)))
        return out

    model.forward = each_by_itself  # type: ignore[method-assign]
    assert str(check(model, labelled, (IMAGES, LABELS))) == READY


@pytest.mark.parametrize("size", [4, 7, 48, 64])
def test_the_replacement_of_a_layer_normalises_more_than_one_number(size: int) -> None:
    (problem,) = check(
        nn.Sequential(nn.Linear(3, size), nn.BatchNorm1d(size)),
        labelled,
        (torch.ones(2, 3), LABELS[:2]),
    )
    groups = {4: 1, 7: 1, 48: 12, 64: 16}[size]
    assert f"GroupNorm({groups}, {size}))" in problem.fix


def test_state_that_would_keep_records_is_refused_by_name() -> None:
    class Bank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x)
            self.get_buffer("seen").add_(out.detach().mean(0))
            return out

    model = Bank()
    (problem,) = check(model, labelled, (torch.randn(6, 4), LABELS))
    assert problem.refused
    assert "'seen'" in problem.what
    assert not bool(model.get_buffer("seen").any())


def test_a_loss_of_one_number_is_named() -> None:
    (problem,) = check(
        nn.Linear(4, 3), lambda m, b: labelled(m, b).mean(), (torch.randn(6, 4), LABELS)
    )
    assert problem.where == "the loss"
    assert 'reduction="none"' in problem.fix


def test_p10_a_loss_for_each_token_is_named() -> None:
    ids = torch.randint(5, (4, 3))
    model = nn.Embedding(5, 5)
    for shape in ((-1, 3), (-1,)):

        def loss(network: Any, batch: Any, shape: tuple[int, ...] = shape) -> Tensor:
            return functional.cross_entropy(
                network(batch[0]).mT, batch[0], reduction="none"
            ).reshape(shape)

        (problem,) = check(model, loss, (ids,))
        assert problem.where == "the loss"
        assert "positions of each record" in problem.fix


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        ((torch.ones(3, 4), torch.ones(2, 4)), "different numbers"),
        ((torch.ones(0, 4),), "no records"),
        (7, "no tensor"),
    ],
)
def test_batches_without_one_row_for_each_record(batch: Any, what: str) -> None:
    (problem,) = check(nn.Linear(4, 1), lambda model, rows: model(rows[0]).sum(1), batch)
    assert problem.where == "the batch"
    assert what in problem.what


def test_a_model_without_parameters_to_train() -> None:
    frozen = nn.Linear(4, 1).requires_grad_(requires_grad=False)
    (problem,) = check(frozen, lambda m, x: m(x).sum(1), torch.ones(2, 4))
    assert problem.what == "no parameter requires a gradient"


def test_a_loss_that_uses_no_parameter_and_a_loss_that_raises() -> None:
    x = torch.randn(3, 4)
    (problem,) = check(nn.Linear(4, 1), lambda model, rows: rows.sum(1), x)
    assert "depends on none" in problem.what

    def failing(model: Any, rows: Tensor) -> Tensor:
        raise KeyError(rows.shape)

    (problem,) = check(nn.Linear(4, 1), failing, x)
    assert problem.what == "raises KeyError for 3 records"
    (problem,) = check(nn.Linear(4, 1), lambda model, rows: [1.0], x)
    assert "list" in problem.what


def test_complex_parameters_are_named() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).abs().sum(1)

    found = check(Complex(), lambda model, x: model(x), torch.randn(3, 4))
    assert not found.ok
    assert "weight" in wheres(found)


def test_what_a_run_refuses_when_it_begins_is_refused() -> None:
    """Wrong: to say "Ready" of a wrapper for several devices, or of a gradient that is there
    already.
    """
    batch = (torch.randn(6, 4), LABELS)
    (problem,) = check(nn.DataParallel(nn.Linear(4, 3)), labelled, batch)
    assert "DataParallel" in problem.what
    model = nn.Linear(4, 3)
    model.weight.grad = torch.ones(3, 4)
    (problem,) = check(model, labelled, batch)
    assert (problem.where, problem.refused) == ("gradients", True)
    assert "weight" in problem.what
    model.weight.grad.zero_()
    assert check(model, labelled, batch).ok


@pytest.mark.parametrize("rows", [40, 64, 65])
def test_all_records_of_a_small_batch_are_tried(rows: int) -> None:
    def loss(model: Any, x: Tensor) -> Tensor:
        out: Tensor = model(x.view(rows, 4)).sum(1)
        return out

    assert check(nn.Linear(4, 3), loss, torch.randn(rows, 4)).ok == (rows <= 64)


# --- what is proved, and what is computed alone ---


def test_what_is_proved_is_said_to_be() -> None:
    found = check(
        nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)),
        labelled,
        (torch.randn(6, 4), LABELS),
    )
    assert found.ok
    assert len(found) == 0
    assert str(found) == READY


def test_what_couples_records_is_computed_alone_and_the_reason_and_the_cost_are_named() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    model = nn.Sequential(nn.Linear(4, 5), Centred(), nn.Linear(5, 3))
    found = check(model, labelled, (torch.randn(6, 4), LABELS))
    assert found.ok
    (note,) = found
    assert (note.where, note.refused) == ("speed", False)
    assert "one by one" in note.what
    assert "times a plain pass" in note.what
    assert "mean.dim" in note.what
    assert "the layer '1'" in note.what
    assert str(found).startswith("Ready for private training, record by record.")


class Squared(torch.autograd.Function):
    """Hidden from the modes of torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        out: Tensor = 2 * x * gradients[0]
        return out


def test_what_no_rule_covers_is_a_note_with_the_reason() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            squared: Tensor = Squared.apply(self.weight)  # type: ignore[no-untyped-call]
            return (x * squared).sum(1)

    found = check(Custom(), lambda model, x: model(x), torch.randn(3, 4))
    assert found.ok
    (note,) = found
    assert note.where == "speed"
    assert "one by one" in note.what


def test_one_record_is_enough_for_a_look() -> None:
    assert str(check(nn.Linear(4, 3), labelled, (torch.randn(1, 4), LABELS[:1]))) == READY


def test_notes_do_not_refuse() -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 1, dtype=torch.bfloat16))

    def loss(m: Any, ids: Tensor) -> Tensor:
        out: Tensor = m[1](m[0](ids).bfloat16()).float().sum((1, 2))
        return out

    found = check(model, loss, torch.randint(5, (4, 3)))
    assert found.ok
    assert any("half precision" in problem.what for problem in found)
    assert any("sparse" in problem.what for problem in found)
    assert "note:" in str(found)


# --- with a plan ---


def plan(groups: dict[str, Any]) -> dp.Plan:
    sampler = dp.Sampler(dp.Poisson(0.1), records=100, steps=10)
    return dp.Plan(sampler=sampler, mechanism=dp.Groups(groups))


def test_p09_a_plan_with_a_group_for_batch_statistics_makes_such_layers_private() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    batch = (torch.randn(6, 4), LABELS)
    groups = {"grad/*": dp.Gaussian(1.0, 1.0)}
    (problem,) = check(model, labelled, batch, plan(groups))
    assert problem.where == "the plan"
    assert "'1'" in problem.what
    assert '"bn/*"' in problem.fix
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = check(model, labelled, batch, plan(groups | {"bn/*": dp.Gaussian(1.0, 4.0)}))
    assert str(found) == READY
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def counted(model: Any, batch: Any) -> Any:
    losses = labelled(model, batch)
    return losses, {"metric/hits": torch.ones_like(losses)}


def test_a_plan_whose_groups_do_not_claim_every_parameter_is_refused() -> None:
    batch = (torch.randn(6, 4), LABELS)
    (problem,) = check(
        nn.Linear(4, 3), labelled, batch, plan({"grad/weight": dp.Gaussian(1.0, 1.0)})
    )
    assert problem.where == "the plan"
    assert "grad/bias" in problem.what
    slots = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.1), records=100, steps=10),
        mechanism=dp.mechanisms.Microbatches(dp.Gaussian(1.0, 1.0), slots=2),
    )
    (problem,) = check(nn.Linear(4, 3), labelled, batch, slots)
    assert problem.where == "the plan"
    assert "slots" in problem.what


@pytest.mark.parametrize(
    ("loss", "statistics", "what"),
    [
        (counted, None, "others: ['metric/hits']"),
        (counted, {"metric/hits": 1}, ""),
        (counted, {"metric/hits": 2}, "1"),
        (labelled, {"metric/hits": 1}, "none of that name"),
    ],
)
def test_statistics_are_those_that_a_run_is_told_of(loss: Any, statistics: Any, what: str) -> None:
    groups = {"grad/*": dp.Gaussian(1.0, 1.0)} | (
        {} if statistics is None else {"metric/*": dp.Gaussian(1.0, 1.0)}
    )
    found = check(
        nn.Linear(4, 3), loss, (torch.randn(6, 4), LABELS), plan(groups), statistics=statistics
    )
    assert [(problem.where, problem.what) for problem in found] == (
        [("statistics", what)] if what else []
    )


def test_without_a_plan_statistics_are_not_judged() -> None:
    assert check(nn.Linear(4, 3), counted, (torch.randn(6, 4), LABELS)).ok


# --- nothing is touched ---


class Shrinking(nn.Module):
    """A table whose rows are rescaled when they are looked up; noise; buffers that passes move
    without records.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, max_norm=0.1)
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
        self.drop = nn.Dropout(0.5)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.drop(self.table(ids))).square().sum((1, 2))
        return out


CALLS = Tally()


@pytest.mark.parametrize("copies", [True, False])
def test_what_a_loss_keeps_outside_of_the_model_is_not_there_afterwards(
    copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that no search finds; without copies of the process only what a loss reaches is
    protected.
    """
    model = nn.Linear(4, 3)

    def keeps(model: Any, batch: Any) -> Tensor:
        CALLS.append(len(CALLS))
        model.calls = len(CALLS)
        return labelled(model, batch)

    CALLS.clear()
    monkeypatch.setattr(sys.modules[Problems.__module__], "can_copy", lambda: copies)
    assert check(model, keeps, (torch.randn(6, 4), LABELS)).ok
    assert "calls" not in vars(model)
    assert bool(CALLS) is not copies


@pytest.mark.parametrize("make", [Everything, Shrinking])
def test_nothing_is_touched(make: type[nn.Module]) -> None:
    model = make()
    rows: Any = (IMAGES, LABELS) if make is Everything else torch.randint(5, (4, 3))
    state = torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, *others = model.parameters()
    first.grad = torch.ones_like(first)
    tensors = [rows] if isinstance(rows, Tensor) else list(rows)
    copies = [tensor.clone() for tensor in tensors]
    check(model, labelled if make is Everything else lambda m, ids: m(ids), rows)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in others)
    assert all(map(torch.equal, tensors, copies))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_embeddings_that_rescale_their_rows_are_refused_and_left_as_they_are() -> None:
    (problem,) = check(Shrinking(), lambda m, ids: m(ids), torch.randint(5, (4, 3)))
    assert problem.refused
    assert "table.weight" in problem.what


class Careless(nn.Module):
    """Changes what it can reach, and then may raise."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.calls, self.sizes, self.raises = 0, [0], raises

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sizes.append(len(x))
        self.frozen.add_(1.0)
        self.eval()
        np.random.rand()  # noqa: NPY002  (what losses draw from)
        random.random()
        if self.raises:
            raise ValueError("after all that")
        out: Tensor = self.layer(x)
        return out


@pytest.mark.parametrize("raises", [False, True])
def test_what_a_model_changes_is_put_back(*, raises: bool) -> None:
    model = Careless(raises=raises)
    states = str(np.random.get_state()), random.getstate()  # noqa: NPY002
    assert check(model, labelled, (torch.randn(6, 4), LABELS)).ok == (not raises)
    assert (model.calls, model.sizes, model.frozen.tolist(), model.training) == (
        0,
        [0],
        [0.0],
        True,
    )
    assert (str(np.random.get_state()), random.getstate()) == states  # noqa: NPY002
