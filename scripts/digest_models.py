"""The models whose gradients `digests.py` writes down: small, with made-up records.

A case is a function that builds a model, the loss of each record and the records. The script seeds
torch before it calls that function, so every call builds the same numbers. Cases with a plan of
their own (other groups, another sampler, canaries) name it in `Case`.
"""  # noqa: INP001

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

import discreet as dp
from discreet import training

__all__ = ["CASES", "Case"]

RECORDS = 12
CLIP_NORM = 0.03
"""Below the gradient of every record, so that its norm has a part in what is released."""

NOISE = 1e-3
"""Noise multiplier: so little that a change of a gradient's last bits still shows."""

STEPS = 5
KEY, COINS = bytes(range(32)), bytes(range(32, 64))
VOCABULARY = 13

Loss: TypeAlias = Callable[[Any, Any], Any]
Parts: TypeAlias = tuple[nn.Module, Loss, tuple[Tensor, ...]]
"""A model, the loss of each record, and the records: tensors with one row for each."""

GAUSSIAN = dp.Gaussian(CLIP_NORM, NOISE)
BARE = dp.Groups({"*": dp.NotPrivate()})
ONE_GROUP = dp.Groups({"grad/*": GAUSSIAN})
EVERYTHING = dp.Everything()


@dataclass(frozen=True)
class Case:
    """A model, and how it is trained.

    Args:
        build: makes the model, the loss and the records, from torch's own random numbers.
        mechanism: of the plan.
        sampling: policy of the plan.
        plan: further arguments of the plan.
        statistics: names and sizes of what the loss returns besides losses.
        canaries: makes the canaries of a run.
        planted: records of the plan that the canaries make up.
        ways: in which it is trained; `digests.py` describes them.
    """

    build: Callable[[], Parts]
    mechanism: Any = ONE_GROUP
    sampling: Any = EVERYTHING
    plan: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, int] = field(default_factory=dict)
    canaries: Callable[[], Any] = lambda: None
    planted: int = 0
    ways: tuple[str, ...] = ("lean", "roomy")

    def run(self, model: nn.Module, *, bare: bool, **options: Any) -> training.PrivateRun:
        """A run of five steps with a test key and a ledger in memory; bare: sums as they are."""
        sampler = dp.Sampler(self.sampling, records=RECORDS + self.planted, steps=STEPS)
        mechanism = BARE if bare else self.mechanism
        return training.PrivateRun(
            model,
            dp.Plan(sampler=sampler, mechanism=mechanism, **self.plan),
            ledger=dp.Ledger.in_memory(),
            source=dp.randomness.Source.unsafe_test_key(KEY),
            statistics=self.statistics,
            **options,
        )


# --- losses ---


