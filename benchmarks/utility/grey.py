"""Public features of grey images: scattering, and resemblance to patches of synthetic shapes, in
the axes of these shapes.

image -> scattering, normalised in groups of channels; patches of 5 x 5 pixels, whitened, length 1
-> products with a dictionary -> what is beyond a threshold, in both signs -> averages over windows
-> square roots [Coates2011] both standardised, and turned into principal axes of synthetic images,
of which the first thousands are kept

Everything but the image is public (`shapes`), so an image's features are a function of that image
alone.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.utility.shapes import shapes
from discreet.training.extras.scattering import Scattering

__all__ = ["GreyFeatures"]

_SIDE, _WINDOWS, _MARGIN = (
    5,
    5,
    2,
)  # of a patch in pixels, of an image in windows, around an image in pixels
_THRESHOLD = 0.2  # cosine from which a resemblance counts
_FLAT, _CALM = (
    0.01,
    0.02,
)  # variance of pixels below which a patch counts for less; and does not enter the dictionary
_RIDGE = 0.1  # added to the variances of patches, relative to their mean
_GROUPS = 27  # of the channels of scattering: three in each
_FLOOR = 0.1  # least variance of a feature, relative to the median
_IMAGES = 50  # at a time, always: so that an image's numbers do not depend on how many there are


@final
class GreyFeatures:
    """Features of square grey images, around the mean of synthetic ones, strongest axis of these
    first.

    Args:
        side: of an image, in pixels.
        patches: number of patches in the dictionary.
        images: number of synthetic images.
        axes: number of features.
    """

    def __init__(self, side: int, *, patches: int, images: int, axes: int) -> None:
        self._side = side
        self._scattering = Scattering(side, side)
        public = shapes(images, side, seed=9)
        self._whitening, self._dictionary, self._flat = _dictionary(public, patches)
        window = _windows(side + 2 * _MARGIN - _SIDE + 1, _WINDOWS)
        self._pool = torch.kron(window, window).T.contiguous()
        both = self._in_chunks(public)
        self._mean = torch.cat([part.mean(0) for part in both])
        self._scale = torch.cat([_scale(part) for part in both])
        self.variances, self._axes = _principal(
            (torch.cat(both, 1) - self._mean) * self._scale, axes
        )

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """One row for each image."""
        result = np.empty((len(images), self._axes.shape[1]), np.float32)
        for start in range(0, len(images), _IMAGES):
            some = torch.from_numpy(images[start : start + _IMAGES]).float() / 255.0
            rows = torch.cat(self._described(some), 1)
            result[start : start + len(some)] = (((rows - self._mean) * self._scale) @ self._axes)[
                : len(some)
            ].numpy()
        return result

    def _in_chunks(self, images: Tensor) -> tuple[Tensor, Tensor]:
        first, second = zip(
            *(self._described(some) for some in torch.split(images, _IMAGES)), strict=True
        )
        return torch.cat(first)[: len(images)], torch.cat(second)[: len(images)]

    @torch.no_grad()
    def _described(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Both kinds of features, for as many images as a chunk has: what is missing is black."""
        full = torch.zeros(_IMAGES, self._side, self._side)
        full[: len(images)] = images
        waves = self._scattering(full).reshape(_IMAGES, _GROUPS, -1)
        waves = functional.layer_norm(waves, waves.shape[2:])
        return waves.flatten(1), self._resemblance(full).sqrt()

    def _resemblance(self, images: Tensor) -> Tensor:
        patches = (
            functional.unfold(functional.pad(images[:, None], (_MARGIN,) * 4), _SIDE)
            .transpose(0, 1)
            .flatten(1)
        )
        patches = self._whitening @ _unit(patches - patches.mean(0), _FLAT * _SIDE**2)
        cosines = (self._dictionary @ _unit(patches, self._flat)).reshape(-1, len(self._pool))
        above = (cosines - _THRESHOLD).relu_() @ self._pool
        below = cosines.neg_().sub_(_THRESHOLD).relu_() @ self._pool
        return (
            torch.stack([above, below], 1)
            .reshape(len(self._dictionary), len(images), -1)
            .transpose(0, 1)
            .flatten(1)
        )


def _dictionary(public: Tensor, patches: int) -> tuple[Tensor, Tensor, float]:
    """A matrix that whitens patches, whitened patches of length 1, and the squared length of one
    that is nearly flat.
    """
    random = torch.Generator().manual_seed(0)
    found = functional.unfold(public[:, None], _SIDE, stride=3).transpose(1, 2).flatten(0, 1)
    found = found - found.mean(1, keepdim=True)
    found = found[found.square().mean(1) > _CALM].T
    found = _unit(found, _FLAT * _SIDE**2)
    values, vectors = torch.linalg.eigh(found @ found.T / found.shape[1])
    whitening = (vectors / (values.clamp_min(0.0) + _RIDGE * values.mean()).sqrt()) @ vectors.T
    white = whitening @ found
    chosen = white[:, torch.randperm(white.shape[1], generator=random)[:patches]]
    return (
        whitening,
        _unit(chosen, 0.0).T.contiguous(),
        0.04 * float(white.square().sum(0).median()),
    )


def _unit(columns: Tensor, flat: float) -> Tensor:
    return columns * (columns.square().sum(0) + flat).rsqrt()


def _windows(places: int, count: int) -> Tensor:
    """Weights of bell-shaped windows: (count, places), each adding up to one."""
    width = places / count
    offset = torch.arange(places) + 0.5 - width * (torch.arange(count) + 0.5)[:, None]
    return torch.softmax(-2.0 * (offset / width).square(), 1)


def _scale(features: Tensor) -> Tensor:
    """One over the standard deviation,
    such that rows have a mean squared norm of about one half.
    """
    variance = features.var(0)
    floored = variance.clamp_min(_FLOOR * float(variance.median()))
    return (2.0 * float((variance / floored).sum()) * floored).rsqrt()


def _principal(rows: Tensor, count: int) -> tuple[NDArray[np.float64], Tensor]:
    """The largest variances, and their axes: by subspace iteration."""
    random = torch.Generator().manual_seed(0)
    axes = torch.randn(rows.shape[1], min(count + 50, *rows.shape), generator=random)
    for _ in range(2):
        axes = torch.linalg.qr(((rows @ axes).T @ rows).T)[0]
    small = rows @ axes
    values, turn = torch.linalg.eigh(small.T @ small / len(rows))
    kept = values.flip(0)[:count].clamp_min(1e-9)
    return kept.double().numpy(), (axes @ turn.flip(1)[:, :count]).contiguous()
