"""The compatibility check: all problems at once, with a fix for each, and no trace left."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from discreet.training import Problems, check


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


def test_all_problems_are_listed_at_once() -> None:
    found = check(Everything(), (IMAGES, LABELS), labelled)
    assert not found.ok
    assert wheres(found) == [
        "layer 'first'",
        "layer 'second'",
        "layer 'third'",
        "one record and another",
        "unused.weight, unused.bias",
    ]
    assert [problem.refused for problem in found] == [True, True, True, True, False]
    text = str(found)
    assert text.startswith("4 to mend")
    assert 'model.set_submodule("first", torch.nn.GroupNorm(2, 8))' in text
    assert "`sub` of 'the model' (Everything)" in text


def test_the_fixes_it_prints_mend_the_model() -> None:
    model = Everything()
    for problem in check(model, (IMAGES, LABELS), labelled):
        if "set_submodule" in problem.fix:
            exec(problem.fix.split(";")[0], {"model": model, "torch": torch})
    model.third = nn.InstanceNorm2d(8)
    model.unused.requires_grad_(requires_grad=False)
    model.forward = lambda x: model.head(model.third(model.second(model.first(model.stem(x)))).mean((2, 3)))  # type: ignore[method-assign]
    found = check(model, (IMAGES, LABELS), labelled)
    assert found.ok
    assert len(found) == 0
    assert str(found) == "Ready for private training."


def test_nothing_is_touched() -> None:
    model = Everything()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    model.stem.weight.grad = torch.ones_like(model.stem.weight)
    check(model, (IMAGES, LABELS), labelled)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.stem.weight.grad, torch.ones_like(model.stem.weight))
    assert model.stem.bias is not None
    assert model.stem.bias.grad is None
    assert model.training
    assert not model.stem._forward_hooks


def test_a_loss_of_one_number_is_named_and_layers_are_looked_at_all_the_same() -> None:
    found = check(Everything(), (IMAGES, LABELS), lambda model, batch: labelled(model, batch).mean())
    assert wheres(found) == ["layer 'first'", "layer 'second'", "layer 'third'", "the loss", "one record and another"]


def test_p10_a_loss_for_each_token_is_named() -> None:
    ids = torch.randint(5, (4, 3))
    model = nn.Embedding(5, 5)
    for shape in ((-1, 3), (-1,)):

        def loss(network: Any, batch: Any, shape: tuple[int, ...] = shape) -> Tensor:
            return functional.cross_entropy(network(batch[0]).mT, batch[0], reduction="none").reshape(shape)

        (problem,) = check(model, (ids,), loss)
        assert problem.where == "the loss"
        assert "positions of each record" in problem.fix


@pytest.mark.parametrize(
    ("batch", "what"),
    [((torch.ones(3, 4), torch.ones(2, 4)), "different numbers"), ((torch.ones(0, 4),), "no records"), ((7,), "no tensor")],
)
def test_batches_without_one_row_for_each_record(batch: Any, what: str) -> None:
    (problem,) = check(nn.Linear(4, 1), batch, lambda model, rows: model(rows[0]).sum(1))
    assert problem.where == "the batch"
    assert what in problem.what


def test_a_model_without_parameters_to_train() -> None:
    (problem,) = check(nn.Linear(4, 1).requires_grad_(requires_grad=False), torch.ones(2, 4), lambda m, x: m(x).sum(1))
    assert problem.what == "no parameter requires a gradient"


def test_a_loss_that_uses_no_parameter_and_a_loss_that_raises() -> None:
    x = torch.randn(3, 4)
    (problem,) = check(nn.Linear(4, 1), x, lambda model, rows: rows.sum(1))
    assert "does not depend" in problem.what

    def failing(model: Any, rows: Tensor) -> Tensor:
        raise KeyError(float(rows[0, 0]))

    (problem,) = check(nn.Linear(4, 1), x, failing)
    assert problem.what == "raises KeyError"  # and no number of a record
    (problem,) = check(nn.Linear(4, 1), x, lambda model, rows: [1.0])
    assert "list" in problem.what


def test_notes_do_not_refuse() -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 1, dtype=torch.bfloat16))

    def loss(m: Any, ids: Tensor) -> Tensor:
        out: Tensor = m[1](m[0](ids).bfloat16()).float().sum((1, 2))
        return out

    found = check(model, torch.randint(5, (4, 3)), loss)
    assert found.ok
    assert any("half precision" in problem.what for problem in found)
    assert any("sparse" in problem.what for problem in found)
    assert "note:" in str(found)


def test_complex_parameters_are_named() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).abs().sum(1)

    found = check(Complex(), torch.randn(3, 4), lambda model, x: model(x))
    assert not found.ok
    assert "weight" in wheres(found)


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


def test_what_falls_to_the_loop_is_a_note_with_the_reason() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            squared: Tensor = Squared.apply(self.weight)  # type: ignore[no-untyped-call]
            return (x * squared).sum(1)

    found = check(Custom(), torch.randn(3, 4), lambda model, x: model(x))
    assert found.ok
    (note,) = found
    assert note.where == "speed"
    assert "one by one: " in note.what
