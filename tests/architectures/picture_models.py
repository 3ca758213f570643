"""Images to images, filters of a record's own, videos, and pairs of images and texts."""

from __future__ import annotations

from collections.abc import Sequence
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
    random_labels,
    regression,
)

CATALOGUE = Catalogue()


def _images(channels: int = 3, size: int = 8) -> Tensor:
    return torch.randn(RECORDS, channels, size, size)


# --- images to images ---


@CATALOGUE.entry("unet with two levels")
def unet() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        high = F.relu(module.high(images))
        low = F.relu(module.low(F.max_pool2d(high, 2)))
        lowest = F.relu(module.lowest(F.max_pool2d(low, 2)))
        risen = F.relu(module.rise_low(torch.cat([module.up_low(lowest), low], 1)))
        return module.out(torch.cat([module.up_high(risen), high], 1))

    parts = {
        "high": nn.Conv2d(3, 3, 3, padding=1),
        "low": nn.Conv2d(3, 4, 3, padding=1),
        "lowest": nn.Conv2d(4, 6, 3, padding=1),
        "up_low": nn.ConvTranspose2d(6, 4, 2, stride=2),
        "rise_low": nn.Conv2d(8, 4, 3, padding=1),
        "up_high": nn.ConvTranspose2d(4, 3, 2, stride=2),
        "out": nn.Conv2d(6, 1, 1),
    }
    return regression(Function(forward, parts), _images())


@CATALOGUE.entry("unet of a diffusion, told the time")
def diffusion_unet() -> Case:
    def forward(module: Any, images: Tensor, clock: Tensor) -> Output:
        shift = module.clock(clock)[:, :, None, None]
        hidden = F.silu(F.group_norm(module.inward(images) + shift, 2))
        low = module.down(hidden)
        tokens = low.flatten(2).transpose(1, 2)
        tokens = tokens + module.attention(tokens, tokens, tokens, need_weights=False)[0]
        low = tokens.transpose(1, 2).view_as(low)
        return module.out(hidden + F.interpolate(low, scale_factor=2))

    parts = {
        "clock": nn.Linear(4, 4),
        "inward": nn.Conv2d(3, 4, 3, padding=1),
        "down": nn.Conv2d(4, 4, 3, stride=2, padding=1),
        "attention": nn.MultiheadAttention(4, 2, batch_first=True),
        "out": nn.Conv2d(4, 3, 3, padding=1),
    }
    return regression(Function(forward, parts), _images(), torch.randn(RECORDS, 4))


@CATALOGUE.entry("super resolution")
def super_resolution() -> Case:
    layers = [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.PReLU(),
        nn.Conv2d(4, 12, 3, padding=1),
        nn.PixelShuffle(2),
    ]
    return regression(nn.Sequential(*layers), _images(size=4))


@CATALOGUE.entry("feature pyramid")
def feature_pyramid() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        fine = F.relu(module.fine(images))
        coarse = F.relu(module.coarse(fine))
        top = module.lateral_coarse(coarse)
        bottom = module.lateral_fine(fine) + F.interpolate(top, scale_factor=2.0, mode="nearest")
        scores = [module.head(level).flatten(1) for level in (top, bottom)]
        return torch.cat(scores, 1)

    parts = {
        "fine": nn.Conv2d(3, 4, 3, stride=2, padding=1),
        "coarse": nn.Conv2d(4, 4, 3, stride=2, padding=1),
        "lateral_fine": nn.Conv2d(4, 4, 1),
        "lateral_coarse": nn.Conv2d(4, 4, 1),
        "head": nn.Conv2d(4, 2, 3, padding=1),
    }
    return regression(Function(forward, parts), _images())


@CATALOGUE.entry("segmentation with ignored pixels")
def segmentation() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        images, labels = batch
        losses = F.cross_entropy(model(images), labels, ignore_index=-1, reduction="none")
        return losses.sum((1, 2)) / (labels >= 0).sum((1, 2))

    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
    return Case(model, loss, (_images(size=5), torch.randint(-1, 3, (RECORDS, 5, 5))))


