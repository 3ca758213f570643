"""The product audits itself: in every path of the engine, mechanism and sampler, no attack shows
more than is claimed.

Every bound is wrong with probability at most 5e-7 (`support.audits`), and random bits are fixed. So
that no test is empty, each attack must reach a good part of what is claimed; which bugs the same
audits catch is shown in tests/mutations.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear as linear_map

import discreet as dp
from discreet.canaries import Scores
from discreet.training import GradientCanaries
from support.audits import (
    COINS,
    DATA,
    Crafted,
    Finding,
    crafted,
    read,
    source,
    spiked,
    spiked_steps,
)

N = 256  # canaries of one run with crafted inputs
LONG = 1e3
NOISE = dp.Gaussian(1.0, 1.0)
ZERO_OUT, REPLACE_ONE = dp.Adjacency.ZERO_OUT, dp.Adjacency.REPLACE_ONE


# --- spikes ---

MECHANISMS: dict[str, Any] = {
    "one group": dp.Groups({"grad/*": NOISE}),
    "two groups": dp.Groups({"grad/0.*": dp.Gaussian(0.5, 1.5), "grad/1.*": dp.Gaussian(3.0, 1.5)}),
    "joint": dp.Joint(
        clip_norm=1.2, noise_multiplier=1.0, scales={"grad/0.*": 1.0, "grad/1.*": 20.0}
    ),
    "split": dp.Split(clip_norm=2.0, noise_multiplier=1.0),
    "normalised": dp.Groups({"grad/*": dp.Normalised(1.0, 1.0)}),
    "adaptive": dp.Groups({"grad/*": dp.AdaptiveClip(NOISE, quantile=0.5, count_noise_std=20.0)}),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms(name: str) -> None:
    spiked(MECHANISMS[name], steps=2 if name == "adaptive" else 1).check()


# Where less is reached, the claim is not of what spikes do, but of something that covers it: a
# record that displaces another, or comes in another's place; an epoch without amplification.
SAMPLERS: dict[str, tuple[Any, dict[str, Any], float]] = {
    "poisson": (dp.Poisson(0.4), {"steps": 3}, 0.85),
    "poisson, zero-out": (dp.Poisson(0.4), {"steps": 3, "adjacency": ZERO_OUT}, 0.85),
    "poisson, replace-one": (dp.Poisson(0.4), {"steps": 2, "adjacency": REPLACE_ONE}, 0.85),
    "truncated": (
        lambda records: dp.ledger.TruncatedPoisson(0.4, int(0.4 * records), records),
        {"steps": 2},
        0.6,
    ),
    "fixed size": (
        lambda records: dp.FixedSize(records // 2, records),
        {"steps": 2, "adjacency": REPLACE_ONE},
        0.75,
    ),
    "fixed size, zero-out": (
        lambda records: dp.FixedSize(records // 2, records),
        {"steps": 2, "adjacency": ZERO_OUT},
        0.45,
    ),
    "shuffled": (dp.ledger.Shuffled(2), {"adjacency": ZERO_OUT}, 0.7),
    "balls in bins": (dp.ledger.BallsInBins(2), {"steps": 1}, 0.85),
    "everything, replace-one": (dp.Everything(), {"adjacency": REPLACE_ONE}, 0.85),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name: str) -> None:
    policy, more, least = SAMPLERS[name]
    spiked(dp.Groups({"grad/*": NOISE}), policy, **more).check(least)


@pytest.mark.parametrize("microbatch", [1, 100])
def test_microbatches(microbatch: int) -> None:
    spiked(
        dp.Groups({"grad/*": NOISE}),
        canaries=300 if microbatch == 1 else 3000,
        microbatch=microbatch,
    ).check()


def test_idealised_numerics() -> None:
    spiked(
        dp.Groups({"grad/*": NOISE}), dp.Poisson(0.4), steps=3, numerics=dp.Numerics.IDEALISED
    ).check()


def test_p20_noise_does_not_repeat() -> None:
    """Another attack: noise that repeats cancels in differences, so a canary that comes and goes is
    seen against it.
    """
    its = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.5), records=DATA + 500, steps=4),
        mechanism=dp.Groups({"grad/*": NOISE}),
    )
    canaries = GradientCanaries(500, source=source(COINS))
    seen = [read(model, canaries) for model in spiked_steps(its, canaries)]
    spreads = np.stack(seen).std(0) * its.expected_batch_size
    Finding(its, Scores(spreads - 0.3, canaries.scores().inside)).check(least=-1.0)


# --- crafted inputs ---


def ones_at(*, positions: int | None = None) -> Tensor:
    """Record k is long at input k, at every position, and zero elsewhere."""
    eye = LONG * torch.eye(N)
    return eye if positions is None else eye[:, None, :].expand(-1, positions, -1).clone()


def total(model: nn.Module, batch: Any) -> Any:
    return model(batch[0]).flatten(1).sum(1)


def linear(positions: int | None = None) -> Crafted:
    return Crafted(lambda: nn.Linear(N, 2, bias=False), (ones_at(positions=positions),), total)


def convolution() -> Crafted:
    """Record k is long in channel k."""
    return Crafted(
        lambda: nn.Conv1d(N, 2, 3, bias=False),
        (ones_at(positions=6).transpose(1, 2).contiguous(),),
        total,
    )


def embedding() -> Crafted:
    """Record k is word k, twelve times."""

    def loss(model: nn.Module, batch: Any) -> Any:
        return LONG * model(batch[0]).flatten(1).sum(1)

    return Crafted(
        lambda: nn.Embedding(N, 4), (torch.arange(N)[:, None].expand(-1, 12).clone(),), loss
    )


class Tied(nn.Module):
    """Word k, three times, and the head's score for it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(N, 4)
        nn.init.constant_(self.table.weight, 1.0)

    def forward(self, ids: Tensor) -> Tensor:
        return linear_map(self.table(ids), self.table.weight).gather(2, ids.unsqueeze(2))


