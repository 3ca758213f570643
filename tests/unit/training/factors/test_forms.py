"""Forms are chosen by time within memory; nothing of a pass outlives it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy

from discreet.training.engine import Engine
from discreet.training.factors.factors import Dense, Factor, Outer
from discreet.training.factors.forms import SHARE, Choice, Chooser, choices_table
from discreet.training.factors.memory import Activations
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.rule import Convolved
from discreet.training.separation.marks import no_functions
from support.tally import Tally


def loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]).flatten(1), batch[1], reduction="none")


class Noticing(nn.Module):
    """Notes every tensor that comes out of its layers; adds a parameter to records, and folds
    records into positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.place = (
            nn.Linear(6, 8),
            nn.Linear(8, 3),
            nn.Parameter(torch.randn(4, 8)),
        )
        self.seen = Tally()

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        rows = torch.relu(first + self.place).flatten(0, 1)
        last: Tensor = self.second(rows)
        for tensor in (first, rows, last):
            self.seen.append(weakref.ref(tensor))
        return last.view(len(x), -1)


def test_nothing_of_a_pass_outlives_it() -> None:
    """Wrong: nodes of the graph that hold what holds the graph, a circle that Python's collector
    does not see.
    """
    model = Noticing()
    engine = Engine(model)
    batch = torch.randn(5, 4, 6), torch.zeros(5, dtype=torch.long)
    for _ in range(3):
        for contributions, _statistics in engine.passes(loss, batch, 5, 5):
            del contributions
    assert engine.one_by_one is None
    gc.collect()
    assert len(model.seen) > 10
    assert [seen() for seen in model.seen] == [None] * len(model.seen)


def test_activations_are_freed_while_the_backward_pass_goes_on() -> None:
    """Wrong: uses, or closures of nodes, that keep every input to the end."""
    alive = Tally()

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x)
            late: list[StorageWeakRef] = []
            x.register_hook(lambda _: alive.append(not late[0].expired()))  # type: ignore[no-untyped-call]
            middle = torch.tanh(self.layers[1](x))
            with no_functions():  # a loss of a user may not have memory of the pass
                late.append(StorageWeakRef(middle.untyped_storage()))  # type: ignore[no-untyped-call]
            return torch.sigmoid(self.layers[2](middle))

    model = First()
    engine = Engine(model, form="direct")  # with the factor formed, its inputs are of no more use
    batch = torch.randn(5, 2, 4), torch.zeros(5, dtype=torch.long)
    for _ in engine.passes(loss, batch, 5, 5):
        alive.clear()
    for _ in engine.passes(loss, batch, 5, 5):
        pass
    assert alive[-1] is False


def test_what_autograd_keeps_is_counted_by_call_and_record() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3))
    engine = Engine(model)
    engine.rehearse(loss, (torch.randn(4, 10), torch.zeros(4, dtype=torch.long)), 4)
    found = engine._chooser.activations
    # The input, the result of tanh (kept once, for itself and for the next layer), and what the
    # loss keeps.
    assert 4 * (10 + 20) <= found.after[0] <= 4 * (10 + 20 + 3 * 3) + 8 + 8
    assert found.largest == 4 * 20
    assert list(found.after) == sorted(found.after, reverse=True)


def test_a_loss_in_which_nothing_can_be_counted_is_served_all_the_same() -> None:
    """torch.func bears no hooks on what autograd keeps."""

    def strange(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        scale: Tensor = torch.func.grad(torch.sin)(torch.zeros(()))
        return loss(model, batch) * scale

    engine = Engine(nn.Linear(3, 2))
    assert (
        len(
            list(
                engine.passes(strange, (torch.randn(4, 3), torch.zeros(4, dtype=torch.long)), 4, 4)
            )
        )
        == 4
    )
    assert (
        engine.fitting(strange, (torch.randn(4, 3), torch.zeros(4, dtype=torch.long)), 4, 2**20, 4)
        == 4
    )


def chooser(after: tuple[int, ...], budget: int = 2**40) -> Chooser:
    made = Chooser(budget)
    made.activations = Activations(after)
    return made


@pytest.fixture
def gradients_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "discreet.training.factors.forms._time",
        lambda _factor, name, _runs: 1.0 if name == "direct" else 9.0,
    )
    monkeypatch.setattr("discreet.training.factors.forms._SMALL", 0)


_CASES = [((10**6,), 0, "direct"), ((10,), 0, "ghost"), ((10, 10, 10**6), 1, "direct")]


