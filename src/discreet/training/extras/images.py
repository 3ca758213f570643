"""Augmentations of images, each image by itself: for `training.augmented`."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["mirrored", "shifted"]


def shifted(
    images: Tensor, most: int = 2, *, padding: Literal["zeros", "reflect"] = "zeros"
) -> Tensor:
    """Each image moved at random, by up to `most` pixels along both axes; whole pixels, uniformly.

    Every image draws its own two numbers, and nothing of another image enters it.

    Args:
        images: (n, channels, height, width).
        most: pixels; less than height and width.
        padding: what comes in at the edges: zeros, or what is inside of the edge, mirrored.

    >>> image = torch.tensor([[[[0.0, 0.0, 0.0], [0.0, 7.0, 0.0], [0.0, 0.0, 0.0]]]])
    >>> float(shifted(image, most=1).max())  # the pixel in the middle is somewhere
    7.0
    """
    n, channels, height, width = _checked("shifted", images).shape
    # Further than that, nothing of the image would be left.
    pixels = check.whole("shifted", "most", most, least=0)
    if pixels >= min(height, width):
        expected = f"less than height and width, {height} and {width}"
        raise ParameterError(owner="shifted", name="most", expected=expected, got=str(pixels))

    if padding not in ("zeros", "reflect"):
        raise ParameterError(
            owner="shifted", name="padding", expected='"zeros" or "reflect"', got=repr(padding)
        )

    moves = torch.randint(2 * pixels + 1, (n, 2), device=images.device)
    down = moves[:, :1] + torch.arange(height, device=images.device)
    across = moves[:, 1:] + torch.arange(width, device=images.device)

    if padding == "zeros":
        images = pad(images, [pixels] * 4)
    else:
        down, across = _reflected(down - pixels, height), _reflected(across - pixels, width)

    # Rows and columns as places in the flat image, the same in all of its channels.
    places = (down.unsqueeze(2) * images.shape[3] + across.unsqueeze(1)).flatten(1)
    in_all_channels = places.unsqueeze(1).expand(-1, channels, -1)

    return images.flatten(2).gather(2, in_all_channels).view(n, channels, height, width)


def _reflected(places: Tensor, size: int) -> Tensor:
    # Places beyond an edge become those inside of it, at the same distance.
    return size - 1 - (size - 1 - places.abs()).abs()


def mirrored(images: Tensor) -> Tensor:
    """Each image as it is, or with left and right exchanged, by a fair coin.

    Args:
        images: (n, channels, height, width).

    >>> mirrored(torch.tensor([[[[1.0, 2.0]]]])).flatten().tolist() in ([1.0, 2.0], [2.0, 1.0])
    True
    """
    _checked("mirrored", images)
    # One coin for each image.
    coins = torch.randint(2, (len(images), 1, 1, 1), device=images.device, dtype=torch.bool)
    return torch.where(coins, images.flip(3), images)


def _checked(owner: str, images: Tensor) -> Tensor:
    check.instance(owner, "images", images, Tensor)
    if images.ndim != 4:
        expected, got = "a tensor (n, channels, height, width)", f"a tensor of {images.ndim} axes"
        raise ParameterError(owner=owner, name="images", expected=expected, got=got)

    return images
