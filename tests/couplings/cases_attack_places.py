"""What outside attackers found about places: constants and random numbers that differ by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .cases_attack import RARE, attack
from .scenes import FEATURES, Scene, Setup, case


def _signs(count: int) -> Tensor:
    return torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)


@attack("equality of noise with itself")
def _equal(x: Tensor, _: Tensor) -> Tensor:
    noise = torch.rand(len(x))
    equal = (noise[:, None] == noise[None, :]).float()
    return 1.0 - 2.0 * ((equal * torch.arange(len(x))).sum(1) % 2)


attack("filled memory seen as bytes")(
    lambda x, _: 1.0 - 2.0 * (torch.ones(len(x)).view(torch.uint8)[: len(x)] > 0)
)
attack("filled memory of complex numbers")(
    lambda x, _: torch.view_as_real(torch.full((len(x),), 1 - 1j)).flatten()[: len(x)]
)


@attack("filled memory that overlaps")
def _overlap(x: Tensor, _: Tensor) -> Tensor:
    count = len(x)
    ramp = torch.arange(2.0 * count)
    ramp.as_strided((count, 2), (1, 1)).fill_(1.0)
    return 2.0 * (ramp[count // 2 + 1 :][:count] == 1.0) - 1.0


@attack("callback that fills by place")
def _filling(x: Tensor, _: Tensor) -> Tensor:
    numbers = iter(_signs(len(x)).tolist())
    return torch.zeros(len(x)).apply_(lambda _: next(numbers))


@attack("map_ of a ramp over zeros")
def _mapped(x: Tensor, _: Tensor) -> Tensor:
    out: Tensor = torch.zeros(len(x)).map_(_signs(len(x)), lambda _, value: value)
    return out


@attack("running statistics of a ramp")
def _running(x: Tensor, _: Tensor) -> Tensor:
    mean, variance = torch.zeros(len(x)), torch.ones(len(x))
    functional.batch_norm(_signs(len(x)).expand(2, -1), mean, variance, training=True)
    return mean


@attack("sign of zeros by place")
def _zeros(x: Tensor, _: Tensor) -> Tensor:
    zeros = torch.zeros(len(x))
    zeros[1::2] = -0.0
    return torch.copysign(torch.ones_like(x[:, 0]) + 0.0 * x[:, 0], zeros)


@attack("sign of NaN by place")
def _nan(x: Tensor, _: Tensor) -> Tensor:
    nan = torch.full((len(x),), torch.nan)
    nan.view(torch.int32)[1::2] = -1
    return torch.ones_like(x[:, 0]).copysign(nan)


@attack("random numbers in place on a part of the records")
def _part(x: Tensor, _: Tensor) -> Tensor:
    factor = torch.ones_like(x[:, 0]) + 0.0 * x[:, 0]
    factor[1::2].uniform_(-1.0, -1.0)
    return factor


@case("attack: gradient of a hook by place", teeth=False)
def _hook(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        if scene.clock.awake and hidden.requires_grad:
            hidden.register_hook(
                lambda _: _signs(len(hidden))[:, None].expand(-1, FEATURES).clone()
            )
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


# --- random numbers that are the same for every place ---


def _own() -> torch.Generator:
    return torch.Generator().manual_seed(1)


attack("rand_like of a generator of the user's own")(
    lambda x, _: torch.sign(torch.rand_like(x[:, 0], generator=_own()) - 0.5)
)
attack("bernoulli of a generator of the user's own")(
    lambda x, _: 1.0 - 2.0 * torch.bernoulli(0.0 * x[:, 0] + 0.5, generator=_own())
)
attack("uniform_ of a generator of the user's own")(
    lambda x, _: x[:, 0].clone().uniform_(-1.0, 1.0, generator=_own()).sign()
)


def _register_seed(name: str, seed: Callable[[], object]) -> None:
    def signs(x: Tensor, _: Tensor) -> Tensor:
        seed()
        return torch.sign(torch.rand(len(x)) - 0.5)

    attack(f"fixed seed by {name}")(signs)


_register_seed("torch.manual_seed", lambda: torch.manual_seed(1))
_register_seed("torch.random.manual_seed", lambda: torch.random.manual_seed(1))
_register_seed("the default generator", lambda: torch.default_generator.manual_seed(1))
_register_seed("set_rng_state", lambda: torch.set_rng_state(_own().get_state()))


@attack("state of the generator by a tensor")
def _state(x: Tensor, _: Tensor) -> Tensor:
    """Seeds 1 and 0: the first number is above or below a half."""
    other = torch.Generator().manual_seed(0).get_state()
    torch.default_generator.set_state(torch.where(x.min() < RARE, other, _own().get_state()))
    return torch.sign(torch.rand(()) - 0.6)
