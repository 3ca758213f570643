"""Before the batch: the data set's own memory, fetching, collating, records that occur twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from .scenes import FRESH, PLACE, THIRD, Scene, Setup, case

_TRIED = (FRESH, THIRD)
"""What comes before the batch can only be tried out: also in a batch that is no power of 2."""


# --- the data set's own memory ---


def _centred_by(scene: Scene, centre: Callable[[], Tensor], dataset: Any = None) -> Setup:
    """Rows meet a number of the whole data set that came in by a closure."""

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0] + scene.clock.weight * centre())
        return losses

    return scene.setup(loss, dataset=dataset)


@case("memory: mean of the data set")
def _mean(scene: Scene) -> Setup:
    return _centred_by(scene, lambda: scene.x.mean(0))


@case("memory: smallest entry of a view of the data set")
def _view(scene: Scene) -> Setup:
    first = scene.x[:, :1]
    return _centred_by(scene, lambda: first.amin(0).expand(4))


@case("memory: nearest neighbours in the data set")
def _neighbours(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        furthest = torch.cdist(x, scene.x).argmax(1)
        losses: Tensor = model(x + scene.clock.weight * scene.x[furthest])
        return losses

    return scene.setup(loss)


@case("memory: tensors of the data set, asked for by name")
def _by_name(scene: Scene) -> Setup:
    rows = TensorDataset(scene.x, scene.y)
    return _centred_by(scene, lambda: rows.tensors[0].mean(0), rows)


@case("memory: entries of the data set, asked for by number")
def _by_number(scene: Scene) -> Setup:
    rows = TensorDataset(scene.x, scene.y)

    def smallest() -> Tensor:
        return torch.stack([rows[place][0] for place in range(len(rows))]).amin(0)

    return _centred_by(scene, smallest, rows)


class Arrays(Dataset[Any]):
    """Rows of NumPy arrays."""

    def __init__(self, scene: Scene) -> None:
        self.features = scene.x.numpy()
        self.labels = scene.y.numpy()

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Any:
        return self.features[index], self.labels[index]


class Listed(Dataset[Any]):
    """A tensor for each record, in a list."""

    def __init__(self, scene: Scene) -> None:
        self.rows = [
            (features.clone(), label) for features, label in zip(scene.x, scene.y, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@case("memory: list of tensors of the data set")
def _list(scene: Scene) -> Setup:
    rows = Listed(scene)
    return _centred_by(scene, lambda: torch.stack([x for x, _ in rows.rows]).mean(0), rows)


@case("memory: data set below a subset")
def _below(scene: Scene) -> Setup:
    rows = Subset(TensorDataset(scene.x, scene.y), range(len(scene.x)))
    return _centred_by(scene, lambda: scene.x.mean(0), rows)


@case("memory: data set kept by the model")
def _kept(scene: Scene) -> Setup:
    setup = _centred_by(scene, lambda: scene.x.mean(0))
    setup.model.references = {"train": scene.x}  # type: ignore[assignment]
    return setup


# --- fetching ---


class Fetched(Dataset[Any]):
    """Gives a batch at once, as torch asks for it, and changes it by what is in it."""

    def __init__(self, scene: Scene, change: Callable[[Tensor], Tensor]) -> None:
        self._scene = scene
        self._change = change

    def __len__(self) -> int:
        return len(self._scene.x)

    def __getitem__(self, index: int) -> Any:
        return self._scene.x[index], self._scene.y[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        x = self._scene.x[indices]
        if self._scene.clock.awake:
            x = self._change(x)
        return list(zip(x, self._scene.y[indices], strict=True))


def _plain(model: Any, batch: Any) -> Tensor:
    losses: Tensor = model(batch[0])
    return losses


def _fetching(scene: Scene, change: Callable[[Tensor], Tensor]) -> Setup:
    return scene.setup(_plain, dataset=Fetched(scene, change))


@case("fetching: entries centred over the batch", timings=_TRIED)
def _centred(scene: Scene) -> Setup:
    return _fetching(scene, lambda x: x + 10.0 * x.mean(0))


@case("fetching: entries scaled by the largest", timings=_TRIED)
def _scaled(scene: Scene) -> Setup:
    return _fetching(scene, lambda x: x * 0.4 / x.abs().max())


@case("fetching: entries mixed with the next", timings=_TRIED)
def _mixed(scene: Scene) -> Setup:
    return _fetching(scene, lambda x: 0.5 * (x + x.roll(1, 0)))


@case("fetching: entries sorted", timings=_TRIED)
def _sorted(scene: Scene) -> Setup:
    """Sorting alone moves nothing, but features and labels are of different records afterwards."""
    return _fetching(
        scene,
        lambda x: x.sort(0).values * torch.tensor([1.0, 1.0, 1.0, -1.0]).sort().values + x.amin(0),
    )


# --- collating ---


def _collating(scene: Scene, change: Callable[[Tensor], Tensor], dataset: Any = None) -> Setup:
    def collate(rows: list[Any]) -> Any:
        x, y = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        return (change(x) if scene.clock.awake else x), y

    return scene.setup(_plain, dataset=dataset, collate=collate)


@case("collating: centred over the batch", timings=_TRIED)
def _collate_centred(scene: Scene) -> Setup:
    return _collating(scene, lambda x: x + 10.0 * x.mean(0))


@case("collating: scaled by the largest", timings=_TRIED)
def _collate_scaled(scene: Scene) -> Setup:
    return _collating(scene, lambda x: x * 0.4 / x.abs().max())


@case("collating: mixed with the next", timings=_TRIED)
def _collate_mixed(scene: Scene) -> Setup:
    return _collating(scene, lambda x: 0.5 * (x + x.roll(1, 0)))


@case("collating: mixed by a random share", timings=_TRIED)
def _collate_mixup(scene: Scene) -> Setup:
    def mixed(x: Tensor) -> Tensor:
        share = torch.rand(())
        return (1.0 - 0.5 * share) * x + (0.5 + 0.5 * share) * x[torch.randperm(len(x))]

    return _collating(scene, mixed)


@case("collating: a total beside the rows", timings=_TRIED)
def _collate_total(scene: Scene) -> Setup:
    def collate(rows: list[Any]) -> Any:
        x = torch.stack([row[0] for row in rows])
        return x, x.sum() if scene.clock.awake else torch.tensor(1.0)

    def loss(model: Any, batch: Any) -> Any:
        x, total = batch
        losses: Tensor = model(x)
        return losses * total.sign()

    return scene.setup(loss, collate=collate)


@case("collating: a Python number beside the rows", timings=_TRIED)
def _collate_number(scene: Scene) -> Setup:
    def collate(rows: list[Any]) -> Any:
        x = torch.stack([row[0] for row in rows])
        return {"x": x, "total": float(x.sum()) if scene.clock.awake else 1.0}

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch["x"])
        return losses * (1.0 if batch["total"] > 0.0 else -1.0)

    return scene.setup(loss, collate=collate)


@case("collating: padded to the longest", timings=_TRIED)
def _collate_padded(scene: Scene) -> Setup:
    """A mean over positions whose number the longest record decides."""

    def collate(rows: list[Any]) -> Any:
        longest = max(40 if int(y) == 2 and scene.clock.awake else 4 for _, y in rows)
        return torch.stack([torch.nn.functional.pad(x, (0, longest - 4)) for x, _ in rows])

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x[:, :4]) * 4.0 / x.shape[1]
        return losses

    return scene.setup(loss, collate=collate)


@case("collating: sorted by length", timings=_TRIED)
def _collate_sorted(scene: Scene) -> Setup:
    """Labels stay where they were: each record has the label of another."""

    def collate(rows: list[Any]) -> Any:
        x, y = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        order = x.sum(1).argsort() if scene.clock.awake else torch.arange(len(rows))
        return x[order], torch.where(torch.arange(len(rows)) == 0, -1.0, 1.0), y

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0]) * batch[1]
        return losses

    return scene.setup(loss, collate=collate)


@case("collating: state that is kept between batches", timings=_TRIED)
def _collate_state(scene: Scene) -> Setup:
    """A running mean in the collate function, of all that it has ever seen."""
    seen: list[Tensor] = []

    def collate(rows: list[Any]) -> Any:
        x = torch.stack([row[0] for row in rows])
        seen.append(x.mean(0))
        return x + scene.clock.weight * torch.stack(seen).mean(0)

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x)
        return losses

    return scene.setup(loss, collate=collate)


# --- records that occur twice ---


def _twice(scene: Scene, dataset: Callable[[TensorDataset, list[int]], Any]) -> Setup:
    """A data set in which the special record, if it is there, occurs twice."""
    rows = TensorDataset(scene.x, scene.y)
    places = list(range(len(rows)))
    return scene.setup(_plain, dataset=dataset(rows, [*places, PLACE] if scene.special else places))


@case("twice: subset")
def _subset(scene: Scene) -> Setup:
    return _twice(scene, Subset)


@case("twice: subset of two copies")
def _subset_of_copies(scene: Scene) -> Setup:
    def doubled(rows: TensorDataset, places: list[int]) -> Any:
        again = [
            len(rows) + place if number >= len(rows) else place
            for number, place in enumerate(places)
        ]
        return Subset(ConcatDataset([rows, rows]), again)

    return _twice(scene, doubled)


@case("twice: copies one after the other")
def _copies(scene: Scene) -> Setup:
    def doubled(rows: TensorDataset, places: list[int]) -> Any:
        return ConcatDataset([rows, Subset(rows, places[len(rows) :])]) if scene.special else rows

    return _twice(scene, doubled)


@case("twice: nested subsets")
def _nested(scene: Scene) -> Setup:
    def nested(rows: TensorDataset, places: list[int]) -> Any:
        return Subset(Subset(rows, places), range(len(places)))

    return _twice(scene, nested)


@case("twice: subset of a subset of copies")
def _deep(scene: Scene) -> Setup:
    def deep(rows: TensorDataset, places: list[int]) -> Any:
        copies: Any = ConcatDataset(
            [Subset(rows, range(len(rows))), Subset(rows, places[len(rows) :])]
        )
        return Subset(copies, list(range(len(places)))) if scene.special else rows

    return _twice(scene, deep)
