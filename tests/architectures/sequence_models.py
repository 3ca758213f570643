"""Recurrent networks, and scans and filters over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

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

LENGTH = 5
WIDTH = 8
HEADS = 2


def _sequences(width: int = WIDTH, length: int = LENGTH) -> Tensor:
    return torch.randn(RECORDS, length, width)


# --- recurrent networks of torch ---


def _recurrent(name: str, kind: Callable[..., nn.Module], **options: Any) -> None:
    """Add a recurrent layer, and a head on all its outputs and its last states."""

    def forward(module: Any, inputs: Tensor) -> Output:
        outputs, states = module.cells(inputs)
        last = states if isinstance(states, tuple) else (states,)
        ends = [state.transpose(0, 1).flatten(1) for state in last]
        return torch.cat([torch.tanh(outputs).flatten(1), *ends], 1)

    def factory() -> Case:
        cells = kind(4, 5, batch_first=True, **options)
        return regression(Function(forward, {"cells": cells}), _sequences(4, 4))

    CATALOGUE.add(name, factory)


_recurrent("rnn", nn.RNN)
_recurrent("rnn, relu, two layers", nn.RNN, nonlinearity="relu", num_layers=2)
_recurrent("gru", nn.GRU)
_recurrent("gru, both ways", nn.GRU, bidirectional=True)
_recurrent("gru, without biases", nn.GRU, bias=False)
_recurrent("lstm", nn.LSTM)
_recurrent("lstm, both ways, two layers", nn.LSTM, bidirectional=True, num_layers=2)
_recurrent("lstm, projected", nn.LSTM, proj_size=3)
_recurrent("lstm, projected, both ways", nn.LSTM, proj_size=2, bidirectional=True)


@CATALOGUE.entry("lstm, time first, given states")
def lstm_time_first() -> Case:
    def forward(module: Any, inputs: Tensor, states: Tensor) -> Output:
        start = states.unsqueeze(0)
        outputs, (_, cell) = module.cells(inputs.transpose(0, 1), (start, torch.tanh(start)))
        return torch.cat([outputs.transpose(0, 1).flatten(1), cell[0]], 1)

    return regression(
        Function(forward, {"cells": nn.LSTM(4, 5)}), _sequences(4, 4), torch.randn(RECORDS, 5)
    )


@CATALOGUE.entry("gru with learnt states")
def gru_with_learnt_states() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        start = module.start.expand(-1, len(inputs), -1).contiguous()
        return module.cells(inputs, start)[0]

    parts = {"start": nn.Parameter(torch.randn(1, 1, 5)), "cells": nn.GRU(4, 5, batch_first=True)}
    return regression(Function(forward, parts), _sequences(4, 4))


def _packed(name: str, kind: Callable[..., nn.Module], **options: Any) -> None:
    def forward(module: Any, inputs: Tensor, lengths: Tensor) -> Output:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = module.cells(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=LENGTH)
        return padded.sum(1)

    def factory() -> Case:
        cells = kind(4, 5, batch_first=True, **options)
        return regression(
            Function(forward, {"cells": cells}), _sequences(4), torch.tensor([5, 3, 4, 2])
        )

    CATALOGUE.add(name, factory)


_packed("packed gru", nn.GRU)
_packed("packed lstm, both ways", nn.LSTM, bidirectional=True)


@CATALOGUE.entry("lstm, output at a record's own end")
def lstm_own_end() -> Case:
    def forward(module: Any, inputs: Tensor, lengths: Tensor) -> Output:
        outputs, _ = module.cells(inputs)
        ends = (lengths - 1).view(-1, 1, 1).expand(-1, 1, outputs.shape[2])
        return module.head(outputs.gather(1, ends).squeeze(1))

    parts = {"cells": nn.LSTM(4, 5, batch_first=True), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), _sequences(4), torch.tensor([5, 3, 4, 2]))


def _cell(name: str, kind: Callable[..., nn.Module]) -> None:
    """Add a cell in a loop over time."""

    def forward(module: Any, inputs: Tensor) -> Output:
        state: Any = None
        for moment in inputs.unbind(1):
            state = module.cell(moment, state)
        return module.head(state[0] if isinstance(state, tuple) else state)

    def factory() -> Case:
        parts = {"cell": kind(4, 5), "head": nn.Linear(5, 3)}
        return classification(Function(forward, parts), _sequences(4, 4))

    CATALOGUE.add(name, factory)


_cell("rnn cell in a loop", nn.RNNCell)
_cell("gru cell in a loop", nn.GRUCell)
_cell("lstm cell in a loop", nn.LSTMCell)


@CATALOGUE.entry("gru by hand, hidden steps at the padding")
def gru_by_hand() -> Case:
    def forward(module: Any, inputs: Tensor, padding: Tensor) -> Output:
        state = inputs.new_zeros(len(inputs), 5)
        for moment in range(inputs.shape[1]):
            gates = torch.sigmoid(module.gates(torch.cat([inputs[:, moment], state], 1)))
            update, reset = gates.chunk(2, 1)
            proposal = torch.tanh(module.proposal(torch.cat([inputs[:, moment], reset * state], 1)))
            following = (1 - update) * state + update * proposal
            state = torch.where(padding[:, moment].unsqueeze(1), state, following)
        return module.head(state)

    parts = {"gates": nn.Linear(9, 10), "proposal": nn.Linear(9, 5), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), _sequences(4), padding_mask(LENGTH))


@CATALOGUE.entry("translation with attention, fed with its own words")
def greedy_decoder() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        memory, state = module.encoder(module.words(tokens))
        hidden, word = state[0], torch.zeros_like(tokens[:, 0])
        answers = []
        for _ in range(3):
            weights = torch.einsum("bd,btd->bt", hidden, memory).softmax(1)
            context = torch.einsum("bt,btd->bd", weights, memory)
            hidden = module.cell(torch.cat([module.words(word), context], 1), hidden)
            scores = module.head(hidden)
            word = scores.argmax(1)
            answers.append(scores)
        return torch.stack(answers, 1)

    parts = {
        "words": nn.Embedding(9, 4),
        "encoder": nn.GRU(4, 5, batch_first=True),
        "cell": nn.GRUCell(9, 5),
        "head": nn.Linear(5, 9),
    }
    return regression(Function(forward, parts), random_tokens(9, LENGTH))


@CATALOGUE.entry("pointer network")
def pointer_network() -> Case:
    def forward(module: Any, points: Tensor) -> Output:
        memory, state = module.encoder(points)
        query = module.query(state[0]).unsqueeze(1)
        return module.score(torch.tanh(module.key(memory) + query)).squeeze(2)

    parts = {
        "encoder": nn.GRU(3, 5, batch_first=True),
        "query": nn.Linear(5, 5),
        "key": nn.Linear(5, 5),
        "score": nn.Linear(5, 1),
    }
    return classification(Function(forward, parts), _sequences(3, 3))


@CATALOGUE.entry("memory addressed by content")
def addressed_memory() -> Case:
    """A neural Turing machine of three steps; each record writes into a memory of its own."""

    def forward(module: Any, inputs: Tensor) -> Output:
        memory = module.memory.expand(len(inputs), -1, -1)
        for moment in inputs.unbind(1):
            key, erase, write = module.control(moment).chunk(3, 1)
            weights = F.cosine_similarity(memory, key.unsqueeze(1), dim=2).mul(3.0).softmax(1)
            erased = memory * (1 - weights.unsqueeze(2) * torch.sigmoid(erase).unsqueeze(1))
            memory = erased + weights.unsqueeze(2) * write.unsqueeze(1)
        return module.head(memory.flatten(1))

    parts = {
        "memory": nn.Parameter(torch.randn(1, 4, 3)),
        "control": nn.Linear(4, 9),
        "head": nn.Linear(12, 3),
    }
    return classification(Function(forward, parts), _sequences(4, 3))


# --- scans and filters ---


@CATALOGUE.entry("state space, diagonal scan")
def diagonal_scan() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        decay = torch.exp(-F.softplus(module.rates))
        drive = module.inward(inputs)
        state = torch.zeros_like(drive[:, 0])
        states = []
        for moment in range(inputs.shape[1]):
            state = decay * state + drive[:, moment]
            states.append(state)
        return module.outward(torch.stack(states, 1)) + module.skip * inputs

    parts = {
        "rates": nn.Parameter(torch.randn(6)),
        "inward": nn.Linear(4, 6),
        "outward": nn.Linear(6, 4),
        "skip": nn.Parameter(torch.randn(4)),
    }
    return regression(Function(forward, parts), _sequences(4))


@CATALOGUE.entry("state space, selective scan")
def selective_scan() -> Case:
    """Mamba in small: the steps of the scan depend on the inputs."""

    def forward(module: Any, inputs: Tensor) -> Output:
        step, inward, outward = module.select(inputs).split([4, 3, 3], 2)
        step = F.softplus(step)
        decay = torch.exp(-step.unsqueeze(3) * module.rates.exp())
        drive = (step * inputs).unsqueeze(3) * inward.unsqueeze(2)
        state = torch.zeros_like(drive[:, 0])
        answers = []
        for moment in range(inputs.shape[1]):
            state = decay[:, moment] * state + drive[:, moment]
            answers.append(torch.einsum("bdn,bn->bd", state, outward[:, moment]))
        return module.out(torch.stack(answers, 1) * F.silu(inputs))

    parts = {
        "select": nn.Linear(4, 10),
        "rates": nn.Parameter(torch.zeros(4, 3)),
        "out": nn.Linear(4, 4),
    }
    return regression(Function(forward, parts), _sequences(4))


@CATALOGUE.entry("state space, long convolution by fft")
def long_convolution() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        times = torch.arange(LENGTH).float()
        kernel = torch.exp(-module.rates.exp().unsqueeze(1) * times) * module.gains.unsqueeze(1)
        signal = torch.fft.rfft(inputs.transpose(1, 2), n=2 * LENGTH)
        answer = torch.fft.irfft(signal * torch.fft.rfft(kernel, n=2 * LENGTH), n=2 * LENGTH)
        return module.out(answer[..., :LENGTH].transpose(1, 2))

    parts = {
        "rates": nn.Parameter(torch.zeros(4)),
        "gains": nn.Parameter(torch.randn(4)),
        "out": nn.Linear(4, 4),
    }
    return regression(Function(forward, parts), _sequences(4))


@CATALOGUE.entry("weighted key and value (RWKV)")
def weighted_key_value() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        shifted = F.pad(inputs, (0, 0, 1, -1))
        mixed = inputs * module.mix + shifted * (1 - module.mix)
        key, value, gate = module.three(mixed).chunk(3, 2)
        weights = torch.exp(key.clamp(max=10.0))
        decay = torch.exp(-torch.exp(module.decay))
        total, weight = torch.zeros_like(value[:, 0]), torch.zeros_like(value[:, 0])
        answers = []
        for moment in range(inputs.shape[1]):
            total = decay * total + weights[:, moment] * value[:, moment]
            weight = decay * weight + weights[:, moment]
            answers.append(torch.sigmoid(gate[:, moment]) * total / weight)
        return torch.stack(answers, 1)

    parts = {
        "mix": nn.Parameter(torch.rand(4)),
        "three": nn.Linear(4, 12),
        "decay": nn.Parameter(torch.zeros(4)),
    }
    return regression(Function(forward, parts), _sequences(4))


@CATALOGUE.entry("wavenet")
def wavenet() -> Case:
    def forward(module: Any, signal: Tensor) -> Output:
        hidden, skips = module.first(signal), []
        for layer, (gates, out) in enumerate(zip(module.gates, module.outs, strict=True)):
            left, right = gates(F.pad(hidden, (2**layer, 0))).chunk(2, 1)
            gated = torch.tanh(left) * torch.sigmoid(right)
            skips.append(out(gated))
            hidden = hidden + gated
        return module.head(torch.relu(torch.stack(skips).sum(0)))

    parts = {
        "first": nn.Conv1d(1, 4, 1),
        "gates": nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**layer) for layer in range(3)),
        "outs": nn.ModuleList(nn.Conv1d(4, 3, 1) for _ in range(3)),
        "head": nn.Conv1d(3, 2, 1),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 1, 9))


class CausalBlock(nn.Module):
    """A block of a temporal convolution network."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.first = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(channels, channels, 2, dilation=dilation)
        )
        self.second = nn.Conv1d(channels, channels, 2, dilation=dilation)

    def forward(self, signal: Tensor) -> Tensor:
        hidden = torch.relu(self.first(F.pad(signal, (self.dilation, 0))))
        hidden = torch.relu(self.second(F.pad(hidden, (self.dilation, 0))))
        return torch.relu(signal + hidden)


