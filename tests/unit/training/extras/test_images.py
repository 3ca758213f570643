"""Augmentations of images: whole pixels, uniformly at random, each image by itself."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import discreet as dp
from discreet.training.data.seeding import SeedUse, seeded
from discreet.training.extras.images import mirrored, shifted


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
def test_shifts_are_windows_of_the_padded_image_and_all_of_them_occur(padding: Any) -> None:
    x = torch.randn(1, 2, 5, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        around = functional.pad(x, (2, 2, 2, 2), mode="constant" if padding == "zeros" else padding)
    windows = {(i, j): around[0, :, i : i + 5, j : j + 7] for i in range(5) for j in range(5)}
    moved = shifted(x.expand(2000, -1, -1, -1), padding=padding)
    seen = [
        where for image in moved for where, window in windows.items() if torch.equal(image, window)
    ]
    assert len(seen) == 2000
    assert set(seen) == set(
        windows
    )  # one of 25 is missing with probability below 25 (24/25)^2000 < 1e-33


def test_mirrored_images_are_both_kinds() -> None:
    x = torch.randn(200, 3, 4, 5)
    turned = mirrored(x)
    same, other = ((turned == y).flatten(1).all(1) for y in (x, x.flip(3)))
    assert bool((same ^ other).all())
    assert 0 < int(same.sum()) < 200  # else with probability 2^-199


@pytest.mark.parametrize("change", [shifted, mirrored])
def test_p11_an_image_does_not_change_with_the_others(change: Callable[[Any], Any]) -> None:
    x = torch.randn(40, 2, 6, 6)
    others = torch.where(torch.arange(40).reshape(-1, 1, 1, 1) % 2 == 0, x, x.flip(0))
    results = []
    for images in (x, others):
        with seeded(1) as begin:
            begin(SeedUse.FETCHING)
            results.append(change(images))
    assert torch.equal(results[0][::2], results[1][::2])


def test_no_shift_changes_nothing_and_types_stay() -> None:
    x = torch.randn(4, 2, 6, 6)
    assert torch.equal(shifted(x, 0), x)
    assert shifted((x * 9).to(torch.uint8), padding="reflect").dtype == torch.uint8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: shifted(torch.zeros(3, 4, 4)),
        lambda: shifted(torch.zeros(1, 1, 4, 2), 2),
        lambda: shifted(torch.zeros(1, 1, 4, 4), -1),
        lambda: shifted(torch.zeros(1, 1, 4, 4), padding="same"),  # type: ignore[arg-type]
        lambda: mirrored([[1.0]]),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_batch_of_images_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        wrong()
