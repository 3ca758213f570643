"""Generative models, and losses over a record's own sets."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import RECORDS, Case, Catalogue, Function, Output

CATALOGUE = Catalogue()


def _mlp(inputs: int = 4, hidden: int = 6, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def _points(width: int = 4) -> Tensor:
    return torch.randn(RECORDS, width)


# --- generative models ---


@CATALOGUE.entry("variational autoencoder")
def variational_autoencoder() -> Case:
    """The noise of each record comes with the batch."""

    def loss(model: Any, batch: Any) -> Output:
        inputs, noise = batch
        mean, spread = model.encoder(inputs).chunk(2, 1)
        code = mean + noise * torch.exp(0.5 * spread)
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1)
        return (model.decoder(code) - inputs).square().sum(1) + divergence

    parts = {"encoder": _mlp(outputs=4), "decoder": _mlp(2, 6, 4)}
    model = Function(lambda module, inputs: module.encoder(inputs), parts)
    return Case(model, loss, (_points(), _points(2)))


@CATALOGUE.entry("importance weighted autoencoder")
def importance_weighted() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        inputs, noise = batch
        mean, spread = model.encoder(inputs).unsqueeze(1).chunk(2, 2)
        code = mean + noise * torch.exp(0.5 * spread)
        density = -(model.decoder(code) - inputs.unsqueeze(1)).square().sum(2)
        prior = -0.5 * code.square().sum(2)
        own = -0.5 * (noise.square() + spread).sum(2)
        return math.log(noise.shape[1]) - torch.logsumexp(density + prior - own, 1)

    parts = {"encoder": _mlp(outputs=4), "decoder": _mlp(2, 6, 4)}
    model = Function(lambda module, inputs: module.encoder(inputs), parts)
    return Case(model, loss, (_points(), torch.randn(RECORDS, 5, 2)))


@CATALOGUE.entry("normalising flow of couplings")
def flow_of_couplings() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        (values,) = batch
        volume = torch.zeros(len(values))
        for number, net in enumerate(model.nets):
            left, right = values.chunk(2, 1) if number % 2 else values.flip(1).chunk(2, 1)
            scale, shift = net(left).chunk(2, 1)
            scale = torch.tanh(scale)
            values = torch.cat([left, right * scale.exp() + shift], 1)
            volume = volume + scale.sum(1)
        return 0.5 * values.square().sum(1) - volume

    nets = nn.ModuleList(_mlp(2, 5, 4) for _ in range(3))
    model = Function(lambda module, values: values, {"nets": nets})
    return Case(model, loss, (_points(),))


@CATALOGUE.entry("normalising flow with an invertible matrix")
def flow_with_a_matrix() -> Case:
    """The log determinant of a weight is a constant of all records."""

    def loss(model: Any, batch: Any) -> Output:
        (values,) = batch
        mixed = F.linear(values, model.matrix)
        volume = torch.linalg.slogdet(model.matrix).logabsdet + model.scale.sum()
        return 0.5 * (mixed * model.scale.exp()).square().sum(1) - volume

    parts = {
        "matrix": nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4)),
        "scale": nn.Parameter(torch.zeros(4)),
    }
    return Case(Function(lambda module, values: values, parts), loss, (_points(),))


@CATALOGUE.entry("denoising diffusion")
def denoising_diffusion() -> Case:
    """Noise and time of each record come with the batch."""

    def loss(model: Any, batch: Any) -> Output:
        images, noise, times = batch
        share = torch.cos(times / 10.0 * math.pi / 2).unsqueeze(1)
        noised = share * images + torch.sqrt(1 - share.square()) * noise
        return (model(noised, times) - noise).square().mean(1)

    def forward(module: Any, noised: Tensor, times: Tensor) -> Output:
        angles = times.float().unsqueeze(1) * torch.tensor([1.0, 0.1, 0.01])
        clock = module.clock(torch.cat([angles.sin(), angles.cos()], 1))
        return module.outward(F.silu(module.inward(noised) + clock))

    parts = {"clock": nn.Linear(6, 6), "inward": nn.Linear(4, 6), "outward": nn.Linear(6, 4)}
    batch = (_points(), _points(), torch.randint(1, 9, (RECORDS,)))
    return Case(Function(forward, parts), loss, batch)


@CATALOGUE.entry("flow matching")
def flow_matching() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        start, end, time = batch
        place = (1 - time) * start + time * end
        return (model(torch.cat([place, time], 1)) - (end - start)).square().mean(1)

    return Case(_mlp(5, 6, 4), loss, (_points(), _points(), torch.rand(RECORDS, 1)))


@CATALOGUE.entry("mixture density")
def mixture_density() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, targets = batch
        weights, means, spreads = model(inputs).chunk(3, 1)
        errors = (targets - means) / F.softplus(spreads).add(0.1)
        parts = weights.log_softmax(1) - 0.5 * errors.square() - F.softplus(spreads).add(0.1).log()
        return -torch.logsumexp(parts, 1)

    return Case(_mlp(outputs=9), loss, (_points(), _points(1)))


@CATALOGUE.entry("generator against a frozen critic")
def generator() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        (noise,) = batch
        return F.softplus(-model.critic(model.generator(noise))).squeeze(1)

    parts = {"generator": _mlp(2, 6, 4), "critic": _mlp(outputs=1).requires_grad_(False)}
    model = Function(lambda module, noise: module.generator(noise), parts)
    return Case(model, loss, (_points(2),))


@CATALOGUE.entry("moment matching within a record's set")
def moment_matching() -> Case:
    """Maximum mean discrepancy between a record's own two sets."""

    def loss(model: nn.Module, batch: Any) -> Output:
        first, second = (model(points) for points in batch)

        def kernel(left: Tensor, right: Tensor) -> Tensor:
            return torch.exp(-torch.cdist(left, right).square()).mean((1, 2))

        return kernel(first, first) + kernel(second, second) - 2.0 * kernel(first, second)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 5, 4), torch.randn(RECORDS, 6, 4)))


@CATALOGUE.entry("optimal transport by rounds of scaling")
def transport() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        first, second = (model(points) for points in batch)
        costs = (first.unsqueeze(2) - second.unsqueeze(1)).square().sum(3)
        left = torch.zeros_like(costs[..., 0])
        right = torch.zeros_like(costs[:, 0])
        for _ in range(4):
            left = -torch.logsumexp(right.unsqueeze(1) - costs, 2)
            right = -torch.logsumexp(left.unsqueeze(2) - costs, 1)
        plans = torch.exp(left.unsqueeze(2) + right.unsqueeze(1) - costs)
        return (plans * costs).sum((1, 2))

    return Case(_mlp(), loss, (torch.randn(RECORDS, 3, 4), torch.randn(RECORDS, 3, 4)))


@CATALOGUE.entry("ranking of a record's own list")
def own_ranking() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        items, relevance = batch
        scores = model(items).squeeze(2)
        order = relevance.argsort(dim=1, descending=True)
        sorted_scores = scores.gather(1, order)
        tails = torch.logcumsumexp(sorted_scores.flip(1), 1).flip(1)
        return (tails - sorted_scores).sum(1)

    return Case(_mlp(outputs=1), loss, (torch.randn(RECORDS, 5, 4), torch.rand(RECORDS, 5)))