@CATALOGUE.entry("detection on a grid")
def detection() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        images, boxes, present = batch
        scores, places = model(images).split([1, 4], 1)
        objects = F.binary_cross_entropy_with_logits(scores, present, reduction="none").sum(
            (1, 2, 3)
        )
        distances = (torch.sigmoid(places) - boxes).abs() * present
        return objects + distances.sum((1, 2, 3))

    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(4, 5, 3, 2, 1))
    present = (torch.rand(RECORDS, 1, 2, 2) < 0.5).float()
    return Case(model, loss, (_images(), torch.rand(RECORDS, 4, 2, 2), present))


@CATALOGUE.entry("pixels one after the other, masked filters")
def masked_filters() -> Case:
    mask = torch.ones(3, 3)
    mask[1, 1:] = 0
    mask[2] = 0

    def forward(module: Any, images: Tensor) -> Output:
        hidden = F.conv2d(images, module.first * mask, padding=1)
        return module.out(F.relu(hidden))

    parts = {"first": nn.Parameter(torch.randn(4, 1, 3, 3)), "out": nn.Conv2d(4, 1, 1)}
    return regression(Function(forward, parts), _images(1, 5))


@CATALOGUE.entry("convolutional autoencoder")
def convolutional_autoencoder() -> Case:
    layers = [
        nn.Conv2d(3, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(2, 4, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 4, 2, 1),
        nn.Sigmoid(),
    ]
    return regression(nn.Sequential(*layers), _images())


@CATALOGUE.entry("fourier operator in two axes")
def fourier_operator() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        hidden = module.lift(images)
        spectrum = torch.fft.rfft2(hidden)[..., :3, :3]
        mixed = torch.einsum("bixy,ioxy->boxy", spectrum, torch.view_as_complex(module.weights))
        smooth = torch.fft.irfft2(mixed, s=hidden.shape[2:])
        return module.lower(F.gelu(smooth + module.skip(hidden)))

    parts = {
        "lift": nn.Conv2d(1, 3, 1),
        "weights": nn.Parameter(torch.randn(3, 3, 3, 3, 2)),
        "skip": nn.Conv2d(3, 3, 1),
        "lower": nn.Conv2d(3, 1, 1),
    }
    return regression(Function(forward, parts), _images(1, 6))


@CATALOGUE.entry("colours by a learnt transfer of style")
def style_transfer() -> Case:
    """Adaptive instance norm: mean and spread of a record's own style image."""

    def forward(module: Any, content: Tensor, style: Tensor) -> Output:
        values, other = module.encode(content), module.encode(style)
        spread = other.std((2, 3), keepdim=True)
        mean = other.mean((2, 3), keepdim=True)
        return module.decode(F.instance_norm(values) * spread + mean)

    parts = {"encode": nn.Conv2d(3, 4, 3), "decode": nn.Conv2d(4, 3, 1)}
    return regression(Function(forward, parts), _images(size=5), _images(size=5))


# --- weights of a record's own ---


@CATALOGUE.entry("filters modulated by a style, records as groups")
def modulated_filters() -> Case:
    """StyleGAN: each record has filters of its own; records are folded into the channels."""

    def forward(module: Any, images: Tensor, style: Tensor) -> Output:
        rows, channels, height, width = images.shape
        scales = module.style(style) + 1.0
        filters = module.filters.unsqueeze(0) * scales[:, None, :, None, None]
        filters = filters * torch.rsqrt(filters.square().sum((2, 3, 4), keepdim=True) + 1e-6)
        folded = images.reshape(1, rows * channels, height, width)
        out = F.conv2d(folded, filters.flatten(0, 1), padding=1, groups=rows)
        return out.view(rows, -1, height, width)

    parts = {"style": nn.Linear(4, 3), "filters": nn.Parameter(torch.randn(4, 3, 3, 3))}
    return regression(Function(forward, parts), _images(size=5), torch.randn(RECORDS, 4))


@CATALOGUE.entry("filters mixed for each record")
def mixed_filters() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        gates = module.gate(images.mean((2, 3))).softmax(1)
        answers = torch.stack([layer(images) for layer in module.layers], 1)
        return module.head((gates[:, :, None, None, None] * answers).sum(1).amax((2, 3)))

    layers = nn.ModuleList(nn.Conv2d(3, 4, 3) for _ in range(2))
    parts = {"gate": nn.Linear(3, 2), "layers": layers, "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), _images(size=5))


@CATALOGUE.entry("involution")
def involution() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        rows, channels, height, width = images.shape
        kernels = module.kernel(images).view(rows, 1, 9, height, width)
        patches = F.unfold(images, 3, padding=1).view(rows, channels, 9, height, width)
        return module.head((kernels * patches).sum(2).mean((2, 3)))

    parts = {"kernel": nn.Conv2d(3, 9, 1), "head": nn.Linear(3, 3)}
    return classification(Function(forward, parts), _images(size=5))


@CATALOGUE.entry("spatial transformer")
def spatial_transformer() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        turn = module.turn(images.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3)
        grid = F.affine_grid(turn, list(images.shape), align_corners=False)
        seen = F.grid_sample(images, grid, align_corners=False)
        return module.head(torch.tanh(module.filter(seen)).flatten(1))

    parts = {"turn": nn.Linear(25, 6), "filter": nn.Conv2d(1, 2, 3), "head": nn.Linear(18, 3)}
    return classification(Function(forward, parts), _images(1, 5))


@CATALOGUE.entry("deformed sampling")
def deformed_sampling() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        offsets = 0.2 * torch.tanh(module.offsets(images)).permute(0, 2, 3, 1)
        lines = torch.linspace(-1.0, 1.0, images.shape[2])
        grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), 2) + offsets
        return module.head(
            F.grid_sample(module.filter(images), grid, align_corners=True).mean((2, 3))
        )

    parts = {
        "offsets": nn.Conv2d(3, 2, 3, padding=1),
        "filter": nn.Conv2d(3, 4, 1),
        "head": nn.Linear(4, 3),
    }
    return classification(Function(forward, parts), _images(size=5))


