"""Layers of torch in every usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from .harness import (
    RECORDS,
    Case,
    Catalogue,
    Function,
    Output,
    classification,
    padding_mask,
    predict_tokens,
    random_tokens,
    regression,
)

CATALOGUE = Catalogue()


def _layer(name: str, layers: Callable[[], list[nn.Module]], *shape: int) -> None:
    """Add layers one after the other, on records of a shape."""
    CATALOGUE.add(name, lambda: regression(nn.Sequential(*layers()), torch.randn(RECORDS, *shape)))


# --- convolutions ---

_layer(
    "conv1d strided", lambda: [nn.Conv1d(3, 4, 3, stride=2), nn.Tanh(), nn.Conv1d(4, 2, 2)], 3, 11
)
_layer("conv1d dilated", lambda: [nn.Conv1d(3, 4, 3, dilation=2, padding=2), nn.Tanh()], 3, 9)
_layer("conv1d grouped", lambda: [nn.Conv1d(4, 6, 3, groups=2), nn.Tanh()], 4, 8)
_layer(
    "conv1d depthwise", lambda: [nn.Conv1d(4, 4, 3, groups=4), nn.GELU(), nn.Conv1d(4, 3, 1)], 4, 8
)
_layer("conv1d circular", lambda: [nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular")], 2, 7)
_layer("conv1d reflect", lambda: [nn.Conv1d(2, 3, 5, padding=2, padding_mode="reflect")], 2, 7)
_layer("conv1d same without bias", lambda: [nn.Conv1d(2, 3, 4, padding="same", bias=False)], 2, 7)
_layer("conv2d rectangular", lambda: [nn.Conv2d(2, 3, (3, 1), (1, 2), (1, 0)), nn.ReLU()], 2, 5, 6)
_layer("conv2d dilated", lambda: [nn.Conv2d(2, 3, 3, dilation=(2, 1)), nn.ReLU()], 2, 7, 6)
_layer(
    "conv2d grouped strided", lambda: [nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.ELU()], 4, 7, 7
)
_layer(
    "conv2d depthwise",
    lambda: [nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.Conv2d(6, 2, 1)],
    3,
    5,
    5,
)
_layer("conv2d circular", lambda: [nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")], 2, 5, 5)
_layer("conv2d reflect", lambda: [nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")], 2, 5, 5)
_layer(
    "conv2d replicate", lambda: [nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate")], 2, 5, 5
)
_layer("conv2d same", lambda: [nn.Conv2d(2, 3, (2, 4), padding="same")], 2, 5, 5)
_layer("conv3d", lambda: [nn.Conv3d(1, 2, 3, padding=1), nn.SiLU(), nn.Conv3d(2, 1, 2)], 1, 4, 4, 4)
_layer("conv3d grouped dilated", lambda: [nn.Conv3d(2, 4, 2, groups=2, dilation=2)], 2, 4, 4, 4)
_layer("transposed 1d", lambda: [nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), nn.Tanh()], 3, 5)
_layer("transposed 2d grouped", lambda: [nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2)], 4, 3, 3)
_layer(
    "transposed 2d dilated",
    lambda: [nn.ConvTranspose2d(2, 3, 3, stride=2, dilation=2, output_padding=1)],
    2, 3, 3,
)  # fmt: skip
_layer("transposed 3d", lambda: [nn.ConvTranspose3d(2, 1, 2, stride=2), nn.Tanh()], 2, 2, 2, 2)
_layer(
    "explicit padding",
    lambda: [nn.ReflectionPad2d(1), nn.Conv2d(2, 3, 3), nn.ZeroPad2d(1)],
    2,
    4,
    4,
)


@CATALOGUE.entry("conv2d from unfold")
def conv2d_from_unfold() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        columns = F.unfold(images, 3, padding=1)
        return F.fold(torch.tanh(module.mix(columns.transpose(1, 2))).transpose(1, 2), (4, 4), 1)

    return regression(Function(forward, {"mix": nn.Linear(18, 3)}), torch.randn(RECORDS, 2, 4, 4))


@CATALOGUE.entry("convolution without a record axis, mapped")
def convolution_of_folded_frames() -> Case:
    """Frames of a record are folded into the batch axis and back."""

    def forward(module: Any, clips: Tensor) -> Output:
        frames = module.filter(clips.flatten(0, 1))
        return module.head(frames.unflatten(0, clips.shape[:2]).mean((1, 3, 4)))

    parts = {"filter": nn.Conv2d(2, 3, 3), "head": nn.Linear(3, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 5, 2, 5, 5))


# --- pooling, resampling ---

_layer("max pool 1d", lambda: [nn.Conv1d(2, 4, 3), nn.MaxPool1d(2, 1), nn.Conv1d(4, 2, 1)], 2, 9)
_layer("max pool 3d", lambda: [nn.Conv3d(1, 3, 2), nn.MaxPool3d(2), nn.Tanh()], 1, 5, 5, 5)
_layer(
    "average pool 1d", lambda: [nn.Conv1d(2, 4, 3), nn.AvgPool1d(3, 2), nn.Conv1d(4, 2, 1)], 2, 9
)
_layer("average pool 3d", lambda: [nn.Conv3d(1, 3, 2), nn.AvgPool3d(2), nn.Tanh()], 1, 5, 5, 5)
_layer("adaptive average pool", lambda: [nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d((2, 3))], 2, 7, 7)
_layer(
    "adaptive max pool", lambda: [nn.Conv2d(2, 4, 3), nn.AdaptiveMaxPool2d(2), nn.Tanh()], 2, 7, 7
)
_layer("norm pool", lambda: [nn.Conv2d(2, 4, 3), nn.Softplus(), nn.LPPool2d(2, 2)], 2, 6, 6)
_layer(
    "nearest upsampling",
    lambda: [nn.Conv2d(2, 3, 1), nn.Upsample(scale_factor=2), nn.Conv2d(3, 1, 3)],
    2,
    3,
    3,
)
_layer(
    "bilinear upsampling",
    lambda: [
        nn.Conv2d(2, 3, 1),
        nn.Upsample(size=(5, 6), mode="bilinear", align_corners=True),
        nn.Conv2d(3, 1, 3),
    ],
    2, 3, 3,
)  # fmt: skip
_layer(
    "trilinear upsampling",
    lambda: [nn.Conv3d(1, 2, 1), nn.Upsample(scale_factor=2, mode="trilinear"), nn.Conv3d(2, 1, 2)],
    1, 2, 2, 2,
)  # fmt: skip
_layer(
    "bicubic upsampling",
    lambda: [nn.Conv2d(1, 2, 1), nn.Upsample(scale_factor=2, mode="bicubic"), nn.Tanh()],
    1, 4, 4,
)  # fmt: skip
_layer(
    "pixel shuffle",
    lambda: [nn.Conv2d(1, 8, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(2, 1, 1)],
    1,
    4,
    4,
)
_layer(
    "pixel unshuffle",
    lambda: [nn.PixelUnshuffle(2), nn.Conv2d(4, 3, 1), nn.ChannelShuffle(3)],
    1,
    4,
    4,
)


@CATALOGUE.entry("max pool with indices, and back")
def max_pool_and_back() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        features = module.before(images)
        low, places = F.max_pool2d(features, 2, return_indices=True)
        return module.after(F.max_unpool2d(torch.tanh(low), places, [2, 2]))

    parts = {"before": nn.Conv2d(1, 3, 3, padding=1), "after": nn.Conv2d(3, 1, 3)}
    return regression(Function(forward, parts), torch.randn(RECORDS, 1, 6, 6))


# --- norms and parametrisations ---

_layer(
    "layer norm over two axes",
    lambda: [nn.Linear(4, 5), nn.LayerNorm([3, 5]), nn.Linear(5, 2)],
    3,
    4,
)
_layer(
    "layer norm without bias", lambda: [nn.Linear(4, 5), nn.LayerNorm(5, bias=False), nn.Tanh()], 4
)
_layer("rms norm", lambda: [nn.Linear(4, 5), nn.RMSNorm(5), nn.Linear(5, 2)], 3, 4)
_layer(
    "group norm",
    lambda: [nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.Conv2d(6, 2, 1)],
    2,
    5,
    5,
)
_layer(
    "group norm of one group",
    lambda: [nn.Conv1d(2, 4, 3), nn.GroupNorm(1, 4), nn.Conv1d(4, 2, 1)],
    2,
    6,
)
_layer(
    "instance norm",
    lambda: [nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.ReLU()],
    2,
    6,
    6,
)
_layer(
    "instance norm 1d without weights",
    lambda: [nn.Conv1d(2, 3, 3), nn.InstanceNorm1d(3), nn.ReLU()],
    2,
    8,
)
_layer(
    "local response norm",
    lambda: [nn.Conv2d(2, 6, 3), nn.LocalResponseNorm(2), nn.Conv2d(6, 2, 1)],
    2,
    5,
    5,
)
_layer(
    "frozen batch norm", lambda: [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4).eval(), nn.ReLU()], 2, 5, 5
)
_layer(
    "weight norm",
    lambda: [parametrizations.weight_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 2)],
    4,
)
_layer(
    "weight norm of a convolution",
    lambda: [parametrizations.weight_norm(nn.Conv1d(2, 4, 3)), nn.Tanh()],
    2, 7,
)  # fmt: skip
_layer("orthogonal weights", lambda: [parametrizations.orthogonal(nn.Linear(4, 4)), nn.Tanh()], 4)
_layer(
    "spectral norm in evaluation mode",
    lambda: [parametrizations.spectral_norm(nn.Linear(4, 5)).eval(), nn.Tanh()],
    4,
)


class Symmetric(nn.Module):
    """The upper half of a matrix, mirrored."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


