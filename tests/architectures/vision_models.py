"""Classifiers of images: blocks of convolutions and of attention."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import RECORDS, Case, Catalogue, Function, Output, classification

CATALOGUE = Catalogue()


def _images(channels: int = 3, size: int = 8) -> Tensor:
    return torch.randn(RECORDS, channels, size, size)


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]


def _classifier(name: str, layers: Any) -> None:
    """Add layers one after the other, which give scores of three classes."""
    CATALOGUE.add(name, lambda: classification(nn.Sequential(*layers()), _images()))


# --- blocks ---


class Residual(nn.Module):
    """Two convolutions with group norms, and a shortcut."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(2, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(2, after)
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.first_norm(self.first(images)), inplace=True)
        hidden = self.second_norm(self.second(hidden))
        return F.relu(hidden + self.shortcut(images), inplace=True)


class Dense(nn.Module):
    """A layer of a DenseNet: what it computes is appended."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.filter = nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.filter(F.relu(self.norm(images)))], 1)


class Inception(nn.Module):
    """Filters of several sizes, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.small = nn.Conv2d(channels, 2, 1)
        self.middle = nn.Sequential(nn.Conv2d(channels, 2, 1), nn.Conv2d(2, 3, 3, padding=1))
        self.large = nn.Sequential(nn.Conv2d(channels, 1, 1), nn.Conv2d(1, 2, 5, padding=2))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        branches = (self.small, self.middle, self.large, self.pooled)
        return F.relu(torch.cat([branch(images) for branch in branches], 1))


