"""The features of the demonstration: a row is a function of its own image alone, bit for bit."""

import numpy as np
import pytest

from discreet.training.extras import demo


@pytest.mark.parametrize("rows", [1, 2, 7, 19])
def test_p15_a_row_does_not_depend_on_how_many_others_there_are(rows: int) -> None:
    images = np.floor(np.random.default_rng(0).random((20, 64)) * 17.0)
    seen = np.random.default_rng(1).random((20, 60))
    assert np.array_equal(demo.features(images[:rows]), demo.features(images)[:rows])
    assert np.array_equal(
        demo._waves(seen[:rows]), demo._waves(seen)[:rows]
    )  # before rounding to float32 hides it
