"""The scattering transform against sums in the plane, and what it must do to images that are moved
or turned.
"""

import math

import pytest
import torch
from torch import Tensor

from discreet.errors import ParameterError
from discreet.training.extras.scattering import Scattering


def image(side: int = 28, seed: int = 0) -> Tensor:
    return torch.rand(1, side, side, generator=torch.Generator().manual_seed(seed))


def by_sums(extended: Tensor, angle: float) -> Tensor:
    """|x * w| for the finest wavelet, by its formula, at every pixel of a plane; eight angles."""
    reach = 12
    steps = torch.arange(-reach, reach + 1).double()
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    along, across = (
        y * math.cos(angle) + x * math.sin(angle),
        x * math.cos(angle) - y * math.sin(angle),
    )
    window = torch.exp(-(along**2 + across**2 / 4.0) / (2.0 * 0.8**2)) / (
        2.0 * math.pi * 0.8**2 * 2.0
    )
    wave = torch.polar(window, 0.75 * math.pi * along)
    wavelet = wave - window * (wave.sum() / window.sum())
    flipped = wavelet.flip(0, 1)[None, None]
    parts = [
        torch.nn.functional.conv2d(extended[None, None], part)
        for part in (flipped.real, flipped.imag)
    ]
    return torch.hypot(parts[0], parts[1])[0, 0]


@pytest.mark.parametrize(("channel", "angle"), [(1, 3 * math.pi / 8), (4, 0.0), (8, -math.pi / 2)])
def test_first_order_is_what_the_formula_says(channel: int, angle: float) -> None:
    """In the middle of an image, where its extension does not matter."""
    x = image(60)
    modulus = by_sums(x[0].double(), angle)  # of pixels 12 to 47
    steps = torch.arange(-10, 11).double()
    bell = torch.exp(-(steps**2) / (2.0 * 1.6**2)) / (math.sqrt(2.0 * math.pi) * 1.6)
    around = modulus[28 - 12 - 10 : 28 - 12 + 11, 32 - 12 - 10 : 32 - 12 + 11]
    found = Scattering(60, 60)(x)[0, channel, 7, 8]
    assert float(found) == pytest.approx(float(bell @ around @ bell), rel=1e-3)


def test_wavelets_see_nothing_in_a_constant_and_the_window_everything() -> None:
    features = Scattering(28, 28)(torch.full((1, 28, 28), 0.7))[0]
    assert features.shape == (81, 7, 7)
    torch.testing.assert_close(features[0], torch.full((7, 7), 0.7), atol=1e-3, rtol=0.0)
    assert float(features[1:].abs().max()) < 1e-3


def test_a_quarter_turn_permutes_places_and_angles() -> None:
    x = torch.zeros(1, 33, 33)
    x[0, 9:24, 9:24] = image(15)[0]
    scattering = Scattering(33, 33)
    one, other = (scattering(some)[0, 1:17].reshape(2, 8, 8, 8) for some in (x, x.rot90(1, (1, 2))))
    middle = slice(1, 7)
    torch.testing.assert_close(other.sum((2, 3)), one.roll(4, 1).sum((2, 3)), rtol=0.02, atol=1e-3)
    assert not torch.allclose(other[:, :, middle, middle], one[:, :, middle, middle], rtol=0.02)


def test_features_move_with_the_image() -> None:
    x = torch.zeros(1, 40, 40)
    x[0, 12:24, 12:24] = image(12)[0]
    scattering = Scattering(40, 40)
    moved = scattering(x.roll((4, 8), (1, 2)))
    torch.testing.assert_close(
        moved[..., 2:, 3:], scattering(x)[..., 1:-1, 1:-2], atol=1e-4, rtol=1e-3
    )


def test_an_image_does_not_depend_on_its_company() -> None:
    images = torch.cat([image(seed=seed) for seed in range(40)])
    scattering = Scattering(28, 28)
    torch.testing.assert_close(scattering(images)[33], scattering(images[33]), rtol=1e-5, atol=1e-6)


def test_second_order_has_pairs_of_growing_scale() -> None:
    assert Scattering(32, 32, scales=3, angles=4)(torch.rand(2, 5, 32, 32)).shape == (
        2,
        5,
        1 + 12 + 3 * 16,
        4,
        4,
    )


def test_it_has_nothing_to_train_and_nothing_to_save() -> None:
    scattering = Scattering(28, 28)
    assert not list(scattering.parameters())
    assert not scattering.state_dict()


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ParameterError, match="28 x 28") as refused:
        Scattering(28, 28)(torch.zeros(77, 32, 32))
    assert "77" not in str(refused.value)  # how many there are is sensitive
    with pytest.raises(ParameterError, match="height"):
        Scattering(4, 28)