class Positive(nn.Module):
    """A positive weight from any."""

    def forward(self, weight: Tensor) -> Tensor:
        return F.softplus(weight)


def _parametrized(part: nn.Module, layer: nn.Module) -> nn.Module:
    parametrize.register_parametrization(layer, "weight", part)
    return layer


_layer(
    "symmetric weights",
    lambda: [_parametrized(Symmetric(), nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)],
    4,
)
_layer(
    "positive weights",
    lambda: [
        _parametrized(Positive(), nn.Linear(4, 3)),
        nn.Tanh(),
        _parametrized(Positive(), nn.Linear(3, 2)),
    ],
    4,
)

# --- activations ---

_layer("prelu", lambda: [nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 2)], 4)
_layer("prelu of channels", lambda: [nn.Conv2d(2, 4, 3), nn.PReLU(4), nn.Conv2d(4, 2, 1)], 2, 5, 5)
_layer("gated linear unit", lambda: [nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 2)], 4)
_layer(
    "leaky in place", lambda: [nn.Linear(4, 8), nn.LeakyReLU(0.1, inplace=True), nn.Linear(8, 2)], 4
)
_layer("rrelu in evaluation mode", lambda: [nn.Linear(4, 8), nn.RReLU().eval(), nn.Linear(8, 2)], 4)
_layer(
    "softmax and logsigmoid",
    lambda: [nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 3), nn.LogSigmoid()],
    4,
)
_layer(
    "hard functions",
    lambda: [nn.Linear(4, 6), nn.Hardswish(), nn.Linear(6, 6), nn.Hardtanh(), nn.Softsign()],
    4,
)
_layer("dropout of zero", lambda: [nn.Linear(4, 6), nn.Dropout(0.0), nn.Linear(6, 2)], 4)