class InvertedResidual(nn.Module):
    """MobileNet: wide depthwise filters between narrow layers, with squeeze and excite."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.widen = nn.Conv2d(channels, wide, 1, bias=False)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False)
        self.norm = nn.GroupNorm(2, wide)
        self.squeeze = nn.Conv2d(wide, 2, 1)
        self.excite = nn.Conv2d(2, wide, 1)
        self.narrow = nn.Conv2d(wide, channels, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.hardswish(self.norm(self.depthwise(F.relu6(self.widen(images)))))
        gates = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(hidden, 1)))))
        change: Tensor = self.narrow(hidden * gates)
        return images + change


class ShuffleUnit(nn.Module):
    """ShuffleNet: half of the channels are changed, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.mix = nn.Conv2d(half, half, 1)
        self.depthwise = nn.Conv2d(half, half, 3, padding=1, groups=half)

    def forward(self, images: Tensor) -> Tensor:
        kept, changed = images.chunk(2, 1)
        joined = torch.cat([kept, F.relu(self.depthwise(self.mix(changed)))], 1)
        rows, channels, height, width = joined.shape
        halves = joined.view(rows, 2, channels // 2, height, width)
        return halves.transpose(1, 2).flatten(1, 2)


class LargeKernel(nn.Module):
    """ConvNeXt: a large depthwise filter, a norm over channels and a scaled residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, 2 * channels)
        self.narrow = nn.Linear(2 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.depthwise(images).permute(0, 2, 3, 1))
        hidden = self.scale * self.narrow(F.gelu(self.widen(hidden)))
        change: Tensor = hidden.permute(0, 3, 1, 2)
        return images + change


class BlockAttention(nn.Module):
    """CBAM: attention over channels, then over places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = nn.Sequential(nn.Linear(channels, 2), nn.ReLU(), nn.Linear(2, channels))
        self.places = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        scores = self.channels(images.mean((2, 3))) + self.channels(images.amax((2, 3)))
        images = images * torch.sigmoid(scores)[:, :, None, None]
        summary = torch.cat([images.mean(1, keepdim=True), images.amax(1, keepdim=True)], 1)
        return images * torch.sigmoid(self.places(summary))


class Ghost(nn.Module):
    """Cheap features are made of expensive ones."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.primary = nn.Conv2d(before, after, 1)
        self.cheap = nn.Conv2d(after, after, 3, padding=1, groups=after)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.primary(images))
        return torch.cat([features, self.cheap(features)], 1)


class Branches(nn.Module):
    """RepVGG: filters of two sizes and the image itself are added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.large = nn.Conv2d(channels, channels, 3, padding=1)
        self.small = nn.Conv2d(channels, channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.large(images) + self.small(images) + images)


class Pyramid(nn.Module):
    """Atrous pyramid: one image at several dilations, and its mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filters = nn.ModuleList(
            nn.Conv2d(channels, 2, 3, padding=rate, dilation=rate) for rate in (1, 2, 3)
        )
        self.whole = nn.Conv2d(channels, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        whole = self.whole(F.adaptive_avg_pool2d(images, 1))
        spread = F.interpolate(whole, size=images.shape[2:], mode="bilinear")
        return F.relu(torch.cat([*(layer(images) for layer in self.filters), spread], 1))


class NonLocal(nn.Module):
    """Attention between all places of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key = nn.Conv2d(channels, 2, 1), nn.Conv2d(channels, 2, 1)
        self.value = nn.Conv2d(channels, channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        scores = torch.einsum(
            "bcp,bcq->bpq", self.query(images).flatten(2), self.key(images).flatten(2)
        )
        mixed = torch.einsum("bpq,bcq->bcp", scores.softmax(2), self.value(images).flatten(2))
        return images + mixed.view_as(images)


class Axial(nn.Module):
    """Attention along rows, then along columns; the other axis is folded into the batch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.rows = nn.Linear(channels, 3 * channels)
        self.columns = nn.Linear(channels, 3 * channels)

    def forward(self, images: Tensor) -> Tensor:
        values = images.permute(0, 2, 3, 1)
        values = values + self._along(self.rows, values)
        turned = values.transpose(1, 2)
        return (turned + self._along(self.columns, turned)).permute(0, 3, 2, 1)

    def _along(self, layer: nn.Module, values: Tensor) -> Tensor:
        lines = values.flatten(0, 1)
        mixed = F.scaled_dot_product_attention(*layer(lines).chunk(3, 2))
        return mixed.view_as(values)


class Windows(nn.Module):
    """Swin: attention within windows, which are folded into the batch axis; perhaps shifted."""

    def __init__(self, channels: int, size: int, shift: int) -> None:
        super().__init__()
        self.size, self.shift = size, shift
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.bias = nn.Parameter(torch.randn(size * size, size * size))

    def forward(self, images: Tensor) -> Tensor:
        rows, height, width, channels = images.shape
        shifted = torch.roll(self.norm(images), (-self.shift, -self.shift), (1, 2))
        tiles = shifted.view(
            rows, height // self.size, self.size, width // self.size, self.size, channels
        )
        windows = tiles.transpose(2, 3).reshape(-1, self.size * self.size, channels)
        query, key, value = self.qkv(windows).chunk(3, 2)
        mixed = (query @ key.transpose(1, 2) + self.bias).softmax(2) @ value
        tiles = mixed.view(
            rows, height // self.size, width // self.size, self.size, self.size, channels
        )
        whole = tiles.transpose(2, 3).reshape(images.shape)
        return images + torch.roll(whole, (self.shift, self.shift), (1, 2))


class ToLastAxis(nn.Module):
    """(B, C, H, W) to (B, H, W, C)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1)


class ToTokens(nn.Module):
    """(B, C, H, W) to (B, H * W, C)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    """The mean over axes."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, values: Tensor) -> Tensor:
        return values.mean(self.axes)


class Mixer(nn.Module):
    """MLP-Mixer: layers over places, then over channels."""

    def __init__(self, places: int, channels: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.places = nn.Sequential(nn.Linear(places, 6), nn.GELU(), nn.Linear(6, places))
        self.channels = nn.Sequential(nn.Linear(channels, 6), nn.GELU(), nn.Linear(6, channels))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.places(self.first_norm(tokens).transpose(1, 2)).transpose(1, 2)
        change: Tensor = self.channels(self.second_norm(tokens))
        return tokens + change


def _first(channels: int = 4) -> nn.Module:
    return nn.Conv2d(3, channels, 3, stride=2, padding=1)


_classifier(
    "resnet with group norm", lambda: [_first(), Residual(4, 4), Residual(4, 6, 2), *_head(6)]
)
_classifier("densenet", lambda: [_first(), Dense(4, 2), Dense(6, 2), nn.AvgPool2d(2), *_head(8)])
_classifier("inception", lambda: [_first(), Inception(4), *_head(8)])
_classifier("mobilenet", lambda: [_first(), InvertedResidual(4, 8), *_head(4)])
_classifier("shufflenet", lambda: [_first(), ShuffleUnit(4), ShuffleUnit(4), *_head(4)])
_classifier("convnext", lambda: [_first(), LargeKernel(4), LargeKernel(4), *_head(4)])
_classifier("attention of blocks", lambda: [_first(), BlockAttention(4), *_head(4)])
_classifier("ghost features", lambda: [_first(), Ghost(4, 3), *_head(6)])
_classifier("repvgg", lambda: [_first(), Branches(4), Branches(4), *_head(4)])
_classifier("atrous pyramid", lambda: [_first(), Pyramid(4), *_head(8)])
_classifier("non-local", lambda: [_first(), NonLocal(4), *_head(4)])
_classifier("axial attention", lambda: [_first(), Axial(4), *_head(4)])
_classifier(
    "swin windows",
    lambda: [
        _first(),
        ToLastAxis(),
        Windows(4, 2, 0),
        Windows(4, 2, 1),
        Mean(1, 2),
        nn.Linear(4, 3),
    ],
)
_classifier(
    "mlp mixer",
    lambda: [nn.Conv2d(3, 4, 4, 4), ToTokens(), Mixer(4, 4), Mixer(4, 4), Mean(1), nn.Linear(4, 3)],
)
_classifier(
    "vgg",
    lambda: [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(True),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 8),
        nn.ReLU(True),
        nn.Linear(8, 3),
    ],
)
_classifier(
    "network in network",
    lambda: [
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 1),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
        Mean(2, 3),
    ],
)
_classifier(
    "compact transformer",
    lambda: [
        _first(8),
        nn.MaxPool2d(2),
        ToTokens(),
        nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        Mean(1),
        nn.Linear(8, 3),
    ],
)


