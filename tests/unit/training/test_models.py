"""Whole models give what torch gives for one record at a time, without a loop over records."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from discreet.errors import CoupledRecords, ModelError, NumericsError
from discreet.training.engine import Engine
from support.per_record import TOLERANCE, check_contributions, compare, oracle

B = 4  # records
Model = Callable[[], tuple[nn.Module, Any, Any]]  # to model, loss, batch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)


def classify(model: nn.Module, batch: Any) -> Tensor:
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def squares(model: nn.Module, batch: Any) -> Tensor:
    out = model(*batch)
    return out.flatten(1).square().mean(1)


def language(model: nn.Module, batch: Any) -> Tensor:
    (ids,) = batch
    logits = model(ids)
    return F.cross_entropy(logits.transpose(1, 2), ids, reduction="none").mean(1)


def labels(classes: int) -> Tensor:
    return torch.randint(classes, (B,))


# --- the seven models of the benchmark, small ---


class Gpt(nn.Module):
    def __init__(self, *, tied: bool, words: int = 13, width: int = 8, length: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("ids", torch.arange(length).unsqueeze(0))
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        h = self.words(ids) + self.places(self.get_buffer("ids")[:, : ids.shape[1]])
        for block in self.blocks:
            h = block(h)
        return torch.as_tensor(self.head(self.norm(h)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        rows, length, width = h.shape
        parts = self.qkv(self.one(h)).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        met = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        h = h + self.out(met.transpose(1, 2).reshape(rows, length, width))
        return h + torch.as_tensor(self.mlp(self.two(h)))


class Tagger(nn.Module):
    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.cells = kind(5, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.cells(self.words(ids))[0]))


def ids(words: int = 11, length: int = 6) -> Tensor:
    return torch.randint(words, (B, length))


def mnist() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(4, 5, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(20, 6), nn.Tanh(), nn.Linear(6, 3),
    )  # fmt: skip


def cifar() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 4), (4, 4), (4, 6)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.ReLU(inplace=True), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, 3))


SEVEN: dict[str, Model] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)), classify, (torch.randn(B, 6), labels(3))),
    "mnist cnn": lambda: (mnist(), classify, (torch.randn(B, 1, 20, 20), labels(3))),
    "cifar cnn": lambda: (cifar(), classify, (torch.randn(B, 3, 8, 8), labels(3))),
    "gpt": lambda: (Gpt(tied=False), language, (ids(13),)),
    "gpt tied": lambda: (Gpt(tied=True), language, (ids(13),)),
    "lstm": lambda: (Tagger(), language, (ids(),)),
    "logistic regression": lambda: (nn.Linear(9, 3), classify, (torch.randn(B, 9), labels(3))),
}


# --- layers of torch ---


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")
        self.up, self.out = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1), nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.out(torch.cat([x, self.up(F.silu(self.low(F.silu(self.down(x)))))], 1)))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.blocks = nn.Sequential(Block(8, 2), Block(8, 2))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.place
        return torch.as_tensor(self.head(self.blocks(h)[:, 0]))


class Translator(nn.Module):
    def __init__(self, *, batch_first: bool, norm_first: bool) -> None:
        super().__init__()
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": batch_first, "norm_first": norm_first}
        self.batch_first = batch_first
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, **options), 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, **options), 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        h = x if self.batch_first else x.transpose(0, 1)
        memory = self.encoder(h, src_key_padding_mask=padding)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        out = self.decoder(h, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=padding)
        return torch.as_tensor(out if self.batch_first else out.transpose(0, 1))


def translator(*, batch_first: bool, norm_first: bool) -> tuple[nn.Module, Any, Any]:
    padding = torch.zeros(B, 5, dtype=torch.bool)
    padding[1, 3:] = padding[2, 4:] = True
    return Translator(batch_first=batch_first, norm_first=norm_first), squares, (torch.randn(B, 5, 8), padding)


TORCH: dict[str, Model] = {
    "unet": lambda: (UNet(), squares, (torch.randn(B, 2, 6, 6),)),
    "vit": lambda: (Vit(), classify, (torch.randn(B, 3, 8, 8), labels(3))),
    "transformer": lambda: translator(batch_first=True, norm_first=False),
    "transformer norm first": lambda: translator(batch_first=True, norm_first=True),
    "transformer time first": lambda: translator(batch_first=False, norm_first=True),
    "tagger both ways": lambda: (Tagger(bidirectional=True, num_layers=2), language, (ids(),)),
    "gru": lambda: (Tagger(nn.GRU), language, (ids(),)),
    "rnn": lambda: (Tagger(nn.RNN, nonlinearity="relu"), language, (ids(),)),
}


# --- models of others: random weights, nothing is downloaded ---


def still(config: Any) -> Any:
    for name in config.to_dict():
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


def causal(model: nn.Module, batch: Any) -> Tensor:
    (tokens,) = batch
    logits = model(input_ids=tokens).logits
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return losses.view(len(tokens), -1).mean(1)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1, pad_token_id=1
    )
    return transformers.GPT2LMHeadModel(still(config))


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        still(
            transformers.LlamaConfig(
                vocab_size=20, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, max_position_embeddings=16,
            )  # fmt: skip
        )
    )


def bert() -> tuple[nn.Module, Any, Any]:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16
    )
    mask = torch.ones(B, 6, dtype=torch.long)
    mask[1, 4:] = 0

    def loss(model: nn.Module, batch: Any) -> Tensor:
        tokens, seen, classes = batch
        return F.cross_entropy(model(input_ids=tokens, attention_mask=seen).logits, classes, reduction="none")

    return transformers.BertForSequenceClassification(still(config)), loss, (ids(20), mask, labels(2))


def t5() -> tuple[nn.Module, Any, Any]:
    config = transformers.T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, decoder_start_token_id=0
    )

    def loss(model: nn.Module, batch: Any) -> Tensor:
        (tokens,) = batch
        logits = model(input_ids=tokens, labels=tokens).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(len(tokens), -1).mean(1)

    return transformers.T5ForConditionalGeneration(still(config)), loss, (ids(20),)


def hf_vit() -> tuple[nn.Module, Any, Any]:
    config = transformers.ViTConfig(
        hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4, num_labels=3
    )

    def loss(model: nn.Module, batch: Any) -> Tensor:
        images, classes = batch
        return F.cross_entropy(model(pixel_values=images).logits, classes, reduction="none")

    return transformers.ViTForImageClassification(still(config)), loss, (torch.randn(B, 3, 8, 8), labels(3))


def lora() -> nn.Module:
    config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model: nn.Module = get_peft_model(gpt2(), config)
    return model


OTHERS: dict[str, Model] = {
    "gpt-2": lambda: (gpt2(), causal, (ids(20),)),
    "llama": lambda: (llama(), causal, (ids(20),)),
    "bert": bert,
    "t5": t5,
    "hugging face vit": hf_vit,
    "lora": lambda: (lora(), causal, (ids(20),)),
}


def as_double(batch: Any) -> Any:
    return tuple(part.double() if part.is_floating_point() else part for part in batch)


@pytest.mark.parametrize("name", [*SEVEN, *TORCH, *OTHERS])
def test_norms_and_sums_are_those_of_single_records(name: str) -> None:
    model, loss, batch = (SEVEN | TORCH | OTHERS)[name]()
    compare(model.double(), loss, as_double(batch))


@pytest.mark.parametrize("form", ["ghost", "direct"])
@pytest.mark.parametrize("name", SEVEN)
def test_in_single_precision_in_every_form(name: str, form: str) -> None:
    model, loss, batch = SEVEN[name]()
    compare(model, loss, batch, form=form)