def classify(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of a class for each record."""
    *inputs, classes = batch
    return F.cross_entropy(model(*inputs), classes, reduction="none")


def squares(model: nn.Module, batch: Any) -> Tensor:
    """Mean square of everything that the model gives for a record."""
    outputs: Tensor = model(*batch)
    return outputs.flatten(1).square().mean(1)


def next_word(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of the word that follows, averaged over the positions of a record."""
    (words,) = batch
    logits = model(words)
    logits = getattr(logits, "logits", logits)
    per_position = F.cross_entropy(logits[:, :-1].transpose(1, 2), words[:, 1:], reduction="none")
    return per_position.mean(1)


def with_accuracy(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy, and whether the class is right."""
    inputs, classes = batch
    scores = model(inputs)
    correct = (scores.argmax(1) == classes).float()
    return F.cross_entropy(scores, classes, reduction="none"), {"metric/accuracy": correct}


def in_bfloat16(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of a class, computed under autocast in bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return classify(model, batch)


# --- records ---


def classes(count: int = 3) -> Tensor:
    """A class of each record."""
    return torch.randint(count, (RECORDS,))


def words(length: int = 7) -> Tensor:
    """A sequence of words for each record."""
    return torch.randint(VOCABULARY, (RECORDS, length))


def images(channels: int = 1, size: int = 8) -> Tensor:
    """An image for each record."""
    return torch.randn(RECORDS, channels, size, size)


# --- models ---


def perceptron() -> nn.Module:
    """Two linear layers with a tanh between them."""
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


def perceptron_parts() -> Parts:
    """Two layers, and points in classes."""
    return perceptron(), classify, (torch.randn(RECORDS, 6), classes())


def convolutional(norm: Callable[[int], nn.Module] = lambda _: nn.Identity()) -> nn.Module:
    """Two convolutions with a normalisation after each."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), norm(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2), norm(6), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


def grouped() -> nn.Module:
    """Grouped, depthwise, dilated and padded convolutions in one and two dimensions."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2, padding=1), nn.Tanh(),
        nn.Conv2d(8, 8, 3, groups=8, padding=2, dilation=2, padding_mode="reflect"), nn.Tanh(),
        nn.Flatten(2), nn.Conv1d(8, 4, 5, stride=3, groups=4, bias=False), nn.Flatten(),
        nn.LazyLinear(3),
    )  # fmt: skip


def grouped_parts() -> Parts:
    """Grouped convolutions; the last layer learns its size from a first call."""
    model, inputs = grouped(), images(4)
    model(inputs)
    return model, classify, (inputs, classes())


def transposed() -> nn.Module:
    """Transposed convolutions, one of them grouped."""
    return nn.Sequential(
        nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1), nn.SiLU(),
        nn.ConvTranspose2d(4, 6, 3, groups=2), nn.SiLU(),
        nn.Flatten(2), nn.ConvTranspose1d(6, 2, 3, dilation=2, bias=False),
    )  # fmt: skip


def transposed_parts() -> Parts:
    """Transposed convolutions of small maps."""
    return transposed(), squares, (torch.randn(RECORDS, 2, 4, 4),)


class Tagger(nn.Module):
    """Words, a recurrent layer and a score of every word at every position."""

    def __init__(self, kind: Callable[..., nn.Module] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 5)
        self.cells = kind(5, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, VOCABULARY)

    def forward(self, batch: Tensor) -> Tensor:
        """A score of every word at every position: (records, positions, words)."""
        return torch.as_tensor(self.head(self.cells(self.words(batch))[0]))


def word_parts(kind: Callable[..., nn.Module] = nn.LSTM, **options: Any) -> Parts:
    """Sequences of words through a recurrent layer."""
    return Tagger(kind, **options), next_word, (words(),)


class PackedTagger(Tagger):
    """A tagger that packs its sequences, which no rule of the engine follows."""

    def forward(self, batch: Tensor) -> Tensor:
        """Scores; every sequence is packed with its full length."""
        lengths = torch.full((len(batch),), batch.shape[1])
        packed = nn.utils.rnn.pack_padded_sequence(self.words(batch), lengths, batch_first=True)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.cells(packed)[0], batch_first=True)
        return torch.as_tensor(self.head(hidden))


class Block(nn.Module):
    """Causal attention and two layers, with a normalisation before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 2 * width
        self.layers = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """A vector of the same size at every position."""
        records, length, width = hidden.shape
        parts = self.qkv(self.before_attention(hidden))
        parts = parts.view(records, length, 3, self.heads, width // self.heads)
        parts = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(records, length, width))
        return hidden + torch.as_tensor(self.layers(self.before_layers(hidden)))


class Gpt(nn.Module):
    """A small GPT whose table of words is also its last layer."""

    def __init__(self, width: int = 8, length: int = 7) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, batch: Tensor) -> Tensor:
        """A score of every word at every position: (records, positions, words)."""
        hidden = self.words(batch) + self.places(torch.arange(batch.shape[1]).unsqueeze(0))
        return torch.as_tensor(self.head(self.norm(self.blocks(hidden))))


class LowRank(nn.Module):
    """A frozen linear layer and a trained correction of rank two."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The frozen layer and its correction."""
        return torch.as_tensor(self.base(inputs) + 0.5 * self.up(self.down(inputs)))


def lora_parts() -> Parts:
    """LoRA by peft on the attention of a small GPT-2."""
    import transformers  # noqa: PLC0415  (slow to import: only where it is asked for)
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=1, pad_token_id=1, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    added = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    return get_peft_model(transformers.GPT2LMHeadModel(config), added), next_word, (words(),)


class Masked(nn.Module):
    """Positions chosen by a boolean mask: how many they are depends on the records."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """The sum over the positions that are chosen."""
        hidden = inputs.new_zeros(*mask.shape, 5)
        hidden[mask] = torch.tanh(self.inner(inputs[mask]))
        return torch.as_tensor(self.outer(hidden).sum(1))


class Attention(nn.Module):
    """`nn.MultiheadAttention` over the record's own positions, some of them padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """A vector of the same size at every position."""
        options: dict[str, Any] = {"key_padding_mask": padding, "need_weights": False}
        return torch.as_tensor(self.attention(inputs, inputs, inputs, **options)[0])


def attention_parts() -> Parts:
    """Attention; the last position of every third record is padding."""
    padding = torch.zeros(RECORDS, 5, dtype=torch.bool)
    padding[::3, -1] = True
    return Attention(), squares, (torch.randn(RECORDS, 5, 8), padding)


class Patches(nn.Module):
    """An image model with a class token and places that are parameters of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 4, stride=4)
        self.token, self.place = (
            nn.Parameter(torch.randn(1, 1, 8)),
            nn.Parameter(torch.randn(1, 5, 8)),
        )
        self.block, self.head = Block(8, 2), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """A score of each class."""
        hidden = self.patch(inputs).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.token.expand(len(inputs), -1, -1), hidden], 1) + self.place
        return torch.as_tensor(self.head(self.block(hidden)[:, 0]))


class Written(nn.Module):
    """Parameters that are used in functions: products, a scale, a part of a table, an einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.product, self.shift = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))
        self.scale, self.table = nn.Parameter(torch.ones(())), nn.Parameter(torch.randn(4, 5, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        """A score of each class."""
        hidden = torch.tanh(self.scale.exp() * (inputs @ self.product) + self.shift)
        return torch.einsum("mi,tio->mto", hidden, self.table[1:]).sum(1)


class Bilinear(nn.Module):
    """A form of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.form, self.head = nn.Bilinear(4, 5, 6), nn.Linear(6, 3)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """A score of each class."""
        return torch.as_tensor(self.head(torch.tanh(self.form(first, second))))


class Reused(nn.Module):
    """One layer that is used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """A score of each class."""
        for _ in range(3):
            inputs = torch.tanh(self.layer(inputs))
        return torch.as_tensor(self.head(inputs))


def bag_parts() -> Parts:
    """Embedding bags, the mean of each record's words."""
    model = nn.Sequential(nn.EmbeddingBag(VOCABULARY, 6, mode="mean"), nn.Tanh(), nn.Linear(6, 3))
    return model, classify, (words(), classes())


def norms_parts() -> Parts:
    """Layer, group and instance normalisation."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3),
        nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 3),
    )  # fmt: skip
    return model, classify, (images(), classes())


def encoder_parts() -> Parts:
    """A layer of torch's own transformer."""
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    return nn.TransformerEncoderLayer(8, 2, 12, **options), squares, (torch.randn(RECORDS, 5, 8),)


def dropout_parts() -> Parts:
    """Random numbers inside of the pass."""
    model = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5), nn.Tanh(), nn.Linear(9, 3))
    return model, classify, (torch.randn(RECORDS, 6), classes())


