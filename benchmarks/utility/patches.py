"""Features of images: how much each place resembles each patch of a dictionary, in the manner of
[Coates2011] and [Thiry2021].

image -> patches of 6 x 6 pixels -> whitened, length 1 -> products with the dictionary -> what is
beyond a threshold, in both signs -> averages over 5 x 5 overlapping windows, of the image and its
mirror image -> square roots

Everything but the image is public (`leaves`), so an image's features are a function of that image
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

__all__ = ["PatchFeatures"]

_SIDE = 6
_COLOURS = 3
_SIZE = _COLOURS * _SIDE**2
_KEPT = 64  # principal components of a patch
_RIDGE = 0.05  # added to the variance of each, relative to their mean
_FLAT = 0.02  # standard deviation of pixels below which a patch counts for less
_CALM = 0.03  # and below which it does not enter the dictionary
_IMAGES = 20  # at a time


@final
class PatchFeatures:
    """A dictionary of patches, closed under mirroring, and what resembles them.

    With a dictionary that has the mirror image of each of its patches, the features of a mirrored
    image are a permutation of the image's own: the average over both costs nothing, and halves
    their number.

    Args:
        public: images to take patches and their covariance from, (count, 3, side, side) from 0 to
            1.
        patches: number of patches in the dictionary, without mirror images.
        threshold: cosine from which a resemblance counts.
        windows: along each side.
        seed: of the choice of patches.
    """

    def __init__(
        self,
        public: NDArray[np.float32],
        *,
        patches: int,
        threshold: float = 0.22,
        windows: int = 5,
        seed: int = 0,
    ) -> None:
        self._threshold, self._windows = threshold, windows
        found = (
            functional.unfold(torch.from_numpy(public), _SIDE, stride=5)
            .transpose(1, 2)
            .reshape(-1, _SIZE)
        )
        found = found - found.mean(1, keepdim=True)
        lengths = found.norm(dim=1, keepdim=True)
        found = found / (lengths**2 + 1e-3 * _SIZE).sqrt()
        mirrored = torch.arange(_SIZE).reshape(_COLOURS, _SIDE, _SIDE).flip(2).flatten()
        covariance = found.T @ found / len(found)
        values, vectors = torch.linalg.eigh((covariance + covariance[mirrored][:, mirrored]) / 2.0)
        whitening = (
            vectors.flip(1)[:, :_KEPT] / (values.flip(0)[:_KEPT] + _RIDGE * values.mean()).sqrt()
        )
        self._whitening = whitening - whitening.mean(0)  # takes the mean of the pixels away as well
        self._flat = float(_FLAT**2 * _SIZE / values.sum() * _KEPT)
        order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))
        order = order[lengths[order, 0] > _CALM * _SIZE**0.5][:patches]
        chosen = torch.cat([found[order], found[order][:, mirrored]])
        self._dictionary = functional.normalize(chosen @ whitening).T.contiguous()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the features of one image: sign, patch, row and column of the window."""
        return 2, self._dictionary.shape[1] // 2, self._windows, self._windows

    def __call__(self, images: NDArray[np.uint8 | np.float32]) -> Tensor:
        """One row for each image, from 0 to 1: (count, 2 * patches * windows^2)."""
        pixels = torch.from_numpy(images)
        if pixels.dtype == torch.uint8:
            pixels = pixels.permute(0, 3, 1, 2)
        places = pixels.shape[-1] - _SIDE + 1
        window = _hats(places, self._windows)
        windows = torch.kron(window, window)
        result = torch.empty(len(pixels), int(np.prod(self.shape)))

        @torch.no_grad()
        def fill(start: int) -> None:
            some = pixels[start : start + _IMAGES].float() / (
                255.0 if pixels.dtype == torch.uint8 else 1.0
            )
            pooled = torch.stack([self._pooled(image, windows) for image in some])
            result[start : start + len(some)] = self._with_mirror_image(pooled).sqrt()

        with _one_thread_for_each_image() as threads:
            list(threads.map(fill, range(0, len(pixels), _IMAGES)))
        return result

    def _pooled(self, image: Tensor, windows: Tensor) -> Tensor:
        """(windows, 2 * patches of the whole dictionary) of one image: what is worked on fits into
        a core's cache.
        """
        patches = functional.unfold(image.unsqueeze(0), _SIDE)[0].T @ self._whitening
        patches /= (patches.square().sum(1, keepdim=True) + self._flat).sqrt()
        resemblance = functional.softshrink(patches @ self._dictionary, self._threshold)
        below = windows @ resemblance.clamp(max=0.0).neg_()
        return torch.cat([windows @ resemblance.clamp_(min=0.0), below], 1)

    def _with_mirror_image(self, pooled: Tensor) -> Tensor:
        signs, patches, windows, _ = self.shape
        parts = pooled.reshape(-1, windows, windows, signs, 2, patches)
        both = parts[:, :, :, :, 0] + parts[:, :, :, :, 1].flip(2)
        return both.permute(0, 3, 4, 1, 2).flatten(1)


@contextmanager
def _one_thread_for_each_image() -> Iterator[ThreadPoolExecutor]:
    """As many workers as torch has threads: products this small are not worth sharing."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


def _hats(places: int, windows: int) -> Tensor:
    """Weights of overlapping windows that rise and fall linearly: (windows, places), each adding up
    to one.
    """
    width = places / windows
    centres = (torch.arange(windows) + 0.5) * width
    weights = (1.0 - (torch.arange(places) + 0.5 - centres[:, None]).abs() / width).clamp_min(0.0)
    return weights / weights.sum(1, keepdim=True)