# --- transformers of patches ---


def _token_and_places(module: Any, images: Tensor) -> Output:
    patches = module.patches(images).flatten(2).transpose(1, 2)
    token = module.token.expand(len(images), -1, -1)
    return torch.cat([token, patches], 1) + module.places


def _patch_parts() -> dict[str, Any]:
    return {
        "patches": nn.Conv2d(3, 8, 4, stride=4),
        "token": nn.Parameter(torch.randn(1, 1, 8)),
        "places": nn.Parameter(torch.randn(1, 5, 8)),
        "layers": nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        ),
        "head": nn.Linear(8, 3),
    }


@CATALOGUE.entry("vit with a class token")
def vit_with_token() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        return module.head(module.layers(_token_and_places(module, images))[:, 0])

    return classification(Function(forward, _patch_parts()), _images())


@CATALOGUE.entry("vit with a distilled token")
def vit_with_distilled_token() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        hidden = module.layers(
            torch.cat(
                [module.second.expand(len(images), 1, 8), _token_and_places(module, images)], 1
            )
        )
        return (module.head(hidden[:, 0]) + module.other(hidden[:, 1])) / 2

    parts = {
        **_patch_parts(),
        "second": nn.Parameter(torch.randn(1, 1, 8)),
        "other": nn.Linear(8, 3),
    }
    return classification(Function(forward, parts), _images())


@CATALOGUE.entry("vit whose places are interpolated")
def vit_interpolated() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        patches = module.patches(images)
        places = F.interpolate(module.grid, size=patches.shape[2:], mode="bicubic")
        tokens = (patches + places).flatten(2).transpose(1, 2)
        return module.head(module.layers(tokens).mean(1))

    parts = {**_patch_parts(), "grid": nn.Parameter(torch.randn(1, 8, 3, 3))}
    del parts["token"], parts["places"]
    return classification(Function(forward, parts), _images())


@CATALOGUE.entry("patches by reshaping")
def patches_by_reshaping() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        tiles = images.view(-1, 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5)
        return module.head(F.gelu(module.patch(tiles.reshape(len(images), 4, -1))).mean(1))

    parts = {"patch": nn.Linear(48, 8), "head": nn.Linear(8, 3)}
    return classification(Function(forward, parts), _images())


@CATALOGUE.entry("masked autoencoder, own masks")
def masked_autoencoder() -> Case:
    """Each record keeps its own patches; the decoder puts a learnt token elsewhere."""

    def loss(model: Any, batch: Any) -> Output:
        images, order = batch
        patches = F.unfold(images, 4, stride=4).transpose(1, 2)
        tokens = model.encode(patches) + model.places
        shown = order[:, :2].unsqueeze(2).expand(-1, -1, 8)
        hidden = model.layers(tokens.gather(1, shown))
        whole = model.token.expand(len(images), 4, 8).scatter(1, shown, hidden)
        errors = (model.decode(whole + model.places) - patches).square().mean(2)
        return errors.gather(1, order[:, 2:]).mean(1)

    parts = _patch_parts()
    parts = {
        "encode": nn.Linear(48, 8),
        "decode": nn.Linear(8, 48),
        "places": nn.Parameter(torch.randn(1, 4, 8)),
        "token": nn.Parameter(torch.randn(1, 1, 8)),
        "layers": parts["layers"],
    }
    order = torch.stack([torch.randperm(4) for _ in range(RECORDS)])
    return Case(Function(lambda module, images: images, parts), loss, (_images(), order))


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "densenet",
    "inception",
    "shufflenet",
    "ghost features",
    "repvgg",
    "atrous pyramid",
    "vgg",
    "network in network",
    "compact transformer",
    "vit with a distilled token",
    "vit whose places are interpolated",
    "convnext",
)
