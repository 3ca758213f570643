"""Small networks of numbers, tables, experts, sets and graphs."""

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
    regression,
)

CATALOGUE = Catalogue()


def _layer(name: str, layers: Callable[[], list[nn.Module]], *shape: int) -> None:
    """Add layers one after the other, on records of a shape."""
    CATALOGUE.add(name, lambda: regression(nn.Sequential(*layers()), torch.randn(RECORDS, *shape)))


# --- numbers and tables ---


class Highway(nn.Module):
    """A layer that carries a part of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(inputs))
        return gate * torch.relu(self.change(inputs)) + (1 - gate) * inputs


_layer("highway", lambda: [Highway(5), Highway(5), nn.Linear(5, 2)], 5)


class Sine(nn.Module):
    """A layer of a SIREN."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sin(3.0 * self.linear(inputs))


_layer("siren", lambda: [Sine(2, 6), Sine(6, 6), nn.Linear(6, 1)], 7, 2)


@CATALOGUE.entry("radial basis functions")
def radial_basis() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        distances = (inputs.unsqueeze(1) - module.centres).square().sum(2)
        return module.head(torch.exp(-module.widths.exp() * distances))

    parts = {
        "centres": nn.Parameter(torch.randn(6, 4)),
        "widths": nn.Parameter(torch.full((6,), -1.0)),
        "head": nn.Linear(6, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("radial basis functions with cdist")
def radial_basis_cdist() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        return module.head(torch.exp(-torch.cdist(inputs, module.centres)))

    parts = {"centres": nn.Parameter(torch.randn(6, 4)), "head": nn.Linear(6, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("splines on edges (KAN)")
def splines_on_edges() -> Case:
    knots = torch.linspace(-2.0, 2.0, 6)

    def forward(module: Any, inputs: Tensor) -> Output:
        hats = torch.relu(1.0 - (inputs.unsqueeze(2) - knots).abs())
        edges = torch.einsum("bik,oik->bo", hats, module.splines)
        return edges + F.linear(F.silu(inputs), module.base)

    parts = {
        "splines": nn.Parameter(torch.randn(3, 4, 6)),
        "base": nn.Parameter(torch.randn(3, 4)),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("random fourier features, learnt")
def fourier_features() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        angles = 2.0 * math.pi * inputs @ module.frequencies
        return module.head(torch.cat([angles.sin(), angles.cos()], 1))

    parts = {"frequencies": nn.Parameter(torch.randn(3, 5)), "head": nn.Linear(10, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 3))


@CATALOGUE.entry("factorisation machine")
def factorisation_machine() -> Case:
    def forward(module: Any, fields: Tensor) -> Output:
        vectors = module.vectors(fields)
        pairs = vectors.sum(1).square() - vectors.square().sum(1)
        return module.linear(fields).sum(1) + 0.5 * pairs.sum(1, keepdim=True)

    parts = {"vectors": nn.Embedding(20, 4), "linear": nn.Embedding(20, 1)}
    return regression(Function(forward, parts), random_tokens(20, 5))


@CATALOGUE.entry("wide and deep")
def wide_and_deep() -> Case:
    def forward(module: Any, fields: Tensor, values: Tensor) -> Output:
        deep = torch.cat([module.table(fields).flatten(1), values], 1)
        return module.wide(values) + module.deep(deep)

    parts = {
        "table": nn.Embedding(12, 3),
        "wide": nn.Linear(4, 3),
        "deep": nn.Sequential(nn.Linear(10, 6), nn.ReLU(), nn.Linear(6, 3)),
    }
    return classification(Function(forward, parts), random_tokens(12, 2), torch.randn(RECORDS, 4))


@CATALOGUE.entry("deep and cross")
def deep_and_cross() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = inputs
        for layer in module.crosses:
            hidden = inputs * layer(hidden) + hidden
        return module.head(hidden)

    crosses = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 1)])
    return classification(
        Function(forward, {"crosses": crosses, "head": nn.Linear(5, 3)}), torch.randn(RECORDS, 5)
    )


@CATALOGUE.entry("soft decision tree")
def soft_decision_tree() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        right = torch.sigmoid(module.splits(inputs))
        paths = torch.stack([1 - right, right], 2)
        leaves = torch.einsum("bi,bj,bk->bijk", paths[:, 0], paths[:, 1], paths[:, 2])
        return leaves.flatten(1) @ module.answers

    parts = {"splits": nn.Linear(5, 3), "answers": nn.Parameter(torch.randn(8, 3))}
    return classification(Function(forward, parts), torch.randn(RECORDS, 5))


@CATALOGUE.entry("attention over columns")
def attention_over_columns() -> Case:
    """A feature tokeniser: each column of a table is a token."""

    def forward(module: Any, values: Tensor) -> Output:
        tokens = values.unsqueeze(2) * module.scales + module.shifts
        tokens = torch.cat([module.summary.expand(len(values), 1, 6), tokens], 1)
        mixed = F.scaled_dot_product_attention(*module.qkv(tokens).chunk(3, 2))
        return module.head(mixed[:, 0])

    parts = {
        "scales": nn.Parameter(torch.randn(5, 6)),
        "shifts": nn.Parameter(torch.randn(5, 6)),
        "summary": nn.Parameter(torch.randn(6)),
        "qkv": nn.Linear(6, 18),
        "head": nn.Linear(6, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 5))


@CATALOGUE.entry("piecewise linear calibration")
def piecewise_calibration() -> Case:
    edges = torch.linspace(-2.0, 2.0, 7)

    def forward(module: Any, values: Tensor) -> Output:
        bins = torch.bucketize(values, edges).clamp(1, 6) - 1
        share = ((values - edges[bins]) / (edges[1] - edges[0])).clamp(0, 1)
        heights = module.heights.softmax(0).cumsum(0)
        return module.head(heights[bins] + share * (heights[bins + 1] - heights[bins]))

    parts = {"heights": nn.Parameter(torch.randn(7)), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


# --- mixtures of experts ---


@CATALOGUE.entry("soft mixture of experts")
def soft_mixture() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        gates = module.gate(inputs).softmax(1)
        answers = torch.stack([expert(inputs) for expert in module.experts], 1)
        return (gates.unsqueeze(2) * answers).sum(1)

    experts = nn.ModuleList(
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)) for _ in range(3)
    )
    return classification(
        Function(forward, {"gate": nn.Linear(4, 3), "experts": experts}), torch.randn(RECORDS, 4)
    )


@CATALOGUE.entry("mixture of experts, the best two of all computed")
def dense_top_two() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        scores = module.gate(tokens)
        best, chosen = scores.topk(2, dim=-1)
        gates = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        answers = torch.einsum("btd,edo->bteo", tokens, module.experts)
        return torch.einsum("bte,bteo->bto", gates, torch.tanh(answers))

    parts = {"gate": nn.Linear(4, 3), "experts": nn.Parameter(torch.randn(3, 4, 2))}
    return regression(Function(forward, parts), torch.randn(RECORDS, 5, 4))


@CATALOGUE.entry("mixture of experts, weights of the best gathered")
def gathered_expert() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        gates = module.gate(inputs).softmax(1)
        best, chosen = gates.max(1, keepdim=True)
        weights = module.experts[chosen.squeeze(1)]
        return best * torch.einsum("bd,bdo->bo", inputs, weights)

    parts = {"gate": nn.Linear(4, 3), "experts": nn.Parameter(torch.randn(3, 4, 3))}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("mixture of experts, tokens routed")
def routed_tokens() -> Case:
    """Rows are sorted out to the experts by their values, and put back."""

    def forward(module: Any, tokens: Tensor) -> Output:
        flat = tokens.flatten(0, 1)
        best, chosen = module.gate(flat).softmax(1).max(1)
        answers = torch.zeros(len(flat), 2)
        for number, expert in enumerate(module.experts):
            places = (chosen == number).nonzero().squeeze(1)
            answers = answers.index_add(0, places, expert(flat[places]) * best[places].unsqueeze(1))
        return answers.view(*tokens.shape[:2], 2)

    experts = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))
    return regression(
        Function(forward, {"gate": nn.Linear(4, 3), "experts": experts}), torch.randn(RECORDS, 5, 4)
    )


