"""Attacks on the engine that once worked, or nearly: what one record moves stays within the clip
norm, or is refused.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.engine import Engine, Loss
from discreet.training.factors.factors import Lookups, Outer
from discreet.training.factors.forms import Chooser
from discreet.training.factors.memory import Activations
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.rule import Convolved
from support.clipped_sums import clipped_sum


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(1)


def moved(
    model: nn.Module, loss: Loss, batches: tuple[Any, Any, Any], gone: int | None = None
) -> float:
    """By how much two batches' sums differ, after some passes over the first of three; in the last,
    one may be gone.
    """
    ordinary, one, other = batches
    found = []
    for batch in (one, other):
        engine = Engine(model)
        rows = torch.ones(12, dtype=torch.bool)
        for _ in range(2):
            clipped_sum(engine, loss, ordinary, rows)
        found.append(
            clipped_sum(
                engine, loss, batch, rows & (torch.arange(12) != (gone if batch is other else None))
            )
        )
    return float((found[0] - found[1]).norm())


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1))


# --- couplings that sleep ---


def test_p09_a_norm_over_the_batch_that_cuts_only_large_ones_is_computed_record_by_record() -> None:
    """One large record would shrink all others: nothing that the check's few records show."""

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = (
            model[1](hidden * torch.clamp(1000.0 / hidden.norm(), max=1.0)).squeeze(1).square()
        )
        return out

    x = torch.randn(12, 6)
    large = torch.cat([torch.full((1, 6), 1e5), x[1:]])
    assert moved(two_layers(), loss, (torch.randn(12, 6), x, large)) <= 2.0


