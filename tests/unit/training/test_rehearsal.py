"""A loss that cannot be served is refused on made-up records, before anything is charged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import discreet as dp
from discreet.training import PrivateRun
from support.tally import Tally

PLAN = dp.Plan(
    sampler=dp.Sampler(dp.Poisson(0.2), records=40, steps=10),
    mechanism=dp.Groups(
        {"grad/*": dp.Gaussian(1.0, 2.0), "metric/accuracy": dp.Gaussian(1.0, 8.0)}
    ),
)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(40, 3, generator=generator), torch.randint(0, 2, (40,), generator=generator)
    )


def right(model: nn.Module, batch: Any) -> Any:
    outputs = model(batch[0])
    hits = (outputs.argmax(1) == batch[1]).float()
    return functional.cross_entropy(outputs, batch[1], reduction="none"), {"metric/accuracy": hits}


def averaged(model: nn.Module, batch: Any) -> Any:
    losses, statistics = right(model, batch)
    return losses.mean(), statistics


def one_too_few(model: nn.Module, batch: Any) -> Any:
    losses, statistics = right(model, batch)
    return losses[1:], statistics


def without_statistics(model: nn.Module, batch: Any) -> Any:
    return right(model, batch)[0]


def of_another_size(model: nn.Module, batch: Any) -> Any:
    losses, statistics = right(model, batch)
    return losses, {"metric/accuracy": statistics["metric/accuracy"][:, None].repeat(1, 2)}


def whole_numbers(model: nn.Module, batch: Any) -> Any:
    losses, statistics = right(model, batch)
    return losses.long(), statistics


def no_tensor(model: nn.Module, batch: Any) -> Any:
    return [1.0, 2.0]


def another_statistic(model: nn.Module, batch: Any) -> Any:
    losses, statistics = right(model, batch)
    return losses, statistics | {"metric/other": torch.ones(len(losses))}


def with_backward(model: nn.Module, batch: Any) -> Any:
    right(model, batch)[0].sum().backward()
    return right(model, batch)


WRONG = [
    averaged,
    one_too_few,
    without_statistics,
    of_another_size,
    whole_numbers,
    no_tensor,
    another_statistic,
    with_backward,
]


@pytest.mark.parametrize(
    "wrong",
    WRONG,
    ids=lambda loss: loss.__name__,
)
def test_what_shapes_and_types_show_is_refused_before_anything_is_charged(wrong: Any) -> None:
    ledger = dp.Ledger.in_memory()
    run = PrivateRun(network(), PLAN, ledger=ledger, statistics={"metric/accuracy": 1})
    batches = run.batches(data())
    with pytest.raises(dp.errors.ModelError):
        run.backward(wrong, next(batches))
    assert ledger.snapshot().steps == 0
    batches.close()  # type: ignore[attr-defined]
    again = PrivateRun(network(), PLAN, ledger=ledger, statistics={"metric/accuracy": 1})
    for batch in again.batches(data()):  # the whole list is still there for who mends the loss
        again.backward(right, batch)
    assert ledger.snapshot().steps == 10


def test_the_rehearsal_leaves_no_trace() -> None:
    """Of the model, of torch's random numbers, and of the records:
    it sees none of their numbers.
    """
    seen = Tally()

    def watching(model: nn.Module, batch: Any) -> Any:
        seen.append(batch[0].detach().clone())
        return right(model, batch)

    model, rows = network(), data()
    before, random_numbers = (
        {name: value.clone() for name, value in model.state_dict().items()},
        torch.get_rng_state(),
    )
    run = PrivateRun(model, PLAN, ledger=dp.Ledger.in_memory(), statistics={"metric/accuracy": 1})
    batch = next(run.batches(rows))
    run._rehearse(watching, batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_numbers)
    assert [tuple(made_up.shape) for made_up in seen] == [(7, 3), (1, 3), (1, 3)]
    assert not any(bool(torch.isin(made_up, rows.tensors[0]).any()) for made_up in seen)
    assert batch.pending


class Texts(Dataset[Any]):
    """Entries for which no numbers can be made up."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return {"text": f"record {index}", "x": torch.full((3,), index / 40.0), "y": index % 2}


def test_records_that_cannot_be_made_up_are_not_judged() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        assert all(text.startswith("record") for text in batch["text"])
        return right(model, (batch["x"], batch["y"]))

    ledger = dp.Ledger.in_memory()
    run = PrivateRun(network(), PLAN, ledger=ledger, statistics={"metric/accuracy": 1})
    for batch in run.batches(Texts()):
        run.backward(loss, batch)
    assert ledger.snapshot().steps == 10


def test_a_model_that_cannot_bear_made_up_records_is_not_judged() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        if batch[0].shape[0] == 2 and bool(
            (batch[0] == torch.linspace(-1.0, 1.0, 6).reshape(2, 3)).all()
        ):
            raise ValueError("unlike any real record")
        return right(model, batch)

    ledger = dp.Ledger.in_memory()
    run = PrivateRun(network(), PLAN, ledger=ledger, statistics={"metric/accuracy": 1})
    for batch in run.batches(data()):
        run.backward(loss, batch)
    assert ledger.snapshot().steps == 10