@CATALOGUE.entry("temporal convolutions")
def temporal_convolutions() -> Case:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 1), CausalBlock(4, 1), CausalBlock(4, 2), nn.Conv1d(4, 1, 1)
    )
    return regression(model, torch.randn(RECORDS, 2, 8))


@CATALOGUE.entry("convolutional sentence classifier")
def sentence_classifier() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        words = module.words(tokens).transpose(1, 2)
        features = [torch.relu(layer(words)).amax(2) for layer in module.filters]
        return module.head(torch.cat(features, 1))

    parts = {
        "words": nn.Embedding(11, 4),
        "filters": nn.ModuleList(nn.Conv1d(4, 3, size) for size in (2, 3, 4)),
        "head": nn.Linear(9, 3),
    }
    return classification(Function(forward, parts), random_tokens(11, 7))


@CATALOGUE.entry("quasi-recurrent")
def quasi_recurrent() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        values, forget, output = module.gates(F.pad(inputs.transpose(1, 2), (1, 0))).chunk(3, 1)
        values, forget = torch.tanh(values), torch.sigmoid(forget)
        state, states = torch.zeros_like(values[..., 0]), []
        for moment in range(inputs.shape[1]):
            state = forget[..., moment] * state + (1 - forget[..., moment]) * values[..., moment]
            states.append(state)
        return torch.sigmoid(output) * torch.stack(states, 2)

    return regression(Function(forward, {"gates": nn.Conv1d(4, 15, 2)}), _sequences(4))