@CATALOGUE.entry("capsules with routing")
def capsules() -> Case:
    def squash(values: Tensor) -> Tensor:
        lengths = values.square().sum(-1, keepdim=True)
        return values * lengths.sqrt() / (1 + lengths)

    def forward(module: Any, images: Tensor) -> Output:
        primary = squash(module.filter(images).flatten(2).transpose(1, 2))
        votes = torch.einsum("bpi,pcio->bpco", primary, module.weights)
        scores = torch.zeros(votes.shape[:3])
        for _ in range(3):
            outputs = squash((scores.softmax(2).unsqueeze(3) * votes).sum(1))
            scores = scores + (votes * outputs.unsqueeze(1)).sum(3)
        return outputs.norm(dim=2)

    parts = {"filter": nn.Conv2d(3, 4, 3, 2), "weights": nn.Parameter(torch.randn(9, 3, 4, 5))}
    return classification(Function(forward, parts), _images())


@CATALOGUE.entry("neural cellular automaton")
def cellular_automaton() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        state = F.pad(images, (0, 0, 0, 0, 0, 2))
        for _ in range(3):
            state = state + 0.5 * module.update(F.relu(module.perceive(state)))
        return state

    parts = {
        "perceive": nn.Conv2d(5, 6, 3, padding=1, padding_mode="circular"),
        "update": nn.Conv2d(6, 5, 1),
    }
    return regression(Function(forward, parts), _images(size=4))


