"""The same mechanism with other noise, or with another clip norm for gradients: what calibration
and schedules change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from discreet.errors import ParameterError
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    Split,
)

__all__ = ["with_clip_norm", "with_noise_times"]

_GRADIENTS = "grad/"


def with_noise_times(mechanism: object, factor: float) -> Any:
    """The mechanism with the noise of every group multiplied: groups keep their shares of the
    budget.

    >>> with_noise_times(Gaussian(clip_norm=0.5, noise_multiplier=2.0), 1.5)
    Gaussian(clip_norm=0.5, noise_multiplier=3.0)
    """
    match mechanism:
        case Gaussian() | Joint() | Normalised() | Split():
            return replace(mechanism, noise_multiplier=mechanism.noise_multiplier * factor)
        case AdaptiveClip():
            inner = replace(
                mechanism.mechanism, noise_multiplier=mechanism.mechanism.noise_multiplier * factor
            )
            return replace(
                mechanism, mechanism=inner, count_noise_std=mechanism.count_noise_std * factor
            )
        case Microbatches():
            return replace(mechanism, mechanism=with_noise_times(mechanism.mechanism, factor))
        case Groups():
            return Groups(
                {
                    name: with_noise_times(part, factor)
                    for name, part in mechanism.mechanisms.items()
                }
            )
    raise ParameterError(
        owner="Programme", name="mechanism", expected="noise to scale", got=type(mechanism).__name__
    )


def with_clip_norm(mechanism: object, clip_norm: float) -> Any:
    """The mechanism with this clip norm for gradients: the groups named "grad/...", or the only
    one.

    >>> groups = Groups({"grad/*": Gaussian(1.0, 2.0), "metric/*": Gaussian(1.0, 40.0)})
    >>> with_clip_norm(groups, 0.1).mechanisms["grad/*"]
    Gaussian(clip_norm=0.1, noise_multiplier=2.0)
    """
    match mechanism:
        case Gaussian() | Normalised() | Split():
            return replace(mechanism, clip_norm=clip_norm)
        case Groups():
            parts = mechanism.mechanisms
            named = [name for name in parts if name.startswith(_GRADIENTS)]
            if len(named) == 1:
                return Groups(
                    {
                        name: with_clip_norm(part, clip_norm) if name in named else part
                        for name, part in parts.items()
                    }
                )
    raise ParameterError(
        owner="Phase",
        name="clip_norm",
        expected=(
            f"left out, unless one group takes all gradients ({_GRADIENTS}...) and has a clip "
            "norm of its own"
        ),
        got=f"{clip_norm!r} for {type(mechanism).__name__}",
        do="Make a plan for each phase, and a Programme of them.",
    )