@CATALOGUE.entry("swish with a learnt slope")
def learnt_swish() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = module.before(inputs)
        return module.after(hidden * torch.sigmoid(module.slope * hidden))

    parts = {
        "before": nn.Linear(4, 6),
        "after": nn.Linear(6, 2),
        "slope": nn.Parameter(torch.ones(6)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("maxout")
def maxout() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        pieces = module.pieces(inputs).unflatten(1, (5, 3))
        return module.head(pieces.amax(2))

    parts = {"pieces": nn.Linear(4, 15), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


# --- linear layers of all kinds ---


@CATALOGUE.entry("bilinear")
def bilinear() -> Case:
    def forward(module: Any, left: Tensor, right: Tensor) -> Output:
        return module.head(torch.tanh(module.meet(left, right)))

    parts = {"meet": nn.Bilinear(3, 4, 5), "head": nn.Linear(5, 2)}
    return regression(Function(forward, parts), torch.randn(RECORDS, 3), torch.randn(RECORDS, 4))


@CATALOGUE.entry("bilinear of positions")
def bilinear_of_positions() -> Case:
    model = Function(
        lambda module, left, right: module.meet(left, right), {"meet": nn.Bilinear(3, 4, 2)}
    )
    return regression(model, torch.randn(RECORDS, 5, 3), torch.randn(RECORDS, 5, 4))


_layer(
    "linear on four axes",
    lambda: [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2, bias=False)],
    2,
    3,
    4,
)
_layer(
    "flatten and unflatten",
    lambda: [nn.Flatten(), nn.Linear(12, 8), nn.Unflatten(1, (2, 4)), nn.Linear(4, 3)],
    3,
    4,
)


@CATALOGUE.entry("low rank")
def low_rank() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        return torch.tanh(inputs @ module.down @ module.up + module.shift)

    parts = {
        "down": nn.Parameter(torch.randn(6, 2)),
        "up": nn.Parameter(torch.randn(2, 5)),
        "shift": nn.Parameter(torch.zeros(5)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 3, 6))


@CATALOGUE.entry("low rank, multiplied first")
def low_rank_multiplied_first() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        return torch.tanh(F.linear(inputs, module.up @ module.down))

    parts = {"up": nn.Parameter(torch.randn(5, 2)), "down": nn.Parameter(torch.randn(2, 6))}
    return regression(Function(forward, parts), torch.randn(RECORDS, 6))


@CATALOGUE.entry("functional weights")
def functional_weights() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = F.conv1d(inputs, module.filters, module.shift, padding=1)
        return F.linear(torch.tanh(hidden).mean(2), module.weights.t())

    parts = {
        "filters": nn.Parameter(torch.randn(4, 2, 3)),
        "shift": nn.Parameter(torch.zeros(4)),
        "weights": nn.Parameter(torch.randn(4, 3)),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 2, 6))


@CATALOGUE.entry("one weight used twice")
def one_weight_used_twice() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = torch.tanh(module.shared(inputs))
        return torch.tanh(module.shared(hidden)) + F.linear(hidden, module.shared.weight.t())

    return regression(Function(forward, {"shared": nn.Linear(5, 5)}), torch.randn(RECORDS, 5))


@CATALOGUE.entry("slices of one weight")
def slices_of_one_weight() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        first, second, third = module.weights.chunk(3)
        hidden = torch.tanh(F.linear(inputs, first)) * torch.sigmoid(F.linear(inputs, second))
        return F.linear(hidden, third)

    return regression(
        Function(forward, {"weights": nn.Parameter(torch.randn(12, 4))}), torch.randn(RECORDS, 4)
    )


@CATALOGUE.entry("autoencoder with tied weights")
def tied_autoencoder() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        code = torch.sigmoid(F.linear(inputs, module.weights, module.low))
        return F.linear(code, module.weights.t(), module.high)

    parts = {
        "weights": nn.Parameter(torch.randn(3, 6)),
        "low": nn.Parameter(torch.zeros(3)),
        "high": nn.Parameter(torch.zeros(6)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 6))


@CATALOGUE.entry("masked weights of a MADE")
def masked_weights() -> Case:
    before = torch.ones(5, 5).tril(-1).repeat(2, 1)
    after = torch.ones(5, 5).tril().repeat(1, 2)

    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = torch.relu(F.linear(inputs, module.first * before, module.shift))
        return F.linear(hidden, module.second * after)

    parts = {
        "first": nn.Parameter(torch.randn(10, 5)),
        "second": nn.Parameter(torch.randn(5, 10)),
        "shift": nn.Parameter(torch.zeros(10)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 5))


@CATALOGUE.entry("standardised weights")
def standardised_weights() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        weights = module.filters
        mean = weights.mean((1, 2, 3), keepdim=True)
        deviation = weights.std((1, 2, 3), keepdim=True)
        features = F.conv2d(images, (weights - mean) / (deviation + 1e-5), padding=1)
        return module.head(torch.relu(features).mean((2, 3)))

    parts = {"filters": nn.Parameter(torch.randn(4, 2, 3, 3)), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 2, 5, 5))