@CATALOGUE.entry("conformer block")
def conformer_block() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = inputs + 0.5 * module.before(inputs)
        hidden = hidden + module.attention(hidden, hidden, hidden, need_weights=False)[0]
        mixed = F.glu(module.widen(hidden.transpose(1, 2)), 1)
        mixed = F.silu(F.group_norm(module.depthwise(mixed), 1))
        return module.norm(hidden + mixed.transpose(1, 2))

    parts = {
        "before": nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.SiLU(), nn.Linear(12, WIDTH)
        ),
        "attention": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        "widen": nn.Conv1d(WIDTH, 2 * WIDTH, 1),
        "depthwise": nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH),
        "norm": nn.LayerNorm(WIDTH),
    }
    return regression(Function(forward, parts), _sequences())


@CATALOGUE.entry("gated mlp over time")
def gated_mlp() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        left, right = F.gelu(module.inward(inputs)).chunk(2, 2)
        right = module.spatial(F.layer_norm(right, (WIDTH,)).transpose(1, 2)).transpose(1, 2)
        return inputs + module.outward(left * right)

    parts = {
        "inward": nn.Linear(WIDTH, 2 * WIDTH),
        "spatial": nn.Linear(LENGTH, LENGTH),
        "outward": nn.Linear(WIDTH, WIDTH),
    }
    return regression(Function(forward, parts), _sequences())


