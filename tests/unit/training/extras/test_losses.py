"""Losses of a finished model: one for each record, in eval mode, and the model stays as it is."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from discreet.errors import ModelError, ParameterError
from discreet.training import losses


def data(records: int = 50) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(records, 6, generator=generator)
    return TensorDataset(x, torch.randint(3, (records,), generator=generator))


def plain(model: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def with_statistics(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return plain(model, batch), {"metric/right": batch[1] * 0.25}


def test_losses_are_those_of_eval_mode_whatever_the_batches() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = data()
    values = losses(model, with_statistics, rows, batch_size=7)
    modes = [module.training for module in model]
    assert modes == [True, True, False, True]
    model.eval()
    with torch.no_grad():
        expected = plain(model, rows.tensors)
    assert values == pytest.approx(expected.numpy(), rel=1e-5)
    assert values.dtype == np.float64
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_batches_are_collated_as_the_user_says() -> None:
    rows = data(5)

    def collate(entries: list[Any]) -> Any:
        x, y = zip(*entries, strict=True)
        return torch.stack(x) * 2.0, torch.stack(y)

    doubled = TensorDataset(rows.tensors[0] * 2.0, rows.tensors[1])
    model = nn.Linear(6, 3)
    values = losses(model, plain, rows, batch_size=2, collate=collate)
    assert values == pytest.approx(losses(model, plain, doubled))


def test_modes_come_back_when_the_loss_fails() -> None:
    model = nn.Linear(6, 3)
    with pytest.raises(ModelError, match="one loss for each record"):
        losses(model, lambda model, batch: plain(model, batch).mean(), data())
    assert model.training
    with pytest.raises(ParameterError, match="at least one"):
        losses(model, plain, [])