@CATALOGUE.entry("binary weights, straight through")
def binary_weights() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        weights = module.weights
        binary = weights + (weights.sign() - weights).detach()
        return F.linear(torch.tanh(inputs), binary)

    return regression(
        Function(forward, {"weights": nn.Parameter(torch.randn(3, 5))}), torch.randn(RECORDS, 5)
    )


@CATALOGUE.entry("einsum layers")
def einsum_layers() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        heads = torch.einsum("btd,hde->bhte", inputs, module.first)
        return torch.einsum("bhte,heo->bto", torch.tanh(heads), module.second)

    parts = {
        "first": nn.Parameter(torch.randn(2, 4, 3)),
        "second": nn.Parameter(torch.randn(2, 3, 4)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 5, 4))


@CATALOGUE.entry("kronecker product of weights")
def kronecker_weights() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        return torch.tanh(F.linear(inputs, torch.kron(module.left, module.right)))

    parts = {
        "left": nn.Parameter(torch.randn(2, 3)),
        "right": nn.Parameter(torch.randn(2, 2)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 6))


@CATALOGUE.entry("tensor train weights")
def tensor_train_weights() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        cube = inputs.view(-1, 2, 3, 2)
        return torch.einsum("bijk,ipr,rjqs,sku->bpqu", cube, module.one, module.two, module.three)

    parts = {
        "one": nn.Parameter(torch.randn(2, 2, 2)),
        "two": nn.Parameter(torch.randn(2, 3, 2, 2)),
        "three": nn.Parameter(torch.randn(2, 2, 2)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 12))


