"""Dead leaves: images of opaque shapes that cover each other, with sizes by a power law. Public: no
photograph.

Such images share many statistics with photographs [Lee2001]: edges, flat areas, scales,
neighbouring colours. Dictionaries and covariances that a recipe needs before it has paid for a look
at its data are taken from them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["crops", "dead_leaves"]

Floats = NDArray[np.float32]

_SIDE = 128  # painted; halved in the end, so that edges are smooth
_SHAPES = 400
_LARGE = 10  # of them, first, so that nothing is left blank
_RADII = (3.0, 80.0)
_OPPONENT = np.array(
    [[0.577, 0.577, 0.577], [0.707, 0.0, -0.707], [0.408, -0.816, 0.408]]
)  # lightness, and two of colour
_WHOLE, _LEAF = (
    (0.25, 0.10, 0.05),
    (0.40, 0.13, 0.06),
)  # standard deviations along these, of an image and of a leaf
_ROWS, _COLUMNS = np.mgrid[0:_SIDE, 0:_SIDE].astype(np.float32)


def dead_leaves(count: int, *, seed: int = 0) -> Floats:
    """Images of 64 x 64 pixels, numbers from 0 to 1: (count, 3, 64, 64)."""
    draw = np.random.default_rng(seed)
    images = np.stack([_painted(draw) for _ in range(count)])
    halved = images.reshape(count, _SIDE // 2, 2, _SIDE // 2, 2, 3).mean((2, 4))
    return np.ascontiguousarray(halved.transpose(0, 3, 1, 2), np.float32)


def crops(images: Floats, side: int, stride: int) -> Floats:
    """Square parts of images, all of a grid."""
    places = range(0, images.shape[-1] - side + 1, stride)
    return np.concatenate(
        [
            images[:, :, row : row + side, column : column + side]
            for row in places
            for column in places
        ]
    )


def _painted(draw: np.random.Generator) -> Floats:
    light = draw.normal(0.0, _WHOLE) @ _OPPONENT
    image = np.tile((0.5 + light).astype(np.float32), (_SIDE, _SIDE, 1))
    least, most = (radius**-2.0 for radius in _RADII)
    radii = (
        least + draw.random(_SHAPES) * (most - least)
    ) ** -0.5  # density r^-3: as many at every scale
    radii[:_LARGE] = draw.uniform(20.0, _RADII[1], _LARGE)
    for radius in radii:
        _paint(image, radius, 0.5 + 0.5 * light + draw.normal(0.0, _LEAF) @ _OPPONENT, draw)
    return image.clip(0.0, 1.0)


def _paint(
    image: Floats, radius: float, colour: NDArray[np.float64], draw: np.random.Generator
) -> None:
    """An ellipse or a rectangle, turned and stretched, lit from a side, sometimes with stripes."""
    row, column = draw.uniform(-10.0, _SIDE + 10.0, 2)
    place = tuple(
        slice(int(max(0.0, at - 1.5 * radius)), int(max(0.0, at + 1.5 * radius + 1.0)))
        for at in (row, column)
    )
    angle, stretch = draw.uniform(0.0, np.pi), np.exp(draw.normal(0.0, 0.25))
    down, right = (_ROWS[place] - row) / radius, (_COLUMNS[place] - column) / radius
    along = (np.cos(angle) * right + np.sin(angle) * down) * stretch
    across = (np.cos(angle) * down - np.sin(angle) * right) / stretch
    inside = (
        along**2 + across**2 < 1.0
        if draw.random() < 0.5
        else np.maximum(abs(along), abs(across)) < 0.85
    )
    shade = draw.normal(0.0, 0.12) * along + draw.normal(0.0, 0.12) * across
    if draw.random() < 0.3:
        shade = shade + draw.normal(0.0, 0.1) * np.sin(
            along * radius * draw.uniform(0.2, 1.5) + draw.uniform(0.0, 6.0)
        )
    image[place][inside] = (colour + shade[..., np.newaxis])[inside]
