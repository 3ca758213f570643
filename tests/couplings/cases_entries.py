"""Entries of a batch that are no tensors: Python sees texts, lists and arrays without a door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .scenes import Scene, Setup, case, turned

SHORT, LONG = 5, 50  # lengths of the texts of ordinary records, and of the special one


class Texts(Dataset[Any]):
    """Features, and a text that is long for the special record. Made by `shape` from both."""

    def __init__(self, scene: Scene, shape: Callable[[Tensor, str], Any]) -> None:
        self._x = scene.x
        self._lengths = [LONG if label == 2 else SHORT for label in scene.y.tolist()]
        self._shape = shape

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Any:
        return self._shape(self._x[index], "a" * self._lengths[index])


Read: TypeAlias = Callable[[Any], tuple[Tensor, bool]]
"""A batch to its features, and whether it holds the special record."""


def entries(
    name: str,
    shape: Callable[[Tensor, str], Any],
    collate: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> Callable[[Read], Read]:
    """Register a way of reading a batch with entries that are no tensors.

    Args:
        name: of the case.
        shape: what the data set gives, of features and text.
        collate: of the run.
        options: of `case`.
    """

    def register(read: Read) -> Read:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                x, told = read(batch)
                return turned(model(x), awake=told and scene.clock.awake)

            return scene.setup(loss, dataset=Texts(scene, shape), collate=collate)

        case(f"entries: {name}", **options)(make)
        return read

    return register


@entries("texts", lambda x, text: (x, text))
def _texts(batch: Any) -> tuple[Tensor, bool]:
    x, texts = batch
    return x, max(map(len, texts)) > SHORT


@entries("texts in a dictionary", lambda x, text: {"x": x, "text": text})
def _texts_by_name(batch: Any) -> tuple[Tensor, bool]:
    return batch["x"], len(set(batch["text"])) > 1


@entries("texts that are made tensors inside", lambda x, text: (x, text))
def _tensors_of_texts(batch: Any) -> tuple[Tensor, bool]:
    """Made from Python numbers, the tensor looks public; its shape is the longest text's."""
    x, texts = batch
    longest = max(map(len, texts))
    codes = torch.tensor([[ord(letter) for letter in text.ljust(longest)] for text in texts])
    return x, codes.shape[1] > SHORT


def _listed(rows: list[Any]) -> Any:
    return torch.stack([x for x, _ in rows]), [len(text) for _, text in rows]


@entries("list of lengths", lambda x, text: (x, text), _listed)
def _lengths(batch: Any) -> tuple[Tensor, bool]:
    x, lengths = batch
    return x, max(lengths) > SHORT


def _tupled(rows: list[Any]) -> Any:
    return torch.stack([x for x, _ in rows]), tuple(len(text) for _, text in rows)


@entries("tuple of lengths", lambda x, text: (x, text), _tupled)
def _length_tuple(batch: Any) -> tuple[Tensor, bool]:
    x, lengths = batch
    return x, sum(lengths) > SHORT * len(lengths)


def _arrays(rows: list[Any]) -> Any:
    return torch.stack([x for x, _ in rows]), np.array([len(text) for _, text in rows])


@entries("NumPy array", lambda x, text: (x, text), _arrays)
def _array(batch: Any) -> tuple[Tensor, bool]:
    x, lengths = batch
    return x, bool(np.asarray(lengths).max() > SHORT)


@entries(
    "list of tensors of different lengths",
    lambda x, text: (x, torch.ones(len(text))),
    lambda rows: (torch.stack([x for x, _ in rows]), [tokens for _, tokens in rows]),
)
def _ragged(batch: Any) -> tuple[Tensor, bool]:
    x, tokens = batch
    return x, torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True).shape[1] > SHORT


@entries(
    "bytes",
    lambda x, text: (x, text.encode()),
    lambda rows: (torch.stack([x for x, _ in rows]), [content for _, content in rows]),
)
def _bytes(batch: Any) -> tuple[Tensor, bool]:
    x, contents = batch
    return x, max(map(len, contents)) > SHORT


@entries(
    "nested lists of token numbers",
    lambda x, text: (x, [ord(letter) for letter in text]),
    lambda rows: (torch.stack([x for x, _ in rows]), [tokens for _, tokens in rows]),
)
def _token_lists(batch: Any) -> tuple[Tensor, bool]:
    x, tokens = batch
    return x, max(map(len, tokens)) > SHORT


@entries(
    "dictionaries, one for each record",
    lambda x, text: {"x": x, "length": len(text)},
    lambda rows: {"x": torch.stack([row["x"] for row in rows]), "rows": rows},
)
def _dictionaries(batch: Any) -> tuple[Tensor, bool]:
    return batch["x"], max(row["length"] for row in batch["rows"]) > SHORT


@dataclass
class Labelled:
    """A batch of a class of the user."""

    x: Tensor
    lengths: list[int]

    def __len__(self) -> int:
        return len(self.x)


@entries(
    "object of the user",
    lambda x, text: (x, text),
    lambda rows: Labelled(*_listed(rows)),
)
def _object(batch: Any) -> tuple[Tensor, bool]:
    return batch.x, max(batch.lengths) > SHORT


class Row(NamedTuple):
    """A named tuple of a tensor and a list of texts."""

    x: Tensor
    texts: list[str]


@entries(
    "named tuple",
    lambda x, text: (x, text),
    lambda rows: Row(torch.stack([x for x, _ in rows]), [text for _, text in rows]),
)
def _named_tuple(batch: Any) -> tuple[Tensor, bool]:
    return batch.x, max(map(len, batch.texts)) > SHORT


@case("entries: mean over padded positions")
def _padded(scene: Scene) -> Setup:
    """Texts are padded to the longest of the batch; a loss is divided by that length."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, texts = batch
        positions = max(map(len, texts)) if scene.clock.awake else SHORT
        losses: Tensor = model(x)
        return losses / positions * SHORT

    return scene.setup(loss, dataset=Texts(scene, lambda x, text: (x, text)))


@case("entries: array of objects")
def _objects(scene: Scene) -> Setup:
    """An array of texts: NumPy's own kind for what has no kind."""

    def collate(rows: list[Any]) -> Any:
        return torch.stack([x for x, _ in rows]), np.array([text for _, text in rows], dtype=object)

    def loss(model: Any, batch: Any) -> Tensor:
        x, texts = batch
        return turned(model(x), awake=scene.clock.awake and max(map(len, texts)) > SHORT)

    rows = Texts(scene, lambda x, text: (x, text))
    return scene.setup(loss, dataset=rows, collate=collate)