@CATALOGUE.entry("squeeze and excite")
def squeeze_and_excite() -> Case:
    def forward(module: Any, images: Tensor) -> Output:
        features = module.filter(images)
        gates = torch.sigmoid(module.excite(features.mean((2, 3))))
        return module.head((features * gates[:, :, None, None]).amax((2, 3)))

    parts = {
        "filter": nn.Conv2d(2, 4, 3),
        "excite": nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4)),
        "head": nn.Linear(4, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 2, 5, 5))


# --- sets and graphs ---


@CATALOGUE.entry("deep sets")
def deep_sets() -> Case:
    def forward(module: Any, points: Tensor, missing: Tensor) -> Output:
        elements = module.each(points).masked_fill(missing.unsqueeze(2), 0.0)
        return module.all(elements.sum(1))

    parts = {
        "each": nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5)),
        "all": nn.Linear(5, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 6, 3), padding_mask(6))


@CATALOGUE.entry("point cloud with a learnt turn")
def point_cloud() -> Case:
    def forward(module: Any, points: Tensor) -> Output:
        turn = module.turn(points.mean(1)).unflatten(1, (3, 3)) + torch.eye(3)
        features = module.each(torch.bmm(points, turn))
        return module.head(features.max(1).values)

    parts = {
        "turn": nn.Linear(3, 9),
        "each": nn.Sequential(nn.Linear(3, 6), nn.ReLU()),
        "head": nn.Linear(6, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 7, 3))


