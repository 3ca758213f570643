"""White-box audits at small scale: canaries in runs of the engine, and what their scores prove.

Canaries on coordinates of their own have independent noise. Guesses of their coins that are wrong
at a rate of p then prove a total variation of at least 1 - 2p between the releases with and without
a canary, which is delta at epsilon 0: the sharpest test of noise, clipping and sampling, and the
one that `auditing.scaled` rests on (docs/proofs/auditing.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.accounting.meaning.tradeoff import profile_of
from discreet.auditing.estimators.guesses import highest_rate, wrong_guesses
from discreet.canaries import Canaries, Likelihood, Scores
from discreet.training import GradientCanaries, PrivateRun
from discreet.training.factors.forms import Chooser

ERROR = 5e-7  # probability that a bound is wrong
KEY = bytes(range(32))
COINS = bytes(range(32, 64))
EVERYTHING = dp.Everything()
DATA = 20
WIDTH = 64


def source(key: bytes = KEY) -> dp.randomness.Source:
    """The same bits in every run of a test."""
    return dp.randomness.Source.unsafe_test_key(key)


class Refuted(AssertionError):
    """An attack showed more than was claimed."""


@dataclass(frozen=True)
class Finding:
    """What was claimed of a plan, and what an attack on its run showed."""

    plan: dp.Plan
    scores: Scores

    @cached_property
    def claimed(self) -> float:
        """The certified delta of the plan at epsilon 0."""
        return profile_of(self.plan)(0.0)

    @property
    def variation(self) -> float:
        """A lower bound on delta at epsilon 0, wrong with probability at most `ERROR`."""
        wrong, guesses = wrong_guesses(self.scores)
        return 1.0 - 2.0 * highest_rate(wrong, guesses, error=ERROR)

    @property
    def reached(self) -> float:
        """The share of the claimed advantage (delta at epsilon 0) that the attack had,
        as counted.
        """
        told, inside = self.scores.values > 0.0, self.scores.inside
        return float(told[inside].mean() - told[~inside].mean()) / self.claimed

    def check(self, least: float = 0.85) -> None:
        """Nothing above the claim was shown, and the attack was good enough for that to mean
        something.
        """
        if not self.variation <= self.claimed:
            raise Refuted(
                f"a total variation of at least {self.variation:.4f}, and {self.claimed:.4f} "
                "was claimed"
            )
        assert self.reached >= least, f"the attack reached {self.reached:.3f} of the claim"


# --- spikes: every mechanism and sampler ---


def spiked(
    mechanism: Any,
    policy: Any = None,
    *,
    steps: int = 1,
    canaries: int = 3000,
    microbatch: int | None = None,
    **more: Any,
) -> Finding:
    """A run on little data and many gradient canaries."""
    records = DATA + canaries
    own = policy(records) if callable(policy) else policy or dp.Everything()
    its = dp.Plan(
        sampler=dp.Sampler(own, records=records, steps=steps), mechanism=mechanism, **more
    )
    planted = GradientCanaries(canaries, source=source(COINS))
    for _ in spiked_steps(its, planted, microbatch):
        pass
    return Finding(
        its.for_leaves({f"grad/{layer}.weight": WIDTH**2 for layer in (0, 1)}), planted.scores()
    )


def spiked_steps(
    its: dp.Plan, planted: GradientCanaries, microbatch: int | None = None
) -> Iterator[nn.Module]:
    """The model after every release, its gradient still there."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))
    rows = TensorDataset(torch.randn(DATA, WIDTH), torch.randn(DATA, WIDTH))
    ledger = dp.Ledger.in_memory()
    run = PrivateRun(
        model, its, ledger=ledger, source=source(), canaries=planted, microbatch=microbatch
    )
    for batch in run.batches(rows):
        run.backward(lambda model, batch: (model(batch[0]) * batch[1]).sum(1), batch)
        yield model
        model.zero_grad()


