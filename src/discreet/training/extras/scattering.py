"""The scattering transform: features of images by fixed wavelets, which know no data.

    x * g,   |x * w| * g,   ||x * w| * v| * g

with a Gaussian window g and Morlet wavelets w and v, v of a coarser scale than w; each at every
2^scales-th pixel. Stable under small deformations, and a linear model on top is accurate
[BrunaMallat2013]. Nothing is charged for it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["Scattering"]

# Of the finest wavelet: the window's standard deviation, radians per pixel.
_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi

# Images at a time: what is made of them stays in the cache.
_TOGETHER = 16


def _wrapped_gaussian(
    shape: tuple[int, int], width: float, angle: float, slant: float, frequency: float
) -> Tensor:
    """A Gaussian window times a plane wave on a torus of this shape; its peak is at the origin."""
    height, breadth = shape
    # On a torus the window meets itself again; what is more than two turns away weighs nothing.
    total = torch.zeros(shape, dtype=torch.complex128)

    for down in range(-2, 3):
        for right in range(-2, 3):
            y = (torch.arange(height, dtype=torch.float64) + down * height)[:, None]
            x = (torch.arange(breadth, dtype=torch.float64) + right * breadth)[None, :]
            along = y * math.cos(angle) + x * math.sin(angle)
            across = x * math.cos(angle) - y * math.sin(angle)
            window = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
            total += torch.polar(window, frequency * along)

    return total * slant / (2 * math.pi * width**2)


def _morlet(shape: tuple[int, int], scale: int, angle: float, slant: float) -> Tensor:
    """The Fourier transform (real) of a wavelet of mean zero at this scale and angle."""
    # A wave without its mean: the window times a constant, which makes the sum zero.
    width, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    wave = _wrapped_gaussian(shape, width, angle, slant, frequency)
    window = _wrapped_gaussian(shape, width, angle, slant, 0.0)
    spectrum: Tensor = torch.fft.fft2(wave - window * (wave.sum() / window.sum()))

    return spectrum.real.float()


def _averages(padded: int, margin: int, count: int, scales: int, resolution: int) -> Tensor:
    """Gaussian averages around every 2^scales-th pixel inside the margin.

    A matrix (count, padded / 2^resolution).
    """
    centre = margin + 2**scales * torch.arange(count)[:, None]
    offset = torch.arange(0, padded, 2**resolution)[None, :] - centre
    width = _WIDTH * 2 ** (scales - 1)
    turns = padded * torch.arange(-2, 3)[:, None, None]
    weight = torch.exp(-((offset + turns).double() ** 2) / (2 * width**2)).sum(0)
    matrix: Tensor = weight * 2**resolution / (math.sqrt(2 * math.pi) * width)

    return matrix.float()


class Scattering(nn.Module):
    """Images (..., height, width) to features (..., channels, height / 2^scales, width / 2^scales).

    Channels: the average; one for each wavelet (scale, then angle); one for each pair of wavelets
    with growing scale. With 2 scales and 8 angles these are 1 + 16 + 64 = 81.

    Args:
        height: of the images, in pixels.
        width: of the images, in pixels.
        scales: number of octaves; averages are over about 2^scales pixels.
        angles: number of orientations of each wavelet, over half a turn.

    >>> Scattering(28, 28)(torch.zeros(3, 28, 28)).shape
    torch.Size([3, 81, 7, 7])
    """

    def __init__(self, height: int, width: int, *, scales: int = 2, angles: int = 8) -> None:
        super().__init__()
        owner = "Scattering"
        self.scales = check.whole(owner, "scales", scales, least=1)
        self.angles = check.whole(owner, "angles", angles, least=1)
        block = 2**self.scales
        check.whole(owner, "height", height, least=block + 1)
        check.whole(owner, "width", width, least=block + 1)

        # One block more on each side, so that a window at the edge does not see the other edge.
        down, across = height // block, width // block
        shape = ((down + 2) * block, (across + 2) * block)
        above, beside = (shape[0] - height) // 2, (shape[1] - width) // 2
        self._shape = (height, width)
        self._padding = (beside, shape[1] - width - beside, above, shape[0] - height - above)

        turn = [math.pi * (angles // 2 - 1 - k) / angles for k in range(angles)]

        for scale in range(scales):
            filters = torch.stack([_morlet(shape, scale, angle, 4 / angles) for angle in turn])
            self.register_buffer(f"wavelets_{scale}", filters, persistent=False)
            # Of moduli that are sampled every 2^scale pixels: one matrix for rows, one for columns.
            rows = _averages(shape[0], above, down, scales, scale)
            columns = _averages(shape[1], beside, across, scales, scale)
            self.register_buffer(f"averages_{scale}_0", rows, persistent=False)
            self.register_buffer(f"averages_{scale}_1", columns, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The features of each image, from that image alone; it is extended by reflection first."""
        if tuple(images.shape[-2:]) != self._shape:
            raise ParameterError(
                owner="Scattering",
                name="images",
                expected=f"images of {self._shape[0]} x {self._shape[1]} pixels",
                got=str(tuple(images.shape[-2:])),
            )

        # A few images at a time, with any leading axes as one.
        flat = images.reshape(-1, 1, *images.shape[-2:])
        features = torch.cat([self._features(part) for part in torch.split(flat, _TOGETHER)])

        return features.reshape(*images.shape[:-2], *features.shape[1:])

    def _features(self, images: Tensor) -> Tensor:
        # The three orders of the header: x * g, |x * w| * g, ||x * w| * v| * g, v coarser than w.
        flat = nn.functional.pad(images, self._padding, mode="reflect")
        spectrum = torch.fft.fft2(flat)
        averages, first, second = [self._average(flat, 0)], [], []

        for fine in range(self.scales):
            modulus = self._modulus(spectrum, fine, 0)
            first.append(self._average(modulus, fine))
            if fine + 1 < self.scales:
                spectra = torch.fft.fft2(modulus).unsqueeze(2)
                pairs = [
                    self._average(self._modulus(spectra, coarse, fine), coarse)
                    for coarse in range(fine + 1, self.scales)
                ]
                second.append(torch.cat(pairs, 2).flatten(1, 2))

        return torch.cat(averages + first + second, 1)

    def _modulus(self, spectrum: Tensor, scale: int, resolution: int) -> Tensor:
        """|x * wavelet| at `scale`, sampled every 2^scale pixels.

        The spectrum is one that is sampled every 2^resolution pixels.
        """
        # Filters of the full resolution, for a spectrum that is sampled more coarsely.
        filters = _fold(self.get_buffer(f"wavelets_{scale}"), 2**resolution) * 4**resolution
        waves: Tensor = torch.fft.ifft2(_fold(spectrum * filters, 2 ** (scale - resolution)))
        return waves.abs()

    def _average(self, moduli: Tensor, resolution: int) -> Tensor:
        rows, columns = (self.get_buffer(f"averages_{resolution}_{axis}") for axis in range(2))
        return rows @ moduli @ columns.T


def _fold(spectrum: Tensor, factor: int) -> Tensor:
    """The spectrum after keeping every factor-th sample in both directions."""
    height, width = spectrum.shape[-2] // factor, spectrum.shape[-1] // factor
    # Slices are added: a reduction of complex numbers takes many times as long.
    for axis, size in ((-2, height), (-1, width)):
        total, *slices = torch.split(spectrum, size, axis)
        for part in slices:
            total = total + part

        spectrum = total

    return spectrum / factor**2
