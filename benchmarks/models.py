"""The models whose steps are timed: ordinary modules, random data, one loss per record.

No module here knows of privacy. Where opacus cannot take the model as it is, `Task.for_opacus`
builds the one it can, and `Task.remark` says how it differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the usual name)

Batch: TypeAlias = tuple[
    Tensor, Tensor
]  # inputs and targets; the records are the first axis of both


@dataclass(frozen=True)
class Task:
    """A model, a sample of records, and what opacus needs instead.

    Attributes:
        name: as it stands in the table.
        model: builds the model.
        batch: builds a sample of so many records.
        records: the size of the sample that is timed.
        for_opacus: builds the model with the same parameters that opacus can take.
        remark: how that one differs.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    records: int
    for_opacus: Callable[[], nn.Module] | None = None
    remark: str = ""


def losses(model: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
    """One cross-entropy per record: the average over its positions, where it has several."""
    inputs, targets = batch
    each = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), reduction="none")
    return each.view(len(targets), -1).mean(1)


def vectors(records: int, shape: tuple[int, ...] = (784,)) -> Batch:
    """Standard normal inputs of a shape, ten classes."""
    return torch.randn(records, *shape), torch.randint(10, (records,))


def tokens(records: int, length: int, vocabulary: int, classes: int) -> Batch:
    """Random tokens, one target each."""
    return torch.randint(vocabulary, (records, length)), torch.randint(classes, (records, length))


def documents(records: int, length: int, vocabulary: int) -> Batch:
    """Random tokens, one of two classes for each record."""
    return torch.randint(vocabulary, (records, length)), torch.randint(2, (records,))


def logistic() -> nn.Module:
    """Logistic regression on 784 numbers."""
    return nn.Sequential(nn.Linear(784, 10))


def mlp(width: int = 1024) -> nn.Module:
    """Two hidden layers of one width; 1.86 million parameters at 1024."""
    return nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def mnist_cnn() -> nn.Module:
    """The small tanh network that papers on private training use for 28 x 28 images; 26 thousand
    parameters.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def cifar_cnn() -> nn.Module:
    """Six 3 x 3 convolutions with GroupNorm, a pooling after every second;
    0.29 million parameters.
    """
    layers: list[nn.Module] = []
    channels = [3, 32, 32, 64, 64, 128, 128]
    for number, (here, there) in enumerate(itertools.pairwise(channels), 1):
        layers += [nn.Conv2d(here, there, 3, padding=1), nn.GroupNorm(8, there), nn.ReLU()]
        if number % 2 == 0:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Block(nn.Module):
    """Attention and a network of two layers, each after a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Positions attend to those before them."""
        records, length, width = hidden.shape
        heads = self.attend(self.before(hidden)).view(
            records, length, 3, self.heads, width // self.heads
        )
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(hidden.shape))
        added: Tensor = self.contract(F.gelu(self.expand(self.between(hidden))))
        return hidden + added


class GPT(nn.Module):
    """A small language model with learned positions; 5.3 million parameters untied, 4.2 tied."""

    places: Tensor

    def __init__(self, length: int = 128, *, tied: bool, repeated: bool = False) -> None:
        super().__init__()
        vocabulary, width = 4096, 256
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(4)))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.token.weight
            nn.init.normal_(self.token.weight, std=0.02)
        self.repeated = repeated  # one row of positions for each record, as opacus needs
        self.register_buffer("places", torch.arange(length).unsqueeze(0), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next token."""
        places = self.places.expand(ids.shape).contiguous() if self.repeated else self.places
        logits: Tensor = self.head(self.last(self.blocks(self.token(ids) + self.place(places))))
        return logits


class Classifier(nn.Module):
    """Embedding, LSTM, and a linear layer on its last state; 0.74 million parameters."""

    def __init__(self, lstm: Callable[..., nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.token = nn.Embedding(10_000, 64)
        self.lstm = lstm(64, 128, batch_first=True)
        self.head = nn.Linear(128, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the two classes."""
        states, _ = self.lstm(self.token(ids))
        logits: Tensor = self.head(states[:, -1])
        return logits


def opacus_classifier() -> nn.Module:
    """The same with opacus's own LSTM, which is a loop in Python."""
    from opacus.layers import DPLSTM  # noqa: PLC0415  (a peer, not a requirement)

    return Classifier(DPLSTM)


def gpt(length: int, records: int, *, tied: bool) -> Task:
    """The language model on sequences of a length."""
    return Task(
        name=f"GPT {'tied' if tied else 'untied'}",
        model=partial(GPT, length, tied=tied),
        batch=partial(tokens, length=length, vocabulary=4096, classes=4096),
        records=records,
        for_opacus=partial(GPT, length, tied=tied, repeated=True),
        remark="opacus: positions repeated for each record",
    )


TASKS = {
    task.name: task
    for task in (
        Task("logistic", logistic, vectors, 4096),
        Task("MLP", mlp, vectors, 512),
        Task("MNIST CNN", mnist_cnn, partial(vectors, shape=(1, 28, 28)), 512),
        Task("CIFAR CNN", cifar_cnn, partial(vectors, shape=(3, 32, 32)), 128),
        gpt(128, 32, tied=False),
        gpt(128, 32, tied=True),
        Task(
            "LSTM",
            Classifier,
            partial(documents, length=64, vocabulary=10_000),
            64,
            for_opacus=opacus_classifier,
            remark="opacus: DPLSTM for nn.LSTM",
        ),
    )
}


def small_mlp() -> nn.Module:
    """One hidden layer of 128; a step takes less than a millisecond."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


class Logits(nn.Module):
    """The logits alone of a classifier of transformers."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.classifier(ids).logits
        return logits


def bert_tiny() -> nn.Module:
    """BERT with two layers of width 128, untrained; 4.4 million parameters."""
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415  (a peer)

    config = BertConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        num_labels=2,
    )
    return Logits(BertForSequenceClassification(config))


SMALL = {
    task.name: task
    for task in (
        Task("small MLP", small_mlp, partial(vectors, shape=(64,)), 256),
        Task("small logistic", partial(nn.Linear, 20, 10), partial(vectors, shape=(20,)), 64),
        Task("BERT-tiny", bert_tiny, partial(documents, length=128, vocabulary=30_522), 8),
    )
}
"""Steps so short, or of so few records, that what is done once for each step decides; in
`benchmarks.step` if they are named.
"""
