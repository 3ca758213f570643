"""Attention in all forms: of torch, and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import (
    RECORDS,
    Case,
    Catalogue,
    Function,
    Output,
    classification,
    padding_mask,
    random_tokens,
    regress,
    regression,
)

CATALOGUE = Catalogue()


LENGTH = 5
WIDTH = 8
HEADS = 2


def _sequences(width: int = WIDTH, length: int = LENGTH) -> Tensor:
    return torch.randn(RECORDS, length, width)


def _causal_mask(length: int = LENGTH) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(length)


def _sequence_model(name: str, function: Callable[..., Output], **parts: Callable[[], Any]) -> None:
    """Add a function of layers, on sequences of (RECORDS, LENGTH, WIDTH)."""

    def factory() -> Case:
        layers = {part: make() for part, make in parts.items()}
        return regression(Function(function, layers), _sequences())

    CATALOGUE.add(name, factory)


# --- multi-head attention of torch ---


def _attention(name: str, call: Callable[..., Any], **options: Any) -> None:
    """Add `nn.MultiheadAttention` with options; `call` gets (layer, sequences, padding mask)."""

    def factory() -> Case:
        layer = nn.MultiheadAttention(WIDTH, HEADS, **options)
        model = Function(lambda module, *inputs: call(module.layer, *inputs), {"layer": layer})
        return Case(model, regress, (_sequences(), padding_mask(LENGTH)))

    CATALOGUE.add(name, factory)


def _own(layer: Any, inputs: Tensor, **options: Any) -> Any:
    """Attend from a sequence to itself; outputs and weights."""
    return layer(inputs, inputs, inputs, **options)


_attention("attention", lambda layer, x, _: _own(layer, x)[0], batch_first=True)
_attention(
    "attention without weights",
    lambda layer, x, _: _own(layer, x, need_weights=False)[0],
    batch_first=True,
)
_attention(
    "attention whose weights are trained on",
    lambda layer, x, _: torch.cat([part.flatten(1) for part in _own(layer, x)], 1),
    batch_first=True,
)
_attention(
    "attention whose weights are trained on by head",
    lambda layer, x, _: _own(layer, x, average_attn_weights=False)[1],
    batch_first=True,
)
_attention(
    "attention, time first",
    lambda layer, x, _: _own(layer, x.transpose(0, 1))[0].transpose(0, 1),
)
_attention(
    "attention, time first, without weights",
    lambda layer, x, _: _own(layer, x.transpose(0, 1), need_weights=False)[0].transpose(0, 1),
)
_attention(
    "attention, padded",
    lambda layer, x, padding: _own(layer, x, key_padding_mask=padding)[0],
    batch_first=True,
)
_attention(
    "attention, padded, without weights",
    lambda layer, x, padding: _own(layer, x, key_padding_mask=padding, need_weights=False)[0],
    batch_first=True,
)
_attention(
    "attention, causal",
    lambda layer, x, _: _own(layer, x, attn_mask=_causal_mask(), need_weights=False)[0],
    batch_first=True,
)
_attention(
    "attention, causal by flag",
    lambda layer, x, _: _own(
        layer, x, attn_mask=_causal_mask(), is_causal=True, need_weights=False
    )[0],
    batch_first=True,
)
_attention(
    "attention, causal and padded",
    lambda layer, x, padding: _own(
        layer, x, attn_mask=_causal_mask().isinf(), key_padding_mask=padding
    )[0],
    batch_first=True,
)
_attention(
    "attention with a mask for each record and head",
    lambda layer, x, padding: _own(
        layer,
        x,
        attn_mask=padding[:, None, None].expand(-1, HEADS, LENGTH, -1).flatten(0, 1),
    )[0],
    batch_first=True,
)
_attention(
    "attention without biases", lambda layer, x, _: _own(layer, x)[0], batch_first=True, bias=False
)
_attention(
    "attention with key biases and a zero key",
    lambda layer, x, padding: _own(layer, x, key_padding_mask=padding)[0],
    batch_first=True,
    add_bias_kv=True,
    add_zero_attn=True,
)


@CATALOGUE.entry("cross attention with other widths")
def cross_attention() -> Case:
    layer = nn.MultiheadAttention(WIDTH, HEADS, kdim=6, vdim=4, batch_first=True)
    model = Function(lambda module, q, k, v: module.layer(q, k, v)[0], {"layer": layer})
    return regression(model, _sequences(), _sequences(6, 7), _sequences(4, 7))


@CATALOGUE.entry("cross attention to learnt keys")
def attention_to_learnt_keys() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        keys = module.keys.expand(len(inputs), -1, -1)
        return module.layer(inputs, keys, keys)[0]

    parts = {
        "keys": nn.Parameter(torch.randn(1, 3, WIDTH)),
        "layer": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
    }
    return regression(Function(forward, parts), _sequences())


# --- encoder and decoder layers of torch ---


def _encoder(**options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 12, **{"dropout": 0.0, "batch_first": True, **options}
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


_sequence_model(
    "encoder, gelu", lambda module, x: module.layers(x), layers=lambda: _encoder(activation="gelu")
)
_sequence_model(
    "encoder, norm first, without biases",
    lambda module, x: module.layers(x),
    layers=lambda: _encoder(norm_first=True, bias=False),
)
_sequence_model(
    "encoder, causal",
    lambda module, x: module.layers(x, mask=_causal_mask(), is_causal=True),
    layers=_encoder,
)
_sequence_model(
    "encoder, time first",
    lambda module, x: module.layers(x.transpose(0, 1)).transpose(0, 1),
    layers=lambda: _encoder(batch_first=False),
)


@CATALOGUE.entry("encoder, padded, mean of what is there")
def padded_encoder() -> Case:
    def forward(module: Any, tokens: Tensor, padding: Tensor) -> Output:
        outputs = module.layers(module.words(tokens), src_key_padding_mask=padding)
        present = (~padding).unsqueeze(2).to(outputs)
        return module.head((outputs * present).sum(1) / present.sum(1))

    parts = {"words": nn.Embedding(11, WIDTH), "layers": _encoder(), "head": nn.Linear(WIDTH, 3)}
    return classification(Function(forward, parts), random_tokens(11, LENGTH), padding_mask(LENGTH))


@CATALOGUE.entry("encoder, causal and padded")
def causal_padded_encoder() -> Case:
    def forward(module: Any, inputs: Tensor, padding: Tensor) -> Output:
        outputs = module.layers(
            inputs, mask=_causal_mask().isinf(), src_key_padding_mask=padding, is_causal=True
        )
        return outputs.masked_fill(padding.unsqueeze(2), 0.0)

    return regression(Function(forward, {"layers": _encoder()}), _sequences(), padding_mask(LENGTH))


@CATALOGUE.entry("encoder that may nest tensors")
def nesting_encoder() -> Case:
    """In train mode torch does not nest, whatever the flag says."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 12, dropout=0.0, batch_first=True)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)

    def forward(module: Any, inputs: Tensor, padding: Tensor) -> Output:
        outputs = module.layers(inputs, src_key_padding_mask=padding)
        return outputs.masked_fill(padding.unsqueeze(2), 0.0)

    return regression(Function(forward, {"layers": layers}), _sequences(), padding_mask(LENGTH))