def read(model: nn.Module, planted: GradientCanaries) -> NDArray[np.float64]:
    """What was released on the canaries' coordinates in the only group, as an average."""
    (spots,) = planted._spots.values()
    leaves = [
        parameter.grad.flatten().double().numpy()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    return np.concatenate(leaves)[
        np.append(0, np.cumsum([leaf.size for leaf in leaves]))[spots.leaves] + spots.places
    ]


# --- crafted inputs: every path of the engine ---


@dataclass(frozen=True)
class Crafted:
    """A model and records whose gradients are long and orthogonal to each other, so that each can
    be looked for by itself.

    Args:
        model: makes it.
        rows: of one record in each row, and the loss of each.
        bn: whether its statistics are a group as well.
    """

    model: Callable[[], nn.Module]
    rows: tuple[Tensor, ...]
    loss: Callable[[nn.Module, Any], Any]
    bn: bool = False


def crafted(
    its: Crafted,
    policy: Any = EVERYTHING,
    *,
    form: str | None = None,
    steps: int = 1,
    trials: int = 4,
    **more: Any,
) -> Finding:
    """Steps in which all records are canaries, each scored along its own gradient; the engine
    computes in this form.
    """
    records = len(its.rows[0])
    groups = {"grad/*": dp.Gaussian(1.0, 1.0)} | ({"bn/*": dp.Gaussian(1.0, 1.0)} if its.bn else {})
    sampler = dp.Sampler(policy, records=records, steps=steps)
    plan = dp.Plan(
        sampler=sampler,
        mechanism=dp.Groups(groups),
        numerics=more.pop("numerics", dp.Numerics.CERTIFIED),
    )
    torch.manual_seed(5)
    model = its.model()
    directions, start, parts = (
        along(model, its),
        {name: value.clone() for name, value in model.state_dict().items()},
        [],
    )
    for trial in range(trials):
        model.load_state_dict(start)
        canaries = Canaries(range(records), source=source(bytes([trial]) * 32))
        likelihood = Likelihood(policy, canaries=records)
        bits = source(bytes([100 + trial]) * 32)
        run = PrivateRun(
            model, plan, ledger=dp.Ledger.in_memory(), source=bits, canaries=canaries, **more
        )
        for found, released in released_by(run, model, its, form):
            seen = [((directions @ found).numpy(), 1.0)]
            if its.bn:
                seen.append(
                    (released["bn/0"][records:], 1.0)
                )  # second moments, each record's in a channel of its own
            likelihood.observe(seen)
        parts.append(Scores(likelihood.scores(), canaries.inside))
    return Finding(plan, Scores.pooled(parts))


def released_by(
    run: PrivateRun, model: nn.Module, its: Crafted, form: str | None
) -> Iterator[tuple[Tensor, Any]]:
    """The released sum of gradients of every batch, flat, and what else was released."""
    if form == "loop":
        run.engine.compute_one_by_one()
    elif form is not None:
        run.engine._chooser = Chooser(2**28, form)
    for batch in run.batches(TensorDataset(*its.rows)):
        model.zero_grad()
        released = run.backward(its.loss, batch)
        flat = torch.cat(
            [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
        )
        yield flat * run.plan.expected_batch_size, released
    assert form is None or form in {"loop", *(choice.form for choice in run.engine.choices)}, (
        "another path was taken"
    )


def along(model: nn.Module, its: Crafted) -> Tensor:
    """Unit vectors along every record's gradient, by autograd, record after record; refused if they
    are not orthogonal.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval()
    rows = []
    for index in range(len(its.rows[0])):
        loss = its.loss(model, tuple(part[index : index + 1] for part in its.rows)).sum()
        rows.append(
            torch.cat([one.flatten().double() for one in torch.autograd.grad(loss, trained)])
        )
    model.train()
    found = torch.stack(rows)
    assert float(found.norm(dim=1).min()) > 100.0, "not far beyond the clip norm"
    units: Tensor = found / found.norm(dim=1, keepdim=True)
    assert float((units @ units.T - torch.eye(len(units))).abs().max()) < 1e-3, "not orthogonal"
    return units