@pytest.mark.usefixtures("gradients_are_faster")
@pytest.mark.parametrize(("after", "call", "form"), _CASES)
def test_gradients_are_formed_only_within_the_memory_that_is_there(
    after: tuple[int, ...], call: int, form: str
) -> None:
    """2 records of 8 x 8 numbers: 512 bytes, beside what has been given back. Wrong: the fastest,
    whatever it takes.
    """
    factor = Outer(torch.randn(2, 200, 8), torch.randn(2, 200, 8), (8, 8))
    made = chooser(after)
    kind = Dense if form == "direct" else Outer
    assert isinstance(made.finished("grad/w", factor, call), kind)
    assert made.choices["grad/w"].form == form
    assert made.choices["grad/w"].bytes == (512 if form == "direct" else 2 * 200 * 16 * 4)


@pytest.mark.usefixtures("gradients_are_faster")
def test_a_few_megabytes_are_free_whatever_the_activations_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small network keeps less than its gradients take; formed a few at a time they took 30 times
    as long.
    """
    monkeypatch.setattr("discreet.training.factors.forms._SMALL", 600)
    factor = Outer(torch.randn(2, 200, 8), torch.randn(2, 200, 8), (8, 8))
    made = chooser((10,))
    assert [made.choices[leaf].form for leaf in ("a", "b") if made.finished(leaf, factor, 0)] == [
        "direct",
        "ghost",
    ]
    assert not isinstance(chooser((10,), budget=500).finished("a", factor, 0), Dense)


@pytest.mark.usefixtures("gradients_are_faster")
def test_what_is_kept_adds_up_over_leaves_and_the_budget_counts() -> None:
    factor = Outer(torch.randn(2, 200, 8), torch.randn(2, 200, 8), (8, 8))
    made = chooser((int(600 / SHARE),), budget=600)  # room for one
    assert [made.choices[leaf].form for leaf in ("a", "b") if made.finished(leaf, factor, 0)] == [
        "direct",
        "ghost",
    ]


def test_a_choice_is_kept_and_equal_shapes_share_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[str] = []

    def time(_factor: Factor, name: str, _runs: int) -> float:
        timed.append(name)
        return float(len(timed))

    monkeypatch.setattr("discreet.training.factors.forms._time", time)
    made = chooser((10**9,))
    for leaf in ("a", "b"):
        for _ in range(2):
            made.finished(leaf, Outer(torch.randn(20, 5, 4), torch.randn(20, 5, 3), (3, 4)), 0)
    assert timed == ["ghost", "direct"]  # on a few records; twice as slow is clear, so not on all
    assert made.choices["b"].seconds == made.choices["a"].seconds


def test_a_form_is_tried_on_few_records_first() -> None:
    factor = Convolved(Convolution.of((2, 3, 3)), torch.randn(20, 3, 9), torch.randn(20, 2, 7))
    made = chooser((10**9,))
    made.finished("w", factor, 0)
    assert set(made.choices["w"].seconds) == {"streamed", "folded", "unfolded"}
    assert all(seconds > 0 for seconds in made.choices["w"].seconds.values())


def test_streamed_norms_without_gram_matrices_are_those_of_the_gradients() -> None:
    """16 x 16 positions: Gram matrices do not pay, gradients are formed a few at a time; 19
    records: the last few are 3.
    """
    factor = Convolved(
        Convolution.of((4, 3, 3, 3), padding=1),
        torch.randn(19, 3, 16, 16),
        torch.randn(19, 4, 16, 16),
    )
    squares, spreads = factor.measured()
    truth = factor.dense().values.double().flatten(1).square().sum(1)
    assert torch.equal(squares, spreads)
    assert torch.all(squares >= truth * (1 - 1e-6))
    torch.testing.assert_close(squares, truth, rtol=1e-4, atol=0.0)


def test_the_engine_explains_itself() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(12, 3))
    engine = Engine(model)
    assert "first step" in engine.explain()
    batch = torch.randn(5, 2, 6), torch.zeros(5, dtype=torch.long)
    for _ in engine.passes(loss, batch, 5, 5):
        pass
    lines = engine.explain().splitlines()
    assert len(lines) == 1 + len(engine.parameters)
    assert all(leaf in engine.explain() for leaf in engine.parameters)
    engine.compute_one_by_one()
    assert engine.explain() == "Records are computed one by one: asked for."


def test_the_table_says_what_was_not_measured() -> None:
    assert "the only one" in choices_table([Choice("grad/b", "direct", {}, 40)])