def augmented_parts() -> Parts:
    """Three views of each image, shifted and mirrored."""

    def changed(batch: Any) -> Any:
        pictures, labels = batch
        return training.mirrored(training.shifted(pictures, most=1)), labels

    loss = training.augmented(classify, changed, copies=3)
    return convolutional(), loss, (images(), classes())


def image_parts(model: nn.Module) -> Parts:
    """This model, and random images with a class each."""
    return model, classify, (images(), classes())


def double_parts() -> Parts:
    """Convolutions with parameters and images in double precision."""
    return convolutional().double(), classify, (images().double(), classes())


def half_parts() -> Parts:
    """Linear layers and a norm whose parameters are bfloat16."""
    model = nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3))
    return model.bfloat16(), squares, (torch.randn(RECORDS, 5, 6, dtype=torch.bfloat16),)


def low_rank_parts() -> Parts:
    """Frozen linear layers with trained corrections of low rank."""
    model = nn.Sequential(LowRank(6, 8), nn.Tanh(), LowRank(8, 3))
    return model, classify, (torch.randn(RECORDS, 6), classes())


def masked_parts() -> Parts:
    """Sequences of points, about half of which a mask leaves out."""
    return Masked(), squares, (torch.randn(RECORDS, 5, 4), torch.rand(RECORDS, 5) < 0.5)


def wide_parts() -> Parts:
    """Layers as large as in earnest, where libraries compute in blocks."""
    model = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))
    return model, classify, (torch.randn(RECORDS, 300), classes(10))