@CATALOGUE.entry("slots that compete for places")
def slots() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        places = module.encode(images).flatten(2).transpose(1, 2)
        states = module.slots.expand(len(images), -1, -1)
        for _ in range(2):
            scores = states @ module.key(places).transpose(1, 2)
            weights = scores.softmax(1) + 1e-6
            updates = (weights / weights.sum(2, keepdim=True)) @ places
            states = module.cell(updates.flatten(0, 1), states.flatten(0, 1)).view_as(states)
        return states

    parts = {
        "encode": nn.Conv2d(3, 4, 3),
        "slots": nn.Parameter(torch.randn(1, 3, 4)),
        "key": nn.Linear(4, 4),
        "cell": nn.GRUCell(4, 4),
    }
    return regression(Function(forward, parts), _images(size=4))


# --- videos and pairs ---


def _video() -> Tensor:
    return torch.randn(RECORDS, 2, 4, 5, 5)


def _video_model(name: str, layers: Any) -> None:
    CATALOGUE.add(name, lambda: classification(nn.Sequential(*layers()), _video()))


def _video_head(channels: int) -> Sequence[nn.Module]:
    return nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(channels, 3)


_video_model(
    "video, three axes", lambda: [nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), *_video_head(4)]
)
_video_model(
    "video, places then time",
    lambda: [
        nn.Conv3d(2, 3, (1, 3, 3)),
        nn.ReLU(),
        nn.Conv3d(3, 4, (3, 1, 1), padding=(1, 0, 0)),
        *_video_head(4),
    ],
)


@CATALOGUE.entry("video, channels shifted in time")
def shifted_channels() -> Case:
    def forward(module: Any, clips: Tensor) -> Output:
        early = F.pad(clips[:, :1, 1:], (0, 0, 0, 0, 0, 1))
        late = F.pad(clips[:, 1:, :-1], (0, 0, 0, 0, 1, 0))
        frames = torch.cat([early, late], 1).transpose(1, 2).flatten(0, 1)
        features = F.relu(module.filter(frames)).mean((2, 3))
        return module.head(features).unflatten(0, (len(clips), -1)).mean(1)

    parts = {"filter": nn.Conv2d(2, 4, 3), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), _video())


@CATALOGUE.entry("video, attention in time and in places")
def divided_attention() -> Case:
    def attend(layer: Any, values: Tensor) -> Output:
        """Attend along the third axis, the first two folded into one."""
        folded = values.flatten(0, 1)
        mixed = F.scaled_dot_product_attention(*layer(folded).chunk(3, 2))
        return values + mixed.view_as(values)

    def forward(module: Any, clips: Tensor) -> Output:
        frames = clips.transpose(1, 2)
        tokens = module.patch(frames.flatten(0, 1)).flatten(2).transpose(1, 2)
        tokens = attend(module.places, tokens.unflatten(0, frames.shape[:2]))
        tokens = attend(module.times, tokens.transpose(1, 2))
        return module.head(tokens.mean((1, 2)))

    parts = {
        "patch": nn.Conv2d(2, 4, 2, 2),
        "places": nn.Linear(4, 12),
        "times": nn.Linear(4, 12),
        "head": nn.Linear(4, 3),
    }
    return classification(Function(forward, parts), _video())


@CATALOGUE.entry("video, convolutional recurrence")
def convolutional_recurrence() -> Case:
    def forward(module: Any, clips: Tensor) -> Output:
        state = clips.new_zeros(len(clips), 3, 5, 5)
        cell = torch.zeros_like(state)
        for frame in clips.unbind(2):
            gates = module.gates(torch.cat([frame, state], 1)).chunk(4, 1)
            inward, forget, outward = (torch.sigmoid(gate) for gate in gates[:3])
            cell = forget * cell + inward * torch.tanh(gates[3])
            state = outward * torch.tanh(cell)
        return module.head(state.mean((2, 3)))

    parts = {"gates": nn.Conv2d(5, 12, 3, padding=1), "head": nn.Linear(3, 3)}
    return classification(Function(forward, parts), _video())