@CATALOGUE.entry("trend and season of a time series")
def trend_and_season() -> Case:
    def forward(module: Any, series: Tensor) -> Output:
        trend = F.avg_pool1d(F.pad(series.unsqueeze(1), (2, 2), mode="replicate"), 5, 1).squeeze(1)
        return module.trend(trend) + module.season(series - trend)

    parts = {"trend": nn.Linear(12, 4), "season": nn.Linear(12, 4)}
    return regression(Function(forward, parts), torch.randn(RECORDS, 12))


@CATALOGUE.entry("stacked residual forecasts")
def stacked_forecasts() -> Case:
    """N-BEATS: each block explains a part of the past, and passes the rest on."""

    def forward(module: Any, series: Tensor) -> Output:
        rest, forecast = series, torch.zeros(len(series), 3)
        for block in module.blocks:
            past, future = block(rest).split([8, 3], 1)
            rest, forecast = rest - past, forecast + future
        return forecast

    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 11)) for _ in range(2)
    )
    return regression(Function(forward, {"blocks": blocks}), torch.randn(RECORDS, 8))


@CATALOGUE.entry("two layers of one weight (universal transformer)")
def universal_transformer() -> Case:
    def forward(module: Any, tokens: Tensor) -> Output:
        hidden = module.words(tokens) + module.places
        for _ in range(3):
            hidden = module.layer(hidden)
        return F.linear(hidden, module.words.weight)

    parts = {
        "words": nn.Embedding(9, WIDTH),
        "places": nn.Parameter(torch.randn(LENGTH, WIDTH)),
        "layer": nn.TransformerEncoderLayer(WIDTH, HEADS, 12, dropout=0.0, batch_first=True),
    }
    return Case(Function(forward, parts), predict_tokens, (random_tokens(9, LENGTH),))


@CATALOGUE.entry("adaptive computation time")
def adaptive_computation() -> Case:
    """Records halt softly, at their own step of a fixed number."""

    def forward(module: Any, inputs: Tensor) -> Output:
        state = torch.tanh(module.start(inputs))
        left, answer = torch.ones(len(inputs), 1), torch.zeros_like(state)
        for _ in range(3):
            state = torch.tanh(module.step(state))
            halt = torch.sigmoid(module.halt(state)) * left
            answer, left = answer + halt * state, left - halt
        return module.head(answer + left * state)

    parts = {
        "start": nn.Linear(4, 5),
        "step": nn.Linear(5, 5),
        "halt": nn.Linear(5, 1),
        "head": nn.Linear(5, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "rnn, relu, two layers",
    "gru, both ways",
    "gru, without biases",
    "lstm, projected, both ways",
    "rnn cell in a loop",
    "translation with attention, fed with its own words",
    "pointer network",
    "temporal convolutions",
    "convolutional sentence classifier",
    "two layers of one weight (universal transformer)",
    "conformer block",
)