def large_image_parts() -> Parts:
    """Convolutions of many channels, without bias."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip
    return model, classify, (images(3, 16), classes(10))


def bilinear_parts() -> Parts:
    """Two inputs of each record."""
    return Bilinear(), classify, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 5), classes())


def cast_parts(model: nn.Module) -> Parts:
    """Images in classes under autocast."""
    return model, in_bfloat16, (images(), classes())


def points(model: nn.Module, loss: Loss = classify) -> Parts:
    """This model, and random points with a class each."""
    return model, loss, (torch.randn(RECORDS, 6), classes())


def with_source(make: Callable[..., Any], records: Any) -> Callable[[], Any]:
    """Canaries whose coins are fixed."""
    return lambda: make(records, source=dp.randomness.Source.unsafe_test_key(COINS))


# --- all of them ---

CONVOLVED = ("lean", "roomy", "middle")
IDEALISED = {"numerics": dp.Numerics.IDEALISED}
WITH_ACCURACY = dp.Groups({"grad/*": GAUSSIAN, "metric/*": dp.Gaussian(1.0, 0.5)})
WITH_MOMENTS = dp.Groups({"grad/*": GAUSSIAN, "bn/*": dp.Gaussian(1.0, NOISE)})
ADAPTIVE = dp.AdaptiveClip(dp.Gaussian(1.5, NOISE), quantile=0.5, count_noise_std=0.01)

CASES: dict[str, Case] = {
    "mlp": Case(perceptron_parts),
    "mlp, Poisson samples": Case(perceptron_parts, sampling=dp.Poisson(0.5)),
    "mlp, samples of a fixed size": Case(
        perceptron_parts,
        sampling=dp.FixedSize(5, RECORDS),
        plan={"adjacency": dp.Adjacency.REPLACE_ONE},
    ),
    "mlp with a statistic": Case(
        lambda: points(perceptron(), with_accuracy),
        mechanism=WITH_ACCURACY,
        statistics={"metric/accuracy": 1},
    ),
    "mlp, adaptive clip norm": Case(perceptron_parts, mechanism=dp.Groups({"grad/*": ADAPTIVE})),
    "mlp, normalised": Case(perceptron_parts, mechanism=dp.Normalised(CLIP_NORM, NOISE)),
    "mlp, one group for each layer": Case(perceptron_parts, mechanism=dp.Split(CLIP_NORM, NOISE)),
    "mlp, idealised": Case(perceptron_parts, plan=IDEALISED),
    "mlp with gradient canaries": Case(
        perceptron_parts,
        canaries=with_source(training.GradientCanaries, 8),
        planted=8,
    ),
    "mlp with canaries among the records": Case(
        perceptron_parts,
        canaries=with_source(dp.canaries.Canaries, range(4)),
        sampling=dp.Poisson(0.5),
    ),
    "wide mlp": Case(wide_parts),
    "reused layer": Case(lambda: points(Reused())),
    "dropout": Case(dropout_parts),
    "parameters in functions": Case(lambda: points(Written())),
    "bilinear": Case(bilinear_parts),
    "cnn": Case(lambda: image_parts(convolutional()), ways=CONVOLVED),
    "large cnn": Case(large_image_parts, ways=CONVOLVED),
    "grouped convolutions": Case(grouped_parts, ways=CONVOLVED),
    "transposed convolutions": Case(transposed_parts, ways=CONVOLVED),
    "three views of each record": Case(augmented_parts),
    "private batch norm": Case(
        lambda: image_parts(convolutional(nn.BatchNorm2d)),
        mechanism=WITH_MOMENTS,
        ways=CONVOLVED,
    ),
    "layer, group and instance norm": Case(norms_parts, ways=CONVOLVED),
    "image patches": Case(lambda: image_parts(Patches())),
    "embedding bag": Case(bag_parts),
    "lstm": Case(word_parts),
    "lstm, two layers both ways": Case(lambda: word_parts(bidirectional=True, num_layers=2)),
    "gru": Case(lambda: word_parts(nn.GRU)),
    "multihead attention": Case(attention_parts),
    "transformer layer": Case(encoder_parts),
    "gpt with tied weights": Case(lambda: (Gpt(), next_word, (words(),))),
    "lora by hand": Case(low_rank_parts),
    "lora by peft": Case(lora_parts),
    "boolean mask": Case(masked_parts, plan=IDEALISED),
    "packed sequences": Case(lambda: (PackedTagger(), next_word, (words(),))),
    "float64": Case(double_parts, ways=CONVOLVED),
    "autocast": Case(lambda: cast_parts(convolutional()), ways=CONVOLVED),
    "bfloat16 parameters": Case(half_parts),
}