@CATALOGUE.entry("questions about an image")
def questions_about_an_image() -> Case:
    def forward(module: Any, images: Tensor, tokens: Tensor) -> Output:
        places = module.filter(images).flatten(2).transpose(1, 2)
        _, (question, _) = module.reader(module.words(tokens))
        weights = torch.einsum("bpc,bc->bp", places, question[0]).softmax(1)
        return module.head(torch.einsum("bp,bpc->bc", weights, places) * question[0])

    parts = {
        "filter": nn.Conv2d(3, 4, 3),
        "words": nn.Embedding(9, 3),
        "reader": nn.LSTM(3, 4, batch_first=True),
        "head": nn.Linear(4, 3),
    }
    return classification(Function(forward, parts), _images(size=5), torch.randint(9, (RECORDS, 4)))


@CATALOGUE.entry("captions of an image")
def captions() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        images, tokens = batch
        memory = model.filter(images).flatten(2).transpose(1, 2)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        hidden = model.decoder(model.words(tokens), memory, tgt_mask=mask)
        scores = F.linear(hidden[:, :-1], model.words.weight)
        return F.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)

    parts = {
        "filter": nn.Conv2d(3, 8, 3, 2),
        "words": nn.Embedding(9, 8),
        "decoder": nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
    }
    model = Function(lambda module, images: images, parts)
    return Case(model, loss, (_images(), torch.randint(9, (RECORDS, 4))))


@CATALOGUE.entry("rotation of four own views")
def rotation_of_views() -> Case:
    """Four turns of each image are stacked along the batch axis."""

    def loss(model: nn.Module, batch: Any) -> Output:
        (images,) = batch
        turned = torch.stack([torch.rot90(images, turn, (2, 3)) for turn in range(4)], 1)
        scores = model(turned.flatten(0, 1))
        labels = torch.arange(4).repeat(len(images))
        return F.cross_entropy(scores, labels, reduction="none").view(-1, 4).mean(1)

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4))
    return Case(model, loss, (_images(size=5),))


@CATALOGUE.entry("distances of two images by their features")
def perceptual_distance() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        images, targets = batch
        answers = model.student(images)
        near, far = model.judge(answers), model.judge(targets)
        return (near - far).square().mean((1, 2, 3)) + (answers - targets).abs().mean((1, 2, 3))

    parts = {
        "student": nn.Conv2d(3, 3, 3, padding=1),
        "judge": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).requires_grad_(False),
    }
    model = Function(lambda module, images: module.student(images), parts)
    return Case(model, loss, (_images(size=5), _images(size=5)))


@CATALOGUE.entry("channels last in memory")
def channels_last() -> Case:
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)]
    model: Any = nn.Sequential(*layers)
    images = _images().to(memory_format=torch.channels_last)
    return classification(model.to(memory_format=torch.channels_last), images)


@CATALOGUE.entry("answers at two exits")
def two_exits() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        images, labels = batch
        early = F.relu(model.first(images))
        late = F.relu(model.second(early))
        first = F.cross_entropy(model.first_exit(early.mean((2, 3))), labels, reduction="none")
        second = F.cross_entropy(model.second_exit(late.mean((2, 3))), labels, reduction="none")
        return 0.3 * first + second

    parts = {
        "first": nn.Conv2d(3, 4, 3),
        "second": nn.Conv2d(4, 5, 3),
        "first_exit": nn.Linear(4, 3),
        "second_exit": nn.Linear(5, 3),
    }
    model = Function(lambda module, images: images, parts)
    return Case(model, loss, (_images(), random_labels(3)))


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "unet of a diffusion, told the time",
    "feature pyramid",
    "convolutional autoencoder",
    "neural cellular automaton",
    "captions of an image",
)
