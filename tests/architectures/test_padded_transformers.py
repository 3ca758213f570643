"""Transformers in which few records are padded: every step is released, with certified numerics.

A library that leaves out a mask that masks nothing computes a batch without padding otherwise than
one with it. A record must not decide so over the others, and no batch may be refused by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.randomness import Source
from discreet.training import Engine, PrivateRun

from .harness import Loss
from .transformers_models import (
    LENGTH,
    SMALL,
    T5_SIZES,
    WORDS,
    make_model,
    next_token,
    sequence_class,
    translation,
)

DATA = 60
PADDED_EVERY = 20
EXPECTED_BATCH = 4
STEPS = 20
RUNS = 20


@dataclass(frozen=True)
class Kind:
    """A kind of model: how it is made, and what it learns from (tokens, mask, labels)."""

    family: str
    task: str
    loss: Loss
    options: dict[str, Any]


def _without_labels(loss: Loss) -> Loss:
    return lambda model, batch: loss(model, batch[:2])


KINDS = {
    "bert": Kind("Bert", "ForSequenceClassification", sequence_class, {}),
    "gpt2": Kind("GPT2", "LMHeadModel", _without_labels(next_token), {}),
    "llama": Kind("Llama", "ForCausalLM", _without_labels(next_token), {}),
    "t5": Kind(
        "T5",
        "ForConditionalGeneration",
        _without_labels(translation),
        T5_SIZES,
    ),
    "distilbert": Kind(
        "DistilBert",
        "ForSequenceClassification",
        sequence_class,
        {"dim": 8, "hidden_dim": 12, "n_layers": 1, "n_heads": 2},
    ),
}


def _texts() -> TensorDataset:
    """Texts of which one in twenty is shorter than the others."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(1, WORDS, (DATA, LENGTH), generator=generator)
    seen = torch.ones(DATA, LENGTH, dtype=torch.long)
    seen[::PADDED_EVERY, LENGTH - 2 :] = 0
    labels = torch.randint(3, (DATA,), generator=generator)
    return TensorDataset(tokens * seen, seen, labels)


def _train(name: str, attention: str, number: int) -> None:
    """Train `STEPS` steps; each must be released, and the guarantee must be certified."""
    kind = KINDS[name]
    torch.manual_seed(number)
    torch.set_num_threads(1)
    settings = {**SMALL, **kind.options}
    model = make_model(kind.family, kind.task, attention=attention, **settings)
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(EXPECTED_BATCH / DATA), records=DATA, steps=STEPS),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}),
    )
    key = bytes([number]) * 32
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with PrivateRun(
        model, plan, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(key)
    ) as run:
        steps = []
        for batch in run.batches(_texts(), progress=False):
            steps.append(run.backward(kind.loss, batch).step)
            optimizer.step()
            optimizer.zero_grad()
        assert steps == list(range(STEPS))
        assert run.plan.numerics is dp.Numerics.CERTIFIED
        assert run.guarantee(1e-5).numerics is dp.Numerics.CERTIFIED


@pytest.mark.filterwarnings("ignore")  # of transformers: names that it gave up
@pytest.mark.parametrize(("name", "attention"), [("bert", "sdpa"), ("gpt2", "eager")])
def test_every_step_of_a_run_is_certified(name: str, attention: str) -> None:
    _train(name, attention, 0)


@pytest.mark.filterwarnings("ignore")  # of transformers: names that it gave up
def test_flex_attention_goes_one_by_one() -> None:
    """Torch differentiates it on accelerators only: here its layers are frozen."""
    kind = KINDS["bert"]
    model = make_model(
        kind.family, kind.task, attention="flex_attention", **{**SMALL, "hidden_size": 32}
    )
    model.bert.requires_grad_(requires_grad=False)
    batch = _texts()[:6]
    engine = Engine(model)
    together = [
        contributions.measured(engine.leaves)[0]
        for contributions, _ in engine.passes(kind.loss, batch, 6, 6)
    ]
    assert engine.one_by_one is not None
    assert len(together) == 6


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of transformers: names that it gave up
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", KINDS)
def test_every_step_of_many_runs_is_certified(name: str, attention: str) -> None:
    refusals = []
    for number in range(RUNS):
        try:
            _train(name, attention, number)
        except dp.errors.DiscreetError as error:
            refusals.append((number, str(error)))
    assert refusals == []