@CATALOGUE.entry("hypernetwork")
def hypernetwork() -> Case:
    """A record's own weights are computed from the record."""

    def forward(module: Any, inputs: Tensor, context: Tensor) -> Output:
        weights = module.maker(context).unflatten(1, (3, 5))
        return torch.bmm(weights, inputs.unsqueeze(2)).squeeze(2)

    model = Function(forward, {"maker": nn.Linear(4, 15)})
    return classification(model, torch.randn(RECORDS, 5), torch.randn(RECORDS, 4))


@CATALOGUE.entry("hypernetwork of public codes")
def hypernetwork_of_codes() -> Case:
    """The weights of all records are computed from a learnt code."""

    def forward(module: Any, inputs: Tensor) -> Output:
        weights = module.maker(module.code).view(5, 4)
        return torch.tanh(F.linear(inputs, weights))

    parts = {"maker": nn.Linear(3, 20), "code": nn.Parameter(torch.randn(3))}
    return regression(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("feature-wise modulation")
def feature_modulation() -> Case:
    def forward(module: Any, images: Tensor, context: Tensor) -> Output:
        scale, shift = module.modulation(context).unsqueeze(2).unsqueeze(3).chunk(2, 1)
        features = F.group_norm(module.filter(images), 2) * (1 + scale) + shift
        return module.head(torch.relu(features).mean((2, 3)))

    parts = {"filter": nn.Conv2d(2, 4, 3), "modulation": nn.Linear(3, 8), "head": nn.Linear(4, 3)}
    return classification(
        Function(forward, parts), torch.randn(RECORDS, 2, 5, 5), torch.randn(RECORDS, 3)
    )


# --- embeddings ---


def _bag(mode: str) -> Case:
    model = nn.Sequential(nn.EmbeddingBag(9, 4, mode=mode), nn.Tanh(), nn.Linear(4, 3))
    return classification(model, random_tokens(9, 5))


CATALOGUE.add("embedding bag sum", lambda: _bag("sum"))
CATALOGUE.add("embedding bag mean", lambda: _bag("mean"))
CATALOGUE.add("embedding bag max", lambda: _bag("max"))


@CATALOGUE.entry("embedding bag with weights and padding")
def weighted_bag() -> Case:
    def forward(module: Any, tokens: Tensor, weights: Tensor) -> Output:
        return module.head(module.bag(tokens, per_sample_weights=weights))

    parts = {"bag": nn.EmbeddingBag(9, 4, mode="sum", padding_idx=0), "head": nn.Linear(4, 3)}
    tokens = random_tokens(9, 5).masked_fill(padding_mask(5), 0)
    return classification(Function(forward, parts), tokens, torch.rand(RECORDS, 5))


@CATALOGUE.entry("embedding bag with offsets")
def bag_with_offsets() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        offsets = torch.arange(0, tokens.numel(), tokens.shape[1])
        return module.head(torch.tanh(module.bag(tokens.flatten(), offsets)))

    parts = {"bag": nn.EmbeddingBag(9, 4, mode="sum"), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), random_tokens(9, 5))