def test_p09_a_threshold_from_the_batch_is_computed_record_by_record() -> None:
    """The hardest 64 of a batch, which are all of this one; also where the threshold is repeated
    for each record first.
    """

    def hardest(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        least = losses.topk(min(64, len(x))).values[-1]
        return losses * (losses >= least)

    def repeated(model: Any, x: Tensor) -> Tensor:
        losses = model(x).sum(1).square()
        most = losses.detach().mean().expand(len(x)) * 1e6
        return torch.minimum(losses, most)

    def of_python(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        return losses * min(1.0, 1e6 / float(losses.detach().sum()))

    def along(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = model[1](hidden + torch.cumsum(hidden * (hidden > 1e3), 0)).squeeze(1)
        return out

    operations = {hardest: "topk", repeated: "mean", of_python: "Python", along: "cumsum"}
    for loss, operation in operations.items():
        engine = Engine(two_layers())
        clipped_sum(engine, loss, torch.randn(12, 6), torch.ones(12, dtype=torch.bool))
        assert engine.one_by_one is not None
        assert operation in engine.one_by_one


def test_numbers_for_the_eye_are_proved_unless_somebody_looks() -> None:
    """Averages that meet no record again, shapes, zeros like a row,
    masks that fill with a number.
    """

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        hidden = hidden + torch.zeros_like(hidden[0])
        hidden[:, :2].masked_fill_(hidden[:, :2] < -10.0, 0.0)
        losses: Tensor = model[1](hidden).squeeze(1).square()
        losses.detach().mean()
        return losses

    def looking(model: Any, x: Tensor) -> Tensor:
        losses = loss(model, x)
        assert bool(losses.max() >= 0.0)
        return losses

    for each in (loss, looking):
        engine = Engine(two_layers())
        clipped_sum(engine, each, torch.randn(12, 6), torch.ones(12, dtype=torch.bool))
        assert (engine.one_by_one is None) == (each is loss)


@pytest.mark.parametrize("distance", [3, 6])
def test_p09_a_coupling_that_needs_many_records_goes_one_by_one(distance: int) -> None:
    """Three records that are shifted by three stay where they are."""

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = model[1](hidden + hidden.roll(distance, 0)).squeeze(1).square()
        return out

    engine = Engine(two_layers())
    clipped_sum(engine, loss, torch.randn(24, 6), torch.ones(24, dtype=torch.bool))
    assert "roll" in str(engine.one_by_one)


class Chosen(nn.Module):
    """A weight that meets chosen entries, in one row after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        losses = (x[mask] @ self.weight).squeeze(1)
        return torch.zeros(len(x)).index_add(0, mask.nonzero()[:, 0], losses)


def test_p10_as_many_chosen_entries_as_records_are_not_one_for_each() -> None:
    """One record with five entries, where four others have none: clipped row by row, it would move
    the sum by more than 1.
    """
    x, mask = torch.randn(12, 5, 4), torch.zeros(12, 5, dtype=torch.bool)
    mask[:, 0] = True
    large, uneven = x.clone(), mask.clone()
    large[3] = 100.0 * torch.eye(5)[:, :4]
    uneven[3], uneven[8:] = True, False
    other = (large, uneven.clone())
    assert (
        moved(Chosen(), lambda m, b: m(*b), ((x, mask), (large, uneven), other), gone=3)
        <= 1.0 + 1e-5
    )


# --- gradients past the run ---


@pytest.mark.parametrize("how", ["backward", "grad", "data", "many", "out"])
def test_p29_a_loss_that_writes_into_gradients_or_parameters_is_refused(how: str) -> None:
    """A backward() that was left in the loss would put all records' gradients, as they are, beside
    the noised ones.
    """

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        weight, row = model[0].weight, x[0].expand(4, 6)
        with torch.no_grad():
            if how == "grad":
                weight.grad = row.clone()
            if how == "data":
                weight.data = weight.data + row
            if how == "many":
                torch._foreach_add_([weight], [row])
            if how == "out":
                torch.add(weight, row, out=weight.detach())
        if how == "backward":
            losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return losses

    model = two_layers()
    kept = torch.ones_like(model[0].weight)  # type: ignore[index]
    model[0].weight.grad = kept  # type: ignore[index]
    with pytest.raises(ModelError, match=r"keeps nothing of its records.*0\.weight"):
        clipped_sum(Engine(model), loss, torch.randn(3, 6), torch.ones(3, dtype=torch.bool))
    assert model[0].weight.grad is kept  # type: ignore[index]
    assert torch.equal(kept, torch.ones(4, 6))


# --- bounds of norms ---


def test_p14_rows_that_are_looked_up_very_often_are_not_above_their_norm() -> None:
    """1 and many halves of its last place: each addition in float32 rounds down, the sum in float64
    does not.
    """
    b = torch.full((1, 5000, 1), 2.0**-24)
    b[0, 0] = 1.0
    factor = Lookups(torch.zeros(1, 5000, dtype=torch.int64), b, (2, 1))
    total = torch.zeros(2, 1, dtype=torch.float64)
    factor.add_to(total, torch.ones(1, dtype=torch.float64), 1.0)
    assert float(factor.measured()[0]) >= float(total.square().sum())


@pytest.mark.parametrize("size", [1e10, 1e18, 1.5e19])
def test_p30_a_convolution_whose_gradient_overflows_is_left_out_in_every_form(size: float) -> None:
    """Windows and gradients of float32 whose products, added up, are none: as a finite norm with
    infinite numbers.
    """
    x = torch.full((2, 1, 4000), size)
    x[1] = 1.0
    for form in Convolved(Convolution.of((1, 1, 1), 1, 0, 1, 1), x, x.clone()).forms().values():
        squares, _ = form().measured()
        assert squares.isfinite().tolist() == [False, True]


# --- how others are summed ---


def test_no_record_decides_by_its_time_how_others_are_clipped_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forms are timed on zeros: numbers next to zero take a processor longer."""
    seen: list[bool] = []
    measured = Outer.measured

    def looking(factor: Outer) -> Any:
        seen.append(bool(factor.a.any() or factor.b.any()))
        return measured(factor)

    monkeypatch.setattr(Outer, "measured", looking)
    chooser = Chooser(2**30)
    chooser.activations = Activations((2**30, 0), 2**30)
    chooser.finished("grad/w", Outer(torch.randn(2, 3, 4), torch.randn(2, 3, 5), (5, 4)), 0)
    assert seen
    assert not any(seen)
