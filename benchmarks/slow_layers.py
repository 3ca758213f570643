"""Layers that once went record by record: a private step of each, as a ratio to a plain step.

    python -m benchmarks.slow_layers                    # all; a few minutes
    python -m benchmarks.slow_layers GRUCell swin       # those whose names contain one of these

64 records of 20 positions, unless a layer says otherwise; CPU time of one thread, plain and private
steps in turns, medians (`benchmarks/measure.py`). "together" says that all records went in one
pass; otherwise the reason why they went one by one stands there.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.measure import Setting, in_fresh_process, timings
from benchmarks.models import Batch, Task, losses, tokens
from discreet import training

RECORDS, LENGTH, INPUTS, WIDTH, CLASSES = 64, 20, 32, 64, 4
_VOCABULARY = 1000
_TOGETHER = "together"


def sequences(records: int) -> Batch:
    """Standard normal sequences, and a class for each."""
    return torch.randn(records, LENGTH, INPUTS), torch.randint(CLASSES, (records,))


def pictures(records: int, side: int) -> Batch:
    """Standard normal pictures of three channels, and a class for each."""
    return torch.randn(records, 3, side, side), torch.randint(CLASSES, (records,))


def sentences(records: int) -> Batch:
    """Random tokens, and a class for each sequence."""
    ids, _ = tokens(records, LENGTH, _VOCABULARY, CLASSES)
    return ids, torch.randint(CLASSES, (records,))


class Cell(nn.Module):
    """A cell that is called for each position, and a linear layer on its last state."""

    def __init__(self, cell: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.cell = cell(INPUTS, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        start = x.new_zeros(len(x), WIDTH)
        state: Tensor | tuple[Tensor, Tensor] = start
        if isinstance(self.cell, nn.LSTMCell):
            state = (start, start)
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
        scores: Tensor = self.head(state if isinstance(state, Tensor) else state[0])
        return scores


class Layer(nn.Module):
    """A recurrent layer of torch, and a linear layer on its last output."""

    def __init__(self, layer: Callable[..., nn.Module], *, packed: bool = False) -> None:
        super().__init__()
        self.layer = layer(INPUTS, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes; packed sequences are all of the same length."""
        if self.packed:
            lengths = torch.full((len(x),), x.shape[1])
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)  # type: ignore[assignment]
        outputs, _ = self.layer(x)
        if self.packed:
            outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
        scores: Tensor = self.head(outputs[:, -1])
        return scores


class Attention(nn.Module):
    """Attention of torch over the positions, and their mean."""

    def __init__(self, *, weights: bool, batch_first: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=batch_first)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.weights, self.batch_first = weights, batch_first

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        hidden = self.first(x if self.batch_first else x.transpose(0, 1))
        attended, _ = self.attention(hidden, hidden, hidden, need_weights=self.weights)
        scores: Tensor = self.head(attended.mean(1 if self.batch_first else 0))
        return scores


class Masked(nn.Module):
    """A constant mask over the positions that takes the kind of the records."""

    mask: Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("mask", torch.arange(LENGTH) < LENGTH - 3)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        mask = {
            "to": lambda: self.mask.to(x),
            "type_as": lambda: self.mask.type_as(x),
            "new_tensor": lambda: x.new_tensor([1.0] * (LENGTH - 3) + [0.0] * 3),
        }[self.how]()
        hidden = torch.tanh(self.first(x)) * mask.view(1, -1, 1)
        scores: Tensor = self.head(hidden.mean(1))
        return scores


def evaluated() -> nn.Module:
    """Convolutions with batch normalisation whose statistics are fixed."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )
    return model.eval()


class Logits(nn.Module):
    """A classifier of transformers as a function of one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.model(x).logits
        return scores


def of_transformers(name: str, **options: object) -> nn.Module:
    """A small model of transformers with random weights."""
    import transformers  # noqa: PLC0415  (not a requirement)

    options = {"num_labels": CLASSES, "_attn_implementation": "eager", **options}
    config = getattr(transformers, f"{name}Config")(**options)
    kind = "Image" if name.startswith("Swin") else "Sequence"
    return Logits(getattr(transformers, f"{name}For{kind}Classification")(config).eval())


_TEXT = {
    "vocab_size": _VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_DEBERTA = {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 32,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}


def prompted() -> nn.Module:
    """Prompt tuning of a small BERT by peft."""
    import peft  # noqa: PLC0415  (not a requirement)

    model = of_transformers("Bert", **_TEXT)
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=8)
    return Logits(peft.get_peft_model(model.model, config).eval())


def _task(
    name: str, model: Callable[[], nn.Module], batch: Callable[[int], Batch] = sequences
) -> Task:
    return Task(name, model, batch, RECORDS)


TASKS = [
    _task("GRUCell", partial(Cell, nn.GRUCell)),
    _task("RNNCell", partial(Cell, nn.RNNCell)),
    _task("LSTMCell", partial(Cell, nn.LSTMCell)),
    _task("nn.GRU", partial(Layer, nn.GRU)),
    _task("nn.RNN", partial(Layer, nn.RNN)),
    _task("nn.LSTM", partial(Layer, nn.LSTM)),
    _task("nn.GRU, packed", partial(Layer, nn.GRU, packed=True)),
    _task("nn.LSTM, packed", partial(Layer, nn.LSTM, packed=True)),
    _task("attention, weights", partial(Attention, weights=True)),
    _task("attention, weights, time first", partial(Attention, weights=True, batch_first=False)),
    _task("attention, no weights", partial(Attention, weights=False)),
    _task("mask.to(x)", partial(Masked, "to")),
    _task("mask.type_as(x)", partial(Masked, "type_as")),
    _task("x.new_tensor", partial(Masked, "new_tensor")),
    _task("BatchNorm in eval mode", evaluated, partial(pictures, side=16)),
    _task("swin", partial(of_transformers, "Swin", **_SWIN), partial(pictures, side=32)),
    _task("swin v2", partial(of_transformers, "Swinv2", **_SWIN), partial(pictures, side=32)),
    _task("deberta", partial(of_transformers, "Deberta", **_DEBERTA), sentences),
    _task("deberta v2", partial(of_transformers, "DebertaV2", **_DEBERTA), sentences),
    _task("prompt tuning", prompted, sentences),
]


def figures(task: Task, setting: Setting) -> tuple[str, str, str, str]:
    """Milliseconds of both steps, their ratio, and how records went; in a fresh process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Some only say on a second call how they are computed, so this comes before any clock.
    findings = training.check(task.model(), losses, task.batch(8))
    reasons = [finding.what for finding in findings if finding.where == "speed" or finding.refused]

    times, problems = timings(task, ["plain", "ours"], setting)
    if problems:
        return "-", "-", "-", "; ".join(problems.values())
    plain, private = times["plain"].cpu_ms, times["ours"].cpu_ms
    how = "; ".join(reasons) or _TOGETHER
    return f"{plain:.2f}", f"{private:.2f}", f"{private / plain:.2f}", how


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of names")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each layer")
    options = parser.parse_args()
    chosen = [
        task
        for task in TASKS
        if not options.names or any(name.lower() in task.name.lower() for name in options.names)
    ]
    print("| layer | plain ms | private ms | ratio | how |\n|---|---:|---:|---:|---|")
    for task in chosen:
        row = in_fresh_process(figures, task, Setting(seconds=options.seconds))
        print(f"| {task.name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