@CATALOGUE.entry("embedding with padding")
def padded_embedding() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        return module.head(torch.tanh(module.words(tokens)).sum(1))

    parts = {"words": nn.Embedding(9, 4, padding_idx=0), "head": nn.Linear(4, 3)}
    return classification(
        Function(forward, parts), random_tokens(9, 5).masked_fill(padding_mask(5), 0)
    )


@CATALOGUE.entry("embedding with sparse gradients")
def sparse_embedding() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        return module.head(module.words(tokens).mean(1))

    parts = {"words": nn.Embedding(9, 4, sparse=True), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), random_tokens(9, 5))


@CATALOGUE.entry("embedding tied to the output")
def tied_embedding() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        hidden = torch.tanh(module.mix(module.words(tokens)))
        return F.linear(hidden, module.words.weight)

    parts = {"words": nn.Embedding(9, 4), "mix": nn.Linear(4, 4)}
    return Case(Function(forward, parts), predict_tokens, (random_tokens(9, 5),))


@CATALOGUE.entry("embedding by indexing")
def indexed_embedding() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        return module.head(torch.tanh(module.table[tokens]).mean(1))

    parts = {"table": nn.Parameter(torch.randn(9, 4)), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), random_tokens(9, 5))


@CATALOGUE.entry("embedding by one-hot products")
def one_hot_embedding() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        return module.words(F.one_hot(tokens, 9).float()).tanh().mean(1)

    return regression(Function(forward, {"words": nn.Linear(9, 4)}), random_tokens(9, 5))


@CATALOGUE.entry("hashed embeddings")
def hashed_embeddings() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        sums = module.one(tokens * 7 % 5) + module.two(tokens * 3 % 4)
        return module.head(torch.tanh(sums).mean(1))

    parts = {"one": nn.Embedding(5, 4), "two": nn.Embedding(4, 4), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), random_tokens(100, 5))


@CATALOGUE.entry("quantised embedding, straight through")
def vector_quantisation() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = module.encoder(inputs)
        distances = (hidden.unsqueeze(2) - module.codes).square().sum(3)
        codes = module.codes[distances.argmin(2)]
        straight = hidden + (codes - hidden).detach()
        commitment = (hidden - codes).square().mean(2, keepdim=True)
        return torch.cat([module.decoder(straight), commitment], 2)

    parts = {
        "encoder": nn.Linear(4, 3),
        "decoder": nn.Linear(3, 4),
        "codes": nn.Parameter(torch.randn(6, 3)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 5, 4))


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "conv1d dilated",
    "conv1d grouped",
    "conv1d reflect",
    "conv2d dilated",
    "conv2d circular",
    "conv2d replicate",
    "conv2d same",
    "conv3d grouped dilated",
    "transposed 2d grouped",
    "max pool 3d",
    "average pool 1d",
    "average pool 3d",
    "trilinear upsampling",
    "bicubic upsampling",
    "layer norm without bias",
    "leaky in place",
    "hard functions",
    "conv2d reflect",
    "conv2d rectangular",
    "transposed 2d dilated",
    "adaptive max pool",
    "layer norm over two axes",
    "group norm of one group",
    "instance norm 1d without weights",
    "softmax and logsigmoid",
    "embedding bag sum",
    "hashed embeddings",
    "positive weights",
    "weight norm of a convolution",
    "linear on four axes",
    "low rank, multiplied first",
)