@CATALOGUE.entry("nearest neighbours within a cloud")
def neighbours_within_a_cloud() -> Case:
    def forward(module: Any, points: Tensor) -> Output:
        distances = (points.unsqueeze(2) - points.unsqueeze(1)).square().sum(3)
        near = distances.topk(3, largest=False).indices
        index = near.flatten(1).unsqueeze(2).expand(-1, -1, points.shape[2])
        neighbours = points.gather(1, index).view(*near.shape, points.shape[2])
        edges = torch.cat(
            [neighbours - points.unsqueeze(2), points.unsqueeze(2).expand_as(neighbours)], 3
        )
        return module.head(module.edge(edges).amax(2).mean(1))

    parts = {"edge": nn.Sequential(nn.Linear(6, 5), nn.ReLU()), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 6, 3))


def _adjacency(nodes: int) -> Tensor:
    edges = (torch.rand(RECORDS, nodes, nodes) < 0.5).float()
    return torch.maximum(edges, edges.transpose(1, 2)).clamp(max=1.0)


@CATALOGUE.entry("graph convolution on dense edges")
def graph_convolution() -> Case:
    def forward(module: Any, nodes: Tensor, edges: Tensor) -> Output:
        edges = edges + torch.eye(edges.shape[1])
        spread = edges / edges.sum(2, keepdim=True)
        hidden = torch.relu(spread @ module.first(nodes))
        return module.second(spread @ hidden).mean(1)

    parts = {"first": nn.Linear(3, 5), "second": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 5, 3), _adjacency(5))


@CATALOGUE.entry("graph attention on dense edges")
def graph_attention() -> Case:
    def forward(module: Any, nodes: Tensor, edges: Tensor) -> Output:
        hidden = module.nodes(nodes)
        scores = F.leaky_relu(module.left(hidden) + module.right(hidden).transpose(1, 2))
        allowed = edges + torch.eye(edges.shape[1]) > 0
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(2)
        return module.head((weights @ hidden).mean(1))

    parts = {
        "nodes": nn.Linear(3, 5),
        "left": nn.Linear(5, 1),
        "right": nn.Linear(5, 1),
        "head": nn.Linear(5, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 5, 3), _adjacency(5))


@CATALOGUE.entry("messages along all pairs")
def messages_along_pairs() -> Case:
    def forward(module: Any, nodes: Tensor, edges: Tensor) -> Output:
        count = nodes.shape[1]
        senders = nodes.unsqueeze(1).expand(-1, count, -1, -1)
        receivers = nodes.unsqueeze(2).expand(-1, -1, count, -1)
        messages = module.message(torch.cat([senders, receivers, edges.unsqueeze(3)], 3))
        gathered = (torch.relu(messages) * edges.unsqueeze(3)).sum(2)
        states = module.update(gathered.flatten(0, 1), nodes.flatten(0, 1))
        return states.unflatten(0, nodes.shape[:2]).sum(1)

    parts = {"message": nn.Linear(7, 4), "update": nn.GRUCell(4, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 5, 3), _adjacency(5))


@CATALOGUE.entry("equivariant graph network")
def equivariant_graph() -> Case:
    def forward(module: Any, states: Tensor, places: Tensor) -> Output:
        offsets = places.unsqueeze(2) - places.unsqueeze(1)
        distances = offsets.square().sum(3, keepdim=True)
        count = states.shape[1]
        pairs = torch.cat(
            [
                states.unsqueeze(2).expand(-1, -1, count, -1),
                states.unsqueeze(1).expand(-1, count, -1, -1),
                distances,
            ],
            3,
        )
        messages = F.silu(module.message(pairs))
        moved = places + (offsets * module.pull(messages)).mean(2)
        return torch.cat([moved, states + module.update(messages.sum(2))], 2)

    parts = {"message": nn.Linear(7, 5), "pull": nn.Linear(5, 1), "update": nn.Linear(5, 3)}
    return regression(
        Function(forward, parts), torch.randn(RECORDS, 4, 3), torch.randn(RECORDS, 4, 3)
    )


@CATALOGUE.entry("spectral graph filter")
def spectral_graph_filter() -> Case:
    """Chebyshev polynomials of a record's own Laplacian."""

    def forward(module: Any, nodes: Tensor, edges: Tensor) -> Output:
        degree = edges.sum(2).clamp(min=1.0)
        laplacian = torch.diag_embed(torch.ones_like(degree)) - edges / degree.unsqueeze(2)
        terms = [nodes, laplacian @ nodes]
        for _ in range(2):
            terms.append(2.0 * laplacian @ terms[-1] - terms[-2])
        return module.head(torch.relu(module.mix(torch.cat(terms, 2))).mean(1))

    parts = {"mix": nn.Linear(12, 5), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 5, 3), _adjacency(5))
