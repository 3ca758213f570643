"""Public images without data: pen strokes, and textured outlines; grey, as those of MNIST and
Fashion-MNIST.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["shapes"]

_POINTS, _LINES = 24, 3  # of a stroke, of an image


def shapes(count: int, side: int, seed: int) -> Tensor:
    """Images from 0 to 1, (count, side, side): half of them strokes, half of them outlines.

    Args:
        count: number of images.
        side: in pixels.
        seed: of everything that is random.
    """
    random = torch.Generator().manual_seed(seed)
    return torch.cat(
        [_strokes(count // 2, side, random), _outlines(count - count // 2, side, random)]
    )


def _strokes(count: int, side: int, random: torch.Generator) -> Tensor:
    """One to three bent lines of a pen."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    images = torch.zeros(count, side, side)
    for line in range(_LINES):
        bend = 0.15 * torch.randn(count, 1, generator=random) * torch.arange(_POINTS)
        wander = torch.cumsum(0.15 * torch.randn(count, _POINTS, generator=random), 1)
        angle = 2.0 * math.pi * torch.rand(count, 1, generator=random) + bend + wander
        pace = _between(0.3, 1.0, count, random)[:, 0]
        path = torch.stack(
            [torch.cumsum(angle.cos() * pace, 1), torch.cumsum(angle.sin() * pace, 1)], 2
        )
        middle = (side - 1) / 2.0 + 3.0 * torch.randn(count, 1, 2, generator=random)
        path = path - path.mean(1, keepdim=True) + middle
        distance = torch.full((count, side, side), math.inf)
        for y, x in (point.unbind(1) for point in path.unbind(1)):
            distance = torch.minimum(
                distance, (rows - y[:, None, None]) ** 2 + (columns - x[:, None, None]) ** 2
            )
        ink = (1.0 + _between(0.6, 1.8, count, random) - distance.sqrt()).clamp(0.0, 1.0)
        drawn = torch.rand(count, 1, 1, generator=random) < (1.0 if line == 0 else 0.5)
        images = torch.maximum(images, ink * drawn)
    return images


def _outlines(count: int, side: int, random: torch.Generator) -> Tensor:
    """A rounded box with an irregular edge, filled with a texture; either may be symmetric."""
    line = torch.linspace(-1.0, 1.0, side).abs()
    height, width, corner = (
        _between(low, high, count, random) for low, high in ((0.5, 1.0), (0.3, 1.0), (2.0, 6.0))
    )
    box = 1.0 - (line[:, None] / height) ** corner - (line[None, :] / width) ** corner
    edge = _clouds(side, _between(2.0, 3.0, count, random), random) * _between(
        0.0, 0.7, count, random
    )
    inside = (6.0 * _sometimes_symmetric(box + edge, random)).clamp(0.0, 1.0)
    texture = _clouds(side, _between(0.5, 2.5, count, random), random)
    texture = torch.where(torch.rand(count, 1, 1, generator=random) < 0.3, texture.sign(), texture)
    texture = _sometimes_symmetric(texture, random) * _between(0.0, 0.3, count, random)
    return (inside * (_between(0.2, 1.0, count, random) + texture)).clamp(0.0, 1.0)


def _clouds(side: int, smoothness: Tensor, random: torch.Generator) -> Tensor:
    """Gaussian fields whose spectrum falls as a power of the frequency; mean 0, standard deviation
    1.
    """
    frequency = torch.fft.fftfreq(side)
    length = (frequency[:, None] ** 2 + frequency[None, :] ** 2).sqrt()
    length[0, 0] = math.inf
    noise = torch.fft.fft2(torch.randn(len(smoothness), side, side, generator=random))
    field: Tensor = torch.fft.ifft2(noise * length**-smoothness).real
    return field / field.std((1, 2), keepdim=True)


def _sometimes_symmetric(images: Tensor, random: torch.Generator) -> Tensor:
    mirrored = torch.rand(len(images), 1, 1, generator=random) < 0.5
    return torch.where(mirrored, (images + images.flip(2)) / 2.0, images)


def _between(low: float, high: float, count: int, random: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, 1, 1, generator=random)
