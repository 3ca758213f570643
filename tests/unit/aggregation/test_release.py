"""What leaves the engine is divided by public numbers only."""

import numpy as np
import pytest

import discreet as dp
from discreet.mechanisms import Gaussian, Microbatches
from discreet.sampling import Sampler
from unit.aggregation.test_aggregator import keyed

DATA = np.ones((100, 2))


@pytest.mark.parametrize(("slots", "divisor"), [(None, 50.0), (7, 7.0)])
def test_p29_the_divisor_is_public(slots: int | None, divisor: float) -> None:
    """Samples of other sizes, the same divisor: the expected size, or the number of slots."""
    mechanism = Gaussian(clip_norm=1.0, noise_multiplier=1.0)
    its = dp.Plan(
        sampler=Sampler(dp.Poisson(0.5), records=100, steps=3),
        mechanism=Microbatches(mechanism, slots=slots) if slots else mechanism,
        leaves={"x": 2},
    )
    run, sizes = keyed(its), set()
    for sample in run.samples():
        released = run.release(sample, {"x": DATA[sample.indices]})
        sizes.add(len(sample))
        assert released.divisors == {"x": divisor}
        assert np.array_equal(released.mean("x"), released["x"] / divisor)
    assert len(sizes) > 1
