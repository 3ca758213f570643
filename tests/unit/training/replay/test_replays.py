"""Which passes are executed from a recording: the same bits, and when it is not used."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the usual name)

from discreet.errors import ModelError
from discreet.training import augmented
from discreet.training.data.trees import Portion
from discreet.training.engine import Engine
from discreet.training.passes.sandbox import seeded_pass
from discreet.training.replay import replays
from discreet.training.replay.steps import slots_in

RECORDS = 6
SCALE = 1.0


class Stepper:
    """Steps of an engine, from a seed; every number that they contribute."""

    def __init__(self, model: nn.Module, *, static: bool = True) -> None:
        # So little memory leaves one form of factors: otherwise measured time would choose.
        self.engine = Engine(model, static=static, memory_budget=8)
        self._seeds = itertools.count(1)

    def step(self, loss: Any, batch: Any, rows: int = RECORDS) -> list[Tensor]:
        """The numbers of one step of one pass."""
        seed = next(self._seeds)
        tensors: list[Tensor] = []
        with seeded_pass(seed), self.engine.one_step(seed):
            portion = Portion(batch, torch.arange(rows))
            for contributions, statistics in self.engine.passes(loss, portion, rows, rows):
                found = slots_in((dict(contributions.pieces), statistics), Tensor)
                tensors += [tensor.clone() for tensor in found]
        return tensors

    @property
    def has_program(self) -> bool:
        """Whether the last pass was executed from a recording, or the next may be."""
        return any(entry.program for entry in self._known())

    def _known(self) -> list[Any]:
        return list(self.engine._replays._known.values())


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def mlp(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), *more, nn.ReLU(), nn.Linear(7, 3))


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.GroupNorm(3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12, 3),
    )  # fmt: skip


class Tiny(nn.Module):
    """Attention over tokens, with a table that is the head as well."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token, self.place = nn.Embedding(9, 8), nn.Embedding(4, 8)
        self.norm, self.attend = nn.LayerNorm(8), nn.Linear(8, 24)
        self.register_buffer("places", torch.arange(4).unsqueeze(0))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next tokens, averaged."""
        hidden = self.token(ids) + self.place(self.places)
        query, key, value = self.attend(self.norm(hidden)).chunk(3, -1)
        hidden = hidden + F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return F.linear(hidden, self.token.weight).mean(1)


def loss(model: Any, batch: Any) -> Tensor:
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def with_statistics(model: Any, batch: Any) -> Any:
    scores = model(batch[0])
    right = (scores.argmax(1) == batch[1]).float()
    return F.cross_entropy(scores, batch[1], reduction="none"), {"metric/accuracy": right}


def records(*sizes: int) -> tuple[Tensor, Tensor]:
    return torch.randn(RECORDS, *(sizes or (5,))), torch.randint(3, (RECORDS,))


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(9, (RECORDS, 4)), torch.randint(9, (RECORDS,))


@pytest.mark.parametrize(
    ("build", "function", "make"),
    [
        (mlp, loss, records),
        (mlp, with_statistics, records),
        (lambda: mlp(nn.Dropout(0.5)), loss, records),
        (lambda: mlp(nn.LayerNorm(7), nn.GELU()), loss, records),
        (cnn, loss, lambda: records(1, 6, 6)),
        (Tiny, loss, tokens),
        (mlp, augmented(loss, lambda batch: (batch[0] * 2.0, batch[1]), copies=2), records),
    ],
)
def test_a_program_gives_the_bits_of_the_users_own_pass(
    build: Callable[[], nn.Module], function: Any, make: Callable[[], Any]
) -> None:
    model = build()
    static, plain = Stepper(model), Stepper(model, static=False)
    for _ in range(4):
        batch = make()
        assert same(static.step(function, batch), plain.step(function, batch))
    assert static.has_program


def test_the_loss_is_not_called_any_more() -> None:
    calls = []

    def counted(model: Any, batch: Any) -> Tensor:
        calls.append(1)
        return loss(model, batch)

    stepper = Stepper(mlp())
    function: Any = loss
    for _ in range(3):
        stepper.step(function, records())
    forward = nn.Linear.forward
    try:
        nn.Linear.forward = lambda *_: pytest.fail("the model was called")  # type: ignore[method-assign]
        stepper.step(function, records())
    finally:
        nn.Linear.forward = forward  # type: ignore[method-assign]

    # One that counts its calls has state, and is not recorded.
    other = Stepper(mlp())
    for _ in range(3):
        other.step(counted, records())
    assert not other.has_program


def test_weights_move_between_steps() -> None:
    model = mlp()
    static, plain = Stepper(model), Stepper(model, static=False)
    for _ in range(4):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        batch = records()
        assert same(static.step(loss, batch), plain.step(loss, batch))


def test_the_first_steps_and_other_sizes() -> None:
    stepper = Stepper(mlp())
    seen = []
    for _ in range(2):
        stepper.step(loss, records())
        seen.append(stepper.has_program)
    assert seen == [False, True]
    model = stepper.engine.model
    batch = records()
    plain = Stepper(model, static=False)
    assert same(stepper.step(loss, batch, 3), plain.step(loss, batch, 3))


def test_a_program_is_dropped_when_something_moves_and_recorded_again() -> None:
    model = mlp()
    static, plain = Stepper(model), Stepper(model, static=False)
    for _ in range(3):
        static.step(loss, records())
    model[0].weight.data = torch.ones(7, 5)
    batch = records()
    assert same(static.step(loss, batch), plain.step(loss, batch))
    assert not static.has_program
    assert same(static.step(loss, batch), plain.step(loss, batch))
    assert static.has_program


def test_eval_and_train_are_other_passes() -> None:
    model = mlp(nn.Dropout(0.5))
    static, plain = Stepper(model), Stepper(model, static=False)
    for mode in (True, True, True, False, False, True, False):
        model.train(mode)
        batch = records()
        seeds = static.step(loss, batch), plain.step(loss, batch)
        assert same(*seeds)


def test_a_public_index_that_moves_gives_what_the_users_pass_gives() -> None:
    class Chosen(nn.Module):
        order: Tensor

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(5, 3)
            self.register_buffer("order", torch.arange(RECORDS))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x[self.order])  # type: ignore[no-any-return]

    model = Chosen()
    static, plain = Stepper(model), Stepper(model, static=False)
    for _ in range(3):
        batch = records()
        assert same(static.step(loss, batch), plain.step(loss, batch))
    assert static.has_program

    model.order[0] = 1  # records are not in their order any more: not proved, and alone an error
    with pytest.raises(IndexError):
        static.step(loss, batch)
    assert not static.has_program


def counting(model: Any, batch: Any) -> Tensor:
    model.calls.add_(1)
    return loss(model, batch)


def drawing(model: Any, batch: Any) -> Tensor:
    return loss(model, batch) + 0.0 * random.random()


def sharing(model: Any, batch: Any) -> Tensor:
    return loss(model, batch) * torch.rand(())


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (counting, "writes into memory that was there before the pass"),
        (drawing, "random numbers of Python or NumPy"),
        (sharing, "random numbers that serve all records"),
    ],
)
def test_passes_that_cannot_be_executed_again_are_not(function: Any, reason: str) -> None:
    model = mlp()
    model.register_buffer("calls", torch.zeros(()))
    stepper = Stepper(model)
    for _ in range(3):
        stepper.step(function, records())
    assert not stepper.has_program
    assert reason in stepper.engine.explain()


UNSEEN_SCALE: ContextVar[float] = ContextVar("scale", default=1.0)


def test_a_loss_that_changes_where_nobody_looks_is_found_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "_PERIOD", 3)
    UNSEEN_SCALE.set(1.0)

    def function(model: Any, batch: Any) -> Tensor:
        return loss(model, batch) * UNSEEN_SCALE.get()

    stepper = Stepper(mlp())
    for _ in range(6):
        stepper.step(function, records())
    UNSEEN_SCALE.set(2.0)
    with pytest.raises(ModelError, match="static=True"):
        for _ in range(4):
            stepper.step(function, records())


def test_a_program_that_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "same_bits", lambda *_: False)
    stepper = Stepper(mlp())
    for _ in range(3):
        stepper.step(loss, records())
    assert not stepper.has_program
    assert "other bits" in stepper.engine.explain()


def test_what_moves_again_and_again_is_left_at_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(model: Any, batch: Any) -> Tensor:
        return loss(model, batch) * SCALE

    stepper = Stepper(mlp())
    for number in range(12):
        monkeypatch.setitem(globals(), "SCALE", float(number))
        stepper.step(scaled, records())
    assert not stepper.has_program
    assert "values of Python" in stepper.engine.explain()


def test_only_made_up_records_are_recorded_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Tensor] = []
    inner = replays.Replays._record

    def watched(self: Any, known: Any, function: Any, compute: Any, *others: Any) -> None:
        def seen(rows: Portion, present: Tensor, recorder: Any) -> Any:
            batches.append(rows.batch[0].clone())
            return compute(rows, present, recorder)

        inner(self, known, function, seen, *others)

    monkeypatch.setattr(replays.Replays, "_record", watched)
    stepper = Stepper(mlp())
    secret = torch.full((RECORDS, 5), 123.0)
    for _ in range(3):
        stepper.step(loss, (secret, torch.zeros(RECORDS, dtype=torch.long)))
    assert stepper.has_program
    assert len(batches) == 2
    assert all(batch.abs().max() <= 1 for batch in batches)


def test_a_step_without_records_records_as_any_other() -> None:
    stepper = Stepper(mlp())
    stepper.step(loss, records())
    with stepper.engine.one_step(7):
        stepper.engine.rest(loss, RECORDS)
    assert stepper.has_program


def test_contributions_are_erased_when_their_step_has_ended() -> None:
    stepper = Stepper(mlp())
    for _ in range(3):
        stepper.step(loss, records())
    leaked: list[Tensor] = []
    with stepper.engine.one_step(9):
        portion = Portion(records(), torch.arange(RECORDS))
        for contributions, _ in stepper.engine.passes(loss, portion, RECORDS, RECORDS):
            leaked += slots_in(dict(contributions.pieces), Tensor)
    assert leaked
    assert all(tensor.isnan().all() for tensor in leaked)
    assert not any(parameter.isnan().any() for parameter in stepper.engine.model.parameters())


def test_settings_of_precision_are_read_in_every_step() -> None:
    stepper = Stepper(mlp())
    for _ in range(3):
        stepper.step(loss, records())
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(Exception, match="shorter format"):
            stepper.step(loss, records())
    finally:
        torch.set_float32_matmul_precision("highest")


def test_passes_of_many_kinds_are_not_recorded_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "_KINDS", 2)
    stepper = Stepper(mlp())
    for rows in (3, 4, 5, 6):
        for _ in range(2):
            stepper.step(loss, records(), rows)
    assert len(stepper._known()) == 2
    assert "more than 2 kinds" in stepper.engine.explain()


def test_a_loss_that_fails_on_made_up_records_is_not_recorded() -> None:
    def picky(model: Any, batch: Any) -> Tensor:
        inputs, labels = batch
        # Made-up labels are one.
        return F.nll_loss(model(inputs)[:, :1].log_softmax(1), labels, reduction="none")

    stepper = Stepper(mlp())
    for _ in range(3):
        stepper.step(picky, (torch.randn(RECORDS, 5), torch.zeros(RECORDS, dtype=torch.long)))
    assert not stepper.has_program
    assert "fails on made-up records" in stepper.engine.explain()
