"""T11 once more: what one record's entry does to the rows of others, before the batch.

Each test names the wrong implementation that it catches.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

import discreet as dp
from discreet.errors import CoupledRecords
from discreet.randomness import Source
from discreet.training import PrivateRun

RECORDS = 6
FEATURES = 1.0 + torch.arange(RECORDS * 4.0).reshape(RECORDS, 4) / 10


class Rows(Dataset[Any]):
    """Entries by a function of their numbers."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def released(
    dataset: Any, loss: Any, collate: Any = None, *, rehearsed: bool = True, steps: int = 1
) -> Tensor:
    """The sum of clipped gradients of full batches, next to no noise."""
    model = nn.Linear(4, 1, bias=False)
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=RECORDS, steps=steps),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-9)}),
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
    )
    run = PrivateRun(
        model, plan, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(bytes(32))
    )
    for batch in run.batches(dataset, collate):
        # Asked for anything, a batch is drawn at once, and the loss is not tried before.
        assert rehearsed or batch.step >= 0
        model.zero_grad()
        run.backward(loss, batch)
    assert model.weight.grad is not None
    return model.weight.grad * RECORDS


@pytest.mark.parametrize("place", range(RECORDS))
@pytest.mark.parametrize(
    "make",
    [
        lambda index, odd: {"x": FEATURES[index], "time": 37.5 if odd else 37},
        lambda index, odd: {"x": FEATURES[index], "keep": torch.tensor(1 if odd else True)},
        lambda index, odd: {"x": FEATURES[index].numpy().astype("f8" if odd else "f4")},
        lambda index, odd: {"x": FEATURES[index]} | ({} if odd else {"flip": -1.0}),
    ],
    ids=["float", "bool", "array", "key"],
)
def test_t11_the_type_and_the_keys_of_one_entry_decide_nothing_for_others(
    make: Any, place: int
) -> None:
    """Wrong: torch's default_collate is given entries that are not alike. It promotes all to the
    type of one, and takes the keys of the first.
    """

    def loss(model: Any, batch: Any) -> Tensor:
        out: Tensor = model(batch["x"].float()).squeeze(1)
        return out * batch["flip"] if "flip" in batch else out

    with pytest.raises(CoupledRecords, match="float\\(x\\)"):
        released(Rows(lambda index: make(index, index == place)), loss)


@pytest.mark.parametrize("collate", [None, lambda rows: torch.tensor(np.stack(rows))])
def test_t11_a_buffer_that_is_filled_again_gives_every_record_its_own_row(collate: Any) -> None:
    """Wrong: entries are stacked when all of them are fetched, and each is the last by then."""
    buffer = np.empty(4, np.float32)

    def decoded(index: int) -> Any:
        buffer[:] = FEATURES[index].numpy()
        return buffer

    def loss(model: Any, x: Tensor) -> Tensor:
        out: Tensor = 0.01 * model(x).squeeze(1)
        return out

    assert torch.allclose(released(Rows(decoded), loss, collate), 0.01 * FEATURES.sum(0))


@pytest.mark.parametrize("kind", [np.ndarray, np.recarray])
def test_t11_a_structured_buffer_gives_every_record_its_own_row(kind: type) -> None:
    """Wrong: entries of a structured array are taken for numbers, and each is the last by then."""
    buffer: Any = np.zeros(1, [("x", "f4", (4,)), ("y", "i8")]).view(kind)

    def decoded(index: int) -> Any:
        buffer["x"][0] = FEATURES[index].numpy()
        return buffer[0]

    def collate(rows: list[Any]) -> Tensor:
        return torch.tensor(np.stack([row["x"] for row in rows]))

    def loss(model: Any, x: Tensor) -> Tensor:
        out: Tensor = 0.01 * model(x).squeeze(1)
        return out

    assert torch.allclose(released(Rows(decoded), loss, collate), 0.01 * FEATURES.sum(0))


@pytest.mark.parametrize("collated", [False, True])
def test_t11_a_vocabulary_that_counts_by_an_iterator_is_refused(collated: bool) -> None:
    """Wrong: the iterator goes on from order to order, as if nobody could repeat its numbers."""
    words: dict[int, int] = defaultdict(itertools.count().__next__)

    def numbered(index: int) -> Any:
        return FEATURES[index], index if collated else words[index]

    def collate(rows: list[Any]) -> Any:
        x, numbers = default_collate(rows)
        return x, torch.tensor([words[number] for number in numbers.tolist()])

    def loss(model: Any, batch: Any) -> Tensor:
        out: Tensor = model(batch[0]).squeeze(1) * batch[1]
        return out

    with pytest.raises(CoupledRecords, match="in another order"):
        released(Rows(numbered), loss, collate if collated else None)


@pytest.mark.parametrize("rehearsed", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_t11_tensors_that_a_data_set_loads_when_asked_enter_no_pass_past_the_sample(
    rehearsed: bool, late: bool
) -> None:
    """Wrong: the memory of a data set is marked once, before anything was fetched."""

    class Lazy(Rows):
        """Loads its tensors with the first entry, or somewhere in the second step."""

        x: Tensor | None = None
        asked = 0

        def __getitem__(self, index: int) -> Any:
            self.asked += 1
            if self.x is None and (not late or self.asked > RECORDS + 7):
                self.x = FEATURES.clone()
            return FEATURES[index].clone()

    dataset = Lazy(int)

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).squeeze(1)
        return losses if dataset.x is None else losses * dataset.x.mean()

    with pytest.raises(CoupledRecords, match="memory of the data set"):
        released(dataset, loss, rehearsed=rehearsed, steps=4)