def tied() -> Crafted:
    return Crafted(
        Tied,
        (torch.arange(N)[:, None].expand(-1, 3).clone(),),
        lambda model, batch: LONG * total(model, batch),
    )


class Recurrent(nn.Module):
    """What meets the input is trained: record k moves its own column of these weights, at both
    positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(N, 2, batch_first=True)
        for name, parameter in self.cell.named_parameters():
            parameter.requires_grad_(name == "weight_ih_l0")

    def forward(self, x: Tensor) -> Any:
        return self.cell(x / LONG)[0]


def recurrent() -> Crafted:
    return Crafted(
        Recurrent, (ones_at(positions=2),), lambda model, batch: 1e5 * total(model, batch)
    )


def normalised() -> Crafted:
    """Record k has its large second moment in channel k, and its gradient there as well."""

    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(N, affine=False), nn.Linear(N, 2, bias=False))

    return Crafted(model, (ones_at(),), total, bn=True)


PATHS: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (linear, {}),
    "linear, poisson": (linear, {"policy": dp.Poisson(0.5), "steps": 2, "trials": 8}),
    "linear, balls in bins": (linear, {"policy": dp.ledger.BallsInBins(2), "trials": 8}),
    "linear, loop": (linear, {"form": "loop"}),
    "linear, small passes": (linear, {"microbatch": 37}),
    "linear, one by one": (linear, {"microbatch": 1, "trials": 2}),
    "positions, ghost": (lambda: linear(3), {"form": "ghost"}),
    "positions, direct": (lambda: linear(3), {"form": "direct"}),
    "positions, idealised": (
        lambda: linear(3),
        {"form": "ghost", "numerics": dp.Numerics.IDEALISED},
    ),
    "convolution, streamed": (convolution, {"form": "streamed"}),
    "convolution, folded": (convolution, {"form": "folded"}),
    "convolution, unfolded": (convolution, {"form": "unfolded"}),
    "embedding": (embedding, {}),
    "tied, ghost": (tied, {"form": "ghost", "trials": 16}),
    "tied, direct": (tied, {"form": "direct"}),
    "lstm": (recurrent, {}),
    "batch norm": (normalised, {}),
}


def audited(name: str, **other: Any) -> Finding:
    path, more = PATHS[name]
    return crafted(path(), **(more | other))


@pytest.mark.parametrize("name", PATHS)
def test_paths(name: str) -> None:
    audited(name).check()