@CATALOGUE.entry("decoder")
def decoder() -> Case:
    def forward(module: Any, targets: Tensor, memory: Tensor) -> Output:
        return module.layers(targets, memory, tgt_mask=_causal_mask())

    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 12, dropout=0.0, batch_first=True)
    layers = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(WIDTH))
    return regression(Function(forward, {"layers": layers}), _sequences(), _sequences(length=7))


@CATALOGUE.entry("decoder, both sides padded")
def padded_decoder() -> Case:
    def forward(module: Any, targets: Tensor, memory: Tensor, padding: Tensor) -> Output:
        outputs = module.layers(
            targets,
            memory,
            tgt_mask=_causal_mask().isinf(),
            tgt_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return outputs.masked_fill(padding.unsqueeze(2), 0.0)

    layers = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 12, dropout=0.0, batch_first=True, norm_first=True
    )
    return regression(
        Function(forward, {"layers": layers}), _sequences(), _sequences(), padding_mask(LENGTH)
    )


@CATALOGUE.entry("whole transformer")
def whole_transformer() -> Case:
    def forward(module: Any, tokens: Tensor, padding: Tensor) -> Output:
        words = module.words(tokens)
        outputs = module.translate(
            words,
            words,
            tgt_mask=_causal_mask(),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(outputs, module.words.weight)

    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, padding = batch
        scores = model(tokens, padding).transpose(1, 2)
        losses = F.cross_entropy(scores, tokens, reduction="none").masked_fill(padding, 0.0)
        return losses.sum(1) / (~padding).sum(1)

    parts = {
        "words": nn.Embedding(11, WIDTH),
        "translate": nn.Transformer(
            WIDTH, HEADS, 1, 1, 12, dropout=0.0, batch_first=True, norm_first=True
        ),
    }
    batch = (random_tokens(11, LENGTH), padding_mask(LENGTH))
    return Case(Function(forward, parts), loss, batch)


# --- attention by hand ---


def _split(values: Tensor, heads: int = HEADS) -> Tensor:
    """(B, T, D) to (B, heads, T, D / heads)."""
    return values.view(*values.shape[:2], heads, -1).transpose(1, 2)


def _join(values: Tensor) -> Tensor:
    return values.transpose(1, 2).flatten(2)


def _qkv(module: Any, inputs: Tensor) -> list[Tensor]:
    return [_split(part) for part in module.qkv(inputs).chunk(3, 2)]


def _project() -> nn.Module:
    return nn.Linear(WIDTH, 3 * WIDTH)


def _out() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _by_einsum(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(WIDTH / HEADS)
    mixed = torch.einsum("bhqk,bhkd->bqhd", scores.softmax(3), value)
    return module.out(mixed.flatten(2))


def _rotated(values: Tensor) -> Tensor:
    """Rotary positions: pairs of channels are turned by an angle that grows with the position."""
    half = values.shape[3] // 2
    frequencies = 10.0 ** -torch.arange(half).float()
    angles = torch.arange(values.shape[2]).float().unsqueeze(1) * frequencies
    first, second = values[..., :half], values[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], 3)


def _rotary(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    mixed = F.scaled_dot_product_attention(_rotated(query), _rotated(key), value, is_causal=True)
    return module.out(_join(mixed))


def _rotary_complex(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    angles = torch.outer(torch.arange(LENGTH).float(), 10.0 ** -torch.arange(2).float())
    turns = torch.polar(torch.ones_like(angles), angles)

    def turned(values: Tensor) -> Tensor:
        pairs = torch.view_as_complex(values.reshape(*values.shape[:3], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3)

    mixed = F.scaled_dot_product_attention(turned(query), turned(key), value)
    return module.out(_join(mixed))


def _alibi(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    places = torch.arange(LENGTH).float()
    slopes = torch.tensor([0.5, 0.25]).view(HEADS, 1, 1)
    bias = -(places.unsqueeze(1) - places).abs() * slopes
    return module.out(_join(F.scaled_dot_product_attention(query, key, value, attn_mask=bias)))


def _learnt_bias(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    places = torch.arange(LENGTH)
    bias = module.bias(places.unsqueeze(1) - places + LENGTH - 1).permute(2, 0, 1)
    scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH / HEADS) + bias
    return module.out(_join(scores.softmax(3) @ value))


def _learnt_bias_fused(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    places = torch.arange(LENGTH)
    bias = module.bias[:, places.unsqueeze(1) - places + LENGTH - 1]
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.unsqueeze(0))
    return module.out(_join(mixed))


def _linear_attention(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    query, key = F.elu(query) + 1.0, F.elu(key) + 1.0
    states = torch.einsum("bhtd,bhte->bhtde", key, value).cumsum(2)
    totals = torch.einsum("bhtd,bhtd->bht", query, key.cumsum(2))
    mixed = torch.einsum("bhtd,bhtde->bhte", query, states) / totals.unsqueeze(3)
    return module.out(_join(mixed))


def _multi_query(module: Any, inputs: Tensor) -> Output:
    query = _split(module.query(inputs))
    key, value = module.pair(inputs).unsqueeze(1).chunk(2, 3)
    mixed = F.scaled_dot_product_attention(query, key.expand_as(query), value.expand_as(query))
    return module.out(_join(mixed))


def _grouped_query(module: Any, inputs: Tensor) -> Output:
    query = _split(module.query(inputs), 4)
    key, value = (_split(part) for part in module.pair(inputs).chunk(2, 2))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return module.out(_join(mixed))


def _cosine(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    scores = F.normalize(query, dim=3) @ F.normalize(key, dim=3).transpose(2, 3)
    weights = (scores * module.sharpness.exp()).softmax(3)
    return module.out(_join(weights @ value))


def _talking_heads(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    scores = torch.einsum("bhqk,hg->bgqk", query @ key.transpose(2, 3), module.before)
    weights = torch.einsum("bgqk,gh->bhqk", scores.softmax(3), module.after)
    return module.out(_join(weights @ value))


def _attention_sink(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    scores = query @ key.transpose(2, 3)
    sink = module.sink.view(1, HEADS, 1, 1).expand(len(inputs), -1, LENGTH, -1)
    weights = torch.cat([scores, sink], 3).softmax(3)[..., :-1]
    return module.out(_join(weights @ value))


def _top_keys(module: Any, inputs: Tensor) -> Output:
    query, key, value = _qkv(module, inputs)
    scores = query @ key.transpose(2, 3)
    least = scores.topk(2, dim=3).values[..., -1:]
    weights = scores.masked_fill(scores < least, float("-inf")).softmax(3)
    return module.out(_join(weights @ value))


def _additive(module: Any, inputs: Tensor) -> Output:
    scores = module.score(
        torch.tanh(module.left(inputs).unsqueeze(1) + module.right(inputs).unsqueeze(2))
    )
    return scores.squeeze(3).softmax(2) @ inputs


def _windows(module: Any, inputs: Tensor) -> Output:
    """Local attention: overlapping windows by `unfold`, folded into the batch axis."""
    padded = F.pad(inputs, (0, 0, 1, 1))
    windows = padded.unfold(1, 3, 1).transpose(2, 3).flatten(0, 1)
    query = module.query(inputs).flatten(0, 1).unsqueeze(1)
    key, value = module.pair(windows).chunk(2, 2)
    mixed = F.scaled_dot_product_attention(query, key, value)
    return mixed.view_as(inputs)


def _pooling(module: Any, inputs: Tensor) -> Output:
    weights = module.score(inputs).softmax(1)
    return module.out((weights * inputs).sum(1))


def _perceiver(module: Any, inputs: Tensor) -> Output:
    latents = module.latents.expand(len(inputs), -1, -1)
    key, value = module.pair(inputs).chunk(2, 2)
    latents = latents + F.scaled_dot_product_attention(module.query(latents), key, value)
    return latents + F.scaled_dot_product_attention(*module.qkv(latents).chunk(3, 2))


def _fourier_mixing(module: Any, inputs: Tensor) -> Output:
    mixed = torch.fft.fft2(inputs).real
    return module.out(F.layer_norm(inputs + mixed, (WIDTH,)))


def _random_features(module: Any, inputs: Tensor) -> Output:
    """Performer: positive features with fixed random directions."""
    generator = torch.Generator().manual_seed(3)
    directions = torch.randn(WIDTH // HEADS, 6, generator=generator)
    query, key, value = _qkv(module, inputs)
    query = torch.exp(query @ directions - query.square().sum(3, keepdim=True) / 2)
    key = torch.exp(key @ directions - key.square().sum(3, keepdim=True) / 2)
    mixed = query @ (key.transpose(2, 3) @ value)
    return module.out(_join(mixed / (query @ key.sum(2).unsqueeze(3))))


def _low_rank_attention(module: Any, inputs: Tensor) -> Output:
    """Linformer: keys and values are projected along time."""
    query, key, value = _qkv(module, inputs)
    mixed = F.scaled_dot_product_attention(query, module.shorten @ key, module.shorten @ value)
    return module.out(_join(mixed))


_ATTENTION = {"qkv": _project, "out": _out}
_QUERY_AND_PAIR = {"query": _out, "pair": lambda: nn.Linear(WIDTH, 2 * WIDTH)}

_sequence_model("attention by einsum", _by_einsum, **_ATTENTION)
_sequence_model("rotary attention", _rotary, **_ATTENTION)
_sequence_model("rotary attention by complex numbers", _rotary_complex, **_ATTENTION)
_sequence_model("attention with slopes (ALiBi)", _alibi, **_ATTENTION)
_sequence_model(
    "attention with learnt distances",
    _learnt_bias,
    bias=lambda: nn.Embedding(9, HEADS),
    **_ATTENTION,
)
_sequence_model(
    "fused attention with learnt distances",
    _learnt_bias_fused,
    bias=lambda: nn.Parameter(torch.randn(HEADS, 9)),
    **_ATTENTION,
)
_sequence_model("linear attention", _linear_attention, **_ATTENTION)
_sequence_model(
    "multi-query attention",
    _multi_query,
    query=_out,
    pair=lambda: nn.Linear(WIDTH, WIDTH),
    out=_out,
)
_sequence_model(
    "grouped-query attention",
    _grouped_query,
    query=_out,
    pair=lambda: nn.Linear(WIDTH, WIDTH),
    out=_out,
)
_sequence_model(
    "cosine attention",
    _cosine,
    sharpness=lambda: nn.Parameter(torch.zeros(HEADS, 1, 1)),
    **_ATTENTION,
)
_sequence_model(
    "talking heads",
    _talking_heads,
    before=lambda: nn.Parameter(torch.randn(HEADS, HEADS)),
    after=lambda: nn.Parameter(torch.randn(HEADS, HEADS)),
    **_ATTENTION,
)
_sequence_model(
    "attention with a sink",
    _attention_sink,
    sink=lambda: nn.Parameter(torch.randn(HEADS)),
    **_ATTENTION,
)
_sequence_model("attention to the best keys", _top_keys, **_ATTENTION)
_sequence_model(
    "additive attention", _additive, left=_out, right=_out, score=lambda: nn.Linear(WIDTH, 1)
)
_sequence_model("attention in sliding windows", _windows, **_QUERY_AND_PAIR)
_sequence_model("attention pooling", _pooling, score=lambda: nn.Linear(WIDTH, 1), out=_out)
_sequence_model(
    "perceiver",
    _perceiver,
    latents=lambda: nn.Parameter(torch.randn(1, 3, WIDTH)),
    qkv=_project,
    **_QUERY_AND_PAIR,
)
_sequence_model("mixing by fourier transforms", _fourier_mixing, out=_out)
_sequence_model("attention by random features", _random_features, **_ATTENTION)
_sequence_model(
    "attention shortened along time",
    _low_rank_attention,
    shorten=lambda: nn.Parameter(torch.randn(3, LENGTH)),
    **_ATTENTION,
)


@CATALOGUE.entry("set transformer with induced points")
def induced_points() -> Case:
    def forward(module: Any, points: Tensor) -> Output:
        seeds = module.seeds.expand(len(points), -1, -1)
        induced = module.inward(seeds, points, points, need_weights=False)[0]
        outward = module.outward(points, induced, induced, need_weights=False)[0]
        return module.head((points + outward).sum(1))

    parts = {
        "seeds": nn.Parameter(torch.randn(1, 2, WIDTH)),
        "inward": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        "outward": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        "head": nn.Linear(WIDTH, 3),
    }
    return classification(Function(forward, parts), _sequences())


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "attention, time first, without weights",
    "attention, causal",
    "attention without biases",
    "attention whose weights are trained on by head",
    "encoder, gelu",
    "encoder, norm first, without biases",
    "encoder, causal",
    "encoder, time first",
    "encoder that may nest tensors",
    "decoder",
    "whole transformer",
    "talking heads",
    "additive attention",
    "encoder, causal and padded",
)
